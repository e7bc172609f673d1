"""Turns: where a launch is compiled for them (CompileOptions.turns), lanes wait before each access whose order the schedule may
choose, and an observer says who is next (host/turns.py).

No other lane runs between two choices than the one that has its turn, and those that it lets go on. When all lanes of all
clusters wait, Python is asked.
"""

from typing import Any

from mmulator.base.codegen.lang import Instrument, native
from mmulator.base.codegen.ops import bits_of, cast_ptr, stack
from mmulator.base.codegen.types import Struct, boolean, i32, ptr_to, u32, u64
from mmulator.runtime.native.asynchrony.waiting import wait_for_lanes
from mmulator.runtime.native.hooks.blocks import all_wait, group_chosen, turn_awaited
from mmulator.runtime.native.hooks.events import Fence
from mmulator.runtime.native.hooks.steps import call_host
from mmulator.runtime.native.state import Cluster, Cta, Stop, Warp

# warp, lanes: who has the turn; no lanes: nobody. The others are functions of the host.
Turns = Struct("Turns", [
    ("warp", u64), ("lanes", u32),
    ("asked", u64), ("accessed", u64), ("fenced", u64), ("met", u64),
])  # fmt: skip


def turns_of(launch: Any) -> Any:
    """Macro: the Turns of a launch."""
    return cast_ptr(Turns, launch.field("turns"))


@native
def has_turn(w: ptr_to(Warp), mask: u32, here: i32) -> boolean:
    """Whether lanes at the start of block `here` have their turn; if not, they wait."""
    out = stack(u32, 1)
    out[0] = 0
    turn_awaited(w, mask, out)
    if out[0] != 0:
        return True
    wait_for_lanes(w, mask, here)
    return False


@native(inline=True)
def whose_turn(w: ptr_to(Warp), group: u32) -> u32:
    """The lanes that go on now, of those at one place: all, or the one that has its turn."""
    out = stack(u32, 1)
    out[0] = group
    group_chosen(w, out)
    return out[0]


@native
def ask(cluster: ptr_to(Cluster)) -> u32:
    """Ask for the next turn, when no lane of a cluster can go on: a Stop."""
    out = stack(u32, 1)
    out[0] = u32(Stop.BLOCKED)
    all_wait(cluster, out)
    return out[0]


@native
def give_turn(w: ptr_to(Warp), mask: u32, out: ptr_to(u32)) -> None:
    turns = turns_of(w.cta.launch)
    if turns.warp == u64(w) and turns.lanes == mask:
        turns.lanes = 0
        out[0] = 1


@native
def leave_others(w: ptr_to(Warp), out: ptr_to(u32)) -> None:
    turns = turns_of(w.cta.launch)
    if turns.warp == u64(w) and (turns.lanes & out[0]) != 0:
        out[0] = turns.lanes


@native
def ask_host(cluster: ptr_to(Cluster), out: ptr_to(u32)) -> None:
    call_host(turns_of(cluster.launch).asked, cluster, out)


@native
def tell_access(w: ptr_to(Warp), mask: u32, at: ptr_to(u64), base: u64, order: u32, done: u32, site: u32) -> None:
    for lane in bits_of(mask):
        call_host(turns_of(w.cta.launch).accessed, w, lane, at[lane] | base, u32(order | (done << 31)), site)


@native
def tell_fence(w: ptr_to(Warp), mask: u32, kind: u32, order: u32, spaces: u32, at: ptr_to(u64), site: u32) -> None:
    if kind == Fence.MEMORY:
        call_host(turns_of(w.cta.launch).fenced, w, mask, order)


@native
def tell_barrier(cta: ptr_to(Cta), id: u32) -> None:
    call_host(turns_of(cta.launch).met, cta, id)


@native
def ask_for_work(w: ptr_to(Warp), lane: u32, out: ptr_to(u32)) -> None:
    call_host(turns_of(w.cta.launch).asked, w, lane, out)


TAKES = Instrument("takes", {"work_asked": ask_for_work})
TURNS = Instrument(
    "turns",
    {"turn_awaited": give_turn, "group_chosen": leave_others, "all_wait": ask_host, "ordered": tell_access, "fenced": tell_fence,
     "barrier_over": tell_barrier},
)
