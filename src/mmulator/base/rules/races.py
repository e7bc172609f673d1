"""Rules about accesses to memory without an order between them. Their numbers begin at 300."""

from mmulator.base.rules.rule import Rule, Severity

_MODEL = "PTX ISA 9.1, Memory Consistency Model: Conflict and Data-races"
_COPY = "PTX ISA 9.1, Data Movement and Conversion Instructions: cp.async"
_RACE = (
    "Two accesses to the same bytes, of which one writes, conflict. They are a data race unless one happens before the other: by "
    "program order in one thread, and between threads by a barrier, an mbarrier, or a release and an acquire; or unless both are "
    "strong (atomic, volatile, relaxed, acquire, release) at a scope in which the other's thread is. What a program with a race "
    "reads or leaves there depends on luck. "
)
_CONSTANT = (
    "PTX ISA 9.1, Data Movement and Conversion Instructions: ld.global.nc; CUDA C++ Programming Guide, Read-Only Data Cache Load "
    "Function"
)
_NC = (
    "ld.global.nc and ldu go through a cache that no write of the running kernel reaches, so the bytes must stay the same from "
    "the beginning of the kernel to its end. nvcc makes such loads for __ldg, and for pointers that are const and __restrict__. "
)
_BARRIER = "put a barrier (__syncthreads(), bar.sync) between the two, that all threads of both pass"


_IN_BLOCK = "race"  # of threads of a block: one barrier mends them all


def _race(
    number: int, name: str, title: str, text: str, hint: str, section: str = _MODEL, family: str = "", order: int = 3
) -> Rule:
    return Rule(number, name, Severity.ERROR, title, section, text, hint, family=family, order=order)


WRITE_WRITE = _race(
    300, "race-write-write", "two threads of a block write the same bytes, and nothing orders the writes",
    _RACE + "Here two threads of a block write, and either may be last. Writes of what is there already are not "
    "reported.",
    _BARRIER + ", or let one thread write",
    family=_IN_BLOCK,
)  # fmt: skip
READ_WRITE = _race(
    301, "race-read-write", "a thread reads what another of its block writes, and nothing orders the two",
    _RACE + "Here a thread reads bytes that another one of its block writes: it may read what was there before, or what is to "
    "come after. The second is so where a buffer is used again: it needs a barrier between its last read and the next write to "
    "it, or one stage more.",
    _BARRIER + "; where a buffer is used again, between its last read and the next write to it",
    family=_IN_BLOCK,
)  # fmt: skip
IN_WARP = _race(
    302, "race-within-warp", "threads of one warp access the same bytes in different instructions, and nothing orders them",
    _RACE + "Threads of a warp are threads as any others since sm_70: they need not run in step, and neither shfl.sync nor a "
    "matrix instruction orders their accesses to memory. bar.warp.sync (__syncwarp()) does.",
    "put bar.warp.sync (__syncwarp()) between the two, that all threads of both pass",
    family=_IN_BLOCK,
)  # fmt: skip
BETWEEN_BLOCKS = _race(
    303, "race-between-blocks", "blocks access the same bytes of global memory, and nothing orders them",
    _RACE + "Blocks of a grid run in any order, or at the same time. To pass data on a block writes it, executes a fence of "
    "scope gpu (__threadfence()) and then an atomic operation on a flag, or one that releases; the other sees the flag by a "
    "strong or acquiring read and executes a fence before it reads the data. In a block of several threads a barrier lies "
    "between these and the data's accesses.",
    "write with atomics; or pass the data on by st.release.gpu (or fence and atomic) and ld.acquire.gpu; or use two launches",
    order=2,
)  # fmt: skip
IN_CLUSTER = _race(
    304, "race-in-cluster", "blocks of a cluster access the same bytes of shared memory, and nothing orders them",
    _RACE + "Blocks of a cluster are ordered by barrier.cluster (arrive.release, wait.acquire), or by an mbarrier with the scope "
    "of the cluster; bar.sync is of one block alone. An arrival or a wait that is relaxed orders only what fences do: one "
    "before the arrival, one after the wait, of scope .cluster or wider. A fence of scope .cta is for the threads of one block.",
    "put a cluster barrier (cluster.sync(), barrier.cluster.arrive and wait) between the two; where there is one that is "
    "relaxed, or an mbarrier, write .release and .acquire of scope .cluster, or fence.acq_rel.cluster",
)  # fmt: skip
PLAIN_SYNC = _race(
    316, "race-plain-sync", "a plain access to a lock or a flag, which other threads change by atomic operations",
    _RACE + "Here one of the two is an atomic operation by which threads wait for each other (it exchanges, compares, acquires "
    "or releases), and the other is a plain store. A plain store does not release: what the thread wrote before it may "
    "become visible after it. Other races are often gone with this one: those on the bytes that the lock protects.",
    "give up the lock, or set the flag, with atom.exch and .release, at the scope of all threads that use it; reset it in a "
    "launch of its own", order=0,
)  # fmt: skip
COPY_READ = _race(
    305, "async-copy-read-early", "bytes that cp.async copies are read, and nothing says that the copy is over",
    "cp.async returns before it has copied. The thread that issued it knows of its end by cp.async.wait_group, which leaves the "
    "newest N groups pending, by wait_all, or by an mbarrier after cp.async.mbarrier.arrive; other threads by a barrier after "
    "that. Who reads sooner may read what was there before.",
    "wait with cp.async.wait_group for the group of this copy (a smaller N), commit it, and put a barrier after it for other "
    "threads",
    _COPY,
)  # fmt: skip
COPY_OVERWRITTEN = _race(
    306, "async-copy-overwritten", "bytes that cp.async copies to are written, and nothing says that the copy is over",
    "cp.async returns before it has copied. A write to its target before the copy is known to be over (cp.async.wait_group, and "
    "a barrier for other threads) may come first, and so be lost. Two copies of one thread to the same bytes are in no order "
    "either.",
    "wait with cp.async.wait_group for this copy before the bytes are written again",
    _COPY,
)  # fmt: skip
COPY_SOURCE = _race(
    307, "async-copy-source-written", "bytes that cp.async copies from are written, and nothing says that the copy is over",
    "cp.async returns before it has read. A write to its source before the copy is known to be over (cp.async.wait_group, and a "
    "barrier for other threads) may come first: then that is what is copied.",
    "wait with cp.async.wait_group for this copy before its source is written",
    _COPY,
)  # fmt: skip
SCOPE = _race(
    308, "race-scope", "strong accesses to the same bytes, of which one's scope leaves out the other's thread",
    _RACE + "Here both are strong, yet of a scope (.cta, .cluster) that does not have the other's thread in it: an atomic "
    "operation of scope cta is not atomic to other blocks.",
    "give both a scope that has all threads in it: .gpu between blocks, .cluster in a cluster", order=1,
)  # fmt: skip
HALF_STRONG = Rule(
    309, "race-half-strong", Severity.NOTE,
    "a strong read of global memory and a weak write of the same bytes, and nothing orders them", _MODEL,
    _RACE + "Here the read is strong (volatile, relaxed) and the write weak. Programs do so on purpose: they read volatile what "
    "another thread wrote before a flag. It is a race all the same. The other way round, a weak read of what others change by "
    "atomics or strong writes, is an error: a compiler may keep the value, or read it in parts.",
    "make both strong (volatile, relaxed), or order them: ld.acquire or a fence after the read of the flag",
)  # fmt: skip
NOT_RELEASED = Rule(
    314, "race-not-released", Severity.WARNING, "a strong read after an acquire, of what another thread did not release",
    _MODEL,
    _RACE + "Here the reader acquires a flag before it reads, and the writer sets a flag after its write, but by a relaxed "
    "operation without a fence: that the read is strong (volatile, relaxed) does not mend it, the flag may be seen first.",
    "release what was written: set the flag with .release, or put fence.acq_rel before it",
)  # fmt: skip
REPLICATED_READ = Rule(
    310, "race-replicated-read", Severity.NOTE,
    "threads of a block read bytes of global memory, of which one writes there, and nothing orders the two", _MODEL,
    _RACE + "Here threads of a block read bytes of global memory, and one writes there that has read them by the same "
    "instruction, or whose address comes out of the same register, or that is the same lane of another warp; no barrier lies "
    "between. Compilers make such code where threads hold copies of one value, and all copies but one are not used; then it "
    "does no harm.",
    _BARRIER + ", unless what the other threads read is not used",
)  # fmt: skip
STEADY = Rule(
    311, "nc-load-of-written", Severity.ERROR, "a read-only load (ld.global.nc, ldu) reads what the kernel has written",
    _CONSTANT,
    _NC + "Here the bytes were written earlier in the same launch. A barrier or a flag between the write and the load does not "
    "help: the load may find an older value in that cache.",
    "load with ld.global (no .nc): in CUDA, no const __restrict__ and no __ldg for a pointer whose memory the kernel writes; or "
    "write the bytes in an earlier launch",
    says="{this} reads as read-only what {other} has written in this launch",
)  # fmt: skip
STEADY_LATER = Rule(
    312, "nc-load-overwritten", Severity.NOTE, "the kernel writes later what a read-only load (ld.global.nc, ldu) reads",
    _CONSTANT,
    _NC + "Here the kernel writes the bytes after the load, in order. By the letter that is wrong, and kernels that work in "
    "place do it; it does no harm as long as no thread loads the bytes in this way again.",
    "load with ld.global (no .nc), or write to another buffer",
    says="{this} reads as read-only what {other} writes later in this launch",
)  # fmt: skip
SIZES = _race(
    313, "race-size", "strong accesses to the same bytes, of elements of different sizes",
    _RACE + "Two strong accesses are none only if they overlap completely: both are of the same elements. An atomic operation "
    "on 8 bytes is not atomic to one on 4 of them.",
    "access the bytes in one size everywhere: what has 8 bytes by atom.b64, ld.relaxed.b64 and st.relaxed.b64 alone",
)  # fmt: skip
UNREAD = Rule(
    315, "race-unread", Severity.NOTE, "a thread reads what another of its block writes, and does not use it", _MODEL,
    _RACE + "Here a thread loads bytes of shared memory that another one of its block writes, and no instruction reads what it "
    "loaded: so do loops that load for a round that does not come. It does no harm.",
    _BARRIER + ", or leave out the load in the last round",
)  # fmt: skip
LANES_DIFFER = Rule(
    320, "store-lanes-differ", Severity.WARNING, "lanes of one store write different values to the same bytes",
    "CUDA Programming Guide, SIMT Architecture; " + _MODEL,
    "Where several lanes of a warp store to one address by one instruction, one value stays, and it is undefined whose. Some "
    "programs want any of the values; in others an index is wrong. Equal values are not reported.",
    "let one lane store, or each to a place of its own; where any value will do, say so with atomicExch or a relaxed store",
)  # fmt: skip
MATRIX_ROWS = Rule(
    321, "stmatrix-rows-overlap", Severity.ERROR, "rows of a stmatrix with different elements have the same address",
    "PTX ISA 9.1, Warp Level Matrix Multiply-Accumulate Instructions: stmatrix",
    "Each lane gives the address of a row of 16 bytes. Where rows have the same address, one of them stays, and it is undefined "
    "which. No program wants that: the stride of the rows is wrong, or lanes give the addresses of other rows.",
    "give each row 16 bytes of its own: with .x4 lane i gives the address of row i of all four matrices",
)  # fmt: skip

BY_THREADS = frozenset(r.number for r in (WRITE_WRITE, READ_WRITE, IN_WARP, BETWEEN_BLOCKS, IN_CLUSTER))  # of any two accesses
