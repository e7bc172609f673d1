"""Rules of the generic and the asynchronous proxy (base/rules/proxies.py): bulk operations.

An operation's accesses are recorded when it is issued, by an agent on whose end other threads can synchronise: an mbarrier's
phase, or a bulk group of its thread. Waits acquire the end of an operation (clocks.py); conflicts.py names the broken rule.
"""

from collections.abc import Mapping

from mmulator.base.codegen.lang import Native, native
from mmulator.base.codegen.ops import bits_of, cast_ptr, copy_bytes, null, stack, trailing_zeros
from mmulator.base.codegen.types import boolean, ptr_to, u8, u32, u64
from mmulator.base.rules.proxies import NEVER_COMMITTED, PENDING_AT_EXIT
from mmulator.ptx.program.addresses import RANK_SHIFT, SHARED_BASE, SLOT_SHARED, SLOT_SHIFT
from mmulator.runtime.native.asynchrony.accounts import warp_number
from mmulator.runtime.native.asynchrony.boxes import next_row, row_inside, row_offset
from mmulator.runtime.native.asynchrony.bulk import ALL
from mmulator.runtime.native.asynchrony.maps import Box
from mmulator.runtime.native.asynchrony.tensor import CHUNK, swizzled
from mmulator.runtime.native.asynchrony.transfers import payload_of
from mmulator.runtime.native.hooks.events import Access, PayloadShape
from mmulator.runtime.native.memory.windows import SHARED, WITHIN, shared_of
from mmulator.runtime.native.state import Cluster, Completes, Transfer, TransferKind, Warp
from mmulator.runtime.native.threads.cluster import RESPONSE
from mmulator.sanitizer.checks import proxy_operands as operands
from mmulator.sanitizer.checks import proxy_state as proxy
from mmulator.sanitizer.order.clocks import learn, new_agent
from mmulator.sanitizer.order.locations import phaser_of
from mmulator.sanitizer.order.views import NO_AGENT
from mmulator.sanitizer.shadow.records import KIND_SHIFT, PATTERN_SHIFT, AccessKind, Actor
from mmulator.sanitizer.shadow.shadow import act_async, is_watched, touch
from mmulator.sanitizer.state import find

READ, WRITE, REDUCE = int(Access.READ), int(Access.WRITE), int(Access.WRITE | Access.ATOMIC)
LINE = 128  # bytes in which no swizzle of 16-byte chunks exchanges any, at a multiple of 1024


# the actor ------------------------------------------------------------------------------------------------------------
@native
def operation_acts(
    w: ptr_to(Warp), lane: u32, site: u32, access: u32, kind: u32, agent: u32, clock: u32, global_: u32, out: ptr_to(Actor)
) -> None:
    """Prepare an actor for the accesses of an operation that a lane issues now.

    w, lane, site: the issuing lane and instruction.
    access: read, write or both.
    kind: an AccessKind.
    agent, clock: agent and clock of the operation's end.
    global_: whether it accesses global memory.
    out: the actor.
    """
    act_async(w, lane, 1 << lane, site, access, kind, agent, clock, global_, out)
    proxy.note_issue(w, lane, agent, clock, site, 0)


@native
def use_barrier(t: ptr_to(Transfer), rank: u32) -> None:
    """Set p.agent and p.clock to the mbarrier that is signalled for data of the CTA of a rank."""
    w = cast_ptr(Warp, t.warp)
    cluster = w.cta.cluster
    p = proxy.proxies_of(cluster)
    owner = rank
    if ((t.barriers >> rank) & 1) == 0:
        owner = rank ^ 1  # .cta_group::2 signals one CTA of each pair
    if (t.barriers & ((u32(1) << rank) | (u32(1) << (rank ^ 1)))) == 0:
        owner = trailing_zeros(t.barriers)
    p.agent = NO_AGENT
    p.clock = 1
    entry = phaser_of(cluster, u64(shared_of(cluster, owner)) + t.offset)
    if u64(entry) != 0:
        p.agent = entry.agent
        p.clock = entry.clock
        p.noted = 1
        name = proxy.name_of(cluster, entry.agent)
        name.agent = entry.agent + 1
        name.first = entry.clock - entry.phase
        name.at = (u64(owner) << RANK_SHIFT) + (t.offset + (SHARED + SHARED_BASE))


@native(inline=True)
def in_cta(rank: u32, at: u64) -> u64:
    """The generic address of a byte in a CTA's shared memory."""
    return (u64(rank) << RANK_SHIFT) + ((SHARED + SHARED_BASE) + at)


# what it accesses -----------------------------------------------------------------------------------------------------
@native
def touch_pieces(a: ptr_to(Actor), at: u64, bytes: u64, kept: u32) -> None:
    """Access contiguous bytes, but of each 16 only those in `kept`."""
    if kept == ALL:
        touch(a, at, bytes)
        return
    for i in range(bytes):
        if ((kept >> (u32(i) & 15)) & 1) != 0:
            touch(a, at + i, 1)


@native
def touch_shared_row(a: ptr_to(Actor), box: ptr_to(Box), rank: u32, at: u64) -> None:
    """Access a row of a box in shared memory."""
    if box.swizzle == 0 or box.row == box.pitch:
        touch(a, in_cta(rank, at), u64(box.row))
    else:
        for c in range(u64(box.row) // CHUNK):
            touch(a, in_cta(rank, swizzled(box, at + c * CHUNK)), CHUNK)


@native
def touch_box(a: ptr_to(Actor), box: ptr_to(Box), rank: u32, inside: boolean) -> None:
    """Access a box in shared memory. inside: whether only rows inside the tensor count, as for a store."""
    if (box.swizzle == 0 or box.row == box.pitch) and (not inside or box.whole != 0) and box.row == box.pitch:
        touch(a, in_cta(rank, box.place), u64(box.rows) * u64(box.row))
        return
    copy = stack(Box)
    copy_bytes(copy, box, Box.size)
    at = box.place
    for _ in range(box.rows):
        if not inside:
            touch_shared_row(a, box, rank, at)
        elif row_inside(copy) != 0:
            touch_shared_row(a, box, rank, at)
        next_row(copy, 1)
        at = at + u64(box.pitch)


@native
def touch_tensor(a: ptr_to(Actor), box: ptr_to(Box)) -> None:
    """Access the part of the tensor that a box covers; contiguous rows are one access."""
    if box.low == box.high:
        return
    copy = stack(Box)
    copy_bytes(copy, box, Box.size)
    first = u64(0)
    end = u64(0)
    for _ in range(box.rows):
        if row_inside(copy) != 0:
            at = box.address + row_offset(copy) + u64(box.low)
            if at != end:
                if first != end:
                    touch(a, first, end - first)
                first = at
            end = at + u64(box.high - box.low)
        next_row(copy, 1)
    if first != end:
        touch(a, first, end - first)


@native
def reads_of(t: ptr_to(Transfer), shape: u32, agent: u32, clock: u32) -> None:
    """Record the bytes that a transfer reads."""
    w = cast_ptr(Warp, t.warp)
    a = stack(Actor)
    if shape == PayloadShape.BOX:
        box = payload_of(t, PayloadShape.BOX)
        load = u32(t.completes == Completes.BYTES)
        operation_acts(w, t.lane, t.site, READ, AccessKind.TENSOR, agent, clock, load, a)
        if load != 0:
            touch_tensor(a, box)
        else:
            if u64(box.rows) * u64(box.pitch) > LINE:
                a.pattern = operands.pattern_of_box(box)
            touch_box(a, box, w.cta.rank, True)
            operands.pattern_read(a, operands.OF_STORE, 0)
    elif shape == PayloadShape.PLAIN:
        copy = payload_of(t, PayloadShape.PLAIN)
        at = copy.from_
        operation_acts(w, t.lane, t.site, READ, AccessKind.BULK, agent, clock, u32((at >> SLOT_SHIFT) != SLOT_SHARED), a)
        touch(a, at + copy.begin, copy.bytes - copy.begin - copy.end)


@native
def writes_to_shared(t: ptr_to(Transfer), shape: u32, access: u32, targets: u32) -> None:
    """Record the bytes that a transfer writes to the shared memory of CTAs; each CTA is signalled at its own mbarrier."""
    w = cast_ptr(Warp, t.warp)
    p = proxy.proxies_of(w.cta.cluster)
    a = stack(Actor)
    for rank in bits_of(targets):
        use_barrier(t, rank)
        if shape == PayloadShape.BOX:
            box = payload_of(t, PayloadShape.BOX)
            kind = u32(AccessKind.TENSOR) | (operands.pattern_of_box(box) << (PATTERN_SHIFT - KIND_SHIFT))
            operation_acts(w, t.lane, t.site, access, kind, p.agent, p.clock, 0, a)
            touch_box(a, box, rank, False)
        else:
            kind = AccessKind.BULK
            to = payload_of(t, PayloadShape.PLAIN).to
            bytes = payload_of(t, PayloadShape.PLAIN).bytes
            if shape == PayloadShape.WORDS:
                kind = AccessKind.STORE
                to = payload_of(t, PayloadShape.WORDS).to
                bytes = payload_of(t, PayloadShape.WORDS).bytes
            if shape == PayloadShape.RESPONSE:
                to = payload_of(t, PayloadShape.RESPONSE).to
                bytes = RESPONSE
            operation_acts(w, t.lane, t.site, access, kind, p.agent, p.clock, 0, a)
            touch(a, in_cta(rank, (to & WITHIN) - SHARED_BASE), bytes)


@native
def load_issued(t: ptr_to(Transfer), shape: u32, access: u32) -> None:
    """Record a transfer that signals mbarriers."""
    w = cast_ptr(Warp, t.warp)
    p = proxy.proxies_of(w.cta.cluster)
    targets = t.barriers
    if shape == PayloadShape.BOX:
        targets = payload_of(t, PayloadShape.BOX).targets
    use_barrier(t, trailing_zeros(t.barriers))
    reads_of(t, shape, p.agent, p.clock)
    if p.map != 0:
        l = proxy.bulk_lane(w, t.lane)
        proxy.note_use(w, t.lane, p.agent, p.clock, l.reads - 1, u32(w.bulk_groups[t.lane]) + 1, t.site)
    writes_to_shared(t, shape, access, targets)


@native
def store_issued(t: ptr_to(Transfer), shape: u32, access: u32) -> None:
    """Record a transfer to global memory, in a bulk group of its lane."""
    w = cast_ptr(Warp, t.warp)
    p = proxy.proxies_of(w.cta.cluster)
    a = stack(Actor)
    if shape == PayloadShape.WORDS:
        return  # st.async to global memory: no wait exists for it
    l = proxy.bulk_lane(w, t.lane)
    clock = u32(w.bulk_groups[t.lane]) + 1
    p.agent = l.writes - 1
    p.clock = clock
    reads_of(t, shape, l.reads - 1, clock)
    l.pending = clock
    l.site = t.site
    if p.map != 0:
        proxy.note_use(w, t.lane, NO_AGENT, 0, l.reads - 1, clock, t.site)
    if shape == PayloadShape.BOX:
        operation_acts(w, t.lane, t.site, access, AccessKind.TENSOR, l.writes - 1, clock, 1, a)
        if t.kind == TransferKind.TENSOR_STORE:
            p.store = t
            p.replica = 0
        touch_tensor(a, payload_of(t, PayloadShape.BOX))
        p.store = null(u8)
    else:
        operation_acts(w, t.lane, t.site, access, AccessKind.BULK, l.writes - 1, clock, 1, a)
        copy = payload_of(t, PayloadShape.PLAIN)
        kept = u32(ALL)
        if t.kind < TransferKind.OWN:
            kept = u32(copy.kept)
        touch_pieces(a, copy.to, copy.bytes, kept)


@native
def transfer_begins(t: ptr_to(Transfer), shape: u32) -> None:
    """Record the issue of a transfer."""
    w = cast_ptr(Warp, t.warp)
    p = proxy.proxies_of(w.cta.cluster)
    if w.cta.fault == 0 and shape != PayloadShape.TENSOR:  # operands of tcgen05 are not followed
        access = u32(WRITE)
        if t.kind >= TransferKind.OWN:
            access = REDUCE
        if t.completes == Completes.BYTES:
            if t.barriers != 0:
                load_issued(t, shape, access)
        else:
            store_issued(t, shape, access)
    p.map = 0


@native
def map_used(w: ptr_to(Warp), lane: u32, at: u64, site: u32) -> None:
    """Record that the copy which is issued next uses a tensor map."""
    cluster = w.cta.cluster
    p = proxy.proxies_of(cluster)
    p.map = 0
    if is_watched(at) == 2:
        p.map = at
        if p.maps == 0:
            p.maps = new_agent(cluster) + 1
        a = stack(Actor)
        act_async(w, lane, 1 << lane, site, READ, AccessKind.MAP, p.maps - 1, 1, 1, a)
        touch(a, at, proxy.MAP_BYTES)


# bulk groups ----------------------------------------------------------------------------------------------------------
@native
def groups_waited(w: ptr_to(Warp), mask: u32, pending: u64, read: u32, site: u32) -> None:
    """Record that all groups of lanes except the newest have read their sources, or are complete."""
    lanes = proxy.proxies_of(w.cta.cluster).lanes + warp_number(w) * 32
    for lane in bits_of(mask):
        l = lanes + lane
        if l.reads != 0 and w.bulk_groups[lane] > pending:
            clock = u32(w.bulk_groups[lane] - pending)
            one = u32(1)
            learn(w, one << lane, l.reads - 1, clock)
            if read == 0:
                learn(w, one << lane, l.writes - 1, clock)
            if l.pending <= clock:
                l.pending = 0


@native
def lanes_leave(w: ptr_to(Warp), mask: u32, site: u32) -> None:
    """At the exit of threads, report stores that were not waited for."""
    lanes = proxy.proxies_of(w.cta.cluster).lanes + warp_number(w) * 32
    for lane in bits_of(mask):
        l = lanes + lane
        if l.pending != 0:
            one = u32(1)
            rule = u32(PENDING_AT_EXIT)
            if l.pending > u32(w.bulk_groups[lane]):
                rule = NEVER_COMMITTED
            find(w, rule, l.site, one << lane, 0, 0)


@native
def proxies_begin(cluster: ptr_to(Cluster)) -> None:
    proxy.forget_proxies(cluster)


HOOKS: Mapping[str, Native] = {
    "transfer_filled": transfer_begins, "map_used": map_used, "map_published": proxy.map_released, "fenced": proxy.map_fenced,
    "bulk_waited": groups_waited, "lanes_exit": lanes_leave, "cluster_begins": proxies_begin,
    "wgmma_issued": operands.wgmma_begins, "wgmma_committed": operands.wgmma_gathers, "wgmma_waited": operands.wgmma_over,
}  # fmt: skip
