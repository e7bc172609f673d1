"""The state of a running launch: the structs that Python fills and native code runs on.

One `Launch` for all CTAs. A resident `Cluster` of CTAs is run by one worker; a CTA (the thread block of CUDA) has a `Warp` for
each 32 threads, and `block` is a basic block of code. A warp's registers are in its register file, one slot of 32 lanes for
each register that lives across blocks. A warp has a `Queue` for each kind of asynchronous operation.
"""

from enum import IntEnum

from mmulator.base.classes import dataclass
from mmulator.base.codegen.types import Struct, i32, i64, ptr, ptr_to, u8, u32, u64

LANES = 32
FULL = 0xFFFFFFFF

BY_HOST, BY_KERNEL = 1, 5  # marks of watched bytes: their writer (runtime/launch/regions.py); 0: not written

NUM_BARRIERS = 16
STACK_BYTES = 8192  # of a lane, for alloca: the first bytes of local memory in a kernel that has it


class BlockExit(IntEnum):
    """A value that a block function returns instead of the next block's number."""

    RESCHEDULE = -1  # the lanes' program counters have been written; choose again


RESCHEDULE = int(BlockExit.RESCHEDULE)


class Stop(IntEnum):
    """The reason why a warp or a cluster stopped running."""

    BUDGET = 0  # time slice used up
    EXITED = 1
    BLOCKED = 2  # no lane can go on by itself; for a cluster: deadlock
    FAULT = 3
    INTERRUPTED = 4
    ASLEEP = 5  # by nanosleep; for a cluster: all of its warps that can go on


class FaultKind(IntEnum):
    """The mistake for which a CTA stops: Cta.fault."""

    NONE = 0
    OUT_OF_BOUNDS = 1
    MISALIGNED = 2
    NULL_POINTER = 3
    READ_ONLY = 4
    TRAP = 5
    STACK_OVERFLOW = 6
    BAD_CALL = 7
    BAD_BARRIER = 8
    WGMMA_ADDRESS = 9
    WGMMA_MISMATCH = 10
    BAD_BRANCH = 11
    SHARED_OUT_OF_BOUNDS = 12
    LOCAL_OUT_OF_BOUNDS = 13
    ASSERTION = 14
    WGMMA_LANES = 15  # a warp of the warpgroup is missing, or not whole
    WGMMA_SCALE = 16  # lanes of a warp differ in scale-d
    BEYOND_SPACE = 17  # an offset of 4 GiB and more, or a generic address, where a state space takes an offset
    WRONG_SPACE = 18  # an access to .global with the generic address of shared or local memory
    NOT_SHARED = 19  # a matrix move by a generic address that is not in shared memory
    PRINT = 20
    ALLOCA_OVERFLOW = 21
    BAD_STACK = 22
    PARTIAL_WARP = 23  # lanes are missing at an instruction for whole warps
    BARRIER_COUNTS = 24
    BARRIER_LANES = 25
    NO_SUCH_RANK = 26  # an address of shared memory of a CTA that the cluster does not have
    OTHER_CTA = 27  # an access to .shared::cta with an address of another CTA's shared memory (an H200: illegal instruction)
    CTA_EXITED = 28  # an access to the shared memory of a CTA whose threads have all exited
    MBARRIER_RANGE = 29  # mbarrier.init with a count of arrivals that an mbarrier cannot hold
    BULK_SIZE = 30  # bytes of a bulk copy that are no multiple of 16
    SPARSE_SELECTOR = 31  # a sparsity selector that the shape does not have (an H200: illegal instruction)
    BULK_IGNORED = 32  # bytes that a bulk copy is to ignore at an end, more than 15
    # Of an mbarrier at the fault's address; bytes: the count of the operand (runtime/native/asynchrony/mbarrier.py).
    NO_MBARRIER = 40  # nothing was initialised there, or it was invalidated
    MBARRIER_ARRIVALS = 41  # none, or more than are pending
    MBARRIER_BYTES = 42  # more bytes, or fewer, than the tx-count can hold
    MBARRIER_COMPLETES = 43  # arrive.noComplete with the last arrival
    MBARRIER_ELSEWHERE = 44  # data goes to one CTA, and another's mbarrier is to hear of it; bytes: rank of the data
    MBARRIER_STORED = 46  # something else has written to the word since
    REGISTERS = 51  # setmaxnreg; fault_bytes: what was wrong (runtime/native/threads/resources.py)
    CLUSTER_BARRIER = 50  # a barrier.cluster.arrive after another, or a wait without one; which: threads/cluster.py
    NO_CLUSTER = 52  # a copy from shared memory to that of a CTA of the cluster in a launch without clusters
    # Of tensor memory; the fault's address: that of the instruction, lane and column (runtime/native/matrix/tensor_memory.py).
    TENSOR_COLUMNS = 33  # columns of tensor memory that are not allocated, or not there
    TENSOR_COUNT = 34  # a number of columns that no allocation may have; bytes: the number
    TENSOR_RELINQUISHED = 35  # an allocation behind tcgen05.relinquish_alloc_permit
    TENSOR_DEALLOC = 36  # no allocation of so many columns begins there
    TENSOR_PAIR = 37  # the instruction is for pairs of CTAs, and the CTA has no peer
    TENSOR_ALIGNED = 38  # a first lane or column that the instruction does not take
    TENSOR_INSTRUCTION = 39  # an instruction descriptor that the instruction does not take; address: the descriptor
    TENSOR_MATRIX = 45  # a matrix descriptor that tcgen05 does not take; address: the descriptor
    TENSOR_ADDRESS = 47  # a matrix or its descriptor reaches beyond shared memory
    TENSOR_MAP = 60  # a tensor map that the instruction cannot use; fault_bytes: why (asynchrony/maps.py, MapFault)


WORD = 4  # bytes of the atomic operations that others are made of
Window = Struct("Window", [("host", u64), ("start", u64), ("size", u64), ("writable", u32), ("room", u32)])

# What an instrument of the kernel writes down while one worker runs (runtime/native/hooks/events.py). drain: host function that
# takes the entries when there is no room; those from `open` on are not complete.
Log = Struct("Log", [("entries", ptr), ("drain", ptr), ("entry_bytes", u32), ("room", u32), ("count", u32), ("open", u32)])

# Watched memory, at most 8 bytes each; and a store to it: its number in the launch, CTA and thread, instruction and value.
Watch = Struct("Watch", [("start", u64), ("end", u64)])
WatchEntry = Struct("WatchEntry", [("order", u64), ("cta", u32), ("thread", u32), ("site", u32), ("watch", u32), ("value", u64)])

# Executed instructions of a launch that may be stopped between any two (runtime/native/hooks/steps.py).
# count: instructions of warps that were executed, or tried. next: the count from which on each calls Python. stops: a byte for
# each site; not 0: it calls Python. stepped, reads, carried, steered: host functions.
# The rest is the debugger's (runtime/native/hooks/steps.py). low, high: addresses of warps in range; lanes: of which one takes
# part, unless all have exited; deepest: greatest frame, in range. cells, cell_count: watched memory. log: a ring of entries, room
# of them (a power of two), by their counts.
Cell = Struct("Cell", [("at", ptr_to(u64)), ("mask", u64), ("old", u64), ("changed", u64)])
StepEntry = Struct("StepEntry", [("site", u32), ("lanes", u32), ("block", u32), ("warp", u32), ("frame", u32)])
Steps = Struct("Steps", [
    ("count", u64), ("next", u64), ("stops", ptr_to(u8)), ("stepped", u64), ("reads", u64), ("carried", u64), ("steered", u64),
    ("low", u64), ("high", u64), ("lanes", u32), ("deepest", u32), ("cells", ptr_to(Cell)), ("cell_count", u64),
    ("log", ptr_to(StepEntry)), ("room", u64),
])  # fmt: skip

# Memory whose accesses a launch records byte by byte (runtime/native/hooks/touched.py), a row for each slot of addresses.
# start: address of its first byte. read, written: a bit for each byte, or null. first: the bit of its first byte.
Touched = Struct("Touched", [("start", u64), ("read", ptr_to(u64)), ("written", ptr_to(u64)), ("first", u64)])

# A function of the kernel: its first block of code, and its frames in a warp's register file (ptx/program/calls.py).
Callee = Struct("Callee", [("entry", i32), ("cycle", u32), ("offset", u32), ("stride", u32), ("end", u32)])

# The clusters of a launch in the order in which they begin; workers take one after another.
# next: number of requests so far.
# order: numbers of the first `first` clusters, and of those from position `last` on; the others begin in the order of their
#     numbers.
Line = Struct("Line", [("next", u64), ("clusters", u64), ("first", u64), ("last", u64), ("order", ptr_to(u64))])

# Clusters that one of several workers has taken and not begun. A worker begins neighbours one after another, because their
# memory is mostly adjacent, and two cores that write to adjacent memory slow each other down. most: greatest number taken at
# once.
Share = Struct("Share", [("next", u64), ("end", u64), ("most", u64), ("workers", u64)])

Launch = Struct(
    "Launch",
    [
        ("code", ptr_to(u64)),  # address of each block's function
        ("records", ptr_to(ptr)),  # address of each block's records (base/codegen/stencils.py), or 0
        ("windows", ptr_to(Window)),
        ("slots", u64),
        ("regions", ptr_to(Window)),  # memory at host addresses, sorted by start; the first is empty, at 0
        ("region_count", u64),
        ("words", u32),  # whether the kernel has atomic operations of a word or more, in which smaller elements may lie
        ("params", ptr),
        ("stop", ptr_to(u32)),  # set from outside to interrupt
        ("local_bytes", u64),  # of a lane
        ("seed", u64),
        ("nctaid", u32, 3),
        ("ntid", u32, 3),
        ("cluster", u32, 3),  # CTAs of a cluster
        ("explicit", u32),  # whether the launch or the kernel specifies it
        ("warps", u32),  # of a CTA
        ("threads", u32),
        ("entry", i32),
        ("shared_bytes", u32),
        ("dynamic_shared", u32),
        ("reserved", u32),  # bytes of shared memory in front of a CTA's own that are there
        ("tiles", u32),  # accumulators of wgmma, a warpgroup
        ("tile_bytes", u64),
        ("callees", ptr_to(Callee)),  # of each function of the kernel
        ("frame_bytes", u64),  # register file of a warp
        ("noisy", ptr_to(u32)), ("noisy_count", u32),  # blocks of code that access memory
        ("blocks", u32),  # functions of code; behind the counts of their executions are TALLIES of tcgen05.mma
        ("print", u64),  # host function that device printf calls
        ("resolve", u64),  # host function that gives the TensorTable of a tcgen05.mma and its instruction descriptor
        ("tables", ptr_to(ptr)),  # of matrix instructions
        ("watches", ptr_to(Watch)),
        ("watch_count", u32),
        ("seen", u64),  # number of stores to them so far
        ("registers", u32),  # of a thread at the start, if the kernel has setmaxnreg; otherwise 0
        ("line", ptr_to(Line)),
        ("workspace", u64),  # address of the workspace of a cooperative grid, or 0
        ("sanitizer", ptr),  # a SanitizedLaunch (sanitizer/state.py), or null
        ("slice", u64),  # greatest number of blocks of code in a warp's turn, which the seed chooses; 0: the default
        ("touched", ptr_to(Touched)), ("touched_slots", u64),
        ("steps", ptr_to(Steps)),
        ("turns", ptr),  # a Turns (runtime/native/threads/turns.py), or null
    ],
)

# A barrier in use. arrived: threads, as its count has them. came: threads that have executed it.
Barrier = Struct("Barrier", [("arrived", u32), ("came", u32), ("count", u32), ("pending", u32), ("red", u32)])

# Memory of a resident cluster that must be zero when a new cluster begins.
Span = Struct("Span", [("at", ptr), ("bytes", u64)])


class TransferKind(IntEnum):
    """The kind of a transfer, which selects its function among the cluster's movers."""

    BULK_LOAD = 0  # to shared memory; runtime/native/asynchrony/bulk.py
    BULK_STORE = 1  # to global memory
    TENSOR_LOAD = 2  # runtime/native/asynchrony/tensor.py
    TENSOR_STORE = 3
    STORE_ASYNC = 5  # st.async, red.async
    CANCEL = 7  # clusterlaunchcontrol.try_cancel
    # Numbers from here on are a kernel's own movers (Emitter.mover): one for each operation and type of a reduction.
    OWN = 8


class TransferState(IntEnum):
    """Whether an entry of the table of transfers is in use."""

    FREE = 0
    UNDER_WAY = 1


# A bulk copy, or a similar asynchronous operation of a single lane, without an order among each other
# (runtime/native/asynchrony/transfers.py).
PAYLOAD = 48  # 64-bit words
Transfer = Struct("Transfer", [
    ("kind", u32), ("state", u32),  # number of its mover (a TransferKind, or more), a TransferState
    ("completes", u32),  # a Completes
    ("barriers", u32), ("offset", u64),  # BYTES: CTAs of the cluster, by their ranks' bits, whose mbarrier at this byte of
    # shared memory hears of the bytes
    ("units", u32), ("done", u32),  # rows or other units, done one by one in order
    ("warp", ptr), ("lane", u32), ("site", u32),
    ("number", u64), ("place", u32),  # number in the cluster; index among those under way
    ("group", u64),  # GROUP: the lane's bulk async-group
    ("source", ptr), ("source_bytes", u64),  # shared memory that it reads, on the host: `staged` may move it
    ("target", ptr),  # destination, on the host
    ("staged", u32),
    ("pipe", u32),  # 0, or a number of operations that are done in the order of their issue
    ("payload", u64, PAYLOAD),
])  # fmt: skip
TRANSFERS = 256  # greatest number under way in a cluster
STAGING = 1 << 18  # bytes of a cluster for data that was read from shared memory and not yet written

HINTS = 128  # the regions of the last access of each instruction, by site modulo HINTS

# Sums of `red` for an array of counters that are not in memory yet, word by word (runtime/native/memory/sums.py).
PART, PARTS = 128, 64  # bytes of a part, and number of parts
Sums = Struct("Sums", [
    ("touched", u64),  # mask of the parts with pending sums; if 0, there is no array
    ("start", ptr), ("end", u64),  # the array on the host, from a multiple of PART on
    ("words", u32, PART * PARTS // 4),
])  # fmt: skip

# The CTAs that one worker runs, which may wait for each other and for each other's operations.
Cluster = Struct("Cluster", [
    ("launch", ptr_to(Launch)),
    ("ctas", ptr),
    ("warps", ptr),  # of all its CTAs, one after the other
    ("counts", ptr_to(u64)),  # executions of each block function
    ("log", ptr_to(Log)),  # of the worker that runs it
    ("number", u64),  # in the grid, x fastest
    ("single", u32),  # whether to return to the worker at its end; otherwise the next cluster begins in its memory
    ("left", i64), ("rest", i64),  # blocks of code until the worker checks the clock; until the turn ends, 0 between turns
    ("since", u64), ("runner", ptr),  # the host's cycles when it last did; the running warp
    ("spans", ptr_to(Span)),
    ("span_count", u32),
    ("begun", u32),
    ("finished", u32),  # clusters that ended or were cancelled here, since Python last read it
    ("cta_count", u32), ("warp_count", u32),
    ("seeded", u32), ("seed", u32),  # whether a seed chooses the first warp, and the seed modulo the warps
    # zero when a cluster begins, from here to `hints`
    ("next_warp", u32),  # the warp with the first turn
    ("turn", u32), ("running", u32), ("asleep", u32), ("done", u32),  # of this round: number of turns, and how they ended
    ("rounds", u64),
    ("turns", u64),  # number of turns shortened by the seed
    ("patience", u32),  # number of times that waits timed out since the last completed operation
    ("contended", u32),  # whether an atom.cas, perhaps of a lock, has failed since the last atom.exch, which may release it
    ("arrived", u32), ("generation", u32),  # of barrier.cluster: threads that arrived; number of completions
    ("stalled", u32),  # of a sanitized launch: its threads run, but nothing can change
    ("hints", u32, HINTS),
    ("movers", ptr_to(ptr)),  # of each kind of transfer the native function (warp, transfer, first unit, end) that does the work
    # of these units, and returns how many bytes that completes
    ("transfers", ptr), ("under_way", u32), ("newest", u64),  # a table of TRANSFERS; how many are under way; were issued
    ("order", u8, TRANSFERS),  # permutation of the table: entries under way, then free ones
    ("staging", ptr), ("staging_used", u64), ("staged", u32),  # bytes, and transfers whose source is there
    ("flips", u64),  # phases of mbarriers that were completed
    ("tries", u32), ("print", u64), ("noise", u64), ("heard", u64),  # runtime/native/asynchrony/waiting.py
    ("others", u32),  # whether other clusters of the grid are not over
    ("accounts", ptr), ("account_count", u32),  # a table of ACCOUNTS; how many are in use
    ("sanitizer", ptr),  # of a sanitized launch: a SanitizedCluster, or null
    ("watch_log", ptr_to(Log)),  # of that worker, for stores to watched elements
    ("packs", ptr),  # a Packs, of the worker that runs it
    ("profile", ptr), ("timeline", ptr),  # of observation/record/: a ProfileTable of that worker, a Timeline, or null
    ("share", ptr_to(Share)),  # of that worker, or null
    ("sums", ptr_to(Sums)),
])  # fmt: skip

# The record of an mbarrier besides its word (runtime/native/asynchrony/accounts.py), and of an event there: site + 1 (0: none),
# warp of the cluster, lane, and phase, counted from the first.
Who = Struct("Who", [("site", u32), ("warp", u32), ("lane", u32), ("phase", u32)])
Account = Struct("Account", [
    ("at", u64),  # on the host; 0: this entry is free
    ("word", u64),  # as its operations left it
    ("valid", u32), ("phase", u32),  # whether it is initialised; number of phases completed since
    ("made", Who), ("ended", Who),  # the last mbarrier.init and mbarrier.inval
    ("arrived", Who), ("asked", Who), ("brought", Who),  # the last arrival, expect_tx, and issue of a copy that brought bytes
    ("expected", u64), ("came", u64),  # bytes in this phase
])  # fmt: skip
ACCOUNTS = 512  # recorded mbarriers of a cluster; others are not checked

Cta = Struct("Cta", [
    ("launch", ptr_to(Launch)),
    ("cluster", ptr_to(Cluster)),
    ("warps", ptr),
    ("shared", ptr),
    ("warpgroups", ptr),
    ("tiles", ptr),
    ("tile_memory", ptr),
    ("scratch", ptr),
    ("tensor", ptr),  # tensor memory: TENSOR_LANES rows of TENSOR_COLUMNS cells of 32 bits
    ("shared_base", u64),  # address of its first byte of shared memory
    ("rank", u32),  # in its cluster
    ("ctaid", u32, 3),
    ("linear", u32),
    ("live_threads", u32),
    # zero when a CTA begins, from here on
    ("register_pool", u32),  # registers of a thread that warps have released by setmaxnreg
    ("held_units", u32), ("unit_counts", u8, 16),  # units of tensor memory that are allocated; units of the allocation that
    # begins at each
    ("relinquished", u32),  # whether the CTA may allocate no more
    ("pair_came", u32), ("pair_done", u32),  # allocations for pairs that warps of the CTA have come to, and that were made
    ("fault", u32),  # FaultKind
    ("fault_site", u32),
    ("fault_lane", u32),
    ("fault_warp", u32),
    ("fault_address", u64),
    ("fault_bytes", u32),
    ("fault_words", u64, 8),  # further facts about a fault, which its chapter defines
    ("open_barriers", u32),  # mask of the barriers with arrivals since their last completion
    ("barriers", Barrier, NUM_BARRIERS),
])  # fmt: skip


# Asynchronous operations (runtime/native/asynchrony/pending.py)
# -----------------------------------------------------------------------
class Completes(IntEnum):
    """The receiver of an operation's completion."""

    GROUP = 0  # waits for the group to which it is committed
    ARRIVAL = 1  # an mbarrier, at which it arrives
    BYTES = 2  # an mbarrier, which expects its bytes
    PIPE = 3  # a later tcgen05.commit


# The head of every entry of a queue. barrier: host address. bytes: or arrivals. site, lane: of the issue.
Operation = Struct("Operation", [("completes", u32), ("bytes", u32), ("barrier", ptr_to(u64)), ("site", u32), ("lane", u32)])

# A committed group that is not empty: its number, and the operations up to its end.
AsyncGroup = Struct("AsyncGroup", [("number", u64), ("end", u64)])
ASYNC_GROUPS = 256  # of a queue, known one by one: the newest that are not empty

# The operations of one kind that a warp has issued. Operations and groups (also empty ones) are numbered consecutively.
Queue = Struct("Queue", [
    ("entries", ptr),
    ("groups", ptr_to(AsyncGroup)),
    ("carry_out", ptr),  # native function (warp, number, end) -> number of operations done; 0 if not possible yet
    ("room", u32), ("entry_bytes", u32),  # operation n is entry n modulo room
    ("issued", u64), ("done", u64),  # all before `done` are complete
    ("committed", u64), ("filled", u64),  # groups, and those of them that are not empty
    ("due", u64),  # wgmma: operations before it are due with the last of a straight line; 0 for none
])  # fmt: skip

# cp.async: what the lanes of a warp copy with one instruction. mask: 0 for cp.async.mbarrier.arrive, which copies nothing; else
# which lanes do, or with `rows` all: each eight a line of 128 bytes to row_target, whose chunks of 16 the bits `turn` exchange
CopyEntry = Struct("CopyEntry", [
    ("operation", Operation),
    ("mask", u32), ("bytes", u32), ("rows", u32), ("row_source", ptr, 4), ("row_target", ptr, 4), ("turn", u64, 4),
    ("source", ptr, 32), ("target", ptr, 32), ("valid", u8, 32),
])  # fmt: skip

# Parts of the scratch memory of a CTA, in bytes from its start, each behind the one before it (compiler/meaning/wgmma.py:
# scratch_parts). plain: an operand as it lies in memory. unpacked: an operand as its packer takes it, bits as bytes or A
# transposed. metadata: of a sparse A, 32 words a warp. own: a B for one row of A (mixed_dot); packed: the same, packed.
WgmmaScratch = Struct("WgmmaScratch", [("plain", u32), ("unpacked", u32), ("metadata", u32), ("own", u32), ("packed", u32)])
WgmmaTable = Struct("WgmmaTable", [
    ("pack_a", u64), ("pack_b", u64), ("pack_b_rows", u64), ("dot", u64),  # functions of the numerics twin
    ("dot_steps", u64),  # or 0
    ("n", u32), ("k", u32),
    ("element_bits", u32), ("a_in_registers", u32),
    ("d_words", u32),  # registers of d in a lane
    ("d_bits", u32),  # 32, or 16: two in a register
    ("mn_major_a", u32), ("mn_major_b", u32),
    ("flags", u32), ("tile", u32),
    ("scratch", WgmmaScratch),
    ("d_slots", i32, 128),  # byte offsets into the frame
    ("a_slots", i32, 4),
    ("rival_count", u32),
    ("sparse", u32),
    ("a_rival_count", u32),
    ("unfenced", u32),  # D is read as it was before what is in flight (inflight.py)
    ("rivals", ptr_to(u32)), ("a_rivals", ptr_to(u32)),  # other tiles that hold registers of D, tiles that hold some of A
    ("places", ptr),  # IndexTable of a sparse A
    ("a_row", u32),  # bytes of a row of packed A
    ("watched", u32),  # an instrument hears of each access
], functions=("pack_a", "pack_b", "pack_b_rows", "dot", "dot_steps"))  # fmt: skip

WGMMA_STEPS = 4  # wgmma that are one product, at most

# A packed operand of wgmma that is kept. function: that packed it; shape: bytes that it was made of, and whether MN-major;
# use: the product that last took it; moment: when it was last known to be what is in memory.
Pack = Struct("Pack", [("desc", u64), ("function", u64), ("shape", u64), ("use", u64), ("moment", u64)])
A_PACKS, B_PACKS = 16, 8  # twice WGMMA_STEPS at least: those of a product are all there
INDICES = 64 * 32  # elements of a sparse A, at most

# Those of a worker, in memory that begins with this. a, b: of matrices in shared memory, each a slot of a_bytes or b_bytes at
# a_slots or b_slots, which begins with the a_raw or b_raw bytes that it was made of; registers: where A in registers is packed.
Packs = Struct("Packs", [
    ("use", u64), ("moment", u64), ("next_a", u32), ("next_b", u32),
    ("a_slots", ptr), ("b_slots", ptr), ("registers", ptr), ("indices", ptr_to(i32)),
    ("a_raw", u64), ("a_bytes", u64), ("b_raw", u64), ("b_bytes", u64),
    ("a", Pack, A_PACKS), ("b", Pack, B_PACKS),
])  # fmt: skip

# wgmma: one warp's part of an operation
WgmmaEntry = Struct("WgmmaEntry", [
    ("operation", Operation),
    ("table", ptr_to(WgmmaTable)), ("a_desc", u64), ("b_desc", u64), ("frame", u64), ("scale_d", u32),
    ("site", u32),
    ("meta", u32, 32),  # sp-meta of the lanes
    ("a", u32, 128),  # A, if it is in registers
])  # fmt: skip


@dataclass(frozen=True)
class OperationKind:
    """A kind of asynchronous operation.

    entry: struct of an operation in a queue.
    room: greatest number of operations in a queue (a power of two).
    odds: one in `odds` is carried out at once.
    """

    name: str
    queue: int  # among the queues of a warp
    entry: Struct
    room: int
    odds: int


COPIES = OperationKind("copies", 0, CopyEntry, 128, 4)
WGMMA = OperationKind("wgmma", 1, WgmmaEntry, 64, 2)
KINDS = (COPIES, WGMMA)

Warp = Struct("Warp", [
    # reset for each cluster (runtime/native/threads/renewal.py)
    ("lane_pc", i32.vec(32)),
    ("lane_frame", u32.vec(32)),
    ("live", u32),  # lanes that exist and have not exited
    ("waiting", u32),  # lanes that wait for other lanes, or for a pending operation
    ("held", u32),  # lanes that wait for lanes of this warp
    ("at_barrier", u32),
    ("pc", i32),
    ("frame", u32),
    ("asleep", u32), ("tired", u32),  # lanes at a nanosleep since the last choice; 1: the worker must check the clock soon
    ("turns", u32),
    ("bar_lanes", u32, NUM_BARRIERS),
    ("bar_came", u32, NUM_BARRIERS),  # lanes at a barrier with a count, while others of the warp are not there
    ("awaits", u64),  # host address of the mbarrier at which lanes sleep; 0: none, 1: several
    ("polls", u64),  # waits for mbarriers that were executed
    ("napping", u32),  # lanes that sleep at an mbarrier, whose wait may end early
    ("naps_for", u32),  # the parities for which they wait
    ("timed_out", u32),  # lanes whose wait must return that its time is over
    ("granted", u32),  # lanes that slept at an mbarrier when the phase that they wait for was completed
    ("cluster_came", u32),  # barrier.cluster: lanes that have arrived, not waited
    ("retired", u64),  # operations of wgmma whose results are in the registers
    ("registers", u32),  # of a thread, by setmaxnreg
    ("used", u32),  # 1 if some of the following fields, or of the queues, may have been written
    ("sync_members", u32.vec(32)),  # mask of the bar.warp.sync that a lane last waited at
    ("bar_result", u32.vec(32)),  # of the barrier that last released a lane
    ("bulk_groups", u64, 32),  # bulk async-groups that a lane has committed
    ("stack", u32.vec(32)),  # stack pointer of alloca, an offset in local memory
    # fields that stay, or are read only for lanes in one of the masks above
    ("cta", ptr_to(Cta)),
    ("regs", ptr),
    ("local", ptr),
    ("index", u32),
    ("lanes", u32),  # lanes that are threads
    ("tid_x", u32.vec(32)),
    ("tid_y", u32.vec(32)),
    ("tid_z", u32.vec(32)),
    ("queues", Queue, len(KINDS)),
    ("sync_pc", i32.vec(32)), ("sync_next", i32.vec(32)),  # the bar.warp.sync at which a lane last waited, and the next block
    ("naps_at", u64, 32),  # host address of the mbarrier at which a lane sleeps
    ("cluster_generation", u32.vec(32)),  # of barrier.cluster, when a lane arrived
], align=64)  # fmt: skip

# An accumulator in flight. live: warps whose registers are out of date. last, site: the newest operation in it.
Tile = Struct("Tile", [("live", u32), ("site", u32), ("last", u64), ("table", ptr_to(WgmmaTable)), ("frame", u64, 4)])

Warpgroup = Struct("Warpgroup", [("tiles", ptr_to(Tile)), ("first_warp", u32)])
