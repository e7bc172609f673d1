"""Rules of threads that wait for ever (base/rules/waits.py), here for threads that run: loops that nothing can end.

If no thread of a cluster has written memory, arrived anywhere or issued anything since a moment, no other cluster is left, and
registers and places equal those of another moment since, then everything between the two repeats for ever. Atomics count as
reads if they leave memory unchanged. As in runtime/native/asynchrony/waiting.py the distance to the moment of comparison doubles.
Kernels that read a clock are not checked.
"""

from collections.abc import Mapping
from typing import Any

from mmulator.base.codegen.lang import Native, native
from mmulator.base.codegen.ops import cast_ptr, fill_bytes, stack, trailing_zeros
from mmulator.base.codegen.types import Struct, ptr_to, u8, u32, u64
from mmulator.ptx.program.addresses import RANK_SHIFT, SLOT_SHARED, SLOT_SHIFT
from mmulator.runtime.native.asynchrony.accounts import warp_number
from mmulator.runtime.native.asynchrony.waiting import hash_words, mixed, state_of_lanes
from mmulator.runtime.native.hooks.events import PROXY_SHIFT, Access, Proxy
from mmulator.runtime.native.memory.windows import OFFSET_MASK, peek
from mmulator.runtime.native.state import NUM_BARRIERS, Barrier, Cluster, Cta, Warp
from mmulator.sanitizer.state import of_cluster

STRIDE = 8  # rounds between two comparisons
ATOMS = 16  # addresses of atomics that are known
_ATOMIC = int(Access.ATOMIC)

# The last place that a warp read while nothing changed. site: + 1.
Look = Struct("Look", [("at", u64), ("site", u32), ("bytes", u32), ("lanes", u32)])
# The state of a cluster.
# changes: number of changes. rounds: rounds since the last change. mark: `rounds` at the moment of comparison. print: its hash.
# still: whether a later moment was equal. atoms: addresses of atomics since. marked: `changes` at the moment of comparison.
Stillness = Struct("Stillness", [
    ("changes", u64), ("mark", u64), ("rounds", u64), ("print", u64), ("still", u32),
    ("atom_count", u32), ("atoms", u64, ATOMS), ("looks", ptr_to(Look)), ("marked", u64),
])  # fmt: skip


def stillness_of(cluster: Any) -> Any:
    """Macro: the record of how long nothing has changed."""
    return cast_ptr(Stillness, of_cluster(cluster).field("waits"))


@native
def note_atomic(s: ptr_to(Stillness), at: u64) -> None:
    """Record an atomic at an address. If there are too many, they count as changes."""
    if s.changes != s.marked:  # the next look forgets the atomics
        return
    for i in range(s.atom_count):
        if s.atoms[i] == at:
            return
    if s.atom_count == ATOMS:
        s.changes = s.changes + 1
        s.atom_count = 0
        return
    s.atoms[s.atom_count] = at
    s.atom_count = s.atom_count + 1


@native
def note_look(w: ptr_to(Warp), mask: u32, at: u64, bytes: u32, site: u32) -> None:
    cluster = w.cta.cluster
    look = stillness_of(cluster).looks + warp_number(w)
    look.at = at
    look.site = site + 1
    look.bytes = bytes
    look.lanes = mask


@native(inline=True)
def still_touched(w: ptr_to(Warp), mask: u32, at: ptr_to(u64), base: u64, bytes: u32, access: u32, site: u32) -> None:
    s = stillness_of(w.cta.cluster)
    if u64(s) == 0:
        return
    if (access & Access.WRITE) == 0:
        if s.rounds != 0 and (access >> PROXY_SHIFT) == Proxy.GENERIC:
            note_look(w, mask, at[trailing_zeros(mask)] | base, bytes, site)
    elif (access & _ATOMIC) == 0 or (access >> PROXY_SHIFT) != Proxy.GENERIC:
        s.changes = s.changes + 1
    else:
        left = mask
        while left != 0 and s.changes == s.marked:
            lane = trailing_zeros(left)
            left = left & (left - 1)
            note_atomic(s, at[lane] | base)
        if s.rounds != 0:
            note_look(w, mask, at[trailing_zeros(mask)] | base, bytes, site)


@native
def still_touched_one(w: ptr_to(Warp), lane: u32, at: u64, bytes: u32, access: u32, site: u32) -> None:
    s = stillness_of(w.cta.cluster)
    if u64(s) == 0:
        return
    if (access & Access.WRITE) == 0:
        if s.rounds != 0 and (access >> PROXY_SHIFT) == Proxy.GENERIC:
            note_look(w, 1 << lane, at, bytes, site)
    elif (access & _ATOMIC) == 0 or (access >> PROXY_SHIFT) != Proxy.GENERIC:
        s.changes = s.changes + 1
    else:
        note_atomic(s, at)
        if s.rounds != 0:
            note_look(w, 1 << lane, at, bytes, site)


@native
def whole_state(cluster: ptr_to(Cluster)) -> u64:
    """A hash of registers, places, barriers, and of the memory at atomics."""
    s = stillness_of(cluster)
    value = state_of_lanes(cluster)
    ctas = cast_ptr(Cta, cluster.ctas)
    for rank in range(cluster.cta_count):
        value = hash_words(value, cast_ptr(u64, (ctas + rank).barriers), Barrier.size * NUM_BARRIERS // 8)
    word = stack(u64, 1)
    for i in range(s.atom_count):
        at = s.atoms[i]
        rank = 0
        if (at >> SLOT_SHIFT) == SLOT_SHARED:
            rank = u32((at & OFFSET_MASK) >> RANK_SHIFT)
        word[0] = 0
        peek(cast_ptr(Warp, cluster.warps) + rank * cluster.launch.warps, 0, at, 8, cast_ptr(u8, word))
        value = mixed(value, word[0])
    return value


@native
def look_for_stillness(cluster: ptr_to(Cluster)) -> None:
    s = stillness_of(cluster)
    if u64(s) == 0:
        return
    mark = s.changes + (cluster.newest << 40) + (cluster.flips << 20) + u64(cluster.generation) + u64(cluster.others)
    if mark != s.mark:
        s.mark = mark
        s.marked = s.changes
        s.rounds = 0
        s.still = 0
        s.atom_count = 0
        return
    s.rounds = s.rounds + 1
    if (s.rounds & (STRIDE - 1)) != 0:
        return
    n = s.rounds // STRIDE
    state = whole_state(cluster)
    if n > 1 and state == s.print:
        s.still = 1
        if cluster.others == 0:
            cluster.stalled = 1
    if (n & (n - 1)) == 0:
        s.print = state


@native
def stillness_begins(cluster: ptr_to(Cluster)) -> None:
    s = stillness_of(cluster)
    if u64(s) != 0:
        s.rounds = 0
        s.still = 0
        s.atom_count = 0
        s.changes = s.changes + 1
        fill_bytes(s.looks, 0, u64(cluster.warp_count) * Look.size)


HOOKS: Mapping[str, Native] = {
    "accessed": still_touched, "accessed_one": still_touched_one, "round_over": look_for_stillness,
    "cluster_begins": stillness_begins,
}  # fmt: skip
