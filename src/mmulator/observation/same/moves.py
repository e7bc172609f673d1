"""Integer instructions that move bits and compute nothing: shifts, masks, conversions between widths, halves side by side."""

from collections.abc import Callable

from mmulator.isa.effects import Algebra, Flow
from mmulator.isa.types import TYPES, type_bits
from mmulator.observation.same.graph import Pieces, constant, cut, is_closed, joined, merged, value_of
from mmulator.ptx.tree import Instruction, Operand, VectorOperand

Read = Callable[[Operand, int, int, str], Pieces]  # of an operand: its lowest bit, the number of bits, its PTX type
# What a bitwise operation makes of the other side where one is all zeros, and where it is all ones.
BITWISE = {Algebra.AND: (0, "other"), Algebra.OR: ("other", 1), Algebra.XOR: ("other", "inverted")}


def moved_bits(ins: Instruction, read: Read, low: int, width: int) -> Pieces | None:
    """Bits of a result that an instruction moves; None where it does something else to them, or does not move them whole.

    ins: the instruction.
    read: gives bits of its operands.
    low, width: the bits of the result that are wanted.
    """
    form, algebra, sources = ins.form, ins.effects.algebra, ins.operands[1:]
    kind = form["type"]
    if not sources or (algebra is Algebra.COPY and isinstance(sources[0], VectorOperand)):
        return _side_by_side(sources[0], kind, read, low, width) if sources else None
    if kind not in TYPES or TYPES[kind].kind == "float":
        return None
    size = type_bits(kind)
    if algebra in BITWISE and len(sources) == 2:
        a, b = (read(source, 0, size, kind) for source in sources)
        rule = BITWISE[algebra]
        found = merged(a, b, lambda bit: rule[bit])
        return None if found is None else cut(found, low, width)
    if algebra is Algebra.CONVERSION and form["atype"] in TYPES and TYPES[form["atype"]].kind != "float" and not form["sat"]:
        from_bits = type_bits(form["atype"])
        given, kept = read(sources[0], 0, from_bits, form["atype"]), min(from_bits, size)
        zeros = TYPES[kind if size <= from_bits else form["atype"]].kind == "unsigned"  # beyond what is kept, else its sign
        return cut(cut(given, 0, kept), low, width) if zeros or low + width <= kept else None
    if ins.effects.flow is Flow.PICKS:
        picked = _bytes(ins, read, size)
        return None if picked is None else cut(picked, low, width)
    if algebra not in (Algebra.SHIFT, Algebra.RIGHT):
        return None
    by = read(sources[1], 0, 32, "b32")
    if not is_closed(by):
        return None
    count, given = min(value_of(by), size), read(sources[0], 0, size, kind)
    if algebra is Algebra.SHIFT:
        return cut(joined([constant(0, count), given]), low, width)
    return cut(given, low + count, width) if TYPES[kind].kind != "signed" or low + width + count <= size else None


def _side_by_side(source: Operand, kind: str, read: Read, low: int, width: int) -> Pieces:
    """The parts of a vector that is moved to one register."""
    assert isinstance(source, VectorOperand)
    each = type_bits(kind) // len(source.elements)
    return cut(joined([read(o, 0, each, f"b{each}") for o in source.elements]), low, width)


def _bytes(ins: Instruction, read: Read, size: int) -> Pieces | None:
    """Prmt by a known selector: bytes of a and b."""
    selector = read(ins.operands[3], 0, 32, "b32")
    if ins.form["mode"] or not is_closed(selector):
        return None
    numbers = [value_of(selector) >> 4 * n & 15 for n in range(4)]
    both = joined([read(o, 0, size, "b32") for o in ins.operands[1:3]])
    return None if any(n & 8 for n in numbers) else joined([cut(both, 8 * n, 8) for n in numbers])
