"""Which types of registers an operand accepts. These are the rules of ptxas, which accepts more than the table in Type Checking
Rules and Operand Size Exceeding Instruction-Type Size (PTX ISA 9.1).
"""

from collections.abc import Sequence
from functools import cache
from itertools import pairwise

from mmulator.isa.types import type_bits

# Operand types that only a .b register of the same size may hold.
BITS_ONLY = frozenset(
    ("bf16", "bf16x2", "u16x2", "s16x2", "tf32", "e4m3x2", "e5m2x2", "e2m1x2", "e2m3x2", "e3m2x2", "ue8m0x2", "e4m3x4", "e5m2x4",
     "e2m3x4", "e3m2x4", "e2m1x4", "f32x2", "s2f6x2", "u8x4", "s8x4")
)  # fmt: skip


def type_class(name: str) -> str:
    """Class of a type: `bits`, `int`, `pred`, or the name of the floating type itself (`f32`, `f16x2`)."""
    if name == "pred":
        return "pred"
    if name[0] == "b" and not name.startswith("bf"):
        return "bits"
    if name[0] in "us" and name not in ("ue8m0x2",):
        return "int"
    return name


@cache
def fits(register: str, operand: str, wider: bool) -> bool:
    """Whether an operand of type `operand` accepts a register that is declared as `register`.

    wider: whether the instruction takes registers larger than its type (ld, st, cvt).
    """
    if "pred" in (register, operand):
        return register == operand
    have, want = type_class(register), type_class(operand)
    bits, need = type_bits(register), type_bits(operand)
    if bits < need or (bits > need and not wider):
        return False
    if operand in BITS_ONLY:
        return have == "bits" and bits == need
    return have == "bits" or want == "bits" or (have == want and (bits == need or have == "int"))


def joined(registers: Sequence[str]) -> str:
    """The type of a vector of registers with these types; "" if two adjacent types do not go together, such as a float and an
    integer.

    Equal types give that type. Mixed integers of one size, and .b types with any types of their size, give a .b type.
    """
    for one, next in pairwise(registers):
        classes = {type_class(one), type_class(next)}
        if one != next and (type_bits(one) != type_bits(next) or ("bits" not in classes and classes != {"int"})):
            return ""
    return registers[0] if len({*registers}) == 1 else f"b{type_bits(registers[0])}"


def vector_fits(vector: str, operand: str, wider: bool) -> bool:
    """Whether an operand with elements of type `operand` accepts a vector of type `vector`.

    ptxas accepts what `fits` accepts, and also integers for f16, f32 and f64 of the same size.
    """
    floats = operand in ("f16", "f32", "f64") and type_class(vector) == "int" and type_bits(vector) == type_bits(operand)
    return floats or fits(vector, operand, wider)


def suggestion(operand: str, wider: bool) -> str:
    """A declaration that would fit, for a hint."""
    if operand == "pred":
        return "declare it with .reg .pred"
    larger = " or larger" if wider and operand not in BITS_ONLY else ""
    return f"a .b{type_bits(operand)} register{larger} fits"
