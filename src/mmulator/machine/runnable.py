"""What of a module the machine cannot run, and why: the only place that decides it.

`mmulator check` lists it, a launch raises the first of it that its kernel reaches, before anything is compiled.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from mmulator.errors import UnsupportedError
from mmulator.isa.form import Form
from mmulator.isa.forms import MatrixForm
from mmulator.isa.targets import DEVICES, Target
from mmulator.layouts.sparse.metadata import selectors
from mmulator.machine.compile.special import SPECIAL_REGISTERS
from mmulator.machine.launch.limits import default_device
from mmulator.machine.meaning import LOWER, load_all
from mmulator.machine.meaning.vocabulary import SEMANTICS
from mmulator.numerics.profiles import dot_key, profile_for
from mmulator.program.blocks import BUILTINS
from mmulator.ptx.tree import Function, Immediate, Instruction, Module, SpecialRegister, Symbol, VectorOperand, flatten
from mmulator.source import Span

_CONTROL = frozenset(("bra", "brx", "call", "ret", "exit", "trap", "bar", "barrier"))
CLUSTERS = "thread block clusters: later release"
_CLUSTER_DIRECTIVES = ("reqnctapercluster", "explicitcluster", "blocksareclusters")


@dataclass(frozen=True)
class Unsupported:
    """Something legal that the machine does not run. name: as in the tables, `cp.async.bulk`. text: what a launch says."""

    name: str
    reason: str
    section: str
    span: Span
    hint: str | None = None

    @property
    def error(self) -> UnsupportedError:
        rule = f"{self.section} (PTX ISA 9.1)" if self.section and "PTX ISA" not in self.section else self.section or None
        return UnsupportedError(f"{self.name} cannot be run: {self.reason}", span=self.span, rule=rule, hint=self.hint)


def unsupported(module: Module) -> tuple[Unsupported, ...]:
    """All of a module that would raise UnsupportedError at a launch, in order."""
    return (*_target(module), *_of(module, module.functions))


def require_supported(module: Module, functions: Iterable[Function]) -> None:
    """Raises UnsupportedError for the first thing in these functions that cannot be run."""
    for item in _of(module, functions):
        raise item.error


def _target(module: Module) -> Iterator[Unsupported]:
    """Code for a chip that is not modelled, and that no other one runs; a launch finds out when it looks at its device."""
    if any(module.target.runs_on(device) for device in DEVICES):
        return
    source = module.source
    start = max(source.text.find(".target"), 0)
    yield Unsupported(
        f".target {module.target}", "no device that runs it is modelled", "PTX Module Directives: .target",
        Span(source, start, start + len(".target")), "compile for an older target",
    )  # fmt: skip


def _of(module: Module, functions: Iterable[Function]) -> Iterator[Unsupported]:
    load_all()
    for function in functions:
        yield from _directives(function)
        for ins in function.instructions:
            yield from reasons(ins, module)


def _directives(function: Function) -> Iterator[Unsupported]:
    """Of clusters, but for clusters of one block, which are blocks. (.maxclusterrank is a bound: without a cluster it holds.)"""
    found = function.directives
    if all(n == 1 for n in found.get("reqnctapercluster", (0,))):
        return
    for name in _CLUSTER_DIRECTIVES:
        if name in found:
            yield Unsupported(
                f".{name}", CLUSTERS, f"Cluster Dimension Directives: .{name}", function.span,
                "a kernel for clusters of one block, .reqnctapercluster 1, 1, 1, runs",
            )  # fmt: skip


def reasons(ins: Instruction, module: Module) -> Iterator[Unsupported]:
    """Everything in an instruction that cannot be run."""
    form = ins.form
    if isinstance(form, Form):
        if not form.status.runs:
            yield Unsupported(form.name, form.status.reason, form.section.title, ins.mnemonic_span)
        elif not has_meaning(form):
            yield Unsupported(form.name, "it has no meaning yet", form.section.title, ins.mnemonic_span)
    elif isinstance(form, MatrixForm):
        yield from _matrix(ins, form, module.target)
    for operand in flatten(ins.operands):
        if isinstance(operand, SpecialRegister) and not _has_special(operand.name):
            yield Unsupported(
                f"%{operand.name}", "special register that is not modelled", f"Special Registers: %{operand.name}",
                operand.span,
            )  # fmt: skip
        elif isinstance(operand, Symbol):
            yield from _symbol(ins, operand, module)


def has_meaning(form: Form) -> bool:
    """Is there a function that says what the instruction does?"""
    load_all()
    return form.opcode in _CONTROL or bool({form.name, form.opcode} & (LOWER.keys() | SEMANTICS.keys()))


def _symbol(ins: Instruction, operand: Symbol, module: Module) -> Iterator[Unsupported]:
    name = operand.name
    if ins.opcode == "call" and operand.space == "func":
        callee = module.function(name)
        if name not in BUILTINS and (callee is None or not callee.is_defined):
            yield Unsupported(
                f"call {name}", "not defined in this module, and not printf or assert", _section(ins), operand.span,
                "link the modules into one first",
            )  # fmt: skip
    elif operand.space in ("global", "const"):
        variable = module.variable(name)
        if variable is not None and variable.linkage == "extern":
            yield Unsupported(
                name, "declared here but defined elsewhere", _section(ins), operand.span, "link the modules into one first"
            )


def _section(ins: Instruction) -> str:
    return str(getattr(ins.form, "section", ""))


def _matrix(ins: Instruction, form: MatrixForm, target: Target) -> Iterator[Unsupported]:
    """What ptxas takes of matrix instructions though it has no meaning, and chips whose arithmetic nobody knows."""
    section = str(form.section)
    specs = next((s for s in form.signatures if len(s) == len(ins.operands)), ())
    for operand, spec in zip(ins.operands, specs):
        for part in operand.elements if isinstance(operand, VectorOperand) else (operand,):
            constant = isinstance(part, Immediate) and spec.kind in ("registers", "register")
            if constant and (part.literal == "f64") != ("f64" in spec.types):  # type: ignore[union-attr]
                yield Unsupported(
                    str(form),
                    f"{part.span.text} as operand {spec.name} of {form.family} passes in ptxas, but has no meaning in the "
                    "specification", section, part.span, f"put the value in a .{spec.type} register",
                )  # fmt: skip
    if form.family == "mma" and form.sparse:
        selector = ins.operands[5]
        if isinstance(selector, Immediate) and selector.value not in (allowed := selectors(form)):
            yield Unsupported(
                str(form), f"sparsity selector {selector.value} passes in ptxas, but a chip stops at it: it must be 0 to "
                f"{allowed[-1]}", section, selector.span, "the selector says which lanes of each group of four hold the metadata",
            )  # fmt: skip
    if form.op in ("mma", "mma_async"):
        try:
            profile_for(dot_key(form), default_device(target))
        except UnsupportedError as error:
            yield Unsupported(str(form), error.message, section, ins.mnemonic_span, error.hint)


def _has_special(name: str) -> bool:
    return name in SPECIAL_REGISTERS or f"{name}.x" in SPECIAL_REGISTERS
