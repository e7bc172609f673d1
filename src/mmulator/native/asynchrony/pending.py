"""Asynchronous operations: issued now, carried out later, in the order of their issue.

A warp has a queue for each kind of them (state.py, KINDS). An operation is complete when its kind's function has carried it
out: at once, if the seed says so; else when somebody waits for the group that it was committed to, when the queue is full, or,
if it completes an mbarrier, when no lane of the cluster can go on otherwise. So whoever forgets to wait sees the memory
or the registers of before, for some seeds.

A kind is an entry of state.py that begins with an `Operation`, and a function that carries one out, or as many of those before
a given one as it can do together; it says how many. To issue:

    if not has_room(q, 1): make_room(w, q, 1)
    fill the entry of number q.issued
    issue(w, q, odds)
"""

from __future__ import annotations

from typing import Any

from mmulator.codegen.lang import native
from mmulator.codegen.ops import cast_ptr
from mmulator.codegen.types import ptr_to, u32, u64
from mmulator.codegen.values import Builder, Value
from mmulator.native.asynchrony.mbarrier import complete_for
from mmulator.native.hooks.events import copies_waited
from mmulator.native.state import ASYNC_GROUPS, COPIES, KINDS, Cluster, Completes, Operation, OperationKind, Queue, Stop, Warp
from mmulator.native.threads.chance import hash_choice


def queue(w: Any, kind: OperationKind) -> Any:
    """Macro: a warp's queue of a kind."""
    return cast_ptr(Queue, w.field("queues")) + kind.queue


def entry(w: Any, kind: OperationKind, number: Any) -> Any:
    """Macro: where a warp keeps operation `number` of a kind."""
    return cast_ptr(kind.entry, queue(w, kind).field("entries")) + (number & (kind.room - 1))


def carry_out(function: Any, w: Any, number: Any, end: Any) -> Value:
    """Macro: call a kind's function."""
    return Builder.current().call_pointer(function, u32, [w, number, end])


def operation_at(q: Any, number: Any) -> Any:
    """Macro: how the entry of operation `number` begins."""
    return cast_ptr(Operation, q.field("entries") + (number & u64(q.field("room") - 1)) * u64(q.field("entry_bytes")))


# chance -------------------------------------------------------------------------------------------------------------
def choice(w: Any, q: Any, number: Any) -> Any:
    """Macro: what the seed has for operation `number` of a queue: it depends on CTA, warp, kind and number, on nothing else."""
    kind = (u64(q) - u64(w.field("queues"))) // Queue.size
    cta = w.field("cta")
    seed = cta.field("launch").field("seed")
    return hash_choice(seed, u64(cta.field("linear")) * 64 + u64(w.field("index")), number + (kind << 48))


# completion ---------------------------------------------------------------------------------------------------------
@native
def tell(w: ptr_to(Warp), o: ptr_to(Operation)) -> None:
    """An operation that completes an mbarrier is complete: the mbarrier hears of it, and who sleeps at one looks again."""
    if o.completes == Completes.ARRIVAL:
        complete_for(w, o.lane, o.site, o.barrier, u64(o.bytes), 0)
    if o.completes == Completes.BYTES:
        complete_for(w, o.lane, o.site, o.barrier, 0, u64(o.bytes))


@native
def complete(w: ptr_to(Warp), q: ptr_to(Queue), end: u64) -> u32:
    """Carry out what was issued before `end`: 1 when that is done, or the CTA has a fault; 0 if it takes other warps."""
    while q.done < end and w.cta.fault == 0:
        number = q.done
        count = carry_out(q.carry_out, w, number, end)
        if count == 0:
            return 0
        if w.cta.fault == 0:
            for n in range(u64(count)):
                q.done = number + n + 1
                o = operation_at(q, number + n)
                if o.completes != Completes.GROUP:
                    tell(w, o)
    return 1


@native
def complete_for_sleepers(cluster: ptr_to(Cluster)) -> u32:
    """No lane of the cluster can go on by itself: BUDGET if an operation that completes an mbarrier could be completed, of
    which one may have waited, or FAULT; BLOCKED if there is none, which is a deadlock."""
    warps = cast_ptr(Warp, cluster.warps)
    for i in range(cluster.warp_count):
        w = warps + i
        for kind in KINDS:
            q = queue(w, kind)
            number = q.done
            while number != q.issued and operation_at(q, number).completes == Completes.GROUP:
                number = number + 1
            if number != q.issued:
                done = complete(w, q, number + 1)
                if w.cta.fault != 0:
                    return Stop.FAULT
                if done != 0:
                    return Stop.BUDGET
    return Stop.BLOCKED


# issue --------------------------------------------------------------------------------------------------------------
def has_room(q: Any, count: Any) -> Any:
    """Macro: whether `count` operations can be issued."""
    return q.field("issued") + count <= q.field("done") + u64(q.field("room"))


@native
def make_room(w: ptr_to(Warp), q: ptr_to(Queue), count: u32) -> u32:
    """Before `count` operations are issued: 0 if the queue has no room for them until other warps have issued theirs."""
    if has_room(q, u64(count)):
        return 1
    return complete(w, q, q.issued + u64(count) - u64(q.room))


@native(inline=True)
def issue(w: ptr_to(Warp), q: ptr_to(Queue), odds: u32) -> None:
    """The entry behind the last one is filled. One in `odds` is carried out now, if that takes no other warp."""
    w.used = 1
    q.issued = q.issued + 1
    if (choice(w, q, q.issued) & u64(odds - 1)) == 0:
        complete(w, q, q.issued)


# groups -------------------------------------------------------------------------------------------------------------
@native
def commit_group(w: ptr_to(Warp), kind: u32) -> None:
    """A new group of all that was issued since the last one. Empty groups are counted, and leave no entry."""
    q = cast_ptr(Queue, w.queues) + kind
    before = u64(0)
    if q.filled != 0:
        newest = q.groups + ((q.filled - 1) & (ASYNC_GROUPS - 1))
        before = newest.end
    if q.issued > before:
        group = q.groups + (q.filled & (ASYNC_GROUPS - 1))
        group.number = q.committed
        group.end = q.issued
        q.filled = q.filled + 1
    w.used = 1
    q.committed = q.committed + 1


@native
def covered(q: ptr_to(Queue), pending: u64) -> u64:
    """How many operations are in all but the newest `pending` groups.

    The newest ASYNC_GROUPS groups that are not empty are known; for older ones, what the oldest known covers: more is
    complete then than was asked for, as may be on a chip.
    """
    if pending >= q.committed:
        return 0
    wanted = q.committed - pending - 1
    at = q.filled
    oldest = u64(0)
    if at > ASYNC_GROUPS:
        oldest = at - ASYNC_GROUPS
    found = u64(0)
    while at > oldest:
        at = at - 1
        group = q.groups + (at & (ASYNC_GROUPS - 1))
        if group.number <= wanted or (at == oldest and oldest != 0):
            found = group.end
            break
    return found


@native
def wait_group(w: ptr_to(Warp), kind: u32, pending: u64) -> u32:
    """Complete all but the newest `pending` groups, and but what was not committed; as `complete`."""
    q = cast_ptr(Queue, w.queues) + kind
    return complete(w, q, covered(q, pending))


@native
def wait_all(w: ptr_to(Warp), kind: u32) -> u32:
    """Complete whatever was issued, committed or not."""
    q = cast_ptr(Queue, w.queues) + kind
    return complete(w, q, q.issued)


@native
def tell_copies(w: ptr_to(Warp), mask: u32, pending: u64) -> None:
    """What a wait for groups of cp.async says to an instrument."""
    copies_waited(w, mask, covered(queue(w, COPIES), pending))


@native
def tell_all_copies(w: ptr_to(Warp), mask: u32) -> None:
    copies_waited(w, mask, queue(w, COPIES).issued)
