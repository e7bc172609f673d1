"""The approximate divisions as ptxas writes them: the factors of the multiplication they end in.

`div.full`, `div.approx` and `rcp.approx` of f32 are one reciprocal of the special-function unit and one multiplication. The
unit flushes subnormals, so both factors are scaled by powers of two first; that is exact, and the product is the quotient.
`tests/support/sfu_instructions.py` computes the same. Floating-Point Instructions: div, rcp (PTX ISA 9.1).
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cache

from mmulator.base.errors import must_be
from mmulator.isa.effects import LANEWISE, Algebra
from mmulator.isa.form import Form
from mmulator.isa.match import match, row_of
from mmulator.isa.row import Row
from mmulator.ptx.tree import Immediate, Instruction, Operand, Reg

ONE = 0x3F800000
Fresh = Callable[[str], Reg]
# What PTX has no instruction for (compiler/lowering/quotient.py), and the instruction that each is like.
_LIKE = {"scale": ("abs", ("f32",)), "times": ("mul", ("f32",)), "sum": ("fma", ("rn", "f32"))}


def _row(part: str) -> Row:
    return replace(must_be(row_of(*_LIKE[part]), Row), name=f"quotient.{part}")


ROWS = tuple(map(_row, _LIKE))


def is_quotient(form: Form) -> bool:
    """Whether a form is a division that ends in a multiplication."""
    if form["type"] != "f32" or form["rnd"]:
        return False
    algebra = form.effects.algebra
    return algebra is Algebra.QUOTIENT or (algebra is Algebra.RECIPROCAL and not form["ftz"])


def scales(form: Form) -> tuple[bool, bool]:
    """(whether a large divisor is scaled down, whether a subnormal divisor is scaled up)."""
    full = form.effects.algebra is Algebra.RECIPROCAL or bool(form["full"])
    return full, not form["ftz"]


def factors(ins: Instruction, fresh: Fresh) -> tuple[list[Instruction], Operand, Operand]:
    """(code, numerator, reciprocal of the divisor): the two factors of the final multiplication, both scaled, and the code that
    computes them.
    """
    form = ins.form
    code: list[Instruction] = []

    def emit(form: Form, *operands: Operand) -> Reg:
        result = fresh("f32")
        modifiers = tuple(m for _, m in form.modifiers)
        code.append(_made(ins, form.opcode, modifiers, form, (result, *operands), None))
        return result

    *numerator, b = ins.operands[1:]
    a: Operand = numerator[0] if numerator else one(ins)
    down, up = scales(form)
    if down or up:
        scale = emit(_internal("scale", form), b)
        b = emit(_internal("times", form), b, scale)
        a = emit(_internal("times", form), a, scale) if numerator else scale
    elif isinstance(a, Reg):
        a = emit(_matched("mov", ("f32",)), a)
    return code, a, emit(_matched("rcp", ("approx", "ftz", "f32")), b)


def quotient_sum(division: Instruction, like: Instruction, operands: tuple[Operand, ...]) -> Instruction:
    """d = a / b + c with one rounding, in place of the sum `like`: what the factors and `fma` would compute."""
    form = _internal("sum", division.form)
    if like.form["sat"]:
        form = replace(form, modifiers=(("sat", "sat"), *form.modifiers))
    return _made(like, division.opcode, division.modifiers, form, operands, like.guard)


def one(like: Instruction) -> Immediate:
    return Immediate(ONE, "f32", like.span)


def _matched(opcode: str, modifiers: tuple[str, ...]) -> Form:
    return must_be(match(opcode, modifiers), Form)


@cache
def _internal(part: str, division: Form) -> Form:
    """The form of an internal instruction: the scale of a divisor, a factor times the scale, or the whole division."""
    like = _matched(*_LIKE[part])
    down, up = scales(division)
    flags = [name for name, there in (("down", down), ("up", up), ("ftz", division["ftz"])) if there]
    effects = LANEWISE.but(approximate=part == "sum")
    row = replace(like.row, name=f"quotient.{part}", effects=effects)
    return Form(row, (*((f, f) for f in flags), ("type", "f32")))


def instruction(
    like: Instruction, opcode: str, modifiers: tuple[str, ...], operands: tuple[Operand, ...],
    guard: tuple[Reg, bool] | None,
) -> Instruction:  # fmt: skip
    """A new instruction that replaces a part of another one.

    like: the instruction that is replaced; gives span and original.
    opcode, modifiers: its name.
    operands: its operands.
    guard: its guard, or None.
    """
    return _made(like, opcode, modifiers, _matched(opcode, modifiers), operands, guard)


def _made(
    like: Instruction, opcode: str, modifiers: tuple[str, ...], form: Form, operands: tuple[Operand, ...],
    guard: tuple[Reg, bool] | None,
) -> Instruction:  # fmt: skip
    return Instruction(opcode, modifiers, form, operands, guard, like.span, like.mnemonic_span, like.original)
