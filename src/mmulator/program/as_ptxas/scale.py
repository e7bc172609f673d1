"""Two products in a row, the second by 2, 4, 8 or their inverses: one instruction of the machine, rounded once.

The result differs from two products where the inner one would overflow or be subnormal. docs/contraction.md.
"""

from collections.abc import Callable, Mapping

from mmulator.isa.effects import Algebra
from mmulator.numerics.sfu.arithmetic import f32_bits
from mmulator.program.as_ptxas.products import form_of
from mmulator.program.as_ptxas.quotient import instruction
from mmulator.ptx.tree import Immediate, Instruction, Operand, Reg

POWERS: Mapping[int, float] = {f32_bits(x): x for x in (2.0, 4.0, 8.0, 0.5, 0.25, 0.125)}


def may_scale(ins: Instruction) -> bool:
    """Whether an instruction can be the second of two products, the one by a power of two."""
    form = form_of(ins, Algebra.PRODUCT)
    return form is not None and form["type"] == "f32" and form["rnd"] in ("", "rn")


def scaled(ins: Instruction, a: Operand, b: Operand, power: int, fresh: Callable[[str], Reg]) -> list[Instruction]:
    """`ins` as a * b * power, rounded once.

    ins: the second product.
    a, b: factors of the first product.
    power: the bits of one of POWERS.
    fresh: makes new registers.

    Scaling the smaller factor up, or the larger one down, is exact unless the product is tiny or huge in any case.
    """
    ftz = ("ftz",) if "ftz" in ins.modifiers else ()
    multiplied = ("rn", *ftz, "f32")
    code: list[Instruction] = []

    def emit(modifiers: tuple[str, ...], opcode: str, *operands: Operand, to: str = "f32") -> Reg:
        result = fresh(to)
        code.append(instruction(ins, opcode, modifiers, (result, *operands), None))
        return result

    magnitudes = [emit(("f32",), "abs", x) for x in (a, b)]
    first = emit(("lt" if POWERS[power] > 1 else "gt", "f32"), "setp", *magnitudes, to="pred")
    factor = emit(("f32",), "selp", a, b, first)
    other = emit(("f32",), "selp", b, a, first)
    factor = emit(multiplied, "mul", factor, Immediate(power, "f32", ins.span))
    final = ("rn", *ftz, *(("sat",) if "sat" in ins.modifiers else ()), "f32")
    return [*code, instruction(ins, "mul", final, (ins.operands[0], factor, other), ins.guard)]
