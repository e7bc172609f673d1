"""Single addresses, computed by a lane or a warp: pointers to the memory at them, from the windows (windows.py)."""

from mmulator.base.codegen.lang import Native, native
from mmulator.base.codegen.ops import null, trailing_zeros
from mmulator.base.codegen.types import ptr, ptr_to, u8, u32, u64
from mmulator.ptx.program.addresses import RANK_SHIFT, SLOT_LOCAL, SLOT_SHARED, SLOT_SHIFT
from mmulator.runtime.native.hooks.events import Only, accessed_one
from mmulator.runtime.native.hooks.faults import fault
from mmulator.runtime.native.memory.windows import OFFSET_MASK, SHARED, find_host, find_shared, hold, other_cta
from mmulator.runtime.native.state import FaultKind, Warp


@native
def locate(w: ptr_to(Warp), lane: u32, at: u64, bytes: u32, access: u32, site: u32) -> ptr:
    """Host pointer of one lane's generic address; null, with a fault, if there is none."""
    host = find_host(w, lane, at, bytes, access, site)
    if u64(host) != 0:
        accessed_one(w, lane, at, bytes, access, site)
    return host


@native
def locate_shared(w: ptr_to(Warp), lane: u32, at: u64, bytes: u32, access: u32, site: u32) -> ptr:
    """`locate` for an address of the shared window."""
    if at > OFFSET_MASK:
        fault(w, FaultKind.BEYOND_SPACE, site, lane, at, bytes)
        return null(u8)
    return locate(w, lane, at | SHARED, bytes, access, site)


@native
def locate_shared_cta(w: ptr_to(Warp), lane: u32, at: u64, bytes: u32, access: u32, site: u32) -> ptr:
    """`locate` for an address of .shared::cta."""
    if at <= OFFSET_MASK and other_cta(w, at):
        fault(w, FaultKind.OTHER_CTA, site, lane, at, bytes)
        return null(u8)
    return locate_shared(w, lane, at, bytes, access, site)


@native
def locate_global(w: ptr_to(Warp), lane: u32, at: u64, bytes: u32, access: u32, site: u32) -> ptr:
    """`locate` for an address of the global space."""
    slot = at >> SLOT_SHIFT
    if slot == SLOT_SHARED or slot == SLOT_LOCAL:
        fault(w, FaultKind.WRONG_SPACE, site, lane, at, bytes)
        return null(u8)
    return locate(w, lane, at, bytes, access, site)


@native
def locate_of_warp(w: ptr_to(Warp), lane: u32, at: u64, bytes: u32, access: u32, site: u32) -> ptr:
    """`locate` for a generic address that is the same for all lanes: local memory is that of lane 0."""
    host = find_host(w, 0, at, bytes, access, site)
    if u64(host) != 0:
        accessed_one(w, lane, at, bytes, access, site)
    return host


def locate_function(space: str) -> Native:
    """`locate` for the single address of a warp in a state space. lane: the lane whose register is read or written."""
    return {"shared": locate_shared_cta, "shared::cluster": locate_shared, "global": locate_global}.get(space, locate_of_warp)


# many bytes ---------------------------------------------------------------------------------------------------------
@native
def reach(w: ptr_to(Warp), lane: u32, at: u64, bytes: u64, access: u32, site: u32) -> ptr:
    """`hold` for bytes that are accessed now."""
    host = hold(w, lane, at, bytes, access, site)
    if u64(host) != 0:
        accessed_one(w, lane, at, u32(bytes), access, site)
    return host


@native
def hold_shared(w: ptr_to(Warp), lane: u32, at: u64, bytes: u64, site: u32) -> ptr:
    """`hold` in the shared memory of any CTA of the cluster, by an address of the shared window."""
    if w.cta.fault != 0:
        return null(u8)
    if at > OFFSET_MASK:
        fault(w, FaultKind.BEYOND_SPACE, site, lane, at, u32(bytes))
        return null(u8)
    return find_shared(w, lane, at, bytes, site)


@native
def one_cta(w: ptr_to(Warp), lane: u32, at: u64, site: u32) -> u32:
    """The bit of the CTA of the cluster whose shared memory contains an address of the shared window; 0, with a fault, if there
    is none. No other code shifts by a rank from an address.
    """
    rank = at >> RANK_SHIFT
    if rank < u64(w.cta.cluster.cta_count):
        return 1 << (u32(rank) & 31)
    hold_shared(w, lane, at, 0, site)
    return 0


# impossible accesses -------------------------------------------------------------------------------------------------
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
