"""Rules about threads that must execute an instruction together. Their numbers begin at 600."""

from mmulator.base.rules.rule import Rule, Severity

_SYNC = "PTX ISA 9.1, Parallel Synchronization and Communication Instructions"
_WARPGROUP = "PTX ISA 9.1, Asynchronous Warpgroup Level Matrix Instructions: Warpgroup; wgmma.mma_async"

PARTIAL_WARP = Rule(
    600, "aligned-partial-warp", Severity.ERROR, "an .aligned instruction by part of a warp",
    "PTX ISA 9.1, Warp-level Matrix Instructions, and every instruction with .aligned",
    ".aligned says that all 32 threads of the warp execute this very instruction. It is undefined if they evaluate a condition "
    "around it differently, if two places of the text have one each for a part, or if a thread has exited or does not exist.",
    "let all lanes of the warp take the same branches up to here, and let none return before", order=1,
    faults="PARTIAL_WARP",
)  # fmt: skip
INCOMPLETE = Rule(
    601, "warpgroup-incomplete", Severity.ERROR, "a wgmma instruction by a warpgroup that lacks threads", _WARPGROUP,
    "A warpgroup is four contiguous warps, of which the first has a rank that is a multiple of 4; all 128 threads execute "
    "wgmma.fence, wgmma.mma_async, wgmma.commit_group and wgmma.wait_group. None may have exited, or not exist.",
    "launch a multiple of 128 threads, and let no thread of a warpgroup return before its last wgmma instruction", order=1,
)  # fmt: skip
DIVERGED = Rule(
    602, "warpgroup-diverged", Severity.ERROR, "the warps of a warpgroup execute different instructions", _WARPGROUP,
    "All warps of a warpgroup execute the same wgmma.fence, wgmma.mma_async, wgmma.commit_group, wgmma.wait_group and "
    "setmaxnreg, one after the other. Two places of the text are two instructions, also if they read alike; but chips count the "
    "registers of each warp alone, so setmaxnreg of one count at two places is not reported.",
    "let the four warps of a warpgroup take the same branches: decide by the number of the warpgroup, not of the warp", order=1,
)  # fmt: skip
RESIZE = Rule(
    603, "setmaxnreg-count", Severity.ERROR, "setmaxnreg in the wrong direction",
    "PTX ISA 9.1, Miscellaneous Instructions: setmaxnreg",
    "setmaxnreg.dec must not ask for more registers than the thread has, setmaxnreg.inc not for fewer.",
    "count the registers that each warpgroup has, from the bound of .maxnreg or .minnctapersm on",
    faults="REGISTERS",
)  # fmt: skip
LANES_EXITED = Rule(
    604, "aligned-lanes-exited", Severity.WARNING, "lanes of a warp exit before an .aligned barrier of the warp", f"{_SYNC}: bar",
    "All threads of a warp must execute an .aligned barrier (bar.sync, __syncthreads()). Here some lanes exit instead, as "
    "with `if (i >= n) return;` before __syncthreads(). Chips since sm_70 count threads that have exited as if they had arrived, "
    "and many programs rely on that; by the specification it is undefined.",
    "let all threads come to the barrier, and put only the loads, computation and stores under the condition", order=1,
)  # fmt: skip
UNSETTLED = Rule(
    605, "setmaxnreg-not-synchronised", Severity.ERROR, "a second setmaxnreg before all warps of the warpgroup have met",
    "PTX ISA 9.1, Miscellaneous Instructions: setmaxnreg",
    "After a setmaxnreg all warps of the warpgroup must synchronise explicitly, by a barrier or an mbarrier, before one of them "
    "executes the next one.",
    "put a barrier of the warpgroup (bar.sync with a number of its own and 128 threads) between the two", order=1,
)  # fmt: skip
NOT_MEMBER = Rule(
    610, "membermask-lacks-thread", Severity.ERROR, "a thread executes a .sync instruction whose member mask does not name it",
    f"{_SYNC}: shfl.sync, vote.sync, match.sync, redux.sync, elect.sync, bar.warp.sync",
    "The member mask names the threads that execute the instruction together. It is undefined if the executing thread is not "
    "among them.",
    "compute the mask before the branch, with vote.sync.ballot of its condition (__ballot_sync), or keep other lanes away",
    order=1,
)  # fmt: skip
MASKS = Rule(
    611, "membermask-differs", Severity.ERROR, "threads that name each other give different member masks",
    f"{_SYNC}: shfl.sync, vote.sync, match.sync, redux.sync, elect.sync, bar.warp.sync",
    "A thread waits until all threads of its member mask execute the instruction with the same mask. If they give different ones "
    "they wait for ever, or a chip mixes up who exchanges with whom. activemask before a branch is no such mask.",
    "let one instruction compute the mask for all that meet here", order=1,
)  # fmt: skip
NO_SOURCE = Rule(
    612, "membermask-lacks-source", Severity.ERROR, "a shuffle takes a value from a lane outside its member mask",
    f"{_SYNC}; Data Movement and Conversion Instructions: shfl.sync",
    "What shfl.sync reads from a lane that its member mask does not name, or that does not execute it, is undefined. A shuffle "
    "may read such a value as long as nothing depends on it, as in the upper lanes of a sum; here a result depends on it.",
    "name in the mask the lanes that are read from, and let them execute the shuffle; or do not use what other lanes give",
)  # fmt: skip
EXITED_MEMBER = Rule(
    613, "membermask-names-exited", Severity.NOTE, "lanes exit without the bar.warp.sync whose member mask names them",
    f"{_SYNC}: bar.warp.sync",
    "A thread that executes bar.warp.sync waits until all threads of its member mask have executed one. For shfl.sync, vote.sync "
    "and others the text says all that have not exited; here it does not. Chips do not wait for threads that have exited.",
    "name the lanes that come here (activemask before the branch is no such mask; __ballot_sync of its condition is)",
)  # fmt: skip
COUNTS = Rule(
    620, "barrier-count-differs", Severity.ERROR, "one barrier with two thread counts", f"{_SYNC}: bar",
    "All threads that use a barrier before it completes name the same number of threads, or none does.",
    "name the count everywhere or nowhere", order=1,
    faults="BARRIER_COUNTS",
)  # fmt: skip
BARRIER = Rule(
    621, "barrier-operand-invalid", Severity.ERROR, "a barrier that does not exist, or an impossible count", f"{_SYNC}: bar",
    "Barriers are 0 to 15; a thread count is a multiple of the warp size.",
    "name a barrier from 0 to 15, and a count of whole warps: each counts 32",
    faults="BAD_BARRIER",
)  # fmt: skip
BARRIER_LANES = Rule(
    622, "barrier-operand-differs", Severity.ERROR, "lanes of a warp name different barriers or counts", f"{_SYNC}: bar",
    "A warp arrives at one barrier, with one thread count, as a whole.",
    "compute barrier and count from values that the whole warp shares", order=1,
    faults="BARRIER_LANES",
)  # fmt: skip
PARTNERS = Rule(
    623, "barrier-partners-vary", Severity.WARNING, "luck decides which warps meet at a barrier", f"{_SYNC}: bar",
    "A barrier is complete when as many threads have come as it names, whichever they are, and then begins anew. A warp that "
    "takes no part in a round must be ordered after it before it comes: else it may come in another's place, and what the "
    "barrier orders is another thing in each run.",
    "give each group of warps a barrier number of its own, or put a barrier of all between two uses by different warps",
    order=1, says="{this} by a warp that nothing orders after the last round of this barrier, of other warps",
)  # fmt: skip
BRANCH = Rule(
    630, "branch-index-out-of-range", Severity.ERROR, "brx.idx with an index that its list does not have",
    "PTX ISA 9.1, Control Flow Instructions: brx.idx",
    "The index must be less than the number of targets; what happens else is not defined.",
    "compare the index with the length of the list first",
    faults="BAD_BRANCH",
)  # fmt: skip
