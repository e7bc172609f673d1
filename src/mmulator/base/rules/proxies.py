"""Rules about fences between the generic and the asynchronous proxy. Their numbers begin at 200."""

from mmulator.base.rules.rule import Rule, Severity

_ASYNC_PROXY = "PTX ISA 9.1, Asynchronous operations: Async proxy"
_BULK = "PTX ISA 9.1, Data Movement and Conversion Instructions: Asynchronous copy: Completion mechanisms"
_WAIT = "PTX ISA 9.1, Data Movement and Conversion Instructions: cp.async.bulk.wait_group"
_COMMIT = "PTX ISA 9.1, Data Movement and Conversion Instructions: cp.async.bulk.commit_group"
_WGMMA = "PTX ISA 9.1, Asynchronous Warpgroup Level Matrix Instructions: Async Proxy"
_MAPS = "PTX ISA 9.1, Parallel Synchronization and Communication Instructions: membar, fence: fence.proxy.tensormap"

FENCE_MISSING = Rule(
    200, "proxy-fence-missing", Severity.ERROR, "the asynchronous proxy reads what ordinary instructions wrote, with no fence",
    _ASYNC_PROXY,
    "wgmma, cp.async.bulk and tensor copies access memory through the asynchronous proxy; st, cp.async, stmatrix and atomics "
    "use the generic one. What the generic proxy wrote is there for the asynchronous one only after a fence.proxy.async that "
    "is for this state space and stands after the write on the path of synchronisation from the writer to the operation. A "
    "barrier alone, a fence before the write, of another thread that did not know of the write, or of another state space is "
    "none. The operation may read what was there before.",
    "let each writer execute fence.proxy.async (of this state space) after its writes and before the barrier or arrive that "
    "leads to the operation",
)  # fmt: skip
GLOBAL_FENCE = (  # the hint of bytes in global memory
    "let each writer execute fence.proxy.async.global after its writes and before the barrier or release that leads to the "
    "operation; a fence for shared memory is none"
)
READ_BEFORE_WAIT = Rule(
    201, "tma-read-before-wait", Severity.ERROR, "bytes are read that an asynchronous copy may not have written yet", _BULK,
    "A bulk or tensor copy into shared memory, or an st.async, is complete when the phase of its mbarrier is: a thread may "
    "read the bytes when its wait for this phase has succeeded, or after a thread whose wait has. A wait for the phase before "
    "(the wrong parity) or at another stage's mbarrier succeeds at once and says nothing of these bytes.",
    "wait for the phase of the mbarrier that the copy completes before reading; change the parity with each round of the ring",
)  # fmt: skip
REFILL_EARLY = Rule(
    202, "tma-refill-early", Severity.ERROR, "an asynchronous copy overwrites bytes that may still be read", _BULK,
    "A copy may write from its issue on. Whoever issues it must know that all readers of what the bytes held are done: they "
    "arrive at an mbarrier, or at a barrier, after their reads, and the producer waits there before it issues the copy.",
    "arrive at the stage's \"empty\" mbarrier after the last read (of every lane), and wait for it before the next copy",
    says="bytes are overwritten that {other} may not have read yet",
)  # fmt: skip
OPERAND_OVERWRITTEN = Rule(
    203, "wgmma-operand-overwritten", Severity.ERROR, "shared memory is written while a wgmma that reads it is pending", _WGMMA,
    "wgmma.mma_async reads its matrices in shared memory at any time from its issue until a wgmma.wait_group that covers it. "
    "Until then nobody may write there, neither threads nor copies.",
    "let a wgmma.wait_group that covers the wgmma come before the write, and before the arrive that lets another thread write",
    says="bytes are overwritten that a pending {other} may still read",
)  # fmt: skip
SOURCE_REUSED = Rule(
    204, "bulk-source-reused", Severity.ERROR, "memory is written while an asynchronous copy reads it", _WAIT,
    "A bulk or tensor store reads shared memory at any time until cp.async.bulk.wait_group[.read] of the thread that issued it "
    "covers its group; a copy to shared memory reads its source until its mbarrier's phase is complete. What is written there "
    "before may be what is copied. After wait_group.read N the newest N groups may still be unread.",
    "wait with cp.async.bulk.wait_group.read (by the thread that committed the group), then a barrier, before the bytes are "
    "written again",
    says="bytes are overwritten that {other} may still copy",
)  # fmt: skip
WRITE_OVERLAP = Rule(
    205, "async-write-overlap", Severity.ERROR, "nothing orders an asynchronous write and another access to the same bytes",
    _ASYNC_PROXY,
    "Asynchronous copies have no order among each other, nor with what threads do after the issue. Two of them that write the "
    "same bytes, or one and a store, leave either value, or parts of both.",
    "give each bytes of its own, or wait for the first to be complete before the second begins",
    says="nothing orders this and {other}, which accesses the same bytes",
)  # fmt: skip
RESULT_EARLY = Rule(
    206, "bulk-result-read-early", Severity.ERROR, "the result of an asynchronous store is used before it is complete", _WAIT,
    "What a bulk or tensor store (or reduction) writes to global memory is there when cp.async.bulk.wait_group, without .read, "
    "of the thread that issued it covers its group: .read says only that the source may be written again.",
    "wait with cp.async.bulk.wait_group (no .read) in the thread that issued the store before anybody of this grid uses the "
    "result",
    says="the bytes that {other} stores are used before it is known to be complete",
)  # fmt: skip
OPERAND_RACE = Rule(
    207, "async-operand-race", Severity.ERROR, "nothing orders a write and an asynchronous operation that reads the bytes",
    _ASYNC_PROXY,
    "What a wgmma or an asynchronous copy reads must be written before, and all writers must have told the thread that issues "
    "it (all four warps, for a wgmma) by a barrier, an mbarrier or a flag. A fence alone tells nobody.",
    "put a barrier between the writers (after their fence.proxy.async) and the operation",
    says="bytes are read that {other} writes, and nothing orders the two",
)  # fmt: skip
PENDING_AT_EXIT = Rule(
    208, "bulk-pending-at-exit", Severity.NOTE, "a thread exits while its asynchronous store may still read shared memory",
    _WAIT,
    "The shared memory of a block is gone when its threads have exited. Only the thread that issued a store can know that its "
    "source was read. It is a note, since kernels that are in wide use (DeepGEMM's) end so: chips seem to keep the memory.",
    "execute cp.async.bulk.wait_group.read 0 in that thread before it exits",
    says="the thread exits while this may still read shared memory",
)  # fmt: skip
NEVER_COMMITTED = Rule(
    209, "bulk-never-committed", Severity.ERROR, "an asynchronous store is never committed to a group", _COMMIT,
    "cp.async.bulk.wait_group waits for groups that were committed. A store after the last cp.async.bulk.commit_group of its "
    "thread is in none: no wait covers it.",
    "execute cp.async.bulk.commit_group after the store, in the same thread, before the wait",
    says="the thread exits and has not committed this to a bulk group",
)  # fmt: skip
MAP_FENCE_MISSING = Rule(
    210, "tensormap-fence-missing", Severity.ERROR, "a tensor map that the kernel changed is used without its fences", _MAPS,
    "Copies read tensor maps through a proxy of their own. A change by st or tensormap.replace is there for a copy if a "
    "fence.proxy.tensormap::generic.release (tensormap.cp_fenceproxy has it) is after the change, and "
    "fence.proxy.tensormap::generic.acquire of the map's address after that and before the copy, all on one path of "
    "synchronisation. The copy may use the map as it was.",
    "release after the change, synchronise, and execute fence.proxy.tensormap::generic.acquire with the map's address and "
    "size 128 in the thread that issues the copy",
)  # fmt: skip
MAP_IN_FLIGHT = Rule(
    211, "tensormap-in-flight", Severity.ERROR, "a tensor map is changed while a copy that uses it may be under way", _MAPS,
    "A copy reads its tensor map at any time until it is complete (a load: the phase of its mbarrier) or until "
    "cp.async.bulk.wait_group[.read] of its thread covers it.",
    "wait for the copies that use the map, in the thread that issued them, before it is changed",
    says="the tensor map is changed while {other} may still use it",
)  # fmt: skip
COPY_FENCE_MISSING = Rule(
    212, "proxy-fence-missing-copy", Severity.NOTE, "wgmma reads what cp.async copied, with no fence.proxy.async", _ASYNC_PROXY,
    "cp.async (not cp.async.bulk) writes through the generic proxy. So data that it brought needs a fence.proxy.async, after "
    "the wait for the copy, before a wgmma reads it, as data of st does. Many compilers leave it out (Triton's kernels for "
    "Hopper have cp.async.wait_group, bar.sync, wgmma), and no chip is known to show it. That is why this is a note.",
    "execute fence.proxy.async after cp.async.wait_group and before the barrier",
)  # fmt: skip
WRITE_FENCE_MISSING = Rule(
    213, "proxy-fence-missing-write", Severity.WARNING,
    "an asynchronous copy writes over what ordinary instructions wrote, with no fence", _ASYNC_PROXY,
    "Bulk and tensor copies and reductions write through the asynchronous proxy; st, cp.async, stmatrix and atomics write "
    "through the generic one. Accesses through both to the same bytes need a fence.proxy.async between, also where both write: a "
    "barrier alone orders the instructions, not the proxies, and the older value may be written last. An example is a tile that "
    "threads fill with zeros before a copy brings a part of it, or a result that a copy adds to what threads initialised.",
    "let each writer execute fence.proxy.async (of this state space) after its writes and before the barrier that leads to the "
    "copy",
    says="bytes that {other} wrote are written over through the asynchronous proxy with no fence.proxy.async between",
)  # fmt: skip
REFILL_FENCE_MISSING = Rule(
    214, "proxy-fence-missing-refill", Severity.NOTE,
    "an asynchronous copy overwrites what threads have read, with no fence.proxy.async", _ASYNC_PROXY,
    "Here threads read bytes with ordinary instructions, and then an asynchronous copy overwrites them. By the letter accesses "
    "through two proxies need a fence.proxy.async between: after the reads, before the arrive that frees the stage. This is a "
    "note only, since CUTLASS has no such fence in its pipelines, and a read that is complete keeps its value.",
    "execute fence.proxy.async after the reads and before the arrive or barrier that frees the buffer",
    says=(
        "bytes that threads have read ({other}) are written over through the asynchronous proxy with no fence.proxy.async "
        "between"
    ),
)  # fmt: skip
