"""Impossible accesses in a launch that continues after faults: each becomes a finding, and its lane is left out
(compiler/lowering/screened.py). Faults of the memory windows are found here too; other faults end the launch as usual.
"""

from __future__ import annotations

from collections.abc import Mapping

from mmulator.codegen.lang import Native, native
from mmulator.codegen.ops import trailing_zeros
from mmulator.codegen.types import ptr_to, u32, u64
from mmulator.native.hooks.events import Only
from mmulator.native.memory.windows import OFFSET_MASK, find_host, other_cta
from mmulator.native.state import FaultKind, Warp
from mmulator.program.addresses import SLOT_LOCAL, SLOT_SHARED, SLOT_SHIFT
from mmulator.rules.operands import ALIGNMENT, BOUNDS, SPACES
from mmulator.sanitizer.found import find

FORGIVEN = (
    FaultKind.OUT_OF_BOUNDS, FaultKind.NULL_POINTER, FaultKind.READ_ONLY, FaultKind.SHARED_OUT_OF_BOUNDS,
    FaultKind.LOCAL_OUT_OF_BOUNDS, FaultKind.NO_SUCH_RANK, FaultKind.MISALIGNED,
)  # fmt: skip
_FORGIVEN = sum(1 << kind for kind in FORGIVEN)
_BOUNDS, _ALIGNMENT, _SPACES = BOUNDS.number, ALIGNMENT.number, SPACES.number


@native
def strange(w: ptr_to(Warp), at: u64, base: u64, only: u32) -> u32:
    """The kind of fault of an address outside the instruction's state space; 0 if it is inside."""
    slot = (at | base) >> SLOT_SHIFT
    if base != 0 and at > OFFSET_MASK:
        return FaultKind.BEYOND_SPACE
    if only == Only.OWN and other_cta(w, at):
        return FaultKind.OTHER_CTA
    if only == Only.GLOBAL and (slot == SLOT_SHARED or slot == SLOT_LOCAL):
        return FaultKind.WRONG_SPACE
    return 0


@native
def left_out(w: ptr_to(Warp), lane: u32, at: u64, bytes: u32, site: u32, rule: u32, kind: u32) -> None:
    """Report a lane that is left out. words of the finding: the kind of the fault."""
    entry = find(w, rule, site, 1 << lane, at, bytes)
    if u64(entry) != 0:
        if entry.count == 1:
            entry.words[0] = u64(kind)


@native
def screen_lanes(
    w: ptr_to(Warp), mask: u32, at: ptr_to(u64), base: u64, bytes: u32, only: u32, access: u32, site: u32, out: ptr_to(u32)
) -> None:
    out[0] = 0
    left = mask
    while left != 0 and w.cta.fault == 0:
        lane = trailing_zeros(left)
        left = left & (left - 1)
        one = 1 << lane
        foreign = strange(w, at[lane], base, only)
        if foreign != 0:
            out[0] = out[0] | one
            left_out(w, lane, at[lane], bytes, site, _SPACES, foreign)
        else:
            if u64(find_host(w, lane, at[lane] | base, bytes, access, site)) == 0:
                kind = w.cta.fault
                if ((1 << u64(kind)) & _FORGIVEN) != 0:
                    w.cta.fault = 0
                    out[0] = out[0] | one
                    rule = u32(_BOUNDS)
                    if kind == FaultKind.MISALIGNED:
                        rule = _ALIGNMENT
                    left_out(w, lane, at[lane] | base, bytes, site, rule, kind)


HOOKS: Mapping[str, Native] = {"screened": screen_lanes}
