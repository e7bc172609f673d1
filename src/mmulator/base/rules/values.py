"""Rules about the use of registers and bytes that have not been written. Their numbers begin at 700."""

from mmulator.base.rules.rule import Rule, Severity

_STATE = "PTX ISA 9.1, State Spaces, Types, and Variables"
_NO_VALUE = (
    "A register, a byte of .shared and a byte of .local memory have no value before they are written, nor has what shfl.sync "
    "reads from a lane that does not execute it. "
    "Such a value may be copied and computed with as long as nothing depends on it."
)

UNDEFINED_STORE = Rule(
    700, "uninitialized-store", Severity.ERROR, "a value that nobody has written is stored to global memory",
    f"{_STATE}: State Spaces",
    f"{_NO_VALUE} Here it is stored where the rest of the program sees it, and what it sees depends on what the register or the "
    "memory held before.",
    "give it a value on every path before it is read, or store only what was computed",
    static=True, says="{this} stores to global memory a value that nobody has written",
)  # fmt: skip
UNDEFINED_BRANCH = Rule(
    701, "uninitialized-branch", Severity.ERROR, "lanes decide by a value that nobody has written",
    f"{_STATE}: State Spaces",
    f"{_NO_VALUE} Here a branch, or the guard of an instruction that acts, depends on it, so which way a lane goes depends on "
    "what the register or the memory held before.",
    "give the condition a value on every path that leads here",
    static=True, says="{this} depends on a value that nobody has written",
)  # fmt: skip
UNDEFINED_ADDRESS = Rule(
    702, "uninitialized-address", Severity.ERROR, "an address is computed from a value that nobody has written",
    f"{_STATE}: State Spaces",
    f"{_NO_VALUE} Here it is an address, or a matrix descriptor: which memory is accessed depends on what the register or the "
    "memory held before.",
    "give the index or the pointer a value on every path that leads here",
    static=True, says="{this} takes its address from a value that nobody has written",
)  # fmt: skip
UNDEFINED_COPY = Rule(
    703, "uninitialized-copy", Severity.ERROR, "an asynchronous operation reads shared memory that nobody has written",
    f"{_STATE}: State Spaces",
    f"{_NO_VALUE} Here a bulk or tensor copy, a reduction, tcgen05.mma or tcgen05.cp reads shared memory that no thread and no "
    "copy has written.",
    "write the whole tile before the operation, or give it only the part that was written",
    says="{this} reads bytes of shared memory that nobody has written",
)  # fmt: skip
_DEVICE = (
    "Memory that a program allocates (cuMemAlloc, cudaMalloc) holds what was there before, until the host copies or fills it, "
    "or a kernel stores to it. "
)
UNDEFINED_GLOBAL = Rule(
    704, "uninitialized-global", Severity.ERROR, "device memory is used that neither the host nor a kernel has written",
    f"{_STATE}: Global State Space",
    f"{_DEVICE}Here a kernel reads such bytes, and stores what comes of them, decides by it, computes an address from it, or "
    "combines it with something by an atomic operation. discard takes the value of bytes away, until they are written again.",
    "fill the memory before the launch (cudaMemset counts bytes, not elements), or read only what was written",
)  # fmt: skip
UNDEFINED_PART = Rule(
    705, "uninitialized-global-part", Severity.WARNING, "device memory is used of which the host has written only a part",
    f"{_STATE}: Global State Space",
    f"{_DEVICE}Here a kernel uses an element of which the host has written some bytes, and nobody the others: the copy or the "
    "fill ends, or begins, in the middle of it.",
    "copy or fill whole elements: the number of elements times their size",
)  # fmt: skip
UNDEFINED_OPERAND = Rule(
    706, "uninitialized-global-operand", Severity.NOTE, "a tcgen05 instruction reads device memory that nobody has written",
    f"{_STATE}: Global State Space",
    f"{_DEVICE}Here a copy brings such bytes to shared memory, and tcgen05.mma or tcgen05.cp reads them there. Rows of a tile "
    "that nobody uses may be such bytes; along K they make every result wrong.",
    "fill the memory before the launch, or let the tensor map end where the written rows end",
)  # fmt: skip
UNDEFINED_KEPT = Rule(
    707, "uninitialized-bits-kept", Severity.NOTE, "bits of an element are replaced that nobody has written",
    f"{_STATE}: Global State Space",
    f"{_DEVICE}Here a kernel reads an element that nobody has written, and stores it with some of its bits replaced: so programs "
    "write elements of 4 or 6 bits. It does no harm if the other bits are written, too, before they are used. From here on the "
    "whole element counts as written.",
    "nothing, if each bit is written before it is used; else fill the memory before the launch",
    says="{this} reads bytes that nobody has written; some of their bits are replaced, and the others stay",
)  # fmt: skip
OUT_OF_VARIABLE = Rule(
    710, "out-of-variable", Severity.ERROR, "an access leaves the variable whose address it was computed from",
    f"{_STATE}: Variable Declarations",
    "A variable has the bytes that its declaration says, and where it lies among others is not specified. Here an address that "
    "was computed from one variable leads beyond its bytes, into whatever lies next to it in the same memory.",
    "correct the index or its bound, or declare a larger array",
    static=True,
)  # fmt: skip
