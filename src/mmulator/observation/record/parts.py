"""Instructions that move bits from register to register unchanged: which source the bits of a result come from."""

from mmulator.isa.effects import Algebra
from mmulator.isa.types import type_bits
from mmulator.ptx.tree import Instruction, NegatedPredicate, Operand, Reg, VectorOperand, flatten


def part_of(ins: Instruction, name: str, low: int, width: int) -> tuple[Operand, int] | None:
    """(source operand, its lowest bit) that an instruction copies to bits of a result; None for one that computes.

    ins: the instruction.
    name, low, width: the register that it writes, and the bits that are asked for.
    """
    if ins.effects.algebra is not Algebra.COPY or len(ins.operands) != 2:
        return None
    target, source = ins.operands
    if isinstance(target, VectorOperand):
        number = next((n for n, each in enumerate(target.elements) if isinstance(each, Reg) and each.name == name), None)
        if number is None:
            return None
        if isinstance(source, VectorOperand):
            return source.elements[number], low
        return source, low + number * type_bits(ins.form["type"]) // len(target.elements)
    if isinstance(source, VectorOperand):
        bits = type_bits(ins.form["type"]) // len(source.elements)
        return (source.elements[low // bits], low % bits) if low // bits == (low + width - 1) // bits else None
    return source, low


def is_predicate(ins: Instruction, name: str) -> bool:
    """Whether a register is a result of type .pred."""
    return any(isinstance(o, Reg) and o.name == name and o.type == "pred" for o in flatten(ins.operands[:1]))


def known_type(given: str, operand: Operand) -> str:
    """The type of an operand: as the instruction has it, else as the register is declared."""
    try:
        type_bits(given)
    except KeyError:
        return operand.type if isinstance(operand, Reg) else "pred" if isinstance(operand, NegatedPredicate) else "b32"
    return given


def shuffle_lane(mode: str, lane: int, b: int, c: int) -> tuple[int, bool]:
    """(lane from which shfl takes a lane's value, whether it is inside its segment).

    Data Movement and Conversion Instructions: shfl.sync (PTX ISA 9.1).
    """
    clamp, segment = c & 31, c >> 8 & 31
    b &= 31
    highest = lane & segment | clamp & ~segment & 31
    lowest = lane & segment
    match mode:
        case "up":
            other = lane - b
            return other, other >= highest
        case "down":
            other = lane + b
            return other, other <= highest
        case "bfly":
            other = lane ^ b
            return other, other <= highest
    other = lowest | b & ~segment & 31
    return other, other <= highest
