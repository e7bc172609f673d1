"""Hooks for every access while a kernel runs: at the memory windows and at the register file.

In a kernel that is compiled for an instrument (CompileOptions.events), hooks call the instrument's native functions; in any
other kernel they do not exist. An instrument that records entries has room in the log of the worker that runs the block:
`reserve` ensures that there is room, after passing older entries to Python (runtime/launch/events.py).
"""

from collections.abc import Mapping
from enum import IntEnum, IntFlag

from mmulator.base.codegen.lang import hook, native
from mmulator.base.codegen.types import i32, i64, ptr, ptr_to, u8, u32, u64, void
from mmulator.base.codegen.values import Builder, Value
from mmulator.runtime.native.state import Cluster, Cta, Log, Transfer, Warp, WgmmaTable


class Proxy(IntEnum):
    """The way by which an access reaches memory (PTX ISA 9.1, Memory Consistency Model: Proxies)."""

    GENERIC = 0
    ASYNC = 1  # operands of wgmma
    MBARRIER = 2  # operations on mbarriers, which no order binds: WRITE: it is made or ended, READ: a wait, both: the others
    TENSORMAP = 3  # of a copy that uses a tensor map


class Access(IntFlag):
    """The kind of an access: the low bits of a hook's `access`; the proxy is above them (`by`).

    LATER: addresses are checked now, and the bytes are read or written at the `completed` that follows.
    """

    READ = 1
    WRITE = 2
    ATOMIC = 4
    LATER = 8


PROXY_SHIFT = 4


def by(access: int, proxy: Proxy) -> int:
    """The code of an access through a proxy."""
    return int(access) | int(proxy) << PROXY_SHIFT


READ, WRITE, ATOMIC = int(Access.READ), int(Access.WRITE), int(Access.ATOMIC)
BOTH = READ | WRITE | ATOMIC


@hook
def accessed(w: ptr_to(Warp), mask: u32, at: ptr_to(u64), base: u64, bytes: u32, access: u32, site: u32) -> None:
    """Called before lanes of `mask` access `bytes` each, all of which exist, at the generic addresses at[lane] | base."""


@hook
def accessed_one(w: ptr_to(Warp), lane: u32, at: u64, bytes: u32, access: u32, site: u32) -> None:
    """Called before one lane accesses `bytes` at an address; operands of tcgen05 count as lane 0's."""


@hook
def operand_read(w: ptr_to(Warp), at: u64, site: u32) -> None:
    """Called before wgmma reads UNIT bytes (matrix/twin/shared.py) of an operand in shared memory at an address."""


class Only(IntEnum):
    """The memory whose addresses an instruction accepts."""

    ANY = 0
    GLOBAL = 1
    OWN = 2  # shared memory of the CTA itself


@hook
def screened(
    w: ptr_to(Warp), mask: u32, at: ptr_to(u64), base: u64, bytes: u32, only: u32, access: u32, site: u32, out: ptr_to(u32)
) -> None:
    """Called before an access in a launch that continues after faults (CompileOptions.keep_going).

    w, mask, site: the warp, lanes and instruction.
    at, base: addresses at[lane] | base.
    bytes: bytes of each access.
    only: Only.
    access: as in `accessed`.
    out: out[0] becomes the mask of lanes that cannot access their bytes, and are left out.
    """


@hook
def lanes_stored(
    w: ptr_to(Warp), mask: u32, at: ptr_to(u64), base: u64, bytes: u32, image: ptr_to(u8), rows: u32, site: u32
) -> None:
    """Called after a weak store by lanes of `mask` to at[lane] | base.

    w, mask, site: the warp, lanes and instruction.
    at, base: addresses.
    bytes: bytes of each lane.
    image: the stored bytes, lane after lane.
    rows: 1 for stmatrix, whose rows all lanes store together.
    """


@hook
def completed(w: ptr_to(Warp), mask: u32, access: u32) -> None:
    """Called when the oldest LATER access of this kind that the warp has under way is done."""


@hook
def registers(w: ptr_to(Warp), frame: u64, slots: ptr_to(i32), count: u32, access: u32, site: u32) -> None:
    """Called when an asynchronous operation reads or writes registers of a frame, for all lanes of a warp. slots: the
    registers.
    """


@hook
def register(w: ptr_to(Warp), mask: u32, slot: u32, access: u32, site: u32) -> None:
    """Called when an instruction reads or writes a register of the warp's frame (w.frame) that asynchronous operations use too.
    LATER: the instruction was moved, and this is its original place.
    """


# steps ----------------------------------------------------------------------------------------------------------------
# Under an instrument that takes `stepped` every register has a place of its own in the register file.
@hook
def stepped(w: ptr_to(Warp), mask: u32, site: u32) -> None:
    """Called before lanes of a warp execute an instruction, when all registers are in the register file."""


@hook
def wgmma_reads(first: ptr_to(Warp), number: u64, site: u32) -> None:
    """Called when operation `number` of a warpgroup is about to read its operands. first: the warpgroup's first warp."""


# what orders accesses -------------------------------------------------------------------------------------------------
class Order(IntFlag):
    """The ordering of an instruction: its semantics, and above them its scope (`order_of`)."""

    STRONG = 1  # relaxed, volatile and all below; else weak
    ACQUIRE = 2
    RELEASE = 4
    SC = 8


SCOPE_SHIFT, SCOPE_MASK = 4, 7
LOADS, STORES, SUM = 1 << 8, 1 << 9, 1 << 14  # of `ordered`: what the instruction does (an atomic operation both); choices.is_sum
SAID, SIZE_SHIFT = 1 << 10, 11  # the instruction says its scope (of mbarriers); log2 of the bytes of an element (of `ordered`)
SCOPES: Mapping[str, int] = {"": 0, "cta": 1, "cluster": 2, "gpu": 3, "sys": 4, "gl": 3}
_ORDERS: Mapping[str, Order] = {
    "weak": Order(0), "volatile": Order.STRONG, "relaxed": Order.STRONG, "acquire": Order.STRONG | Order.ACQUIRE,
    "release": Order.STRONG | Order.RELEASE, "acq_rel": Order.STRONG | Order.ACQUIRE | Order.RELEASE,
    "sc": Order.STRONG | Order.ACQUIRE | Order.RELEASE | Order.SC,
}  # fmt: skip


def order_of(sem: str, scope: str) -> int:
    """The code of semantics and scope, from their modifiers without dots. volatile is relaxed at system scope."""
    return int(_ORDERS[sem]) | SCOPES["sys" if sem == "volatile" else scope] << SCOPE_SHIFT


class Fence(IntEnum):
    """The purpose of a fence."""

    MEMORY = 0  # membar, fence.sc, fence.acq_rel and the like
    ASYNC = 1  # fence.proxy.async
    ALIAS = 2
    TENSORMAP_RELEASE = 3  # fence.proxy.tensormap::generic.release
    TENSORMAP_ACQUIRE = 4
    MBARRIER_INIT = 5
    GENERIC_ACQUIRE = 6  # fence.proxy.async::generic.acquire.sync_restrict::shared::cluster.cluster
    GENERIC_RELEASE = 7
    GENERIC_READS = 8  # the release of what was read alone: .sync_restrict::shared::cluster::read


SPACE_GLOBAL, SPACE_CTA, SPACE_CLUSTER = 1, 2, 4  # state spaces of a fence.proxy; 0: all


@hook
def ordered(w: ptr_to(Warp), mask: u32, at: ptr_to(u64), base: u64, order: u32, done: u32, site: u32) -> None:
    """Called before (done 0) and after (done 1) an ld, st, atom or red that is not weak.

    w, mask, site: the warp, lanes and instruction.
    at, base: addresses at[lane] | base.
    order: as `order_of`, with LOADS, STORES and SUM.
    done: 0 or 1.
    """


@hook
def fenced(w: ptr_to(Warp), mask: u32, kind: u32, order: u32, spaces: u32, at: ptr_to(u64), site: u32) -> None:
    """Called at a fence.

    w, mask, site: the warp, lanes and instruction.
    kind: Fence.
    order: as `order_of`.
    spaces: state spaces.
    at: for TENSORMAP_ACQUIRE the address of the map.
    """


@hook
def warp_met(w: ptr_to(Warp), mask: u32, site: u32) -> None:
    """Called at bar.warp.sync, match and tcgen05.alloc, when lanes have met and continue."""


@hook
def barrier_arrived(w: ptr_to(Warp), mask: u32, id: u32, op: u32, site: u32) -> None:
    """Called at bar and barrier when lanes arrive (runtime/native/threads/barrier.py: SYNC, ARRIVE, ...), before the barrier can
    be complete.
    """


@hook
def barrier_over(cta: ptr_to(Cta), id: u32) -> None:
    """Called when a barrier of a CTA is complete; w.bar_lanes[id] of its warps, except those with w.bar_came[id], are about to
    continue.
    """


@hook
def cluster_arrived(w: ptr_to(Warp), mask: u32, order: u32, site: u32) -> None:
    """Called at barrier.cluster.arrive, before the barrier can be complete."""


@hook
def cluster_over(cluster: ptr_to(Cluster)) -> None:
    """Called when barrier.cluster is complete; its generation is still the old one."""


@hook
def cluster_waited(w: ptr_to(Warp), mask: u32, order: u32, site: u32) -> None:
    """Called at barrier.cluster.wait, for lanes that continue."""


@hook
def mbarrier_order(w: ptr_to(Warp), order: u32, site: u32) -> None:
    """Called before an operation on mbarriers, with its semantics and scope, which hold until the next such call."""


@hook
def mbarrier_made(w: ptr_to(Warp), lane: u32, barrier: u64, count: u64, site: u32) -> None:
    """Called before mbarrier.init at a host address."""


@hook
def mbarrier_gone(w: ptr_to(Warp), lane: u32, barrier: u64, site: u32) -> None:
    """Called before mbarrier.inval."""


@hook
def mbarrier_arrived(w: ptr_to(Warp), mask: u32, barrier: u64, arrivals: u64, expected: u64, came: u64, site: u32) -> None:
    """Called before lanes arrive at one mbarrier, expect bytes there, or complete some themselves."""


@hook
def mbarrier_over(cluster: ptr_to(Cluster), barrier: u64) -> None:
    """Called when the phase of an mbarrier is complete."""


@hook
def mbarrier_waited(w: ptr_to(Warp), mask: u32, host: ptr_to(ptr), parities: u32, site: u32) -> None:
    """Called when lanes (each at host[lane]) learn that the phase of their parity is complete."""


class PayloadShape(IntEnum):
    """The way in which the payload of a transfer describes its bytes."""

    PLAIN = 0
    BOX = 1
    WORDS = 2
    RESPONSE = 3
    TENSOR = 4


@hook
def transfer_filled(t: ptr_to(Transfer), shape: u32) -> None:
    """Called when a bulk operation is filled in and about to be started."""


@hook
def map_used(w: ptr_to(Warp), lane: u32, at: u64, site: u32) -> None:
    """Called when the copy that is filled in next uses the tensor map at a generic address."""


@hook
def map_published(w: ptr_to(Warp), lane: u32, at: u64, site: u32) -> None:
    """Called when tensormap.cp_fenceproxy has copied a map, which is also a release."""


@hook
def transfer_issued(t: ptr_to(Transfer)) -> None:
    """Called when a bulk operation is issued: its group is known, and nothing of it is done."""


@hook
def left_undetermined(w: ptr_to(Warp), lane: u32, at: u64, bytes: u64) -> None:
    """Called when bytes from a generic address on have no value any more: what a transfer writes may be undefined, discard and
    stackrestore give memory up.
    """


@hook
def transfer_moves(t: ptr_to(Transfer), moves: u32) -> None:
    """Called with 1 when a transfer begins to access memory, and with 0 when it ends."""


@hook
def moves_alone(t: ptr_to(Transfer), out: ptr_to(u32)) -> None:
    """Called when a transfer begins that may be carried out together with later ones: out[0] = 1 says not to."""


@hook
def bulk_waited(w: ptr_to(Warp), mask: u32, pending: u64, read: u32, site: u32) -> None:
    """Called after cp.async.bulk.wait_group[.read]: all but the newest `pending` groups of each lane."""


@hook
def copy_signals(w: ptr_to(Warp), mask: u32, barrier: u64, counted: u32, site: u32) -> None:
    """Called before cp.async.mbarrier.arrive is issued: the lanes' copies so far end before they arrive at an mbarrier."""


@hook
def copies_waited(w: ptr_to(Warp), mask: u32, end: u64) -> None:
    """Called after cp.async.wait_group or wait_all: the copies of these lanes with numbers below `end` are complete."""


@hook
def wgmma_fenced(w: ptr_to(Warp), mask: u32, site: u32) -> None:
    """Called at wgmma.fence."""


@hook
def wgmma_issued(w: ptr_to(Warp), number: u64, site: u32) -> None:
    """Called when a warp has filled in operation `number` of its queue."""


@hook
def wgmma_committed(w: ptr_to(Warp), site: u32) -> None:
    """Called before wgmma.commit_group."""


@hook
def wgmma_waited(w: ptr_to(Warp), mask: u32, end: u64, site: u32) -> None:
    """Called after wgmma.wait_group: operations with numbers below `end` are complete, with their results in the registers."""


@hook
def cluster_begins(cluster: ptr_to(Cluster)) -> None:
    """Called when a cluster begins, possibly in memory where another has run."""


@hook
def cluster_ends(cluster: ptr_to(Cluster)) -> None:
    """Called when all threads of a cluster have exited; transfers may be under way."""


@hook
def cluster_finished(cluster: ptr_to(Cluster)) -> None:
    """Called when a cluster has ended, and its transfers are complete."""


@hook
def round_over(cluster: ptr_to(Cluster)) -> None:
    """Called when all warps of a cluster had a turn, and some can continue. Setting Cluster.stalled to 1 ends the cluster,
    because nothing can change.
    """


@hook
def lanes_exit(w: ptr_to(Warp), mask: u32, site: u32) -> None:
    """Called before threads exit."""


# undefined values ---------------------------------------------------------------------------------------------------
# Under an instrument that takes `undefined_used` each register that may be undefined has 32 bits more: the lanes that hold a
# value (compiler/emit/shadow.py).
@hook
def bytes_read(
    w: ptr_to(Warp), mask: u32, at: ptr_to(u64), base: u64, bytes: u32, count: u32, out: ptr_to(u32), site: u32
) -> None:
    """Called before a load of `count` elements of `bytes` each from at[lane] | base. out: out[n] becomes the mask of lanes
    whose element n has been written.
    """


@hook
def rows_read(w: ptr_to(Warp), at: ptr_to(u64), base: u64, matrices: u32, trans: u32, out: ptr_to(u32), site: u32) -> None:
    """Called before an ldmatrix of 8x8 elements of 16 bits. out: becomes the masks of lanes whose registers have a value."""


@hook
def tile_read(
    w: ptr_to(Warp), table: ptr, at: u64, base: u64, stride: i64, bits: u32, held: u32, out: ptr_to(u32), site: u32
) -> None:
    """Called before a wmma.load.

    w, site: the warp and instruction.
    table: places of the elements.
    at, base: address at | base.
    stride: distance of lines in elements.
    bits: bits of an element.
    held: elements of a register.
    out: becomes the masks of lanes whose registers have a value.
    """


@hook
def bytes_written(w: ptr_to(Warp), mask: u32, at: ptr_to(u64), base: u64, bytes: u32) -> None:
    """Called after an atomic operation that overwrites its bytes completely."""


@hook
def undefined_written(
    w: ptr_to(Warp), mask: u32, lanes: u32, at: ptr_to(u64), base: u64, offset: u32, bytes: u32, memory: u32, site: u32
) -> None:
    """Called after a store by lanes of `mask` to at[lane] | base, if the value of some lanes at this offset is undefined.

    w, mask, site: the warp, lanes and instruction.
    lanes: lanes with an undefined value.
    at, base, offset, bytes: the place.
    memory: as in `undefined_used`.
    """


@hook
def undefined_used(w: ptr_to(Warp), lanes: u32, rule: u32, memory: u32, site: u32) -> None:
    """Called when lanes branch, or compute an address, by an undefined register.

    w, lanes, site: the warp, lanes and instruction.
    rule: number of the rule.
    memory: reason: 0: a register was not written, 1: memory was not, 2: one of these, 3: `value_missed`; 4: or that.
    """


@hook
def value_missed(w: ptr_to(Warp), lanes: u32, rule: u32, site: u32) -> None:
    """Called with the lanes that an instruction leaves without a value, such as a shuffle from a lane that has no part in it."""


@hook
def product_of(table: ptr_to(i32), a: ptr_to(u32), b: ptr_to(u32), c: ptr_to(u32), d: ptr_to(u32)) -> None:
    """Compute the masks of lanes of D that have a value, for a matrix product, from those of A, B and C
    (compiler/lowering/definedness.py has the table).

    table: rows and columns of the registers.
    a, b, c: masks of the sources.
    d: the result.
    """


@hook
def product_in_shared(
    w: ptr_to(Warp), table: ptr_to(WgmmaTable), a_desc: u64, b_desc: u64, a: ptr_to(u32), d: ptr_to(u32), site: u32
) -> None:
    """Compute the masks of lanes of D that have a value, for a wgmma.

    w, site: the warp and instruction.
    table: rows and columns of the registers.
    a_desc, b_desc: descriptors.
    a: masks of A in registers, or null.
    d: on entry the masks of the accumulator before.
    """


@hook
def left_variable(
    w: ptr_to(Warp), lanes: u32, at: ptr_to(u64), base: u64, origin: ptr_to(u64), bytes: u32, size: u32, site: u32
) -> None:
    """Called before lanes access bytes at at[lane] | base, which they have computed from a variable at origin[lane] of only
    `size` bytes.
    """


@hook
def local_copied(w: ptr_to(Warp), lane: u32, source: u64, target: u64, bytes: u32) -> None:
    """Called when bytes of a lane's local memory have been copied, by offset: parameters and results of a call."""


@hook
def frame_entered(w: ptr_to(Warp), mask: u32, base: ptr_to(u32), begin: u32, end: u32) -> None:
    """Called when lanes enter a function, whose variables are in local memory from base[lane] + begin to end."""


# the log --------------------------------------------------------------------------------------------------------------
def call_drain(drain: Value, log: Value) -> Value:
    """Macro: the host function that takes the entries of a log."""
    return Builder.current().call_pointer(drain, void, [log])


@native
def reserve(log: ptr_to(Log), count: u32) -> None:
    """Make room for a number of entries, at most as many as the log has."""
    if log.count + count > log.room:
        call_drain(log.drain, log)


@native
def entry(log: ptr_to(Log)) -> ptr:
    """The next entry of a log, which must have room."""
    place = log.entries + u64(log.count) * u64(log.entry_bytes)
    log.count = log.count + 1
    return place
