"""Happens-before for an operation that lanes of a warp issue together: an order for one of the lanes is enough."""

from typing import Any

from mmulator.codegen.lang import native
from mmulator.codegen.ops import cast_ptr, load, mask_bits, maximum, trailing_zeros
from mmulator.codegen.types import ptr_to, u8, u32
from mmulator.native.state import Cluster, Warp
from mmulator.sanitizer.found import of_launch
from mmulator.sanitizer.order.views import KNOWN, U32, UNSAID, entries_of, knower_of, orders_of
from mmulator.sanitizer.order.world import view_knows_foreign


@native
def issue_knows(w: ptr_to(Warp), lanes: u32, agent: u32, clock: u32, plane: u32) -> u32:
    """1 if an agent's action at a clock happens before the joint issue of some lanes. plane: as in clocks.py."""
    o = orders_of(w.cta.cluster)
    if agent >= o.stride:
        return 1
    k = knower_of(o, w)
    own = agent - k.first
    if own < 32:
        if ((lanes >> own) & 1) != 0:
            if plane == KNOWN:
                return 1
            if plane_of_lane(k.now.own, plane, own) >= clock:
                return 1
    if o.copies != 0:
        copied = own - o.threads
        if copied < 32:
            if ((lanes >> copied) & 1) != 0:
                if plane_of_lane(k.now.copied, plane, copied) >= clock:
                    return 1
    return u32(latest_in(w, lanes, agent, plane) >= clock)


def plane_of_lane(numbers: Any, plane: Any, lane: Any) -> Any:
    """Macro: a lane's number in a plane."""
    return numbers[plane * 32 + lane]


@native
def latest_in(w: ptr_to(Warp), lanes: u32, agent: u32, plane: u32) -> u32:
    """Greatest clock of an agent in the views of the lanes; the agent is not one of the lanes."""
    o = orders_of(w.cta.cluster)
    ids = load(U32, knower_of(o, w).now.views, plane * 32)
    found = u32(0)
    left = lanes
    while left != 0:
        id = ids[trailing_zeros(left)]
        left = left & ~mask_bits(ids == id)
        found = maximum(found, entries_of(o, id)[agent])
    if plane == KNOWN and o.planes > UNSAID:
        found = maximum(found, latest_in(w, lanes, agent, UNSAID))
    return found


# of other clusters -------------------------------------------------------------------------------------------------------
@native
def issue_knows_foreign(w: ptr_to(Warp), lanes: u32, number: u32, agent: u32, others: u32, clock: u32, plane: u32) -> u32:
    """1 if an action in another cluster, by the first of `others` (lanes from an agent on), happens before the lanes' issue."""
    cluster = w.cta.cluster
    ids = load(U32, knower_of(orders_of(cluster), w).now.views, plane * 32)
    left = lanes
    while left != 0:
        id = ids[trailing_zeros(left)]
        left = left & ~mask_bits(ids == id)
        if view_knows_foreign(cluster, id, number, agent + trailing_zeros(others), clock):
            return 1
    return 0


@native
def has_fenced(cluster: ptr_to(Cluster), number: u32) -> u32:
    """1 if a cluster has executed a fence.proxy.async for global memory, possibly after its writes."""
    fenced = cast_ptr(u8, of_launch(cluster).proxies)
    return u32(fenced[number])


@native
def note_fenced(cluster: ptr_to(Cluster)) -> None:
    fenced = cast_ptr(u8, of_launch(cluster).proxies)
    fenced[cluster.number] = 1
