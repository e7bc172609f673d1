"""Faults as sentences: which thread, which instruction, which address, which buffer, what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mmulator.errors import ExecutionFault
from mmulator.isa.scalar import ScalarForm
from mmulator.machine.state import (
    LANES,
    NUM_BARRIERS,
    SHARED_BASE,
    SLOT_CONST,
    SLOT_FUNCTION,
    SLOT_LOCAL,
    SLOT_PARAM,
    SLOT_SHARED,
    SLOT_SHIFT,
    FaultKind,
)
from mmulator.ptx.tree import Instruction

if TYPE_CHECKING:
    from mmulator.machine.launch import Grid, Resident

_OFFSET = (1 << SLOT_SHIFT) - 1


def _thread(grid: Grid, resident: Resident, warp: int, lane: int) -> str:
    bx, by, _ = grid.shape.block
    t = warp * LANES + lane
    x, y, z = resident.cta["ctaid"][0]
    return f"block ({x}, {y}, {z}), thread ({t % bx}, {t // bx % by}, {t // (bx * by)})"


def describe_address(grid: Grid, address: int) -> str:
    """`byte 4096 of argument 2 (out), which has 4096`."""
    slot, offset = address >> SLOT_SHIFT, address & _OFFSET
    if slot == SLOT_SHARED or (slot == 0 and address >= SHARED_BASE):
        return f"byte {offset - SHARED_BASE} of shared memory, of which the block has {grid.shape.shared}"
    names = {0: "the null page", SLOT_LOCAL: "local memory", SLOT_CONST: "const memory", SLOT_PARAM: "the parameters",
             SLOT_FUNCTION: "code"}  # fmt: skip
    if slot in names:
        return f"byte {offset} of {names[slot]}"
    best = None
    for b in grid.buffers:
        distance = address - b.start
        if -(1 << 31) < distance < b.size + (1 << 32) and (best is None or abs(distance) < abs(best[0])):
            best = distance, b
    if best is None:
        return "memory that no argument owns"
    distance, b = best
    return f"byte {distance} of {b.label}, which has {b.size}"


def _space(ins: Instruction) -> str:
    """State space of an access by an offset; one that names no space names a local variable."""
    written = ins.form["space"] if isinstance(ins.form, ScalarForm) else getattr(ins.form, "space", "")
    return written.partition("::")[0] or "local"


_HINTS = {
    FaultKind.OUT_OF_BOUNDS: "check the index arithmetic and the mask of the access",
    FaultKind.SHARED_OUT_OF_BOUNDS: "check the shared bytes of the launch and the address arithmetic",
    FaultKind.BEYOND_SPACE: "an address of this state space is an offset into it; cvta.to makes one of a generic address",
    FaultKind.WRONG_SPACE: "without .global the instruction takes any generic address",
    FaultKind.MISALIGNED: "an access of n bytes needs an address that is a multiple of n",
    FaultKind.NULL_POINTER: "a pointer argument is 0, or an address was never set",
    FaultKind.STACK_OVERFLOW: "recursion is too deep for the stack that is kept for it (64 calls)",
}


def describe_fault(grid: Grid, resident: Resident) -> ExecutionFault:
    cta = resident.cta[0]
    kind = FaultKind(int(cta["fault"]))
    ins = grid.kernel.sites[int(cta["fault_site"])]
    address, size = int(cta["fault_address"]), int(cta["fault_bytes"])
    who = _thread(grid, resident, int(cta["fault_warp"]), int(cta["fault_lane"]))
    where = f"address 0x{address:x}, {describe_address(grid, address)}"
    access = f"{ins.mnemonic} of {size} bytes at {where}"
    text = {
        FaultKind.OUT_OF_BOUNDS: f"out of bounds: {access}",
        FaultKind.SHARED_OUT_OF_BOUNDS: f"out of bounds: {access}",
        FaultKind.LOCAL_OUT_OF_BOUNDS: f"out of bounds: {access}",
        FaultKind.MISALIGNED: f"misaligned: {access}",
        FaultKind.NULL_POINTER: f"null pointer: {access}",
        FaultKind.READ_ONLY: f"store to read-only memory: {access}",
        FaultKind.TRAP: "trap executed",
        FaultKind.ASSERTION: f"assertion failed: {grid.read_string(address)}",
        FaultKind.STACK_OVERFLOW: "stack overflow in a call",
        FaultKind.BEYOND_SPACE: f"out of bounds: {ins.mnemonic} of {size} bytes at address 0x{address:x}, beyond the "
        f".{_space(ins)} space, whose addresses have 32 bits",
        FaultKind.WRONG_SPACE: f"wrong state space: {access}, which is not global",
        FaultKind.NOT_SHARED: f"wrong state space: {access}, which is not shared memory",
        FaultKind.PRINT: f"printf failed: {grid.printer.problem}",
        FaultKind.BAD_CALL: "call of an address that is no function",
        FaultKind.BAD_BRANCH: f"brx.idx with index {address}; the list has {size} targets",
        FaultKind.BAD_BARRIER: f"barrier {address} with a count of {size} threads: barriers are 0 to "
        f"{NUM_BARRIERS - 1}, counts multiples of 32",
        FaultKind.WGMMA_ADDRESS: f"matrix descriptor outside of shared memory: {describe_address(grid, address)}",
        FaultKind.WGMMA_MISMATCH: "the warps of a warpgroup issue different wgmma instructions",
    }[kind]
    return ExecutionFault(f"{text}, in {who}", span=ins.span, hint=_HINTS.get(kind))


def describe_deadlock(grid: Grid, resident: Resident) -> ExecutionFault:
    """All warps wait: say for what, with the first place as span."""
    lines = []
    span = None
    blocks = grid.kernel.program.blocks
    for w in resident.warps:
        for name, lanes in (("barrier", int(w["at_barrier"])), ("its partners", int(w["waiting"]))):
            lanes &= int(w["live"])
            if not lanes:
                continue
            lane = (lanes & -lanes).bit_length() - 1
            block = blocks[int(w["lane_pc"][lane])]
            ins = block.body[0] if name != "barrier" and block.body else block.last
            if name == "barrier":
                bars = [n for n in range(NUM_BARRIERS) if int(w["bar_lanes"][n])]
                counts = ", ".join(
                    f"{n} ({int(resident.cta['barriers']['arrived'][0][n])} threads arrived)" for n in bars
                )
                lines.append(f"warp {int(w['index'])}: {lanes.bit_count()} lanes wait at barrier {counts}")
                ins = _barrier_before(grid, int(w["lane_pc"][lane])) or ins
            else:
                what = ins.mnemonic if ins is not None else "?"
                lines.append(f"warp {int(w['index'])}: {lanes.bit_count()} lanes wait at {what} for the others")
            if span is None and ins is not None:
                span = ins.span
    x, y, z = resident.cta["ctaid"][0]
    shown = "; ".join(lines[:4]) + (f"; and {len(lines) - 4} more" if len(lines) > 4 else "")
    return ExecutionFault(
        f"deadlock in block ({x}, {y}, {z}): {shown}",
        span=span,
        rule="bar.sync: every participating thread must arrive (PTX ISA 9.1, Parallel Synchronization and Communication)",
        hint="look for a barrier inside a branch that some threads do not take, or a wrong thread count",
    )


def _barrier_before(grid: Grid, pc: int):  # type: ignore[no-untyped-def]
    for block in grid.kernel.program.blocks:
        if block.ending == "barrier" and pc in block.targets:
            return block.last
    return None
