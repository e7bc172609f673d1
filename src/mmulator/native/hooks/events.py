"""What may be known of every access while a kernel runs: hooks at the door to memory and at the register file.

A kernel that is compiled for an instrument (CompileOptions.events) calls the instrument's native functions in their place;
any other kernel has nothing there. An instrument that writes down what it sees has room in the log of the worker that runs
the block: `reserve` sees to it that there is room, what was there goes to Python then (launch/events.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum, IntFlag

from mmulator.codegen.lang import hook, native
from mmulator.codegen.types import i32, i64, ptr, ptr_to, u8, u32, u64, void
from mmulator.codegen.values import Builder, Value
from mmulator.native.state import Cluster, Cta, Log, Transfer, Warp, WgmmaTable


class Proxy(IntEnum):
    """The way by which an access reaches memory (PTX ISA 9.1, Memory Consistency Model: Proxies)."""

    GENERIC = 0
    ASYNC = 1  # operands of wgmma
    MBARRIER = 2  # operations on mbarriers, which no order binds: WRITE: it is made or ended, READ: a wait, both: the others
    TENSORMAP = 3  # of a copy that uses a tensor map


class Access(IntFlag):
    """What is done to the bytes: the low bits of a hook's `access`, the proxy is above them (`by`).

    LATER: addresses are checked now, and the bytes are read or written at the `completed` that follows.
    """

    READ = 1
    WRITE = 2
    ATOMIC = 4
    LATER = 8


PROXY_SHIFT = 4


def by(access: int, proxy: Proxy) -> int:
    """An access through a proxy."""
    return int(access) | int(proxy) << PROXY_SHIFT


READ, WRITE, ATOMIC = int(Access.READ), int(Access.WRITE), int(Access.ATOMIC)
BOTH = READ | WRITE | ATOMIC


@hook
def accessed(w: ptr_to(Warp), mask: u32, at: ptr_to(u64), base: u64, bytes: u32, access: u32, site: u32) -> None:
    """Lanes of `mask` are about to access `bytes` each, all of which are there, from the generic addresses at[lane] | base on."""


@hook
def accessed_one(w: ptr_to(Warp), lane: u32, at: u64, bytes: u32, access: u32, site: u32) -> None:
    """One lane is about to access `bytes` at an address; operands of a whole warp or warpgroup count as lane 0's."""


class Only(IntEnum):
    """The memory of which an instruction takes addresses."""

    ANY = 0
    GLOBAL = 1
    OWN = 2  # shared memory of the CTA itself


@hook
def screened(
    w: ptr_to(Warp), mask: u32, at: ptr_to(u64), base: u64, bytes: u32, only: u32, access: u32, site: u32, out: ptr_to(u32)
) -> None:
    """Before an access by lanes of `mask`, where the launch goes on (CompileOptions.keep_going): out[0] becomes those that cannot
    access so many bytes at at[lane] | base, and are left out. only: Only."""


@hook
def lanes_stored(
    w: ptr_to(Warp), mask: u32, at: ptr_to(u64), base: u64, bytes: u32, image: ptr_to(u8), rows: u32, site: u32
) -> None:
    """Behind a weak store by lanes of `mask` to at[lane] | base: what each has stored, one behind the other at `image`. rows: 1
    for stmatrix, whose rows all lanes store together."""


@hook
def completed(w: ptr_to(Warp), mask: u32, access: u32) -> None:
    """The oldest LATER access of this kind that the warp has under way is done now."""


@hook
def registers(w: ptr_to(Warp), frame: u64, slots: ptr_to(i32), count: u32, access: u32, site: u32) -> None:
    """All lanes of a warp: registers of a frame, by their slots, are read or written by an asynchronous operation."""


@hook
def register(w: ptr_to(Warp), mask: u32, slot: u32, access: u32, site: u32) -> None:
    """An instruction reads or writes a register of the warp's frame (w.frame) that asynchronous operations use too. LATER: it is
    said here, and stands elsewhere in the text."""


# what orders accesses -------------------------------------------------------------------------------------------------
class Order(IntFlag):
    """What an instruction says of order: its semantics, and above them its scope (`order_of`)."""

    STRONG = 1  # relaxed, volatile and all below; else weak
    ACQUIRE = 2
    RELEASE = 4
    SC = 8


SCOPE_SHIFT, SCOPE_MASK = 4, 7
LOADS, STORES = 1 << 8, 1 << 9  # of `ordered`: what the instruction does; an atomic operation does both
SAID = 1 << 10  # of an operation on an mbarrier: the instruction says its scope
SCOPES: Mapping[str, int] = {"": 0, "cta": 1, "cluster": 2, "gpu": 3, "sys": 4, "gl": 3}
_ORDERS: Mapping[str, Order] = {
    "weak": Order(0), "volatile": Order.STRONG, "relaxed": Order.STRONG, "acquire": Order.STRONG | Order.ACQUIRE,
    "release": Order.STRONG | Order.RELEASE, "acq_rel": Order.STRONG | Order.ACQUIRE | Order.RELEASE,
    "sc": Order.STRONG | Order.ACQUIRE | Order.RELEASE | Order.SC,
}  # fmt: skip


def order_of(sem: str, scope: str) -> int:
    """Semantics and scope by their modifiers, without the dots. volatile is relaxed at system scope."""
    return int(_ORDERS[sem]) | SCOPES["sys" if sem == "volatile" else scope] << SCOPE_SHIFT


class Fence(IntEnum):
    """What a fence is for."""

    MEMORY = 0  # membar, fence.sc, fence.acq_rel and the like
    ASYNC = 1  # fence.proxy.async
    ALIAS = 2
    TENSORMAP_RELEASE = 3  # fence.proxy.tensormap::generic.release
    TENSORMAP_ACQUIRE = 4
    MBARRIER_INIT = 5
    GENERIC_ACQUIRE = 6  # fence.proxy.async::generic.acquire.sync_restrict::shared::cluster.cluster
    GENERIC_RELEASE = 7
    GENERIC_READS = 8  # the release of what was read alone: .sync_restrict::shared::cluster::read


SPACE_GLOBAL, SPACE_CTA, SPACE_CLUSTER = 1, 2, 4  # of a fence.proxy: which spaces it is for; 0: all


@hook
def ordered(w: ptr_to(Warp), mask: u32, at: ptr_to(u64), base: u64, order: u32, done: u32, site: u32) -> None:
    """ld, st, atom or red that is not weak, at at[lane] | base: called before the access (done 0) and behind it (1). order: as
    `order_of`, with LOADS and STORES."""


@hook
def fenced(w: ptr_to(Warp), mask: u32, kind: u32, order: u32, spaces: u32, at: ptr_to(u64), site: u32) -> None:
    """A fence (Fence). at: of TENSORMAP_ACQUIRE the address of the map; else of no meaning."""


@hook
def warp_met(w: ptr_to(Warp), mask: u32, site: u32) -> None:
    """bar.warp.sync, match: lanes have met and go on."""


@hook
def barrier_arrived(w: ptr_to(Warp), mask: u32, id: u32, op: u32, site: u32) -> None:
    """bar, barrier: lanes arrive (native/threads/barrier.py: SYNC, ARRIVE, ...); before it can be complete."""


@hook
def barrier_over(cta: ptr_to(Cta), id: u32) -> None:
    """A barrier of a CTA is complete; w.bar_lanes[id] of its warps, but of those with w.bar_came[id], are about to go on."""


@hook
def cluster_arrived(w: ptr_to(Warp), mask: u32, order: u32, site: u32) -> None:
    """barrier.cluster.arrive, before it can be complete."""


@hook
def cluster_over(cluster: ptr_to(Cluster)) -> None:
    """barrier.cluster is complete; its generation is still the old one."""


@hook
def cluster_waited(w: ptr_to(Warp), mask: u32, order: u32, site: u32) -> None:
    """barrier.cluster.wait, of lanes that go on."""


@hook
def mbarrier_order(w: ptr_to(Warp), order: u32, site: u32) -> None:
    """Before an operation on mbarriers: its semantics and scope, which hold for the hooks until the next such call."""


@hook
def mbarrier_made(w: ptr_to(Warp), lane: u32, barrier: u64, count: u64, site: u32) -> None:
    """mbarrier.init at a place on the host; before it."""


@hook
def mbarrier_gone(w: ptr_to(Warp), lane: u32, barrier: u64, site: u32) -> None:
    """mbarrier.inval; before it."""


@hook
def mbarrier_arrived(w: ptr_to(Warp), mask: u32, barrier: u64, arrivals: u64, expected: u64, came: u64, site: u32) -> None:
    """Lanes arrive at one mbarrier, expect bytes there, or complete some themselves; before it."""


@hook
def mbarrier_over(cluster: ptr_to(Cluster), barrier: u64) -> None:
    """The phase of an mbarrier is complete now."""


@hook
def mbarrier_waited(w: ptr_to(Warp), mask: u32, host: ptr_to(ptr), parities: u32, site: u32) -> None:
    """Lanes (each at host[lane]) hear that the phase of their parity is complete."""


class PayloadShape(IntEnum):
    """What the payload of a transfer says of the bytes that it is for."""

    PLAIN = 0  # native/asynchrony/bulk.py: TO, FROM, BYTES
    BOX = 1  # native/asynchrony/maps.py: Box
    WORDS = 2  # native/asynchrony/store_async.py: TO, BYTES
    RESPONSE = 3  # native/threads/cluster.py: TO


@hook
def transfer_filled(t: ptr_to(Transfer), shape: u32) -> None:
    """A bulk operation is filled in and about to be started."""


@hook
def map_used(w: ptr_to(Warp), lane: u32, at: u64, site: u32) -> None:
    """A copy that is filled in next uses the tensor map at a generic address."""


@hook
def map_published(w: ptr_to(Warp), lane: u32, at: u64, site: u32) -> None:
    """tensormap.cp_fenceproxy has copied a map, which is a release, too."""


@hook
def transfer_issued(t: ptr_to(Transfer)) -> None:
    """A bulk operation is filled in; its group is known, nothing of it is done."""


@hook
def left_undetermined(w: ptr_to(Warp), lane: u32, at: u64, bytes: u64) -> None:
    """A transfer has written bytes from a generic address on of which nobody can say what they are."""


@hook
def transfer_moves(t: ptr_to(Transfer), moves: u32) -> None:
    """1: what is accessed from here on is accessed by a transfer; 0: no more."""


@hook
def bulk_waited(w: ptr_to(Warp), mask: u32, pending: u64, read: u32, site: u32) -> None:
    """cp.async.bulk.wait_group[.read]: all but the newest `pending` groups of each lane; behind it."""


@hook
def copy_signals(w: ptr_to(Warp), mask: u32, barrier: u64, counted: u32, site: u32) -> None:
    """cp.async.mbarrier.arrive: what lanes have copied so far ends before they arrive at an mbarrier; before it is issued."""


@hook
def copies_waited(w: ptr_to(Warp), mask: u32, end: u64) -> None:
    """cp.async.wait_group or wait_all: the copies of these lanes with numbers below `end` are complete."""


@hook
def wgmma_fenced(w: ptr_to(Warp), mask: u32, site: u32) -> None:
    """wgmma.fence"""


@hook
def wgmma_issued(w: ptr_to(Warp), number: u64, site: u32) -> None:
    """A warp has filled in operation `number` of its queue."""


@hook
def wgmma_committed(w: ptr_to(Warp), site: u32) -> None:
    """wgmma.commit_group; before it."""


@hook
def wgmma_waited(w: ptr_to(Warp), mask: u32, end: u64, site: u32) -> None:
    """wgmma.wait_group: operations with numbers below `end` are complete, their results in the registers."""


@hook
def cluster_begins(cluster: ptr_to(Cluster)) -> None:
    """A cluster begins, where another has run perhaps."""


@hook
def cluster_ends(cluster: ptr_to(Cluster)) -> None:
    """All threads of a cluster have exited; transfers may be under way."""


@hook
def cluster_finished(cluster: ptr_to(Cluster)) -> None:
    """A cluster is over, and its transfers are complete."""


@hook
def round_over(cluster: ptr_to(Cluster)) -> None:
    """All warps of a cluster had a turn, and some can go on. Cluster.stalled = 1: nothing will ever change, so it ends here."""


@hook
def lanes_exit(w: ptr_to(Warp), mask: u32, site: u32) -> None:
    """Threads exit; before they are gone."""


# what nobody has written --------------------------------------------------------------------------------------------
# Under an instrument that takes `undefined_used` each register that may be undefined has 32 bits more: the lanes that hold a
# value (compiler/emit/shadow.py).
@hook
def bytes_read(
    w: ptr_to(Warp), mask: u32, at: ptr_to(u64), base: u64, bytes: u32, count: u32, out: ptr_to(u32), site: u32
) -> None:
    """Before a load of `count` elements of so many bytes from at[lane] | base: out[n] becomes the lanes whose element n has been
    written."""


@hook
def rows_read(w: ptr_to(Warp), at: ptr_to(u64), base: u64, matrices: u32, trans: u32, out: ptr_to(u32), site: u32) -> None:
    """Before an ldmatrix of 8x8 elements of 16 bits: which lanes of its registers will have a value."""


@hook
def tile_read(
    w: ptr_to(Warp), table: ptr, at: u64, base: u64, stride: i64, bits: u32, held: u32, out: ptr_to(u32), site: u32
) -> None:
    """Before a wmma.load: which lanes of its registers will have a value. Elements have `bits` bits, a register holds `held`, at
    at | base."""


@hook
def bytes_written(w: ptr_to(Warp), mask: u32, at: ptr_to(u64), base: u64, bytes: u32) -> None:
    """Behind an atomic operation that leaves nothing of what was there."""


@hook
def undefined_written(
    w: ptr_to(Warp), mask: u32, lanes: u32, at: ptr_to(u64), base: u64, offset: u32, bytes: u32, memory: u32, site: u32
) -> None:
    """Behind a store by lanes of `mask` to at[lane] | base: what some `lanes` of them have stored at this offset has no value.
    memory: as of `undefined_used`."""


@hook
def undefined_used(w: ptr_to(Warp), lanes: u32, rule: u32, memory: u32, site: u32) -> None:
    """Lanes decide, or compute an address, by a register that has no value there. rule: its number. memory: why that may be
    so: 0: a register was not written, 1: memory was not, 2: one of these, 3: because of `shuffle_missed`."""


@hook
def shuffle_missed(w: ptr_to(Warp), lanes: u32, site: u32) -> None:
    """Lanes that a shuffle gives what a lane has that does not take part in it, if any do."""


@hook
def product_of(table: ptr_to(i32), a: ptr_to(u32), b: ptr_to(u32), c: ptr_to(u32), d: ptr_to(u32)) -> None:
    """Which lanes of D have a value, of a matrix product, by those of A, B and C (compiler/lowering/definedness.py has the
    table)."""


@hook
def product_in_shared(
    w: ptr_to(Warp), table: ptr_to(WgmmaTable), a_desc: u64, b_desc: u64, a: ptr_to(u32), d: ptr_to(u32), site: u32
) -> None:
    """Which lanes of D have a value, of a wgmma. d: on entry the lanes that have a value in what it adds to."""


@hook
def left_variable(
    w: ptr_to(Warp), lanes: u32, at: ptr_to(u64), base: u64, origin: ptr_to(u64), bytes: u32, size: u32, site: u32
) -> None:
    """Lanes are about to access bytes at at[lane] | base, which they have computed from a variable at origin[lane] that has only
    `size` bytes."""


@hook
def local_copied(w: ptr_to(Warp), lane: u32, source: u64, target: u64, bytes: u32) -> None:
    """Bytes of a lane's local memory have been copied there, by their offsets: parameters and results of a call."""


@hook
def frame_entered(w: ptr_to(Warp), mask: u32, base: ptr_to(u32), begin: u32, end: u32) -> None:
    """Lanes enter a function, whose variables lie there in local memory: base[lane] + begin to end."""


# the log --------------------------------------------------------------------------------------------------------------
def call_drain(drain: Value, log: Value) -> Value:
    """Macro: the host function that takes what is in a log."""
    return Builder.current().call_pointer(drain, void, [log])


@native
def reserve(log: ptr_to(Log), count: u32) -> None:
    """Room for so many entries, of at most those that the log has."""
    if log.count + count > log.room:
        call_drain(log.drain, log)


@native
def entry(log: ptr_to(Log)) -> ptr:
    """The next entry of a log that has room."""
    place = log.entries + u64(log.count) * u64(log.entry_bytes)
    log.count = log.count + 1
    return place
