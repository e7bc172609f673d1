"""Faults as sentences: which thread failed, at which instruction and address, in which buffer, and how to repair it."""

import struct

import numpy as np

from mmulator.base.errors import ExecutionFault, LimitReached
from mmulator.base.rules import operands as rules
from mmulator.ptx.program import addresses
from mmulator.ptx.program.calls import defined, obstacle
from mmulator.ptx.tree import Instruction
from mmulator.runtime.launch.arena import bytes_at, read, read_string
from mmulator.runtime.launch.grid import Grid
from mmulator.runtime.launch.regions import freed
from mmulator.runtime.launch.resident import Resident, ResidentCta
from mmulator.runtime.native.state import LANES, NUM_BARRIERS, STACK_BYTES, FaultKind
from mmulator.sanitizer.diagnostics.faults import cluster as faults_cluster
from mmulator.sanitizer.diagnostics.faults import mbarrier as faults_mbarrier
from mmulator.sanitizer.diagnostics.faults import memory as faults_memory
from mmulator.sanitizer.diagnostics.faults import tensor as faults_tensor
from mmulator.sanitizer.diagnostics.faults.cluster import describe_shared
from mmulator.sanitizer.diagnostics.faults.warp import describe_deadlock as describe_deadlock
from mmulator.sanitizer.diagnostics.faults.warp import describe_livelock as describe_livelock
from mmulator.sanitizer.diagnostics.faults.warp import describe_partial
from mmulator.sanitizer.diagnostics.faults.warp import unfinished as unfinished
from mmulator.sanitizer.diagnostics.faults.wgmma import describe_warpgroup

_OFFSET = (1 << addresses.SLOT_SHIFT) - 1


def _thread(grid: Grid, cta: ResidentCta, warp: int, lane: int) -> str:
    return f"{cta}, thread {grid.shape.thread_at(warp * LANES + lane)}"


def describe_address(grid: Grid, address: int, cta: ResidentCta | None = None) -> str:
    """An address in words: `byte 4096 of argument 2 (out), which has 4096`. cta: the block of the access, if it is known."""
    slot, offset = address >> addresses.SLOT_SHIFT, address & _OFFSET
    names = {
        0: "the null page", addresses.SLOT_LOCAL: "local memory", addresses.SLOT_CONST: "const memory",
        addresses.SLOT_PARAM: "the parameters", addresses.SLOT_FUNCTION: "code",
        addresses.SLOT_GRID: "what the blocks of the grid share",
    }  # fmt: skip
    regions = grid.arguments.regions
    if not regions.near(address):
        if slot == addresses.SLOT_SHARED or (slot == 0 and address >= addresses.SHARED_BASE):
            return describe_shared(grid, offset, cta)
        if slot in names:
            return f"byte {offset} of {names[slot]}"
    if gone := freed(address, grid.memory):
        return gone
    near = [m for m in faults_memory.named(grid) if -(1 << 31) < address - m.start < m.size + (1 << 32)]
    if not near:
        return faults_memory.own_memory(grid, address) or "memory that no argument owns"
    nearest = min(near, key=lambda m: faults_memory.apart(m, address))
    return f"byte {address - nearest.start} of {nearest.label}, which has {nearest.size}"


def _assertion(cta: ResidentCta, lane: int) -> tuple[str, str, int, str]:
    """(expression, file, line, function) of a lane whose assertion failed: arguments of __assertfail, in its local memory."""
    number = int(cta.state["fault_warp"])
    warp, state = cta.warp(number), cta.warps[number]
    base = bytes_at(int(state["regs"]) + int(state["frame"]) + addresses.HEADER_LOCAL + 4 * lane, 4).view(np.uint32)[0]
    place = (addresses.SLOT_LOCAL << addresses.SLOT_SHIFT) + int(base) + int(cta.state["fault_bytes"])
    message, file, line, function = struct.unpack("<QQI4xQ", read(warp, lane, place, 32).ljust(32, b"\0"))
    return read_string(warp, lane, message), read_string(warp, lane, file), line, read_string(warp, lane, function)


def _asserted(grid: Grid, cta: ResidentCta, lane: int) -> str:
    """The line that CUDA prints for a thread whose assertion failed."""
    expression, file, line, function = _assertion(cta, lane)
    places = cta.state["ctaid"], grid.shape.thread_at(int(cta.state["fault_warp"]) * LANES + lane)
    block, thread = (",".join(map(str, place)) for place in places)
    return f"{file}:{line}: {function}: block: [{block}], thread: [{thread}] Assertion `{expression}` failed."


def _space(ins: Instruction) -> str:
    """The state space of an access by an offset; an instruction that names no state space accesses a local variable."""
    return ins.form["space"].partition("::")[0] or "local"


_COPIES = "(PTX ISA 9.1, Data Movement and Conversion Instructions: cp.async.bulk)"
_HINTS = {
    FaultKind.OUT_OF_BOUNDS: rules.BOUNDS.hint, FaultKind.LOCAL_OUT_OF_BOUNDS: rules.BOUNDS.hint,
    FaultKind.WGMMA_ADDRESS: rules.DESCRIPTOR.hint, FaultKind.BULK_SIZE: rules.BULK_SIZE.hint,
    FaultKind.BULK_IGNORED: "let the copy begin at the last multiple of 16 before the first byte that is wanted, and end at the "
    "first one after the last",
    FaultKind.NO_CLUSTER: "launch with cluster=(1, 1, 1) or more, or write .reqnctapercluster",
    FaultKind.ASSERTION: "CUDA's words for it: device-side assert triggered",
    FaultKind.READ_ONLY: "constants and parameters are not written: copy them to other memory first, and write that",
    FaultKind.SHARED_OUT_OF_BOUNDS: "check the shared bytes of the launch and the address arithmetic",
    FaultKind.BEYOND_SPACE: "an address of this state space is an offset into it; cvta.to makes one of a generic address",
    FaultKind.WRONG_SPACE: "give it an address of global memory; a load, store or atomic without .global takes others, too",
    FaultKind.NOT_SHARED: "this instruction works on shared memory alone: check which pointer it is given",
    FaultKind.MISALIGNED: "an access of n bytes needs an address that is a multiple of n",
    FaultKind.NULL_POINTER: "a pointer argument is 0, or an address was never set",
    FaultKind.ALLOCA_OVERFLOW: f"alloca has {STACK_BYTES} bytes a thread here; a GPU has what cudaLimitStackSize says",
    FaultKind.BAD_STACK: "stackrestore takes what stacksave gave",
    FaultKind.BARRIER_COUNTS: "name the count everywhere or nowhere; an H200 traps even if the one left out would be the same",
    FaultKind.SPARSE_SELECTOR: "the selector says which lanes of each group of four hold the metadata",
    FaultKind.STACK_OVERFLOW: "recursion is too deep for the stack that is kept for it (64 calls)",
}
WORDS = {  # of an access that cannot be
    FaultKind.OUT_OF_BOUNDS: "out of bounds", FaultKind.SHARED_OUT_OF_BOUNDS: "out of bounds",
    FaultKind.LOCAL_OUT_OF_BOUNDS: "out of bounds", FaultKind.NO_SUCH_RANK: "out of bounds", FaultKind.MISALIGNED: "misaligned",
    FaultKind.NULL_POINTER: "null pointer", FaultKind.READ_ONLY: "store to read-only memory",
    FaultKind.OTHER_CTA: "wrong state space",
}  # fmt: skip
_LIMITS = (FaultKind.STACK_OVERFLOW, FaultKind.ALLOCA_OVERFLOW)
_RULES = {
    FaultKind.BARRIER_LANES: "barrier: a warp arrives at one barrier, with one thread count (PTX ISA 9.1, Parallel "
    "Synchronization and Communication Instructions: bar)",
    FaultKind.BARRIER_COUNTS: "barrier: all threads that use a barrier before it completes must name the same thread count "
    "(PTX ISA 9.1, Parallel Synchronization and Communication Instructions: bar)",
    FaultKind.SPARSE_SELECTOR: "the sparsity selector names the threads that contribute metadata: one of four, two, or, if it is "
    "0, all (PTX ISA 9.1, Multiply-and-Accumulate Instruction: mma.sp)",
    FaultKind.BULK_SIZE: f"bulk copies and reductions: the size is a multiple of 16 {_COPIES}",
    FaultKind.BULK_IGNORED: "cp.async.bulk.ignore_oob: ignoreBytesLeft and ignoreBytesRight are 0 to 15 (PTX ISA 9.4, Data "
    "Movement and Conversion Instructions: cp.async.bulk)",
    FaultKind.NO_CLUSTER: "copies from shared memory to that of a block of the cluster take a launch in clusters; without one "
    f"they are illegal instructions to an H200 {_COPIES}",
}
_ALL_RULES = faults_cluster.RULES | _RULES
_ALL_HINTS = faults_cluster.HINTS | _HINTS


def describe_fault(grid: Grid, resident: Resident) -> ExecutionFault:
    """The exception for the first fault of a CTA in a cluster."""
    cta = next(c for c in resident.each() if c.state["fault"])
    kind = FaultKind(int(cta.state["fault"]))
    error = _described(grid, cta, kind)
    error.fault = kind.name
    if kind == FaultKind.ASSERTION:
        failed = int(cta.state["fault_address"])
        error.asserted = tuple(_asserted(grid, cta, lane) for lane in range(LANES) if failed >> lane & 1)
    return error


def _described(grid: Grid, cta: ResidentCta, kind: FaultKind) -> ExecutionFault:
    state = cta.state
    ins = grid.kernel.sites[int(state["fault_site"])]
    if kind in (FaultKind.WGMMA_LANES, FaultKind.WGMMA_MISMATCH, FaultKind.WGMMA_SCALE):
        return describe_warpgroup(grid, cta)
    if kind == FaultKind.PARTIAL_WARP:
        return describe_partial(grid, cta)
    who = _thread(grid, cta, int(state["fault_warp"]), int(state["fault_lane"]))
    if kind in faults_mbarrier.KINDS:
        return faults_mbarrier.describe_mbarrier(grid, cta, kind, who)
    if kind in faults_tensor.KINDS:
        return faults_tensor.describe_cells(grid, cta, ins, kind, who)
    if faults_tensor.is_tensor_copy(ins):
        return faults_tensor.describe_copy(cta, ins, kind, who, lambda address: describe_address(grid, address, cta))
    address, size = int(state["fault_address"]), int(state["fault_bytes"])
    shared = kind == FaultKind.SHARED_OUT_OF_BOUNDS  # or below all of it, where no generic address is
    place, help = describe_shared(grid, address & _OFFSET, cta) if shared else describe_address(grid, address, cta), None
    if kind in faults_memory.KINDS:
        null, place, help = faults_memory.place_of(grid, address, ins)
        kind = FaultKind.NULL_POINTER if null else FaultKind.OUT_OF_BOUNDS
    bad_call, help = _bad_call(grid, ins, address) if kind == FaultKind.BAD_CALL else ("", help)
    assertion = f"assertion failed: {_assertion(cta, int(state['fault_lane']))[0]}" if kind == FaultKind.ASSERTION else ""
    where = f"address 0x{address:x}, {place}"
    access = f"{ins.mnemonic} of {size} bytes at {where}"
    text = {
        **faults_cluster.texts(ins, access, address, size),
        FaultKind.BULK_SIZE: f"{ins.mnemonic} of {size} bytes, which is no multiple of 16, at {where}",
        FaultKind.BULK_IGNORED: f"{ins.mnemonic} is to ignore {size} bytes at one end of what begins at {where}",
        FaultKind.NO_CLUSTER: f"{ins.mnemonic} in a launch without clusters",
        **{fault: f"{word}: {access}" for fault, word in WORDS.items()},
        FaultKind.TRAP: f"{ins.mnemonic} executed",
        FaultKind.ASSERTION: assertion,
        FaultKind.STACK_OVERFLOW: "stack overflow in a call",
        FaultKind.ALLOCA_OVERFLOW: f"stack overflow: alloca of {address} bytes, of which {size} are left",
        FaultKind.BAD_STACK: f"stackrestore to {address}, which is no place on the stack",
        FaultKind.BEYOND_SPACE: f"out of bounds: {ins.mnemonic} of {size} bytes at address 0x{address:x}, beyond the "
        f".{_space(ins)} space, whose addresses have 32 bits",
        FaultKind.WRONG_SPACE: f"wrong state space: {access}, which is not global",
        FaultKind.NOT_SHARED: f"wrong state space: {access}, which is not shared memory",
        FaultKind.PRINT: f"printf failed: {grid.printer.problem}",
        FaultKind.BAD_CALL: bad_call,
        FaultKind.BAD_BRANCH: f"brx.idx with index {address}; the list has {size} targets",
        FaultKind.BAD_BARRIER: f"barrier {address} with a count of {_count(size)}: barriers are 0 to "
        f"{NUM_BARRIERS - 1}, counts multiples of 32",
        FaultKind.BARRIER_COUNTS: f"barrier {address & _OFFSET} with a count of {_count(size)} where "
        f"{_count(address >> addresses.SLOT_SHIFT)} are expected",
        FaultKind.BARRIER_LANES: f"{ins.mnemonic} with different barriers or counts among the lanes of a warp: lane {size} names "
        f"barrier {address}, this thread another one or another count",
        FaultKind.SPARSE_SELECTOR: f"sparsity selector {address} of {ins.mnemonic}: this shape has 0 to {size}",
        FaultKind.WGMMA_ADDRESS: f"matrix descriptor outside of shared memory: {describe_address(grid, address)}",
    }[kind]
    if kind == FaultKind.NO_SUCH_RANK and "multicast" in ins.mnemonic:
        help = faults_cluster.MULTICAST
    rule, hint = _ALL_RULES.get(kind), help or _ALL_HINTS.get(kind)
    error = LimitReached if kind in _LIMITS else ExecutionFault
    return error(f"{text}, in {who}", span=ins.span, rule=rule, hint=hint)


def _bad_call(grid: Grid, ins: Instruction, address: int) -> tuple[str, str]:
    """(text, hint) of a call through a pointer that cannot be."""
    module = grid.kernel.program.module
    function = next((defined(module, n) for n, at in grid.kernel.image.functions.items() if at == address), None)
    if function is None:
        why = "the pointer is null" if address == 0 else f"0x{address:x} was not taken from a function of this module"
        return "call of an address that is no function", why
    if function.is_entry:
        return f"call of {function.name} through a pointer: it is a kernel", "a kernel is launched; only a .func can be called"
    found = obstacle(module, function)
    if found is None:
        said = ins.operands[-1].span.text
        return (f"call of {function.name} through a pointer, which {said} does not allow",
                "a .callprototype has the parameters and results of the function, .calltargets its name")  # fmt: skip
    return f"call of {function.name} through a pointer: {found.error.message}", f"see {found.span}"


def _count(threads: int) -> str:
    return f"{threads} threads" if threads else "all threads of the block"
