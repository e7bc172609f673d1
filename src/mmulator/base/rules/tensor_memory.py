"""Rules about tensor memory and the operations on it (tcgen05). Their numbers begin at 1000."""

from mmulator.base.rules.rule import Rule, Severity

_FAMILY = "PTX ISA 9.1, TensorCore 5th Generation Family Instructions: "
_ALLOCATION = _FAMILY + "Tensor Memory Allocation and Management Instructions"
_ACCESS = _FAMILY + "Tensor Memory and Register Load/Store Instructions: Access restrictions"
_MEMORY = _FAMILY + "Memory Consistency Model for 5th generation of TensorCore operations: "
_PIPE = _MEMORY + "Pipelined tcgen05 Instructions"
_FENCE = _MEMORY + "Specialized Inter-thread Synchronization for tcgen05 instructions"
_WAIT, _COMMIT = (_MEMORY + name + " based completion mechanism" for name in ("tcgen05.wait instruction", "mbarrier"))
_PATTERNS = _MEMORY + "Canonical synchronization patterns"

HELD = Rule(
    1000, "tensor-columns-held", Severity.ERROR, "a block exits with columns of tensor memory that it has not deallocated",
    _ALLOCATION,
    "All columns that tcgen05.alloc has given must be given back with tcgen05.dealloc before the block exits. Else blocks that "
    "run on this multiprocessor later wait for these columns for ever.",
    "let one warp execute tcgen05.dealloc with the address and the number of columns of the alloc, after a barrier that follows "
    "the last access",
)  # fmt: skip
QUARTER = Rule(
    1001, "tensor-quarter", Severity.NOTE, "a warp names lanes of tensor memory that belong to another warp", _ACCESS,
    "The warp with number w of its warpgroup may access lanes 32 w to 32 w + 31 of tensor memory, and the lane in the address "
    "must be one of these. Chips take the warp's own lanes, whatever these bits say, as mmulator does; kernels in wide use rely "
    "on that, and the check that ptxas -G puts in traps. That is why this is a note.",
    "add (warp % 4) * 32 << 16 to the address",
)  # fmt: skip
GROWS = Rule(
    1002, "tensor-allocation-grows", Severity.WARNING, "a block allocates more columns at once than it did before", _ALLOCATION,
    "The number of columns of tcgen05.alloc should not increase between two allocations of a block. With larger allocations "
    "after smaller ones, blocks that share a multiprocessor may wait for each other for ever.",
    "allocate the largest number of columns first, or everything at once",
)  # fmt: skip
READ_EARLY = Rule(
    1003, "tensor-read-early", Severity.ERROR, "tensor memory is read that tcgen05.mma, cp or shift may not have written yet",
    _COMMIT,
    "tcgen05.mma, cp and shift are carried out at any time after their issue. They are complete when the phase of the mbarrier "
    "is, at which a tcgen05.commit of the same thread after them arrives. tcgen05.ld before a wait for that phase reads old or "
    "half-made sums.",
    "put tcgen05.commit after the operations, and let every warp wait for the phase of its mbarrier, and execute "
    "tcgen05.fence::after_thread_sync, before tcgen05.ld",
    says="{this} reads what {other} may not have written yet: no wait for its tcgen05.commit lies between",
)  # fmt: skip
WRITTEN_EARLY = Rule(
    1004, "tensor-written-early", Severity.ERROR, "tcgen05.st overwrites what tcgen05.mma, cp or shift may still use", _COMMIT,
    "tcgen05.mma, cp and shift read and write tensor memory at any time until the phase of the mbarrier is complete at which a "
    "tcgen05.commit of the same thread after them arrives. What tcgen05.st writes there before may be lost, or multiplied in "
    "place of what was meant.",
    "wait for the phase of the mbarrier that tcgen05.commit arrives at before tcgen05.st",
    says="{this} overwrites what {other} may still use: no wait for its tcgen05.commit lies between",
)  # fmt: skip
WAIT_MISSING = Rule(
    1005, "tensor-wait-missing", Severity.ERROR, "a tcgen05.ld or tcgen05.st is not waited for before its cells are used again",
    _WAIT,
    "tcgen05.ld and tcgen05.st are asynchronous: tcgen05.wait::ld and tcgen05.wait::st wait for those of the thread. What a st "
    "writes may be read, also by tcgen05.mma, only after its wait; what a ld reads may be overwritten only after its wait. The "
    "registers of a ld may be used without, and that is no wait: ptxas puts arithmetic, shuffles, votes and branches that use "
    "them behind an arrival. A store of them stays before it.",
    "execute tcgen05.wait::ld or tcgen05.wait::st in the warp of the load or store, before the barrier that leads to the other "
    "access",
)  # fmt: skip
FENCE_MISSING = Rule(
    1006, "tensor-fence-missing", Severity.NOTE,
    "no tcgen05.fence lies between accesses of two warps to tensor memory and the barrier between them", _FENCE,
    "Barriers and mbarriers do not order operations on tensor memory by themselves: the first warp executes "
    "tcgen05.fence::before_thread_sync after its wait, before the barrier, and the second one "
    "tcgen05.fence::after_thread_sync after the barrier. ptxas may move an operation across the barrier where one is missing. "
    "Triton leaves both out after tcgen05.wait, and no chip is known to show it. That is why this is a note.",
    "put tcgen05.fence::before_thread_sync before the barrier and tcgen05.fence::after_thread_sync after it",
)  # fmt: skip
COMMIT_FENCE_MISSING = Rule(
    1007, "tensor-fence-missing-commit", Severity.NOTE,
    "no tcgen05.fence::after_thread_sync lies between the wait for a tcgen05.commit and the use of its results", _FENCE,
    "tcgen05.commit implies tcgen05.fence::before_thread_sync. A thread that has waited for its mbarrier needs "
    "tcgen05.fence::after_thread_sync before it accesses what the operations wrote. CUTLASS' tutorials leave it out, and no "
    "chip is known to show it. That is why this is a note.",
    "execute tcgen05.fence::after_thread_sync after the wait",
    says="{this} uses what {other} wrote, with no tcgen05.fence::after_thread_sync after the wait for its tcgen05.commit",
)  # fmt: skip
RACE = Rule(
    1008, "tensor-race", Severity.ERROR, "nothing orders two accesses to the same cells of tensor memory",
    _PATTERNS,
    "Where two threads access the same cells of tensor memory and one of them writes, a barrier, an mbarrier or a flag must "
    "order the two, with tcgen05.fence on both sides.",
    "put a barrier between the two, tcgen05.fence::before_thread_sync before it and tcgen05.fence::after_thread_sync after it",
    says="nothing orders {this} and {other}, which access the same cells",
)  # fmt: skip
UNORDERED = Rule(
    1009, "tensor-products-unordered", Severity.ERROR,
    "tcgen05.mma or shift uses what an operation writes that is under way, and no order is promised", _PIPE,
    "The pipe keeps few orders: tcgen05.mma after tcgen05.mma of the same accumulator, shape and kind; tcgen05.mma after "
    "tcgen05.cp or shift; tcgen05.shift after tcgen05.mma; tcgen05.cp.4x256b after tcgen05.shift. In other cases the second "
    "operation may use the cells before the first one has written them.",
    "put tcgen05.commit after the first one and wait for its mbarrier, or use other columns",
)  # fmt: skip
UNWRITTEN = Rule(
    1010, "tensor-unwritten", Severity.WARNING, "columns of tensor memory are used that were never written", _ALLOCATION,
    "The contents of columns that tcgen05.alloc has given are undefined: nothing is written there, also no zeros. A product that "
    "adds to them (enable-input-d), or takes them as operand, is undefined.",
    "write them with tcgen05.st or tcgen05.cp, or let the first tcgen05.mma have enable-input-d false",
    says="{this} uses cells that nothing has written since they were allocated",
)  # fmt: skip
NOT_COMMITTED = Rule(
    1011, "tensor-not-committed", Severity.WARNING, "a thread exits after a tcgen05.mma, cp or shift with no tcgen05.commit",
    _COMMIT,
    "Nobody can know that an operation is complete which no tcgen05.commit of its thread follows: what it computed can never "
    "be used, and the memory that it reads never be written again.",
    "put tcgen05.commit after the last operation, and wait for its mbarrier",
    says="the thread exits, and no tcgen05.commit has followed this",
)  # fmt: skip
OPERAND_OVERWRITTEN = Rule(
    1012, "tensor-operand-overwritten", Severity.ERROR,
    "shared memory is written while a tcgen05.mma or cp that reads it is under way", _COMMIT,
    "tcgen05.mma and tcgen05.cp read their matrices in shared memory at any time from their issue until the phase of the "
    "mbarrier is complete at which a tcgen05.commit of the same thread after them arrives. Until then nobody may write there, "
    "neither threads nor copies.",
    "wait for the mbarrier of a tcgen05.commit after the operation before the bytes are written again",
    says="bytes are overwritten that {other}, which is under way, may still read",
)  # fmt: skip
ALLOCATION = Rule(
    1013, "tensor-allocation-invalid", Severity.ERROR, "a tcgen05.alloc or tcgen05.dealloc that is not possible", _ALLOCATION,
    "Columns are allocated in powers of two from 32 to 512, and not after tcgen05.relinquish_alloc_permit of the block. "
    "tcgen05.dealloc takes the address and the number of columns of one tcgen05.alloc, once.",
    "give tcgen05.dealloc what tcgen05.alloc wrote and its number of columns, and relinquish the permit after the last alloc",
    faults="TENSOR_COUNT TENSOR_RELINQUISHED TENSOR_DEALLOC",
)  # fmt: skip
NOT_ALLOCATED = Rule(
    1014, "tensor-not-allocated", Severity.ERROR, "columns of tensor memory are accessed that are not allocated", _ALLOCATION,
    "Tensor memory has 512 columns. An instruction may access those that a tcgen05.alloc has given to the block (with "
    "cta_group::2 in both blocks of the pair) and that no tcgen05.dealloc has taken back. Columns of two allocations need not "
    "be neighbours on another run.",
    "check the address that tcgen05.alloc wrote, what is added to it, and the number of columns that the shape takes",
    faults="TENSOR_COLUMNS",
)  # fmt: skip
OPERAND = Rule(
    1015, "tensor-operand-invalid", Severity.ERROR,
    "an address in tensor memory, or a matrix descriptor, that the instruction does not take",
    _FAMILY + "Tensor Memory Addressing; Shared memory descriptor",
    "Matrices in tensor memory begin in lane 0 of a quarter of 32 lanes, or in lane 16 where their shape has 16 lanes. In a "
    "matrix descriptor bits 46 to 48 are 0b001, bits 53 to 60 are 0, and swizzles are 0, 1, 2, 4 and 6. Descriptors of wgmma "
    "have other fields.",
    "mmulator descriptor decode shows the fields of a matrix descriptor",
    faults="TENSOR_ALIGNED TENSOR_MATRIX TENSOR_ADDRESS",
)  # fmt: skip
PAIR = Rule(
    1016, "tensor-pair-missing", Severity.ERROR, "an instruction with .cta_group::2 in a block that has no peer",
    _FAMILY + "CTA Pair",
    "Two blocks of a cluster whose ranks differ only in the last bit are a pair. An instruction with .cta_group::2 uses the "
    "tensor memory of both.",
    "launch in clusters of an even number of CTAs",
    faults="TENSOR_PAIR",
)  # fmt: skip

FREED_EARLY = Rule(
    1017, "tensor-dealloc-early", Severity.ERROR, "columns are deallocated that an operation may still use", _ALLOCATION,
    "Behind tcgen05.dealloc another block of the multiprocessor may get the columns. Before it, tcgen05.mma, cp and shift "
    "must be complete (a wait for the mbarrier of a tcgen05.commit after them), and tcgen05.ld and st waited for and ordered "
    "before it. With cta_group::2 that holds for what either block of the pair does to them.",
    "wait for the tcgen05.commit of the last operation, execute tcgen05.wait::ld and tcgen05.wait::st, and let all warps meet "
    "at a barrier before tcgen05.dealloc",
)  # fmt: skip
NOT_PROMISED = Rule(
    1018, "tensor-order-not-promised", Severity.NOTE,
    "cells are overwritten in an order that chips keep and the specification does not promise", _PIPE,
    "The specification orders neither tcgen05.cp, nor a tcgen05.mma with another accumulator, after a tcgen05.mma of the "
    "thread that reads the cells which it overwrites; nor the tcgen05.st of a warp after its tcgen05.ld or st of the same "
    "cells that no tcgen05.wait follows, even if its values come from that load; nor what another warp does to cells (a product, "
    "a store, tcgen05.dealloc) after a tcgen05.ld that no tcgen05.wait follows, even if all that it read was stored before. "
    "Kernels in wide use rely on these orders, and no chip is known to break them. That is why this is a note.",
    "wait for a tcgen05.commit after the first operation, or execute tcgen05.wait::ld or st after the load or store",
)  # fmt: skip
PAIR_DIFFERS = Rule(
    1019, "tensor-pair-differs", Severity.ERROR, "the blocks of a pair allocate different columns", _ALLOCATION,
    "tcgen05.alloc with .cta_group::2 is one operation of both blocks of a pair: both give the same number of columns, in the "
    "same order, and get the same address. Instructions with .cta_group::2 have one address for both.",
    "let both blocks execute the same tcgen05.alloc and tcgen05.dealloc in the same order",
)  # fmt: skip
OPERAND_DIFFERS = Rule(
    1020, "tensor-operand-differs", Severity.ERROR, "lanes of a warp give a tcgen05 instruction different operands",
    _ALLOCATION + "; Tensor Memory and Register Load/Store Instructions",
    "All the threads of the warp must give the same address in tensor memory to tcgen05.ld, st and dealloc, and the same number "
    "of columns to tcgen05.alloc and dealloc; otherwise the behaviour is undefined. The instruction itself knows which lane has "
    "which cells.",
    "compute the operand from values that the warp shares: the number of the warp, and not of the thread",
)  # fmt: skip
