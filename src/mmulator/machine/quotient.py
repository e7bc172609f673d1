"""The approximate divisions as ptxas writes them: the factors of the multiplication they end in.

`div.full`, `div.approx` and `rcp.approx` of f32 are one reciprocal of the special-function unit and one multiplication. The
unit flushes subnormals, so both factors are scaled by powers of two first; that is exact, and the product is the quotient.
`mmulator.numerics.approx.operations` computes the same. Floating-Point Instructions: div, rcp (PTX ISA 9.1).
"""

from __future__ import annotations

from collections.abc import Callable

from mmulator.isa.scalar import ScalarForm, match
from mmulator.ptx.tree import Immediate, Instruction, Operand, Reg

ONE, QUARTER, UP = 0x3F800000, 0x3E800000, 0x4B800000  # 1, 0.25, 2**24
LARGE, SMALL = 0x7E800000, 0x00800000  # 2**126, 2**-126
Fresh = Callable[[str], Reg]


def is_quotient(form: ScalarForm) -> bool:
    """Does it end in a multiplication?"""
    if form["type"] != "f32" or form["rnd"]:
        return False
    return form.name == "div" or (form.name == "rcp" and not form["ftz"])


def scales(form: ScalarForm) -> tuple[bool, bool]:
    """Is a large divisor scaled down, a subnormal one up?"""
    full = form.name == "rcp" or bool(form["full"])
    return full, not form["ftz"]


def factors(ins: Instruction, fresh: Fresh) -> tuple[list[Instruction], Operand, Operand]:
    """What computes the two factors, and the factors: the numerator, and the reciprocal of the divisor, both scaled."""
    form = ins.form
    assert isinstance(form, ScalarForm)
    code: list[Instruction] = []

    def number(bits: int) -> Immediate:
        return Immediate(bits, "f32", ins.span)

    def emit(type_name: str, opcode: str, *operands: Operand, to: str = "f32") -> Reg:
        result = fresh(to)
        code.append(instruction(ins, opcode, tuple(type_name.split(".")), (result, *operands), None))
        return result

    *numerator, b = ins.operands[1:]
    a: Operand = numerator[0] if numerator else number(ONE)
    down, up = scales(form)
    if down or up:
        magnitude = emit("f32", "abs", b)
        outside = {
            factor: emit(f"{comparison}.f32", "setp", magnitude, number(limit), to="pred")
            for wanted, comparison, limit, factor in ((up, "lt", SMALL, UP), (down, "gt", LARGE, QUARTER))
            if wanted
        }
    if up:
        scale: Operand = number(ONE)
        for factor, where in outside.items():
            scale = emit("f32", "selp", number(factor), scale, where)
        b = emit("rn.f32", "mul", b, scale)
        a = emit("rn.f32", "mul", a, scale) if numerator else scale
    elif down:  # .ftz: what is not scaled is not flushed here but where it is read
        large = outside[QUARTER]
        a, b = (emit("f32", "selp", emit("rn.ftz.f32", "mul", x, number(QUARTER)), x, large) for x in (a, b))
    elif isinstance(a, Reg):
        a = emit("f32", "mov", a)
    return code, a, emit("approx.ftz.f32", "rcp", b)


def instruction(
    like: Instruction, opcode: str, modifiers: tuple[str, ...], operands: tuple[Operand, ...],
    guard: tuple[Reg, bool] | None,
) -> Instruction:  # fmt: skip
    """An instruction that stands for a part of another."""
    form = match(opcode, modifiers)
    assert isinstance(form, ScalarForm), form
    return Instruction(opcode, modifiers, form, operands, guard, like.span, like.mnemonic_span)
