"""What a compiler wrote around the inline assembly of its program: LLVM and NVVM mark the latter with comments.

The compiler knows nothing of registers in flight there. What it computes between two pieces of inline assembly it may put before
or behind a wgmma.fence or wgmma.wait_group that stands in one of them; ptxas takes that as it was meant (as_ptxas/inflight.py).
"""

from __future__ import annotations

from bisect import bisect_right
from functools import lru_cache

from mmulator.isa.effects import Algebra, Ends, MemoryEffect, Queue, Together
from mmulator.ptx.tree import Instruction
from mmulator.source import Source

_BEGIN, _END = "// begin inline asm", "// end inline asm"


@lru_cache(maxsize=4)
def _pieces(source: Source) -> tuple[list[int], list[int]]:
    """Where inline assembly begins and ends, as offsets."""
    begins, ends = [], []
    at = source.text.find(_BEGIN)
    while at >= 0:
        end = source.text.find(_END, at)
        if end < 0:
            break
        begins.append(at)
        ends.append(end)
        at = source.text.find(_BEGIN, end)
    return begins, ends


def computes(ins: Instruction) -> bool:
    """Whether all that an instruction does is to compute registers, each lane its own."""
    e = ins.effects
    return e.together is Together.ALONE and e.ends is Ends.NO and e.memory is MemoryEffect.NONE and e.queue is Queue.NONE


def moved_by_compiler(ins: Instruction) -> bool:
    """Whether an instruction that only computes stands where a compiler put it, in a text with inline assembly."""
    span = ins.span
    begins, ends = _pieces(span.source)
    if not begins or not computes(ins):
        return False
    at = bisect_right(begins, span.start) - 1
    return at < 0 or span.start >= ends[at]


def copies(ins: Instruction) -> bool:
    return ins.effects.algebra is Algebra.COPY
