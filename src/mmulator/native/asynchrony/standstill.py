"""Treatment of clusters in which no lane can continue and nothing is under way: waits for mbarriers end early, as on a chip
after some time, until it is certain that nothing can change.

Lanes that are told that their phase is not complete run until they sleep again. If the registers and places of all lanes then
equal those of an earlier moment, and no lane has accessed memory since, nothing can ever change: a deadlock. Threads that count
their attempts, or read a clock or memory, get many of them.
"""

from typing import Any

from mmulator.codegen.lang import native
from mmulator.codegen.ops import cast_ptr, select
from mmulator.codegen.types import ptr_to, u8, u32, u64
from mmulator.native.asynchrony.waiting import time_out
from mmulator.native.state import Cluster, Stop, Warp

PATIENCE = 1 << 20  # tries of threads that look at memory which other clusters may write
QUIET = 16  # what a try counts of those that do not
PLACES = Warp.offset["lane_pc"]  # where lanes are: program counters and frames
PLACE_WORDS = (Warp.offset["live"] - PLACES) // 8
MIX = 0x9E3779B97F4A7C15


def mixed(value: Any, more: Any) -> Any:
    """Macro: a step of a hash."""
    x = (value ^ more) * MIX
    return x ^ (x >> 29)


@native
def hash_words(value: u64, words: ptr_to(u64), count: u64) -> u64:
    for i in range(count):
        value = mixed(value, words[i])
    return value


@native
def state_of_lanes(cluster: ptr_to(Cluster)) -> u64:
    """A hash of all registers, and of the places of all lanes."""
    warps = cast_ptr(Warp, cluster.warps)
    value = u64(0)
    size = cluster.launch.frame_bytes
    for i in range(cluster.warp_count):
        w = warps + i
        value = mixed(value, u64(w.live) | (u64(w.at_barrier) << 32))
        value = hash_words(value, cast_ptr(u64, cast_ptr(u8, w) + PLACES), PLACE_WORDS)
        value = hash_words(value, cast_ptr(u64, w.regs), size // 8)
    return value


@native
def accesses(cluster: ptr_to(Cluster)) -> u64:
    """Number of executed blocks of code that access memory."""
    launch = cluster.launch
    total = u64(0)
    for i in range(launch.noisy_count):
        total = total + cluster.counts[launch.noisy[i]]
    return total


@native
def end_waits(cluster: ptr_to(Cluster)) -> u32:
    """End waits early. Returns BUDGET if some ended, ASLEEP if other clusters should run first, BLOCKED if it is useless."""
    if cluster.patience == 0:
        cluster.tries = 0
    noise = accesses(cluster)
    state = state_of_lanes(cluster)
    tries = cluster.tries
    if tries != 0 and state == cluster.print and noise == cluster.noise:
        return Stop.BLOCKED
    if (tries & (tries - 1)) == 0:  # compare with this one, until there were twice as many
        cluster.print = state
        cluster.noise = noise
    alone = noise == cluster.heard or cluster.others == 0  # no other thread can change the memory that these lanes read
    cluster.patience = cluster.patience + select(alone, QUIET, u32(1))
    cluster.heard = noise
    cluster.tries = tries + 1
    if cluster.patience > PATIENCE:
        return Stop.BLOCKED
    if not time_out(cluster):
        return Stop.BLOCKED
    if alone:
        return Stop.BUDGET
    return Stop.ASLEEP
