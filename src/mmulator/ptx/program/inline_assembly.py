"""The parts of a text outside inline assembly, which a compiler wrote: LLVM and NVVM mark inline assembly with comments.
A fat binary has no comments; what only computes there counts as a compiler's.

A compiler does not know about registers in flight in inline assembly. It may move its own computations across a wgmma.fence or
wgmma.wait_group there, and ptxas treats them as intended (as_ptxas/inflight.py).
"""

import re
from bisect import bisect_right
from functools import lru_cache

from mmulator.base.source import Source
from mmulator.isa.effects import Algebra, Ends, MemoryEffect, Queue, Together
from mmulator.ptx.tree import Instruction

_BEGIN, _END = "// begin inline asm", "// end inline asm"


_COMMENT = re.compile(r"(?:^|\s)//")
_COMPILED = re.compile(r"\.entry\s+([\w$]+)\s*\([^)]*\b\1_param_0\b")  # nobody else names parameters so


@lru_cache(maxsize=4)
def _is_stripped(source: Source) -> bool:
    """Whether a text is NVVM's, out of a fat binary."""
    return _COMPILED.search(source.text) is not None and _COMMENT.search(source.text) is None


@lru_cache(maxsize=4)
def _pieces(source: Source) -> tuple[list[int], list[int]]:
    """(begins, ends) of the pieces of inline assembly, as offsets."""
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
    """Whether an instruction only computes registers, each lane its own."""
    e = ins.effects
    return e.together is Together.ALONE and e.ends is Ends.NO and e.memory is MemoryEffect.NONE and e.queue is Queue.NONE


def moved_by_compiler(ins: Instruction) -> bool:
    """Whether an instruction only computes and was placed by a compiler, in a text with inline assembly."""
    span = ins.span
    begins, ends = _pieces(span.source)
    if not computes(ins):
        return False
    if not begins:
        return _is_stripped(span.source)
    at = bisect_right(begins, span.start) - 1
    return at < 0 or span.start >= ends[at]


def copies(ins: Instruction) -> bool:
    """Whether an instruction copies a register or a number."""
    return ins.effects.algebra is Algebra.COPY
