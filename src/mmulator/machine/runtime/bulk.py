"""Bulk copies (PTX ISA 9.1, Data Movement and Conversion Instructions: Asynchronous copy: bulk copy)."""

from __future__ import annotations

from mmulator.codegen.lang import native
from mmulator.codegen.ops import copy_bytes, minimum, trailing_zeros
from mmulator.codegen.types import ptr, ptr_to, u32, u64
from mmulator.machine.runtime.events import READ, WRITE
from mmulator.machine.runtime.faults import fault
from mmulator.machine.runtime.transfers import new_transfer, start
from mmulator.machine.runtime.windows import WITHIN, find_shared, reach, reach_shared
from mmulator.machine.state import Completes, FaultKind, Transfer, TransferKind, Warp
from mmulator.program.addresses import RANK_SHIFT, SHARED_BASE

UNIT = 16  # bytes that addresses and sizes are multiples of
PIECE = 512  # bytes of a unit of a transfer
TARGET, BYTES = range(2)  # words of the payload: where it goes on the host, how many bytes


@native
def move_bytes(w: ptr_to(Warp), t: ptr_to(Transfer), first: u32, end: u32) -> u64:
    """Some pieces of a copy."""
    begin = u64(first) * PIECE
    bytes = minimum(u64(end) * PIECE, t.payload[BYTES]) - begin
    copy_bytes(ptr(t.payload[TARGET]) + begin, t.source + begin, bytes)
    return bytes


@native
def global_to_shared(
    w: ptr_to(Warp), mask: u32, to: ptr_to(u64), at: ptr_to(u64), sizes: ptr_to(u32), barriers: ptr_to(u64), site: u32
) -> None:
    """cp.async.bulk.shared::cluster.global: each lane copies, and the mbarrier at barriers[lane] hears of the bytes.

    to, barriers: addresses of the shared window, in one CTA.
    """
    left = mask
    while left != 0:
        lane = trailing_zeros(left)
        left = left & (left - 1)
        bytes = sizes[lane]
        if ((to[lane] | at[lane]) & (UNIT - 1)) != 0:
            fault(w, FaultKind.MISALIGNED, site, lane, to[lane], u32(UNIT))
        if (bytes & (UNIT - 1)) != 0:
            fault(w, FaultKind.BULK_SIZE, site, lane, to[lane], bytes)
        source = reach(w, lane, at[lane], u64(bytes), READ, site)
        target = reach_shared(w, lane, to[lane], u64(bytes), WRITE, site)
        find_shared(w, lane, barriers[lane], u64(8), site)
        if w.cta.fault == 0:
            t = new_transfer(w, lane, u32(TransferKind.BULK_COPY), site)
            t.completes = u32(Completes.BYTES)
            t.barriers = u32(1) << u32(barriers[lane] >> RANK_SHIFT)
            t.offset = (barriers[lane] & WITHIN) - SHARED_BASE
            t.units = (bytes + (PIECE - 1)) // PIECE
            t.source = source
            t.payload[TARGET] = u64(target)
            t.payload[BYTES] = u64(bytes)
            start(t)
