"""Additions to counters that are not in memory yet: a cluster accumulates what `red` adds to a small array.

Two cores that add to the same lines of memory wait for each other at each addition. The time of a relaxed addition without a
result cannot be observed, as long as it comes before its thread's later accesses to the same memory, and before everything that
its thread orders after it. So the sums are written to memory (`settle_sums`) before any other code of the cluster gets a
pointer to that array, or a pointer for writing (windows.py); before fences and before loads that poll; and when the worker
checks the clock, at most some milliseconds later.
"""

from mmulator.base.codegen.lang import native
from mmulator.base.codegen.ops import address, atomic_rmw, bits_of, cast_ptr, load, mask_bits, trailing_zeros
from mmulator.base.codegen.types import ptr_to, u32, u64
from mmulator.runtime.native.state import PART, Cluster, Warp

WORD = 4  # bytes
WORDS = u32.vec(PART // WORD)


@native
def settle_sums(cluster: ptr_to(Cluster)) -> None:
    """Write the accumulated sums to memory."""
    sums = cluster.sums
    left = sums.touched
    sums.touched = 0
    while left != 0:
        place = trailing_zeros(left) * PART
        left = left & (left - 1)
        part = cast_ptr(u32, address(sums.words)) + place // WORD
        memory = cast_ptr(u32, sums.start + place)
        for word in bits_of(mask_bits(load(WORDS, part) != 0)):
            atomic_rmw("add", memory + word, part[word])
            part[word] = 0


@native(inline=True)
def settled(cluster: ptr_to(Cluster)) -> None:
    """Write the accumulated sums to memory, if there are any."""
    if cluster.sums.touched != 0:
        settle_sums(cluster)


@native(inline=True)
def give_way(cluster: ptr_to(Cluster), host: u64, bytes: u64, writes: u32) -> None:
    """Write pending sums to memory before a pointer to a range of the host's memory is given out."""
    sums = cluster.sums
    if sums.touched != 0:
        if writes != 0 or (host < sums.end and u64(sums.start) < host + bytes):
            settle_sums(cluster)


@native
def settle_of(w: ptr_to(Warp)) -> None:
    """Write pending sums to memory before a warp orders its earlier operations before its later ones."""
    settled(w.cta.cluster)
