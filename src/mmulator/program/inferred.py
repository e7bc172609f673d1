"""What no source says for certain of an instruction, and mmulator has inferred (docs/tensor-memory.md)."""

from __future__ import annotations

from collections.abc import Iterator

from mmulator.ptx.tree import Instruction, VectorOperand

# By the name of a row: a modifier, and what is inferred of instructions with it.
_OPEN: dict[str, tuple[str, str]] = {
    "tcgen05.shift": ("down", "tcgen05.shift moves 8 columns of the quarter of its address"),
    "tcgen05.cp": ("4x256b", "tcgen05.cp.4x256b writes a row in each quarter, in the address's lane of it"),
    "tcgen05.st": ("unpack::16b", ".unpack::16b clears the upper halves of cells"),
    "tcgen05.mma": ("ashift", ".ashift moves A behind the product, which has the sums without it"),
}
# Of an operand behind enable-input-d.
_LAST = {
    "tcgen05.mma": "scale-input-d divides D before the sum; subnormal numbers are rounded to nearest",
    "tcgen05.mma.ws": "a zero-column mask has its lengths as in the specification's examples, not as in its table",
}


def inferred(ins: Instruction) -> Iterator[str]:
    """Sentences about what an instruction does."""
    form = ins.form
    name = form.row.name
    modifier, said = _OPEN.get(name, ("", ""))
    if modifier in ins.modifiers:
        yield said
    if name in _LAST:
        single = sum(not isinstance(o, VectorOperand) for o in ins.operands)
        if single > 5 + bool(form.sparse) + 2 * bool(form.block_scale):
            yield _LAST[name]
