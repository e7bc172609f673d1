"""Indices that 32 bits did not hold: the offset and a multiple of 2^32 elements lie in the argument, and 32 bits lead there."""

from __future__ import annotations

from collections.abc import Iterator

from mmulator.findings import spoken
from mmulator.isa.effects import Algebra, Pointer
from mmulator.isa.types import TYPES, type_bits
from mmulator.ptx.tree import Address, Function, Immediate, Instruction, Reg, flatten
from mmulator.rules.words import WIDE_INDEX

_TURNS, _SIZES = (1, -1, 2, -2), (1, 2, 4, 8, 16)  # how often 2^32 was left out; bytes of an element
_LEAST = -(1 << 31)  # of an i32
_FAR = 200  # registers from which an address is computed
_WORDS = {
    Algebra.MULTIPLE: "product", Algebra.SHIFT: "product", Pointer.ADDEND: "product", Pointer.SUM: "sum",
    Pointer.DIFFERENCE: "difference",
}  # fmt: skip


def wrapped(function: Function | None, ins: Instruction, offset: int, size: int) -> tuple[str, str] | None:
    """(what happened, a hint) of an access at a byte of an argument; None where no index of 32 bits explains it.

    function, ins: the access.
    offset: of the access from the argument's first byte.
    size: bytes of the argument.
    """
    meant = ((turns, n) for turns in _TURNS for n in _SIZES if 0 <= offset + (turns * n << 32) < size)
    base = next((o.base for o in ins.original.operands if isinstance(o, Address)), None)
    turns, n = min(meant, key=lambda x: not _LEAST <= offset // x[1] < 1 << 32, default=(0, 0))
    if function is None or not isinstance(base, Reg) or not turns:
        return None
    found = (max if turns > 0 else min)(_narrow(function, base.name), key=_factor, default=None)
    if found is None:
        return None
    span, index, turned = found.original.span, offset // n, "2 * 2^32" if turns**2 > 1 else "2^32"
    said = f"{index} = {index + (turns << 32)} {'-' if turns > 0 else '+'} {turned}"
    if not _LEAST <= index < 1 << 32:  # other numbers are added to it
        way = "before" if turns > 0 else "after"
        said = f"{turned} elements of {n} byte{'s' * (n > 1)} {way} byte {offset + (turns * n << 32)}"
    kind, edge = ("an i32", "2^31") if index < 0 else ("a u32", "2^32")
    word = f"{kind} {_word(found)} {f'passed {edge}' if turns > 0 else 'went below 0'}"
    return f"{word} at {span.brief or span.row} ({said})", spoken(WIDE_INDEX, span)


def _word(ins: Instruction) -> str:
    """The result of arithmetic on integers in words; "" of other instructions."""
    return _WORDS.get(ins.effects.algebra) or _WORDS.get(ins.effects.pointer, "")


def _narrow(function: Function, name: str) -> Iterator[Instruction]:
    """Instructions that compute in 32 bits and lead to a register, the nearest first."""
    left = [name]
    for register in left:
        for i in function.instructions if len(left) < _FAR else ():
            to, *given = i.operands or (None,)
            if not isinstance(to, Reg) or to.name != register or any(isinstance(o, Address) for o in given):
                continue
            left += [o.name for o in flatten(given) if isinstance(o, Reg) and o.type != "pred" and o.name not in left]
            if _word(i) and i.form["type"] in TYPES and type_bits(i.form["type"]) == 32 and i.form["mode"] != "wide":
                yield i


def _factor(ins: Instruction) -> int:
    """How large a result can be beside its first operand: a product of registers is larger than one with a constant."""
    word, second = _word(ins), ins.operands[2]
    if word != "product" or not isinstance(second, Immediate):
        return {"product": 1 << 32, "sum": 1, "difference": 0}[word]
    return 1 << (second.value & 31) if ins.effects.algebra is Algebra.SHIFT else abs(second.value)
