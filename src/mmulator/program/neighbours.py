"""Loads of neighbouring words by each lane, such as the members of a struct, which can be done together at the first of them."""

from collections import defaultdict
from collections.abc import Collection, Iterable

from mmulator.isa.types import type_bits
from mmulator.program.blocks import Block
from mmulator.program.uniform import is_one_register, is_plain_load, is_still
from mmulator.program.uses import uses_and_defs
from mmulator.ptx.tree import Address, Instruction, Reg

WORD = 4  # bytes
MOST = 8  # words
SPACES = ("", "global", "shared", "shared::cta")


def neighbours(block: Block, uniform: Collection[str]) -> list[list[Instruction]]:
    """Groups of two or more loads of a block, by rising addresses: words of 32 bits without a gap, from one register on. Between
    the loads no instruction writes that register, or memory.

    uniform: registers with one value for all lanes, whose loads are done otherwise.
    """
    found: list[list[tuple[int, Instruction]]] = []
    open_: dict[str, dict[str, list[tuple[int, Instruction]]]] = defaultdict(dict)  # by register, then state space
    for ins in block.body:
        uses, defs = uses_and_defs(ins)
        if not is_plain_load(ins) and not is_still(ins):
            open_.clear()
        elif _joins(ins) and not uses.issubset(uniform):
            address = ins.operands[1]
            assert isinstance(address, Address) and isinstance(address.base, Reg)
            spaces = open_[address.base.name]
            if ins.form["space"] not in spaces:
                found.append(spaces.setdefault(ins.form["space"], []))
            spaces[ins.form["space"]].append((address.offset, ins))
        for name in defs:
            open_.pop(name, None)
    return [group for loads in found for group in _without_gaps(loads)]


def _joins(ins: Instruction) -> bool:
    """Whether a load may be done with others."""
    if ins.guard is not None or not is_plain_load(ins) or not is_one_register(ins) or ins.form["space"] not in SPACES:
        return False
    address = ins.operands[1]
    base = address.base if isinstance(address, Address) else None
    return type_bits(ins.form["type"]) == 8 * WORD and isinstance(base, Reg) and type_bits(base.type) == 64


def _without_gaps(loads: Iterable[tuple[int, Instruction]]) -> Iterable[list[Instruction]]:
    by_offset: dict[int, Instruction] = {}
    for offset, ins in loads:
        by_offset.setdefault(offset, ins)
    group: list[Instruction] = []
    last = 0
    for offset, ins in sorted(by_offset.items(), key=lambda item: item[0]):
        if group and (offset != last + WORD or len(group) == MOST):
            yield from [group] * (len(group) > 1)
            group = []
        group.append(ins)
        last = offset
    yield from [group] * (len(group) > 1)
