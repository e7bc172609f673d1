"""Sentences about registers and bytes that have not been written, and memory for the marks of native code. Why a register has no
value is found in the text: some path to its first use does not write it.
"""

from collections import deque
from collections.abc import Sequence

import numpy as np

from mmulator.base.rules import BY_NUMBER
from mmulator.base.rules import values as rules
from mmulator.base.rules.execution import NO_SOURCE
from mmulator.base.rules.mbarriers import CANCEL_REFUSED
from mmulator.isa.effects import Flow, MemoryEffect
from mmulator.ptx.program.addresses import RANK_SHIFT, SLOT_SHARED, SLOT_SHIFT
from mmulator.ptx.program.blocks import FunctionBlocks
from mmulator.ptx.program.frames import liveness
from mmulator.ptx.program.loads import kept_bits
from mmulator.ptx.program.provenance import origins, variables_of
from mmulator.ptx.program.undefined import doubt
from mmulator.ptx.program.uses import CARRY, uses_and_defs
from mmulator.ptx.tree import Address, Instruction, Reg, Symbol
from mmulator.runtime.compiled import CompiledKernel
from mmulator.runtime.launch.arena import pointer
from mmulator.runtime.launch.grid import Grid
from mmulator.runtime.launch.pages import blank
from mmulator.runtime.launch.resident import Resident
from mmulator.runtime.native.state import BY_KERNEL, LANES
from mmulator.sanitizer.checks.unwritten import COMBINES, EXCHANGE, KEEPS, Stretch, WatchedLaunch
from mmulator.sanitizer.checks.values import Source, ValuesState
from mmulator.sanitizer.diagnostics.faults.memory import function_of
from mmulator.sanitizer.diagnostics.findings.context import FindingContext, Sentences, location


def _hole(c: FindingContext) -> str:
    """Why a register has no value: `%f5 is an accumulator of wgmma.mma_async (k.ptx:19), which adds to it, and nothing writes
    it before`; "" if no reason is found.
    """
    ins = c.instruction
    function = next((f for f in c.grid.kernel.program.functions.values() for i in f.function.instructions
                     if i.original.span == ins.span), None)  # fmt: skip
    if function is None:
        return ""
    live = liveness(function)
    roots = {*live.into[0]} - {p.name for p in (*function.function.params, *function.function.returns)} - {CARRY}
    found = _way(function, ins, roots, doubt(function, live).unwritten)
    if found is None:
        return ""
    root, reader = found
    return _why_none(root, reader, [i for i in function.function.instructions if root in uses_and_defs(i)[1]])


def _way(function: FunctionBlocks, ins: Instruction, roots: set[str], doubtful: frozenset[str]) -> tuple[str, Instruction] | None:
    """The nearest unwritten register from which an instruction's operands are computed, and the instruction that reads it.

    Breadth first from `ins`, through the instructions that write a register of `roots` or `doubtful`. roots: registers that no
    path writes. doubtful: registers that some path does not write.
    """
    writers: dict[str, list[Instruction]] = {}
    for i in function.function.instructions:
        for name in uses_and_defs(i)[1]:
            writers.setdefault(name, []).append(i)
    here = next(i for i in function.function.instructions if i.original.span == ins.span)
    waiting, seen = deque((name, here) for name in sorted(uses_and_defs(here)[0] & (doubtful | roots))), set[str]()
    while waiting:
        name, reader = waiting.popleft()
        if name in seen:
            continue
        seen.add(name)
        if name in roots:
            return name, reader
        for writer in writers.get(name, []):
            waiting.extend((n, writer) for n in sorted(uses_and_defs(writer)[0] & (doubtful | roots)))
    return None


def _why_none(name: str, reader: Instruction, writers: list[Instruction]) -> str:
    if not writers:
        return f"no instruction writes {name}"
    first = writers[0]
    where = f"{first.mnemonic} ({location(first)})"
    if name in uses_and_defs(first)[0] and first.guard is None:
        if first.effects.flow is Flow.WGMMA:  # whose A and B lie in memory, too
            return (
                f"{name} is an accumulator of {where}: nothing writes it before, so scale-d must be 0 there, or bytes of A or B "
                "in shared memory have no value"
            )
        what = "an accumulator of" if first.effects.multiplies else "changed by"
        return f"{name} is {what} {where}, and nothing writes it before"
    if first.guard is not None and len(writers) == 1:
        guard, negated = first.guard
        return f"{name} is written by {where} alone, only where {guard.name} is {'false' if negated else 'true'}"
    return f"{name} is written by {where}, and not on every path to {reader.mnemonic} ({location(reader)})"


def _use(c: FindingContext) -> str:
    if c.against:
        return f"{c.says()}, from bytes that {c.against} read"
    where = _hole(c) if c.rule is not rules.UNDEFINED_COPY else ""
    return f"{c.says()}: {where}" if where else c.says()


def _outside(c: FindingContext) -> str:
    place, size, *_ = c.words
    bits = RANK_SHIFT if int(c.entry["at"]) >> SLOT_SHIFT == SLOT_SHARED else 32
    place = (place + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)  # signed
    ins, function = c.instruction, function_of(c.grid, c.instruction)
    assert function is not None
    base = next(o for o in ins.operands if isinstance(o, Address)).base
    known = origins(function, variables_of(c.grid.kernel.program.module, function))
    symbol = known.get(base.name) if isinstance(base, Reg) else base
    assert isinstance(symbol, Symbol)
    name = symbol.name.partition("@")[0]
    return f"{ins.mnemonic} accesses byte {place} of {name}, which has {size}"


_USES = {
    rules.UNDEFINED_STORE.number: "{} stores it", rules.UNDEFINED_BRANCH.number: "{} depends on it",
    rules.UNDEFINED_ADDRESS.number: "{} takes its address from it",
}  # fmt: skip


def _no_source(c: FindingContext) -> str:
    use = _USES[c.words[0]].format(c.against)
    if c.rule is CANCEL_REFUSED:
        return f"{c.name} reads a response that says that no cluster was cancelled, and {use}"
    return f"{c.name} takes a value from a lane outside its member mask, or that does not execute it, and {use}"


def _nobody(c: FindingContext) -> str:
    since = ", or not since a discard" if c.grid.kernel.once_stored(_discards) else ""
    return f"neither the host nor a kernel has written them{since}"


def _unwritten(c: FindingContext) -> str:
    """The message for unwritten device memory. Without a second instruction the reader is an atomic operation that combines."""
    if not c.against:
        return f"{c.name} combines with bytes of device memory: {_nobody(c)}"
    use, who = c.says(BY_NUMBER[c.words[0]]), _nobody(c)
    if c.rule is rules.UNDEFINED_PART:
        who = "the host has written some of them, and nobody the others"
    return f"{use}, from bytes that {c.against} read: {who}"


def _operand(c: FindingContext) -> str:
    return f"{c.name} reads bytes that {c.against} brought: {_nobody(c)}"


SENTENCES: Sentences = {
    NO_SOURCE: _no_source, CANCEL_REFUSED: _no_source, rules.OUT_OF_VARIABLE: _outside, rules.UNDEFINED_GLOBAL: _unwritten,
    rules.UNDEFINED_PART: _unwritten, rules.UNDEFINED_OPERAND: _operand,
    **dict.fromkeys((rules.UNDEFINED_STORE, rules.UNDEFINED_BRANCH, rules.UNDEFINED_ADDRESS, rules.UNDEFINED_COPY), _use),
}  # fmt: skip


def _discards(kernel: CompiledKernel) -> bool:
    """Whether a kernel takes the value of bytes away: a write that is a hint."""
    return any(ins.effects.hints and ins.effects.memory is MemoryEffect.WRITE for ins in kernel.sites)


def _atomics(kernel: CompiledKernel) -> np.ndarray:
    """The kind of each site [sites + 1], u8: 0 if it is not atomic, else as in `WatchedLaunch`."""
    kept = frozenset().union(*(kept_bits(f) for f in kernel.program.functions.values()))
    acts = ((i.effects.memory is MemoryEffect.ATOMIC, i.form["op"], i in kept) for i in kernel.sites)
    kinds = (0 if not atomic else KEEPS if keeps else EXCHANGE if op == "exch" else COMBINES for atomic, op, keeps in acts)
    return np.array([*kinds, 0], np.uint8)


def of_launch(grid: Grid) -> Sequence[np.ndarray] | None:
    """The watched memory with bytes that are unwritten, or may be when a kernel discards some, as a state and its arrays; None if
    there is none.
    """
    loses, rows = grid.kernel.once_stored(_discards), []
    for r in grid.regions:
        if r.written is not None and (loses or not r.written.whole):
            marks = r.written.doubted() if loses else r.written.marks
            if marks is None and loses:
                marks = np.full(r.size, BY_KERNEL, np.uint8)
            if marks is not None:
                rows.append((r.start, r.size, pointer(marks), marks))
    if not rows:
        return None
    stretches = np.array([(0, 0, 0), *(row[:3] for row in rows)], Stretch.numpy_dtype())
    atomics = grid.kernel.once_stored(_atomics)
    state = np.zeros(1, WatchedLaunch.numpy_dtype())
    state["stretches"], state["count"], state["atomics"] = pointer(stretches), len(stretches), pointer(atomics)
    return [state, stretches, atomics, *(row[3] for row in rows)]


def of_cluster(resident: Resident) -> Sequence[np.ndarray]:
    """Arrays of a resident cluster: a mark for each byte of shared and of local memory; for each warp the source of its last
    load without a value, and rule and site of its last instruction that left lanes without one.
    """
    grid, warps = resident.grid, len(resident.warps)
    state = np.zeros(1, ValuesState.numpy_dtype())
    byte = np.dtype(np.uint8)
    shared = blank(grid.shared * resident.size + 64, byte)
    local = blank(grid.kernel.local_bytes * LANES * warps + 64, byte)
    sources = np.zeros(warps, Source.numpy_dtype())
    state["shared"], state["shared_bytes"] = pointer(shared), grid.shared
    state["local"], state["local_bytes"] = pointer(local), grid.kernel.local_bytes
    missed = np.zeros(warps, np.uint64)
    state["warps"], state["sources"], state["missed"] = warps, pointer(sources), pointer(missed)
    return state, shared, local, sources, missed


def renew(memory: Sequence[np.ndarray]) -> None:
    """Forget the watched memory."""
    memory[0]["hints"] = 0
