"""Checks of an instruction's operands: their number, and each operand by its kind; of a call against its callee's prototype; of
selectors in video instructions. Instruction Operands; Control Flow Instructions: call (PTX ISA 9.1).
"""

import re
from collections.abc import Callable, Iterator

from mmulator.isa.form import Form
from mmulator.isa.row import OperandSpec
from mmulator.isa.types import type_bits
from mmulator.isa.video import SELECTORS, masks
from mmulator.ptx import fragments, operands
from mmulator.ptx.fits import fits, type_class
from mmulator.ptx.operands import NO_CONSTANT, OperandContext, OperandProblem, Problems, describe
from mmulator.ptx.tree import Address, ArgumentList, Immediate, LabelRef, Operand, Parameter, Reg, Sink, Symbol

BASIC = operands.CHECKS
_REGISTERS = frozenset(("dst", "src", "reg", "move"))  # kinds whose check of a register is `fits`
_PREDICATES = frozenset(("pred", "dstpred"))  # whose check is that it is a predicate
_CONSTANTS = frozenset(("src", "imm", "move"))
_ADDRESSES = frozenset(("b64", "u64", "s64"))


def are_plain(form: Form, given: tuple[Operand, ...]) -> bool:
    """Whether it takes one look to see that the operands have no problem, as nearly all do: a form with one signature, which has
    nothing optional, and registers, integers, labels and addresses in registers where these are taken.
    """
    signatures = form.signatures
    if len(signatures) > 1 or len(given) != len(signatures[0]) or form.opcode == "cvta":
        return False
    return all(map(_is_plain, given, signatures[0]))


def _is_plain(operand: Operand, spec: OperandSpec) -> bool:
    kind = spec.kind
    if spec.optional:
        return False
    match operand:
        case Reg():
            if operand.component or operand.negated:
                return False
            if kind in _PREDICATES:
                return operand.type == "pred"
            return kind in _REGISTERS and spec.count == 1 and not spec.types and fits(operand.type, spec.type, spec.wider)
        case Address(base=Reg() as base):
            return kind == "addr" and base.type in _ADDRESSES and not operand.extra and spec.space != "tensor"
        case Immediate(literal="int"):
            taken = kind in _CONSTANTS and spec.count == 1 and spec.type not in NO_CONSTANT
            anything = not spec.values and spec.lo is spec.hi is None and not spec.later
            return taken and anything and type_class(spec.type) not in ("f32", "f64")
    return kind == "label" and isinstance(operand, LabelRef)


def check_operands(context: OperandContext) -> Iterator[OperandProblem]:
    """Problems of the operands, against the signature of the form that resembles them most."""
    form, given = context.form, context.instruction.operands
    if form.name == "call":
        yield from check_call(context)
        return
    number = len(given)
    fitting = [i for i, (least, most) in enumerate(form.counts) if least <= number <= most]
    if not fitting:
        yield _number(context)
        return
    if form.opcode == "cvta" and form["type"] == "u32" and context.module.address_size == 64:
        yield OperandProblem("addresses have 64 bits in this module", context.instruction.mnemonic_span, "write .u64")
    chosen = max(fitting, key=lambda i: fragments.likeness(given, form.signatures[i])) if len(fitting) > 1 else fitting[0]
    spare = number - form.counts[chosen][0]
    rest = iter(given)
    for spec in form.signatures[chosen]:
        if spec.optional:
            if not spare:
                continue
            spare -= 1
            yield from _since(spec, context)
        yield from _CHECKS[spec.kind](next(rest), spec, context)


def _number(context: OperandContext) -> OperandProblem:
    form = context.form
    least, most = min(least for least, _ in form.counts), max(most for _, most in form.counts)
    names = ", ".join(f"{{{o.name}}}" if o.optional else o.name for o in form.signatures[-1]) or "none"
    return OperandProblem(
        f"{form.name} takes {least}{'' if least == most else f' to {most}'} operands; "
        f"there are {len(context.instruction.operands)}",
        context.instruction.span, f"the operands are {names}",
    )  # fmt: skip


def _since(spec: OperandSpec, context: OperandContext) -> Iterator[OperandProblem]:
    """The problem of an operand that this PTX version or this target does not have."""
    module, since, ptx = context.module, spec.since, spec.since.ptx
    if module.version < ptx or not since.admits(module.target):
        yield OperandProblem(
            f"operand {spec.name} of {context.form} needs PTX {ptx[0]}.{ptx[1]} and .target {since.describe_targets()}; this "
            f"module says {module.version[0]}.{module.version[1]} and {module.target}", context.instruction.span, "leave it out",
        )  # fmt: skip


# calls ---------------------------------------------------------------------------------------------------------------
def _prototype(context: OperandContext) -> tuple[tuple[Parameter, ...], tuple[Parameter, ...]] | OperandProblem:
    """(returns, parameters) of the callee, or an OperandProblem if it has no prototype."""
    callee = context.instruction.operands[1]
    if isinstance(callee, Symbol) and callee.space == "func":
        function = context.module.function(callee.name)
        if function is None:
            return OperandProblem(f"{callee.name} is not declared", callee.span)
        if function.is_entry and context.module.target.number < 35:
            return OperandProblem(f"{callee.name} is a kernel: call takes a .func", callee.span)
        return function.returns, function.params
    if isinstance(callee, Symbol) and not callee.space:
        return OperandProblem(f"the function {callee.name} is not declared", callee.span, "declare it with .extern .func")
    if isinstance(callee, Reg):
        if len(context.instruction.operands) < 4:
            return OperandProblem("an indirect call needs a prototype", callee.span, "name a .callprototype as last operand")
        name = context.instruction.operands[3]
        if not isinstance(name, Symbol) or name.space != "prototype":
            return OperandProblem("the last operand of an indirect call names a .callprototype", name.span)
        prototype = context.function.prototypes.get(name.name)
        if prototype is not None:
            return prototype.returns, prototype.params
        targets = context.function.targets[name.name].targets
        function = context.module.function(targets[0].name) if targets else None
        if function is None:
            return OperandProblem(f"{name.name} names no function", name.span)
        return function.returns, function.params
    return OperandProblem(f"call takes the name of a function, or a register, not {describe(callee)}", callee.span)


def check_call(context: OperandContext) -> Iterator[OperandProblem]:
    """Problems of a call: the callee must exist, and results and arguments must agree with its prototype in number and size."""
    found = _prototype(context)
    if isinstance(found, OperandProblem):
        yield found
        return
    returns, params = found
    results, _, arguments = context.instruction.operands[:3]
    for written, wanted, what in ((results, returns, "results"), (arguments, params, "arguments")):
        if not isinstance(written, ArgumentList):
            yield OperandProblem(f"the {what} of call stand in parentheses", written.span)
            continue
        variadic = bool(wanted) and wanted[-1].shape[:1] == (0,)
        if len(written.elements) != len(wanted) and not variadic:
            yield OperandProblem(
                f"{len(written.elements)} {what}; the prototype has {len(wanted)}",
                written.span if written.elements else context.instruction.span,
            )
            continue
        for element, parameter in zip(written.elements, wanted):
            yield from _argument(element, parameter, context)


def _argument(element: Operand, parameter: Parameter, context: OperandContext) -> Iterator[OperandProblem]:
    if isinstance(element, Reg):
        size = type_bits(element.type) // 8
    elif isinstance(element, Symbol) and element.space == "param":
        variable = context.function.variable(element.name)
        own = (*context.function.params, *context.function.returns)
        declared = variable or next((p for p in own if p.name == element.name), None)
        size = declared.size if declared else parameter.size
    elif isinstance(element, Immediate | Sink):
        return
    elif isinstance(element, Symbol) and not element.space:
        yield OperandProblem(f"{element.name} is not declared", element.span)
        return
    else:
        yield OperandProblem(f"an argument is a .param variable, a register or a constant, not {describe(element)}", element.span)
        return
    if size != parameter.size and parameter.type != "pred" and parameter.shape[:1] != (0,):
        yield OperandProblem(f"{element.span.text} has {size} bytes; the prototype has {parameter.size}", element.span)


# video instructions --------------------------------------------------------------------------------------------------
_MASKS = {"2": masks("h", 2), "4": masks("b", 4)}
_ELEMENTS = {"2": re.compile("h[0-3]{2}"), "4": re.compile("b[0-7]{4}")}
_EXAMPLES = {"2": ".h10", "4": ".b3210"}


def _fits(operand: Operand, spec: OperandSpec, allowed: bool, hint: str) -> Problems:
    if isinstance(operand, Reg) and operand.component and not allowed:
        yield OperandProblem(f"operand {spec.name} cannot select .{operand.component}", operand.span, hint)


def _negated(operand: Operand, spec: OperandSpec) -> Problems:
    if isinstance(operand, Reg) and operand.negated:
        yield OperandProblem(f"operand {spec.name} cannot be negated", operand.span, "vmad without .po takes -a, -b or -c")


def _scalar(signs: bool) -> Callable[[Operand, OperandSpec, OperandContext], Problems]:
    def check(operand: Operand, spec: OperandSpec, context: OperandContext) -> Problems:
        yield from BASIC["src"](operand, spec, context)
        component = operand.component if isinstance(operand, Reg) else ""
        yield from _fits(operand, spec, component in SELECTORS, "a byte .b0 to .b3, or a half .h0 or .h1")
        if not signs:
            yield from _negated(operand, spec)

    return check


def _merge(operand: Operand, spec: OperandSpec, context: OperandContext) -> Problems:
    yield from BASIC["dst"](operand, spec, context)
    yield from _negated(operand, spec)
    if isinstance(operand, Reg) and operand.component:
        yield from _fits(operand, spec, operand.component in SELECTORS, "a byte .b0 to .b3, or a half .h0 or .h1")
        if len(context.instruction.operands) < len(context.form.operands):
            yield OperandProblem(f"a result in .{operand.component} needs operand c for the other bits", operand.span)


def _plain(operand: Operand, spec: OperandSpec, context: OperandContext) -> Problems:
    """Problems of c of vmad, which may be negated unless a or b is."""
    yield from BASIC["src"](operand, spec, context)
    yield from _fits(operand, spec, False, "the whole register is read")
    a, b = (isinstance(o, Reg) and o.negated for o in context.instruction.operands[1:3])
    if isinstance(operand, Reg) and operand.negated and (a or b):
        yield OperandProblem("either the product or c can be negated", operand.span)


def _mask(n: str) -> Callable[[Operand, OperandSpec, OperandContext], Problems]:
    def check(operand: Operand, spec: OperandSpec, context: OperandContext) -> Problems:
        yield from BASIC["dst"](operand, spec, context)
        yield from _negated(operand, spec)
        component = operand.component if isinstance(operand, Reg) else ""
        yield from _fits(operand, spec, component in _MASKS[n], "one of " + ", ".join(f".{m}" for m in _MASKS[n]))

    return check


def _elements(n: str) -> Callable[[Operand, OperandSpec, OperandContext], Problems]:
    def check(operand: Operand, spec: OperandSpec, context: OperandContext) -> Problems:
        yield from BASIC["reg"](operand, spec, context)
        yield from _negated(operand, spec)
        component = operand.component if isinstance(operand, Reg) else ""
        yield from _fits(
            operand, spec, bool(_ELEMENTS[n].fullmatch(component)),
            f"{n} digits, each an element of a and b together, such as {_EXAMPLES[n]}",
        )  # fmt: skip

    return check


_VIDEO = {
    "vsrc": _scalar(False), "vsrc-": _scalar(True), "vneg": _plain, "vmerge": _merge,
    "vmask2": _mask("2"), "vmask4": _mask("4"), "vsrc2": _elements("2"), "vsrc4": _elements("4"),
}  # fmt: skip
VIDEO = frozenset(_VIDEO)
"""Kinds of operands whose registers may have a selector or a sign."""
_CHECKS = {**BASIC, **_VIDEO, **fragments.CHECKS}
