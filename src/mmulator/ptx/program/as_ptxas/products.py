"""The objects of contraction: products, sums, changes of sign and copies; and two products in a row, the second by 2, 4, 8 or
their inverses: one instruction of the machine, rounded once. Its result differs from two products where the inner one would
overflow or be subnormal (docs/explanation/arithmetic.md).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from mmulator.isa.effects import Algebra
from mmulator.isa.form import Form
from mmulator.matrix.numerics.sfu.arithmetic import f32_bits
from mmulator.ptx.program.as_ptxas.quotient import instruction, is_quotient
from mmulator.ptx.tree import Immediate, Instruction, Operand, Reg

# type -> (bits of 1.0, sign bits)
TYPES: Mapping[str, tuple[int, int]] = {
    "f32": (0x3F800000, 1 << 31), "f64": (0x3FF << 52, 1 << 63), "f16": (0x3C00, 1 << 15), "bf16": (0x3F80, 1 << 15),
    "f16x2": (0x3C003C00, 0x80008000), "bf16x2": (0x3F803F80, 0x80008000),
    "f32x2": (0x3F8000003F800000, 0x8000000080000000),
}  # fmt: skip


@dataclass(eq=False, slots=True)
class Multiplication:
    """A product and its readers.

    at: the statement that computes it.
    type, ftz: its type and modifier.
    resident: whether a factor can be read from the constant bank.
    uses: (sum, its operand 0 or 1, whether the sign is changed).
    readers: number of other readers.
    through: number of other readers of a copy of it, or of it with its sign changed.
    """

    at: int
    type: str
    ftz: bool
    resident: bool
    uses: list[tuple[int, int, bool]] = field(default_factory=list)
    readers: int = 0
    through: int = 0
    direct: int = 0  # of the sums

    @property
    def kept(self) -> bool:
        """Whether the product itself is needed besides the fused sums."""
        return self.readers > 0 or (self.through > 0 and self.direct > 0)


@dataclass(frozen=True, slots=True)
class HeldProduct:
    """The content of a register: a product, possibly with its sign changed."""

    product: Multiplication
    negated: bool
    behind: bool = False  # a neg or a product by 1 with .ftz


def form_of(ins: Instruction, *wanted: Algebra) -> Form | None:
    """The form of an instruction that computes one of these kinds of arithmetic; None for other instructions."""
    return ins.form if ins.effects.algebra in wanted else None


def is_sum(ins: Instruction) -> bool:
    form = form_of(ins, Algebra.SUM, Algebra.DIFFERENCE)
    return form is not None and not form["rnd"] and isinstance(ins.operands[0], Reg)


def is_product(ins: Instruction) -> bool:
    """Whether an instruction is a mul, or a division that ends in one."""
    form = form_of(ins, Algebra.PRODUCT, Algebra.QUOTIENT, Algebra.RECIPROCAL)
    if form is None or not isinstance(ins.operands[0], Reg):
        return False
    if form.effects.algebra is not Algebra.PRODUCT:
        return is_quotient(form)
    return not form["rnd"] and not form["sat"]


def is_negation(ins: Instruction) -> bool:
    """Whether an instruction is a neg that its reader absorbs; for pairs of bf16 there is none."""
    form = form_of(ins, Algebra.NEGATION)
    return form is not None and form["type"] in TYPES and form["type"] != "bf16x2"


def is_copy(ins: Instruction) -> bool:
    return ins.effects.algebra is Algebra.COPY and isinstance(ins.operands[0], Reg) and isinstance(ins.operands[1], Reg)


# products by powers of two --------------------------------------------------------------------------------------------
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
