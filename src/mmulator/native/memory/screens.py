"""Accesses of lanes that are impossible, in a launch that continues after faults (compiler/lowering/screened.py)."""

from mmulator.codegen.lang import native
from mmulator.codegen.ops import trailing_zeros
from mmulator.codegen.types import ptr_to, u32, u64
from mmulator.native.hooks.events import Only
from mmulator.native.memory.windows import OFFSET_MASK, find_host, other_cta
from mmulator.native.state import FaultKind, Warp
from mmulator.program.addresses import SLOT_LOCAL, SLOT_SHARED, SLOT_SHIFT

FORGIVEN = (
    FaultKind.OUT_OF_BOUNDS, FaultKind.NULL_POINTER, FaultKind.READ_ONLY, FaultKind.SHARED_OUT_OF_BOUNDS,
    FaultKind.LOCAL_OUT_OF_BOUNDS, FaultKind.NO_SUCH_RANK, FaultKind.MISALIGNED,
)  # fmt: skip
_FORGIVEN = sum(1 << kind for kind in FORGIVEN)


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
def impossible(w: ptr_to(Warp), lane: u32, at: u64, base: u64, bytes: u32, only: u32, access: u32, site: u32) -> u32:
    """The kind of fault of one lane's access that is forgiven; 0 for one that is possible, or whose fault ends the launch.

    w, lane, site: the warp, lane and instruction.
    at, base: address at | base.
    bytes: bytes of the access.
    only: Only.
    access: read, write or both.
    """
    foreign = strange(w, at, base, only)
    if foreign != 0:
        return foreign
    if u64(find_host(w, lane, at | base, bytes, access, site)) == 0:
        kind = w.cta.fault
        if ((1 << u64(kind)) & _FORGIVEN) != 0:
            w.cta.fault = 0
            return kind
    return u32(0)


@native
def leave_out(
    w: ptr_to(Warp), mask: u32, at: ptr_to(u64), base: u64, bytes: u32, only: u32, access: u32, site: u32, out: ptr_to(u32)
) -> None:
    """The hook `screened` of an observer that wants no finding."""
    out[0] = 0
    left = mask
    while left != 0 and w.cta.fault == 0:
        lane = trailing_zeros(left)
        left = left & (left - 1)
        if impossible(w, lane, at[lane], base, bytes, only, access, site) != 0:
            out[0] = out[0] | (1 << lane)
