"""Sentences about registers and bytes that have not been written, and memory for the marks of native code."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from mmulator.compiler.compiled import CompiledKernel
from mmulator.diagnostics.faults.memory import function_of
from mmulator.diagnostics.findings.context import FindingContext
from mmulator.diagnostics.findings.holes import hole
from mmulator.isa.effects import MemoryEffect
from mmulator.launch.arena import pointer
from mmulator.launch.grid import Grid
from mmulator.launch.pages import blank
from mmulator.launch.resident import Resident
from mmulator.native.state import BY_KERNEL, LANES
from mmulator.program.addresses import RANK_SHIFT, SLOT_SHARED, SLOT_SHIFT
from mmulator.program.kept_bits import kept_bits
from mmulator.program.provenance import origins, variables_of
from mmulator.ptx.tree import Address, Reg, Symbol
from mmulator.rules.execution import NO_SOURCE
from mmulator.rules.mbarriers import CANCEL_REFUSED
from mmulator.rules.values import (
    OUT_OF_VARIABLE,
    UNDEFINED_ADDRESS,
    UNDEFINED_BRANCH,
    UNDEFINED_COPY,
    UNDEFINED_GLOBAL,
    UNDEFINED_KEPT,
    UNDEFINED_OPERAND,
    UNDEFINED_PART,
    UNDEFINED_STORE,
)
from mmulator.sanitizer.checks.unwritten import COMBINES, EXCHANGE, KEEPS, Stretch, WatchedLaunch
from mmulator.sanitizer.checks.values import Source, ValuesState

_DOES = {
    UNDEFINED_STORE.number: "{} stores to global memory a value that nobody has written",
    UNDEFINED_BRANCH.number: "{} depends on a value that nobody has written",
    UNDEFINED_ADDRESS.number: "{} takes its address from a value that nobody has written",
    UNDEFINED_COPY.number: "{} reads bytes of shared memory that nobody has written",
}  # fmt: skip


def _use(c: FindingContext) -> str:
    said = _DOES[int(c.entry["rule"])].format(c.instruction.mnemonic)
    if c.against:
        return f"{said}, from bytes that {c.against} read"
    where = hole(c) if int(c.entry["rule"]) != UNDEFINED_COPY.number else ""
    return f"{said}: {where}" if where else said


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
    UNDEFINED_STORE.number: "{} stores it", UNDEFINED_BRANCH.number: "{} depends on it",
    UNDEFINED_ADDRESS.number: "{} takes its address from it",
}  # fmt: skip


def _no_source(c: FindingContext) -> str:
    use = _USES[c.words[0]].format(c.against)
    if int(c.entry["rule"]) == CANCEL_REFUSED.number:
        return f"{c.instruction.mnemonic} reads a response that says that no cluster was cancelled, and {use}"
    return f"{c.instruction.mnemonic} takes a value from a lane outside its member mask, or that does not execute it, and {use}"


def _nobody(c: FindingContext) -> str:
    since = ", or not since a discard" if c.grid.kernel.once(_discards) else ""
    return f"neither the host nor a kernel has written them{since}"


def _unwritten(c: FindingContext) -> str:
    """The message for unwritten device memory. Without a second instruction the reader is an atomic operation that combines."""
    if not c.against:
        return f"{c.instruction.mnemonic} combines with bytes of device memory: {_nobody(c)}"
    use = _DOES[c.words[0]].format(c.instruction.mnemonic)
    who = _nobody(c)
    if int(c.entry["rule"]) == UNDEFINED_PART.number:
        who = "the host has written some of them, and nobody the others"
    return f"{use}, from bytes that {c.against} read: {who}"


def _operand(c: FindingContext) -> str:
    return f"{c.instruction.mnemonic} reads bytes that {c.against} brought: {_nobody(c)}"


def _kept(c: FindingContext) -> str:
    return f"{c.instruction.mnemonic} reads bytes that nobody has written; some of their bits are replaced, and the others stay"


SENTENCES: Mapping[int, Callable[[FindingContext], str]] = {
    NO_SOURCE.number: _no_source, CANCEL_REFUSED.number: _no_source, **dict.fromkeys(_DOES, _use),
    OUT_OF_VARIABLE.number: _outside, UNDEFINED_GLOBAL.number: _unwritten, UNDEFINED_PART.number: _unwritten,
    UNDEFINED_OPERAND.number: _operand, UNDEFINED_KEPT.number: _kept,
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
    loses, rows = grid.kernel.once(_discards), []
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
    atomics = grid.kernel.once(_atomics)
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
