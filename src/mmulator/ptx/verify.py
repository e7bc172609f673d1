"""Verification of a module: every instruction must exist for this .target and .version, and its operands must fit.

The parser has already rejected text that cannot be read; here as much as possible is checked before the first error is raised.
Verdicts follow ptxas where the specification is silent. Known differences, where ptxas accepts more: a modifier written twice
(`sin.approx.approx.f32`), a `.f16x2` register as an integer or a predicate, a few orders of modifiers that no compiler writes,
cvta.u32 in modules whose addresses have 64 bits, cvt.satfinite.f16.f32 on sm_75 and cvt.ftz.bf16.f32 on sm_80, and the unsigned
comparisons (.lo, .hs) of vset.
"""

from collections.abc import Iterator

from mmulator.base.codegen.locks import remaining
from mmulator.base.errors import InvalidInstructionError
from mmulator.base.source import Span
from mmulator.isa.effects import Ends, MemoryEffect, Queue
from mmulator.isa.form import Form
from mmulator.isa.match import unavailable
from mmulator.isa.targets import TARGETS
from mmulator.ptx.check import VIDEO, are_plain, check_operands
from mmulator.ptx.directives import check_directives
from mmulator.ptx.operands import OperandContext, OperandProblem
from mmulator.ptx.resources import parameter_offsets
from mmulator.ptx.tree import Function, Immediate, Instruction, ParsedModule, Reg, Symbol, flatten

MAX_ERRORS = 100


def verify(module: ParsedModule) -> tuple[InvalidInstructionError, ...]:
    """Errors of a module, in the order of the text; at most MAX_ERRORS."""
    found: list[InvalidInstructionError] = []
    for error in _errors(module):
        found.append(error)
        if len(found) >= MAX_ERRORS:
            break
    return tuple(found)


def _errors(module: ParsedModule) -> Iterator[InvalidInstructionError]:
    yield from _module(module)
    yield from _initialisers(module)
    yield from _types(module)
    for function in module.functions:
        yield from _function(module, function)


def _module(module: ParsedModule) -> Iterator[InvalidInstructionError]:
    needed = TARGETS[module.target]
    if module.version < needed:
        source = module.source
        start = max(0, source.text.find(".version"))
        yield InvalidInstructionError(
            f".target {module.target} needs PTX {needed[0]}.{needed[1]}; this module says {_version(module.version)}",
            span=Span(source, start, start + len(".version")), rule="PTX Module Directives: .target (PTX ISA 9.1)",
            hint=f"write .version {_version(needed)}",
        )  # fmt: skip


def _initialisers(module: ParsedModule) -> Iterator[InvalidInstructionError]:
    """Errors of the addresses in initialisers of variables."""
    owners: tuple[ParsedModule | Function, ...] = (module, *module.functions)
    for owner in owners:
        for variable in owner.variables:
            for reference in variable.symbols:
                name = reference.symbol
                if owner.variable(name) is None and module.variable(name) is None and module.function(name) is None:
                    yield InvalidInstructionError(
                        f"{name} is not declared", span=reference.span, rule="Initializers (PTX ISA 9.1)"
                    )


_WIDE = (8, 3)  # the first version with .b128


def _types(module: ParsedModule) -> Iterator[InvalidInstructionError]:
    """The error of declarations of a type that the module's version does not have."""
    if module.version >= _WIDE:
        return
    types = {v.type for v in module.variables}
    for f in module.functions:
        types.update(f.registers.values(), (v.type for v in f.variables), (p.type for p in f.params))
    if "b128" in types:
        at = module.source.text.find(".b128")
        yield InvalidInstructionError(
            f".b128 needs PTX {_version(_WIDE)}; this module says {_version(module.version)}",
            span=Span(module.source, at, at + len(".b128")), rule="Fundamental Types (PTX ISA 9.1)",
            hint=f"write .version {_version(_WIDE)}",
        )  # fmt: skip


def _parameters(module: ParsedModule, function: Function) -> Iterator[InvalidInstructionError]:
    """The error of a kernel whose parameter space is too large."""
    if not function.is_entry or not function.params:
        return
    large = module.version >= (8, 1) and module.target.number >= 70
    limit = 32764 if large else 4352
    end = parameter_offsets(function.params)[-1] + function.params[-1].size
    if end > limit:
        yield InvalidInstructionError(
            f"the parameters of {function.name} take {end} bytes; at most {limit} are allowed", span=function.span,
            rule="Kernel Function Parameters (PTX ISA 9.1)",
            hint=None if large else "PTX 8.1 and sm_70 allow 32764",
        )  # fmt: skip


def _version(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


def _function(module: ParsedModule, function: Function) -> Iterator[InvalidInstructionError]:
    yield from _parameters(module, function)
    yield from check_directives(module, function)
    yield from check_pairs(module, function)
    available: set[Form] = set()
    for instruction in function.instructions:
        remaining()
        if instruction.guard is not None and instruction.guard[0].type != "pred":
            register = instruction.guard[0]
            yield InvalidInstructionError(
                f"the guard {register.name} is a .{register.type} register", span=register.span,
                rule="Predicated Execution (PTX ISA 9.1)", hint="a guard is a .pred register",
            )  # fmt: skip
        if not (_is_there(instruction, module, available) and are_plain(instruction.form, instruction.operands)):
            yield from check_instruction(module, function, instruction)


def _is_there(instruction: Instruction, module: ParsedModule, available: set[Form]) -> bool:
    """Whether the module's target and version have an instruction, whatever its modifiers. available: forms that they are known
    to have.
    """
    form = instruction.found
    if form in available:
        return True
    if not isinstance(form, Form) or form.row.implied_once is not None:
        return False
    found = unavailable(form, instruction.modifiers, module.target, module.version) is None
    if found:
        available.add(form)
    return found


def check_instruction(module: ParsedModule, function: Function, instruction: Instruction) -> Iterator[InvalidInstructionError]:
    """Errors of one instruction: its name, its target and version, or otherwise its operands."""
    form = instruction.found
    if isinstance(form, Form):
        wrong = unavailable(form, instruction.modifiers, module.target, module.version)
    else:
        wrong = form
    if wrong is not None:
        yield wrong.error(instruction.mnemonic_span)
    elif isinstance(form, Form) and not form.open:
        problems = check_operands(OperandContext(module, function, instruction, form))
        for problem in (*problems, *_selected(instruction, form), *_twice(instruction)):
            yield InvalidInstructionError(problem.message, span=problem.span, rule=str(form.section), hint=problem.hint)


def _selected(instruction: Instruction, form: Form) -> list[OperandProblem]:
    """Problems of selectors and signs at registers where no operand accepts them. Where an operand accepts some, its own check
    reports.
    """
    problems: list[OperandProblem] = []
    for n, operand in enumerate(instruction.operands):
        if isinstance(operand, Immediate) or (isinstance(operand, Reg) and not operand.component and not operand.negated):
            continue  # nearly all of them
        if n < len(form.operands) and form.operands[n].kind in VIDEO:
            continue
        for part in flatten((operand,)):
            if isinstance(part, Reg) and (part.component or part.negated):
                what = f"selects .{part.component} of a register" if part.component else "negates a register"
                problems.append(OperandProblem(f"{instruction.opcode} cannot take an operand that {what}", part.span))
    return problems


def _twice(instruction: Instruction) -> Iterator[OperandProblem]:
    """The problem of a load from tensor memory with a register twice in its vector, for which ptxas 13.5 gives up."""
    if instruction.effects.queue is Queue.TENSOR_MOVES and instruction.effects.memory is MemoryEffect.READ:
        registers = [o for o in flatten(instruction.operands[:1]) if isinstance(o, Reg)]
        names = [r.name for r in registers]
        if again := next((r for n, r in enumerate(registers) if r.name in names[:n]), None):
            yield OperandProblem(f"{again.name} is there twice", again.span, "each result needs a register of its own")


_RULE = "TensorCore 5th Generation Family Instructions: CTA pair (PTX ISA 9.1)"


def check_pairs(module: ParsedModule, kernel: Function) -> Iterator[InvalidInstructionError]:
    """The error of a kernel whose tcgen05 instructions differ in .cta_group. As in ptxas those of functions that it calls count,
    those that no thread reaches as well, and those of tensor copies do not.
    """
    if not module.target.suffix or not kernel.is_entry:
        return
    first: Instruction | None = None
    functions, seen = [kernel], {kernel.name}
    for function in functions:
        for ins in function.instructions:
            if ins.opcode == "tcgen05" and _group(ins):
                first = first or ins
                if _group(ins) != _group(first):
                    yield InvalidInstructionError(
                        f"`.{_group(ins)}` in a kernel that has `.{_group(first)}` in line {first.span.line}: all tcgen05 "
                        f"instructions of {kernel.name}, and of functions that it calls, must have one .cta_group",
                        span=ins.mnemonic_span, rule=_RULE,
                    )  # fmt: skip
                    return
            elif ins.effects.ends is Ends.CALL:
                named = (module.function(o.name) for o in ins.operands if isinstance(o, Symbol) and o.space == "func")
                for called in named:
                    if called is not None and called.name not in seen:
                        seen.add(called.name)
                        functions.append(called)


def _group(ins: Instruction) -> str:
    return next((m for m in ins.modifiers if m.startswith("cta_group::")), "")
