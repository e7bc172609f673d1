"""Who stores to watched memory: compiled into a kernel only when a launch watches something."""

from __future__ import annotations

from mmulator.codegen.lang import native
from mmulator.codegen.ops import trailing_zeros
from mmulator.codegen.types import i64, ptr, ptr_to, u32, u64
from mmulator.machine.state import WATCH_LOG, Warp
from mmulator.twin.moves import WmmaTable


@native
def note_store(w: ptr_to(Warp), lane: u32, at: u64, bytes: u32, site: u32) -> None:
    """After a store of one lane: write down every watch that it hit, and what is there now. Older entries make room."""
    cta = w.cta
    launch = cta.launch
    for i in range(launch.watch_count):
        x = launch.watches + i
        if at < x.end and at + u64(bytes) > x.start:
            value = u64(0)
            for n in range(x.end - x.start):
                value = value | (u64(ptr(x.host)[n]) << (n * 8))
            e = launch.seen + (launch.seen_count & (WATCH_LOG - 1))
            e.block = cta.linear
            e.thread = w.index * 32 + lane
            e.site = site
            e.watch = i
            e.value = value
            launch.seen_count = launch.seen_count + 1


@native
def note_stores(w: ptr_to(Warp), mask: u32, at: ptr_to(u64), bytes: u32, site: u32) -> None:
    """After a store or atomic operation of `bytes` a lane."""
    left = mask
    if w.cta.fault != 0:
        left = u32(0)
    while left != 0:
        lane = trailing_zeros(left)
        left = left & (left - 1)
        note_store(w, lane, at[lane], bytes, site)


@native
def note_wmma_store(w: ptr_to(Warp), store: ptr_to(WmmaTable), p: u64, stride: i64, bytes: u32, per: u32, site: u32) -> None:
    """After a wmma.store of elements of `bytes`, `per` in a register."""
    if w.cta.fault != 0:
        return
    for i in range(store.places):
        at = i64(store.major[i]) * stride + i64(store.minor[i])
        note_store(w, (u32(i) // per) & 31, p + u64(at * i64(bytes)), bytes, site)
