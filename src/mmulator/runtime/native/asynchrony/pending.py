"""Asynchronous operations: issued now, carried out later, in the order of their issue.

A warp has a queue for each kind of them (state.py, KINDS). An operation is complete when its kind's function has carried it
out: at once, if the seed decides so; otherwise when a lane waits for the group to which it was committed, when the queue is
full, or, if it completes an mbarrier, when no lane of the cluster can continue otherwise. So a program that lacks a wait sees
old memory or registers, for some seeds.

A kind is an entry of state.py that begins with an `Operation`, and a function that carries out one operation, or as many before
a given one as it can do together, and returns their number. To issue:

    if not has_room(q, 1): make_room(w, q, 1)
    fill the entry of number q.issued
    issue(w, q, odds)
"""

from typing import Any

from mmulator.base.codegen.lang import native
from mmulator.base.codegen.ops import cast_ptr
from mmulator.base.codegen.types import ptr_to, u32, u64
from mmulator.base.codegen.values import Builder, Value
from mmulator.runtime.native.asynchrony.mbarrier import complete_for
from mmulator.runtime.native.hooks.events import copies_waited
from mmulator.runtime.native.state import (
    ASYNC_GROUPS,
    COPIES,
    KINDS,
    Cluster,
    Completes,
    Operation,
    OperationKind,
    Queue,
    Stop,
    Warp,
)
from mmulator.runtime.native.threads.chance import hash_choice


def queue(w: Any, kind: OperationKind) -> Any:
    """Macro: a warp's queue of a kind."""
    return cast_ptr(Queue, w.field("queues")) + kind.queue


def entry(w: Any, kind: OperationKind, number: Any) -> Any:
    """Macro: the entry of operation `number` of a kind in a warp."""
    return cast_ptr(kind.entry, queue(w, kind).field("entries")) + (number & (kind.room - 1))


def carry_out(function: Any, w: Any, number: Any, end: Any) -> Value:
    """Macro: call a kind's function."""
    return Builder.current().call_pointer(function, u32, [w, number, end])


def operation_at(q: Any, number: Any) -> Any:
    """Macro: the `Operation` at the beginning of an entry."""
    return cast_ptr(Operation, q.field("entries") + (number & u64(q.field("room") - 1)) * u64(q.field("entry_bytes")))


# chance -------------------------------------------------------------------------------------------------------------
def choice(w: Any, q: Any, number: Any) -> Any:
    """Macro: the seed's random number for operation `number` of a queue; it depends only on CTA, warp, kind and number."""
    kind = (u64(q) - u64(w.field("queues"))) // Queue.size
    cta = w.field("cta")
    seed = cta.field("launch").field("seed")
    return hash_choice(seed, u64(cta.field("linear")) * 64 + u64(w.field("index")), number + (kind << 48))


# completion ---------------------------------------------------------------------------------------------------------
@native
def tell(w: ptr_to(Warp), o: ptr_to(Operation)) -> None:
    """Complete the arrival or the bytes of an operation at its mbarrier, so that lanes sleeping there look again."""
    if o.completes == Completes.ARRIVAL:
        complete_for(w, o.lane, o.site, o.barrier, u64(o.bytes), 0)
    if o.completes == Completes.BYTES:
        complete_for(w, o.lane, o.site, o.barrier, 0, u64(o.bytes))


@native
def complete(w: ptr_to(Warp), q: ptr_to(Queue), end: u64) -> u32:
    """Carry out all operations issued before `end`. Returns 1 when that is done, or the CTA has a fault; 0 if other warps are
    needed.
    """
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
    """When no lane of the cluster can continue, complete an operation that completes an mbarrier. Returns BUDGET if there was
    one, FAULT, or BLOCKED if there is none, which is a deadlock.
    """
    warps = cast_ptr(Warp, cluster.warps)
    for i in range(cluster.warp_count):
        w = warps + i
        for kind in KINDS:
            q = queue(w, kind)
            number = q.done
            while number != q.issued:  # `and` would look at an operation of a queue without room
                if operation_at(q, number).completes != Completes.GROUP:
                    break
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
    """Make room for `count` operations. Returns 0 if the queue has none until other warps have issued theirs."""
    if has_room(q, u64(count)):
        return 1
    return complete(w, q, q.issued + u64(count) - u64(q.room))


@native(inline=True)
def issue(w: ptr_to(Warp), q: ptr_to(Queue), odds: u32) -> None:
    """Issue the operation whose entry is filled. One in `odds` is carried out now, if that needs no other warp."""
    w.used = 1
    q.issued = q.issued + 1
    if (choice(w, q, q.issued) & u64(odds - 1)) == 0:
        complete(w, q, q.issued)


# groups -------------------------------------------------------------------------------------------------------------
@native
def commit_group(w: ptr_to(Warp), kind: u32) -> None:
    """Commit all operations since the last commit as a group. Empty groups are counted, and leave no entry."""
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
    """Number of operations in all but the newest `pending` groups.

    The newest ASYNC_GROUPS groups that are not empty are known. For older ones the oldest known group decides: more may be
    completed than was requested, as on a chip.
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
    """Complete all committed operations except the newest `pending` groups. Returns as `complete`."""
    q = cast_ptr(Queue, w.queues) + kind
    return complete(w, q, covered(q, pending))


@native
def wait_all(w: ptr_to(Warp), kind: u32) -> u32:
    """Complete all issued operations, committed or not."""
    q = cast_ptr(Queue, w.queues) + kind
    return complete(w, q, q.issued)


@native
def tell_copies(w: ptr_to(Warp), mask: u32, pending: u64) -> None:
    """Tell an instrument about a wait for groups of cp.async."""
    copies_waited(w, mask, covered(queue(w, COPIES), pending))


@native
def tell_all_copies(w: ptr_to(Warp), mask: u32) -> None:
    """Tell an instrument about a wait for all copies of cp.async."""
    copies_waited(w, mask, queue(w, COPIES).issued)
