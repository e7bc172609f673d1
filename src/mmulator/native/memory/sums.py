"""Additions to counters that are not in memory yet: a cluster adds up what `red` adds to a small array, for itself.

Two cores that add to the same lines of memory wait for each other at each addition. Nobody can tell when a relaxed addition
whose result is not asked for takes place, as long as it comes before what its thread does later to the same memory and before
what its thread orders behind it. So the sums go to memory (`settle_sums`) before anything else of the cluster is given a pointer
to that array, or a pointer to write through (windows.py); before a fence and before loads that poll; and when the worker looks
up, some milliseconds later at most.
"""

from __future__ import annotations

from mmulator.codegen.lang import native
from mmulator.codegen.ops import atomic_rmw, cast_ptr, load, mask_bits, trailing_zeros
from mmulator.codegen.types import ptr_to, u32, u64
from mmulator.native.state import PART, Cluster, Warp

WORD = 4  # bytes
WORDS = u32.vec(PART // WORD)


@native
def settle_sums(cluster: ptr_to(Cluster)) -> None:
    """What was added up goes to memory."""
    sums = cluster.sums
    left = sums.touched
    sums.touched = 0
    while left != 0:
        place = trailing_zeros(left) * PART
        left = left & (left - 1)
        part = cast_ptr(u32, address(sums.words)) + place // WORD  # noqa: F821
        memory = cast_ptr(u32, sums.start + place)
        words = mask_bits(load(WORDS, part) != 0)
        while words != 0:
            word = trailing_zeros(words)
            words = words & (words - 1)
            atomic_rmw("add", memory + word, part[word])
            part[word] = 0


@native(inline=True)
def settled(cluster: ptr_to(Cluster)) -> None:
    """Nothing waits any more."""
    if cluster.sums.touched != 0:
        settle_sums(cluster)


@native(inline=True)
def give_way(cluster: ptr_to(Cluster), host: u64, bytes: u64, writes: u32) -> None:
    """Settle waiting sums before a pointer to so many bytes of the host is given out."""
    sums = cluster.sums
    if sums.touched != 0:
        if writes != 0 or (host < sums.end and u64(sums.start) < host + bytes):
            settle_sums(cluster)


@native
def settle_of(w: ptr_to(Warp)) -> None:
    """Settle waiting sums where a warp orders what it has done before what it does next."""
    settled(w.cta.cluster)
