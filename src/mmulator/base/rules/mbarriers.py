"""Rules about mbarriers and about the blocks of a cluster. Their numbers begin at 400."""

from mmulator.base.rules.rule import Rule, Severity

_ERROR, _WARNING = Severity.ERROR, Severity.WARNING
_SYNC = "PTX ISA 9.1, Parallel Synchronization and Communication Instructions: "
_DSM = "CUDA C++ Programming Guide, Distributed Shared Memory"

INIT_IN_USE = Rule(
    400, "mbarrier-init-in-use", _ERROR, "an mbarrier is initialised while it is one", _SYNC + "mbarrier.init",
    "mbarrier.init on a valid mbarrier object is undefined. An object is valid from its mbarrier.init to its mbarrier.inval.",
    "invalidate it with mbarrier.inval first, or initialise it once, by one thread",
    says="{this} of an mbarrier that has been initialised and not invalidated",
)  # fmt: skip
NOT_INITIALISED = Rule(
    401, "mbarrier-not-initialised", _ERROR, "an mbarrier operation where no mbarrier has been initialised", _SYNC + "mbarrier",
    "Any mbarrier operation but mbarrier.init on memory that holds no mbarrier object is undefined.",
    "let one thread execute mbarrier.init, then fence.mbarrier_init or a barrier, before others use it; check the address",
)  # fmt: skip
AFTER_INVAL = Rule(
    402, "mbarrier-use-after-inval", _ERROR, "an mbarrier is used after mbarrier.inval", _SYNC + "mbarrier.inval",
    "mbarrier.inval ends the object: no operation on it, of a thread or of a copy, may come later, but mbarrier.init.",
    "invalidate it when all threads and copies are through with it: a barrier between their last use and mbarrier.inval",
    says="{this} at an mbarrier that has been invalidated",
)  # fmt: skip
COUNT_INVALID = Rule(
    403, "mbarrier-count-invalid", _ERROR, "mbarrier.init with a count that an mbarrier cannot hold", _SYNC + "mbarrier.init",
    "The count of arrivals of a phase is 1 to 2^20 - 1.",
    "give the number of arrivals that complete a phase, arrive.expect_tx among them",
    faults="MBARRIER_RANGE",
)  # fmt: skip
ARRIVAL_OVERRUN = Rule(
    404, "mbarrier-arrival-overrun", _ERROR, "more arrivals than a phase of an mbarrier awaits", _SYNC + "mbarrier.arrive",
    "An arrival takes at least 1 and at most what is pending in the phase; the pending count must not go below 0.",
    "arrive once for each arrival of mbarrier.init's count: a thread may arrive again when the phase is over",
    faults="MBARRIER_ARRIVALS",
)  # fmt: skip
TX_OVERFLOW = Rule(
    405, "mbarrier-tx-count-overflow", _ERROR, "more bytes than the tx-count of an mbarrier can hold", _SYNC + "mbarrier",
    "The tx-count, bytes that are expected and have not come, is -(2^20 - 1) to 2^20 - 1.",
    "expect the bytes of one phase, and no more; a box of a tensor copy has the bytes of its tensor map",
    faults="MBARRIER_BYTES",
)  # fmt: skip
NO_COMPLETE = Rule(
    406, "mbarrier-nocomplete-completes", _ERROR, "an arrive.noComplete that completes the phase", _SYNC + "mbarrier.arrive",
    "An arrive.noComplete must not complete the current phase; the behaviour is undefined otherwise.",
    "let the last arrival be one without .noComplete",
    faults="MBARRIER_COMPLETES",
)  # fmt: skip
STORED_TO = Rule(
    407, "mbarrier-stored-to", _ERROR, "an mbarrier is written by something that is no mbarrier operation", _SYNC + "mbarrier",
    "An mbarrier object is opaque: anything but mbarrier operations on its 64 bits is undefined from mbarrier.init to "
    "mbarrier.inval. A store or a copy over it loses arrivals, or lets a phase be over too early.",
    "look for a store or a copy that reaches the mbarrier; end the object with mbarrier.inval before its memory is used again",
    says="{this} writes over an mbarrier", faults="MBARRIER_STORED",
)  # fmt: skip
READ_AS_DATA = Rule(
    408, "mbarrier-read-as-data", _ERROR, "an mbarrier is read by something that is no mbarrier operation", _SYNC + "mbarrier",
    "An mbarrier object is opaque: anything but mbarrier operations on its 64 bits is undefined from mbarrier.init to "
    "mbarrier.inval. What a load finds there has no meaning, and orders nothing.",
    "ask with mbarrier.test_wait, or count with mbarrier.pending_count of a state",
    says="{this} reads an mbarrier as if it were data",
)  # fmt: skip
OTHER_BLOCK = Rule(
    409, "mbarrier-other-block", _ERROR, "data goes to one block, and the mbarrier of another hears of it",
    "PTX ISA 9.1, Data Movement and Conversion Instructions: Asynchronous copy",
    "The mbarrier of an asynchronous operation lies in the shared memory of the block that its data goes to.",
    "map both addresses, that of the data and that of the mbarrier, to the same rank with mapa",
    faults="MBARRIER_ELSEWHERE",
)  # fmt: skip
BYTES_MISSING = Rule(
    410, "mbarrier-bytes-missing", _WARNING, "an mbarrier expects bytes that never come", _SYNC + "expect-tx operation",
    "A phase is over when all bytes have come that expect_tx announced. Whoever waits for it waits for ever.",
    "let expect_tx announce what the copies bring (a tensor copy brings its whole box), and let them complete this mbarrier",
    says="bytes that {this} expects at an mbarrier never come",
)  # fmt: skip
BYTES_UNEXPECTED = Rule(
    411, "mbarrier-bytes-unexpected", _WARNING, "bytes come to an mbarrier that nobody expects there",
    _SYNC + "complete-tx operation",
    "Bytes that no expect_tx announced in their phase leave the tx-count below 0: the phase cannot be over, and who waits for "
    "the data at another mbarrier, or in another phase, does not wait for them.",
    "expect the bytes in the phase in which they come, at the mbarrier that the copy names",
    says="bytes that {this} brings to an mbarrier are expected by nobody there",
)  # fmt: skip
INVAL_IN_USE = Rule(
    412, "mbarrier-inval-in-use", _ERROR, "an mbarrier is invalidated while others may use it", _SYNC + "mbarrier.inval",
    "Every operation on an mbarrier, of threads and of copies, must come before its mbarrier.inval: what comes later finds no "
    "mbarrier. Nothing orders this one before it.",
    "put a barrier between the last use and mbarrier.inval, and wait for the last copy that completes it",
    says="nothing orders {other} at an mbarrier and {this} at it",
)  # fmt: skip
INIT_NOT_VISIBLE = Rule(
    413, "mbarrier-init-not-visible", _ERROR, "an mbarrier is used by a thread that does not know of its mbarrier.init",
    _SYNC + "mbarrier.init; fence.mbarrier_init",
    "mbarrier.init is a write like any other: a thread that uses the mbarrier must be ordered after it, by a barrier of the "
    "block; by threads of another block by barrier.cluster, whose arrive has .release or follows fence.mbarrier_init.",
    "let the block meet at bar.sync after mbarrier.init, a cluster at fence.mbarrier_init and barrier.cluster",
    says="nothing orders the mbarrier.init of an mbarrier before {this} at it",
)  # fmt: skip
SCOPE_TOO_NARROW = Rule(
    414, "mbarrier-scope-too-narrow", _WARNING, "an arrival of scope .cta at an mbarrier of another block",
    _SYNC + "mbarrier.arrive; Memory Consistency Model: Scope",
    "A release of scope .cta orders for threads of the own block alone. Who waits at another block's mbarrier is none of these: "
    "what was written or read before the arrival may come later there.",
    "arrive with .release.cluster, and wait with .acquire.cluster",
    says="{this} at an mbarrier of another block, for whose threads this scope orders nothing",
)  # fmt: skip
SCOPE_UNSAID = Rule(
    415, "mbarrier-scope-unsaid", Severity.NOTE, "an arrival without a scope at an mbarrier of another block",
    _SYNC + "mbarrier.arrive; Memory Consistency Model: Scope",
    "An arrival without a scope has scope .cta: by the letter it orders memory for threads of its own block alone, and the "
    "threads that wait at another block's mbarrier are not in that block. ptxas puts no fence before it, as it does for "
    ".release.cluster. Such an arrival counts here as saying that all reads are over, and all writes to the own shared memory: "
    "CUTLASS's ClusterBarrier frees buffers so. What was written to other blocks' memory or to global memory it does not order.",
    "arrive with .release.cluster, and wait with .acquire.cluster",
    says="{this} at an mbarrier of another block has no scope, and so that of its own block",
)  # fmt: skip
INIT_NOT_FENCED = Rule(
    416, "mbarrier-init-not-fenced", Severity.NOTE, "a copy completes an mbarrier, and no fence follows its mbarrier.init",
    _SYNC + "mbarrier.init; fence.mbarrier_init; Async proxy",
    "mbarrier.init writes through the generic proxy; a bulk or tensor copy completes the mbarrier through the asynchronous one. "
    "By the letter a fence is needed between, fence.mbarrier_init.release.cluster or fence.proxy.async, after the mbarrier.init "
    "and before the barrier. This is a note only, since many kernels have just the barrier, and no chip is known to show a "
    "difference.",
    "execute fence.mbarrier_init.release.cluster (or fence.proxy.async) in the thread that executes mbarrier.init, after it and "
    "before the barrier",
    says="{this} completes an mbarrier, and no fence lies after the {other} of it",
)  # fmt: skip

PHASE_MISSED = Rule(
    417, "mbarrier-phase-missed", _WARNING, "the next phase of an mbarrier is over before a thread that waits for this one runs",
    _SYNC + "mbarrier.test_wait, mbarrier.try_wait",
    "A wait may name the current phase of an mbarrier or the one before. This wait ends only because the thread was suspended "
    "when its phase was completed. A thread that comes later, or that the chip does not suspend, finds a phase of the other "
    "parity and waits for ever.",
    "let whoever completes the next phase first wait until all threads know of this one, as pipelines do with an mbarrier for "
    "empty stages",
    says="{this} ends its wait for a phase when the next phase is over, too",
)  # fmt: skip
BYTES_LATE = Rule(
    418, "mbarrier-bytes-late", _ERROR, "a phase of an mbarrier is over before the bytes of a copy that completes it",
    _SYNC + "expect-tx operation; Phase completion of the mbarrier object",
    "A phase waits for as many bytes as expect_tx announced in it, whichever copies bring them. If it announced fewer than the "
    "copies bring, the phase is over while some of them are under way: who waits for it may read too early, and bytes that come "
    "later count in the next phase.",
    "let expect_tx announce the bytes of all copies to this mbarrier (a tensor copy brings its whole box), in the same phase and "
    "before its last arrival",
    says="a phase of an mbarrier is over while {this}, which completes bytes there, is under way",
)  # fmt: skip
COPY_AT_EXIT = Rule(
    419, "copy-pending-at-exit", _WARNING, "a block exits while a copy to its shared memory may be under way",
    "PTX ISA 9.1, Data Movement and Conversion Instructions: Asynchronous copy: Completion mechanisms",
    "Shared memory of a block is there until its last thread exits; a copy that comes later writes into what another block has "
    "there by then. No thread of the block waits for the phase that this copy completes.",
    "wait for the mbarrier of the last copies before the block exits, also if nobody needs what they bring; or do not issue them",
    says="the block exits and has not waited for {this} into its shared memory",
)  # fmt: skip
EXIT_UNSYNCHRONISED = Rule(
    420, "cluster-exit-unsynchronised", _ERROR, "a block exits while another may still access its shared memory", _DSM,
    "Shared memory of a block is there until its last thread exits. Accesses of other blocks (loads, stores, arrivals at its "
    "mbarriers, multicast copies) must come before that, by more than luck.",
    "let all threads of the cluster meet at barrier.cluster (cluster.sync()) before the first returns, or wait for the last "
    "arrivals (as CUTLASS's producer_tail does)",
    says="nothing orders {this} to the shared memory of a block before that block exits", faults="CTA_EXITED",
)  # fmt: skip
START_UNSYNCHRONISED = Rule(
    421, "cluster-start-unsynchronised", _ERROR, "shared memory of a block is accessed that perhaps has not begun", _DSM,
    "All blocks of a cluster must have begun before one accesses the shared memory of another.",
    "let all threads of the cluster meet at barrier.cluster (cluster.sync()) before the first such access",
    says="{this} to the shared memory of a block that perhaps has not begun",
)  # fmt: skip
BARRIER_UNPAIRED = Rule(
    422, "cluster-barrier-unpaired", _ERROR, "barrier.cluster.arrive and .wait of a thread do not come in turn",
    _SYNC + "barrier.cluster",
    "Each thread arrives once at barrier.cluster, then waits: a second arrive before the wait, or a wait without an arrive, is "
    "undefined.",
    "pair every barrier.cluster.arrive with one barrier.cluster.wait, on every way through the kernel",
    faults="CLUSTER_BARRIER",
)  # fmt: skip
_CANCEL = _SYNC + "clusterlaunchcontrol"
CANCEL_AGAIN = Rule(
    423, "cluster-cancel-again", _ERROR, "a block asks for another cluster after it has seen that there was none", _CANCEL,
    "A block that has seen the response to a clusterlaunchcontrol.try_cancel say no may not execute another: what that does is "
    "undefined.",
    "leave the loop when query_cancel.is_canceled is false, in the thread that asks too",
    says="{this} by a block that has seen at {other} that there is no other cluster",
)  # fmt: skip
CANCEL_REFUSED = Rule(
    424, "cluster-cancel-refused", _ERROR, "the place of a cluster is used that was not cancelled", _CANCEL,
    "The response to a clusterlaunchcontrol.try_cancel has the place of a cluster only if one was cancelled; else what "
    "query_cancel.get_first_ctaid gives is undefined. To read it is no mistake as long as nothing depends on it; here something "
    "does.",
    "use it only where query_cancel.is_canceled is true",
)  # fmt: skip
