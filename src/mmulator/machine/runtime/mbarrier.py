"""The 64 bits of an mbarrier, as a chip has them in shared memory (PTX ISA 9.1, mbarrier).

Counts of arrivals are kept as what 2^20 exceeds them by, so that an arrival is an addition and the phase is over when it carries.
"""

from __future__ import annotations

from mmulator.codegen.lang import native
from mmulator.codegen.types import ptr_to, u64

COUNT, BYTES = 20, 22  # bits
EXPECTED, PENDING_BYTES, PENDING, PHASE = 1, 21, 43, 63  # the first bit of each


@native
def complete_part(barrier: ptr_to(u64), arrivals: u64, bytes: u64) -> None:
    """Arrivals that are no longer awaited in this phase, and bytes. With the last of both the next phase begins."""
    word = barrier[0]
    mask = u64((1 << COUNT) - 1)
    left = ((u64(0) - (word >> PENDING)) & mask) - arrivals
    awaited = ((word >> PENDING_BYTES) - bytes) & ((1 << BYTES) - 1)
    phase = word >> PHASE
    expected = (word >> EXPECTED) & mask
    pending = (u64(0) - left) & mask
    if left == 0 and awaited == 0:
        pending = expected
        phase = phase ^ 1
    barrier[0] = (word & 1) | (expected << EXPECTED) | (awaited << PENDING_BYTES) | (pending << PENDING) | (phase << PHASE)
