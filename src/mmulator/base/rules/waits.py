"""Rules about threads that wait for ever. Their numbers begin at 800."""

from mmulator.base.rules.rule import Rule, Severity

_ERROR = Severity.ERROR
_SYNC = "PTX ISA 9.1, Parallel Synchronization and Communication Instructions: "

AT_MBARRIER = Rule(
    800, "deadlock-at-mbarrier", _ERROR, "threads wait for a phase of an mbarrier that nobody can complete", _SYNC + "mbarrier",
    "A phase is over when all arrivals that mbarrier.init named have come, and all bytes that were expected. No thread that "
    "could arrive can go on, and nothing is under way.",
    "count the arrivals of a phase, and who flips which parity when; a producer's first wait for an empty buffer is for parity 1",
)  # fmt: skip
AT_BARRIER = Rule(
    801, "deadlock-at-barrier", _ERROR, "threads wait at a barrier at which others never arrive", _SYNC + "bar",
    "A barrier is complete when as many threads have arrived as its count says, or all of the block that have not exited.",
    "look for a barrier inside a branch that some threads do not take, or a wrong thread count",
)  # fmt: skip
AT_CLUSTER_BARRIER = Rule(
    802, "deadlock-at-cluster-barrier", _ERROR, "threads wait at barrier.cluster, and others never arrive",
    _SYNC + "barrier.cluster",
    "barrier.cluster is complete when all threads of the cluster that have not exited have arrived.",
    "let every thread of every block of the cluster execute barrier.cluster.arrive, whatever branch it takes",
)  # fmt: skip
AT_SETMAXNREG = Rule(
    803, "deadlock-at-setmaxnreg", _ERROR, "threads wait for registers that nobody releases",
    "PTX ISA 9.1, Miscellaneous Instructions: setmaxnreg",
    "setmaxnreg.inc waits until the registers that it asks for are free in the block's pool.",
    "release as many with setmaxnreg.dec in other warpgroups; the pool is what the launch gave to the block",
)  # fmt: skip
IN_WARP = Rule(
    804, "deadlock-in-warp", _ERROR, "threads wait for others to come to the same instruction, which never do",
    _SYNC + "bar.warp.sync",
    "An instruction with a member mask, or for a whole warp or warpgroup, waits for every thread that it names and that has not "
    "exited. One of these waits elsewhere.",
    "let all lanes of the warp take the same branches up to here, or bring them together with bar.warp.sync",
)  # fmt: skip
LIVELOCK = Rule(
    805, "livelock", _ERROR, "threads go round a loop that nothing can end", "PTX ISA 9.1, Memory Consistency Model",
    "A loop that ends when memory changes never ends if each thread that could change it has exited, or waits, or polls.",
    "look for who should store the value that ends the loop: whether it runs at all, stores there, and stores that value",
)  # fmt: skip
AT_ALLOCATION = Rule(
    806, "deadlock-at-tensor-alloc", _ERROR, "threads wait for columns of tensor memory that nobody deallocates",
    "PTX ISA 9.1, TensorCore 5th Generation Family Instructions: Tensor Memory Allocation and Management Instructions",
    "tcgen05.alloc waits until so many columns are free. With .cta_group::2 it also waits until a warp of the other block of the "
    "pair allocates as many.",
    "deallocate columns first, or allocate fewer: all CTAs here have 512 of their own; of a pair, let both CTAs allocate",
)  # fmt: skip
