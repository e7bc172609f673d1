"""The parts of a module that the machine cannot run, and the reasons. No other file decides this.

`mmulator check` lists them; a launch raises the first one that its kernel reaches, before anything is compiled. An instruction
runs if its row says so, and compiler/meaning/ proves that every such row has a function.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from mmulator.base.errors import UnsupportedError
from mmulator.base.source import Span
from mmulator.isa.effects import Ends, Together
from mmulator.isa.fit import NoForm
from mmulator.isa.form import Form
from mmulator.isa.targets import DEVICES, Target, default_device
from mmulator.matrix.numerics.profiles import dot_key, profile_for
from mmulator.ptx.program.uses import signature_of
from mmulator.ptx.tree import Function, Immediate, Instruction, ParsedModule, Symbol, VectorOperand

ASSERT, ASSERT_BYTES = "__assertfail", 48  # and the bytes of its arguments
_DEVICE_RUNTIME = re.compile("__cudaCDP2|cuda(?!CG)[A-Z]")  # functions that kernels call; cudaCG* are of cooperative groups
BUILTINS = ("vprintf", ASSERT)  # functions of CUDA's runtime that can be called


@dataclass(frozen=True)
class Unsupported:
    """A legal part of a module that the machine does not run. name: as in the tables, `cp.async.bulk`. text: the message of a
    launch.
    """

    name: str
    reason: str
    section: str
    span: Span
    hint: str | None = None

    @property
    def error(self) -> UnsupportedError:
        rule = f"{self.section} (PTX ISA 9.1)" if self.section and "PTX ISA" not in self.section else self.section or None
        return UnsupportedError(f"{self.name} cannot be run: {self.reason}", span=self.span, rule=rule, hint=self.hint)


def unsupported(module: ParsedModule) -> tuple[Unsupported, ...]:
    """All parts of a module that raise UnsupportedError at a launch, in order."""
    return (*_target(module), *_of(module, module.functions))


def require_supported(module: ParsedModule, functions: Iterable[Function]) -> None:
    """Raise UnsupportedError for the first part of these functions that cannot be run."""
    for item in _of(module, functions):
        raise item.error


def first_unsupported(module: ParsedModule, function: Function) -> Unsupported | None:
    """The first part of a function that cannot be run, or None."""
    return next(_of(module, (function,)), None)


def _target(module: ParsedModule) -> Iterator[Unsupported]:
    """The .target, if it is for a chip that is not modelled and no modelled chip runs its code; a launch checks its device
    itself.
    """
    if any(module.target.runs_on(device) for device in DEVICES):
        return
    source = module.source
    start = max(source.text.find(".target"), 0)
    yield Unsupported(
        f".target {module.target}", "no device that runs it is modelled", "PTX Module Directives: .target",
        Span(source, start, start + len(".target")), "compile for an older target",
    )  # fmt: skip


def _of(module: ParsedModule, functions: Iterable[Function]) -> Iterator[Unsupported]:
    for function in functions:
        yield from _predicates(function)
        for ins in function.instructions:
            if not _is_plain(ins):
                yield from reasons(ins, function, module)


def _is_plain(ins: Instruction) -> bool:
    """Whether an instruction has no reason: its row runs, it is no matrix instruction, and names nothing."""
    form = ins.found
    runs = isinstance(form, Form) and form.status.runs and not form.is_matrix
    return runs and not any(isinstance(o, Symbol) for o in ins.leaves)


def _predicates(function: Function) -> Iterator[Unsupported]:
    """Parameters and results whose type cannot be in a frame."""
    for parameter in (*function.params, *function.returns) if function.is_defined else ():
        if parameter.type == "pred":
            yield Unsupported(
                parameter.name, "a predicate cannot be passed to a function", "Function Declarations and Definitions: .func",
                parameter.span, "pass a .b32 from selp",
            )  # fmt: skip


def reasons(ins: Instruction, function: Function, module: ParsedModule) -> Iterator[Unsupported]:
    """All reasons why an instruction cannot be run; none for an illegal instruction."""
    if isinstance(ins.found, NoForm):
        return
    form = ins.form
    if not form.status.runs:
        yield Unsupported(form.name, form.status.reason, form.section.title, ins.mnemonic_span)
    elif form.is_matrix:
        yield from _matrix(ins, form, module.target)
    for operand in ins.leaves:
        if isinstance(operand, Symbol):
            yield from _symbol(ins, operand, function, module)


def _symbol(ins: Instruction, operand: Symbol, function: Function, module: ParsedModule) -> Iterator[Unsupported]:
    name = operand.name
    elsewhere = Unsupported(
        name, "declared here but defined elsewhere", _section(ins), operand.span, "link the modules into one first"
    )
    if ins.effects.ends is Ends.CALL and operand.space == "func":
        callee = module.function(name)
        if name not in BUILTINS and (callee is None or not callee.is_defined):
            yield Unsupported(f"call {name}", *_undefined(name, _section(ins), operand.span))
        elif callee is not None and not callee.is_defined:
            yield from _builtin(ins, operand, callee)
    elif ins.effects.ends is Ends.CALL and function.is_entry and name in (p.name for p in function.params):
        yield Unsupported(
            name, "a parameter of the kernel cannot be passed on by its name", _section(ins), operand.span,
            "load it into a register first",
        )  # fmt: skip
    elif operand.space == "func":
        callee = module.function(name)
        if callee is not None and not callee.is_defined:
            yield elsewhere
    elif operand.space in ("global", "const"):
        variable = module.variable(name)
        if variable is not None and variable.linkage == "extern":
            yield elsewhere


def _undefined(name: str, section: str, span: Span) -> tuple[str, str, Span, str]:
    """(reason, section, span, hint) for a call of a function that no text defines."""
    if _DEVICE_RUNTIME.match(name):
        why = "kernels that launch kernels are not modelled, nor are the other functions of CUDA's device runtime (libcudadevrt)"
        return why, section, span, "launch the kernel from the host"
    return "not defined in this module, and not printf or assert", section, span, "link the modules into one first"


# Functions of CUDA's runtime: bytes of results and of arguments, and their declaration.
_SIGNATURES = {
    "vprintf": ((4,), (8, 8), "(.param .b32 count) vprintf (.param .b64 format, .param .b64 arguments)"),
    "__assertfail": ((), (8, 8, 4, 8, 8), "__assertfail (.param .b64 message, .param .b64 file, .param .b32 line, "
                     ".param .b64 function, .param .b64 character_size)"),
}  # fmt: skip


def _builtin(ins: Instruction, operand: Symbol, function: Function) -> Iterator[Unsupported]:
    """A function with the name of one of CUDA's runtime but with a different declaration."""
    results, sizes, declaration = _SIGNATURES[operand.name]
    found = tuple(p.size for p in function.returns), tuple(p.size for p in function.params)
    if found[1] != sizes or found[0] not in ((), results):  # an unused result may be omitted
        yield Unsupported(
            f"call {operand.name}", f"{operand.name} of CUDA's runtime is not what this module declares under that name",
            _section(ins), ins.span, f"declare .extern .func {declaration}",
        )  # fmt: skip


def _section(ins: Instruction) -> str:
    return str(ins.form.section) if ins.form.is_matrix else ins.form.section.title


def _matrix(ins: Instruction, form: Form, target: Target) -> Iterator[Unsupported]:
    """Operands of matrix instructions that ptxas accepts although they have no meaning, and chips whose arithmetic is
    unknown.
    """
    section = str(form.section)
    for operand, spec in zip(ins.operands, signature_of(form, ins.operands)):
        for part in operand.elements if isinstance(operand, VectorOperand) else (operand,):
            if not isinstance(part, Immediate) or spec.kind not in ("registers", "register"):
                continue
            if form.effects.together is Together.WARPGROUP or (part.literal == "f64") != ("f64" in spec.types):
                yield Unsupported(
                    str(form),
                    f"{part.span.text} as operand {spec.name} of {form.family} passes in ptxas, but has no meaning in the "
                    "specification", section, part.span, f"put the value in a .{spec.type} register",
                )  # fmt: skip
    if form.effects.multiplies:
        try:
            profile_for(dot_key(form), default_device(target))
        except UnsupportedError as error:
            yield Unsupported(str(form), error.message, section, ins.mnemonic_span, error.hint)
