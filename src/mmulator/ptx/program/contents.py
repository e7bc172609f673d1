"""Whether what a launch does depends on the contents of memory: which addresses it accesses, which way it goes, who takes part.

Everything that is loaded, and all that is computed from it, counts as contents, wherever it is written in the text.
Instructions may compute with it, store and multiply it; it may not reach an address, a guard of a store, a branch, a mask or a
descriptor. Where a text does not decide, contents matter.
"""

from collections.abc import Iterable

from mmulator.isa.effects import Ends, MemoryEffect, Queue, Together
from mmulator.ptx.program.blocks import Block, Program, instructions
from mmulator.ptx.program.uses import registers_of, uses_and_defs
from mmulator.ptx.tree import Address, Instruction, Reg


def contents_matter(program: Program, executed: Iterable[Block]) -> bool:
    """Whether another schedule of accesses may follow from other bytes in the buffers. executed: the blocks of a launch."""
    if len(program.functions) > 1:
        return True
    every = [ins for block in executed for ins in _all(block)]
    loaded = {name for ins in every if _loads(ins) for name in uses_and_defs(ins)[1]}
    more = True
    while more:
        before = len(loaded)
        for ins in every:
            uses, defs = uses_and_defs(ins)
            if uses & loaded:
                loaded |= defs
        more = len(loaded) > before
    return any(uses_and_defs(ins)[0] & loaded and _decides(ins, loaded) for ins in every)


def _all(block: Block) -> list[Instruction]:
    found = instructions(block)
    return found if block.last is None or block.last in found else [*found, block.last]


def _loads(ins: Instruction) -> bool:
    """Whether results come from memory that is no parameter; those of barriers do not."""
    effects = ins.effects
    place = next((o for o in ins.operands if isinstance(o, Address)), None)
    if effects.counted_as == "barrier" or (place is not None and getattr(place.base, "space", "") == "param"):
        return False
    return effects.memory is not MemoryEffect.NONE or effects.queue is not Queue.NONE


def _decides(ins: Instruction, loaded: set[str]) -> bool:
    """Whether an instruction that uses contents does more than compute with them, or store them."""
    effects = ins.effects
    guarded = ins.guard is not None and ins.guard[0].name in loaded
    if effects.still:
        return False
    places = {name for o in ins.operands if isinstance(o, Address) for name in registers_of(o)}
    if guarded or places & loaded or effects.ends is not Ends.NO or {"sp", "block_scale"} & {*ins.modifiers}:
        return True
    alone = {o.name for o in ins.operands if isinstance(o, Reg)}
    if effects.queue is not Queue.NONE:
        return bool(alone & loaded)  # sizes, descriptors, coordinates
    if effects.together in (Together.MEMBERS, Together.MEETING):
        mask = ins.operands[-1]
        return isinstance(mask, Reg) and mask.name in loaded
    return effects.memory is MemoryEffect.NONE and effects.together is Together.ALONE  # such as setmaxnreg, or what is not known
