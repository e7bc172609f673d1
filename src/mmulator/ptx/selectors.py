"""Operands of video instructions: registers with selectors, `r.b0`, `r.h10`, and negated registers (PTX ISA 9.1)."""

import re
from collections.abc import Callable

from mmulator.isa.row import OperandSpec
from mmulator.isa.video import SELECTORS, masks
from mmulator.ptx.operands import CHECKS as BASIC
from mmulator.ptx.operands import OperandContext, OperandProblem, Problems
from mmulator.ptx.tree import Operand, Reg

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


CHECKS = {
    "vsrc": _scalar(False), "vsrc-": _scalar(True), "vneg": _plain, "vmerge": _merge,
    "vmask2": _mask("2"), "vmask4": _mask("4"), "vsrc2": _elements("2"), "vsrc4": _elements("4"),
}  # fmt: skip
VIDEO = frozenset(("vsrc", "vsrc-", "vneg", "vmerge", "vmask2", "vmask4", "vsrc2", "vsrc4"))
"""Kinds of operands whose registers may have a selector or a sign."""
