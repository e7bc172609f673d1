"""Sentences about tensor memory, and memory for the records of accesses to it."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from mmulator.compiler.compiled import CompiledKernel
from mmulator.diagnostics.findings.context import FindingContext
from mmulator.launch.arena import pointer
from mmulator.launch.pages import blank
from mmulator.launch.resident import Resident
from mmulator.native.matrix.tensor_state import TENSOR_COLUMNS
from mmulator.native.state import LANES, FaultKind
from mmulator.program.read_loads import read_loads
from mmulator.rules import Rule
from mmulator.rules import tensor_memory as rules
from mmulator.sanitizer.checks.tensor_state import (
    AFTER,
    BEFORE,
    FACTORS,
    ITSELF,
    OPERAND,
    OTHERS,
    PRODUCT,
    QUARTERS,
    READ_BEFORE,
    SHIFTED,
    Cells,
    Held,
    Issuer,
    Mover,
    TensorChecks,
)


def memory(resident: Resident) -> Sequence[np.ndarray] | None:
    """Memory of the checks of tensor memory for a resident cluster; None if the kernel does not use it."""
    if not resident.grid.kernel.matrix.tensor:
        return None
    warps = len(resident.warps)
    kernel = resident.grid.kernel
    state = np.zeros(1, TensorChecks.numpy_dtype())
    parts = {
        "cells": blank(resident.size * QUARTERS * TENSOR_COLUMNS * Cells.size, np.dtype(np.uint8)),
        "movers": np.zeros(warps, Mover.numpy_dtype()), "issuers": np.zeros(warps * LANES, Issuer.numpy_dtype()),
        "held": np.zeros(resident.size, Held.numpy_dtype()), "after": np.zeros(warps * LANES, np.uint32),
        "read": kernel.once(_read_loads),
    }  # fmt: skip
    for name, part in parts.items():
        state[name] = pointer(part)
    return [state, *parts.values()]


def _read_loads(kernel: CompiledKernel) -> np.ndarray:
    """Signals of a thread before which all values of a load have gone to memory, for each site; 0 if it is none."""
    signals = {ins.span: signals for ins, signals in read_loads(kernel.program).items()}
    return np.array([signals.get(ins.span, 0) for ins in kernel.sites], np.uint8)


def _where(c: FindingContext) -> str:
    place = c.words[0]
    first = (place >> 16) * LANES
    return f"column {place & 0xFFFF}, lanes {first} to {first + LANES - 1} of tensor memory"


def _at_cells(text: str) -> Callable[[FindingContext], tuple[str, str]]:
    return lambda c: (text.format(own=c.instruction.mnemonic, other=c.against), _where(c))


def _wait(c: FindingContext) -> tuple[str, str]:
    wait, use = ("st", "uses what it stores") if c.words[2] else ("ld", "overwrites what it loads")
    return f"no tcgen05.wait::{wait} has followed {c.against} when {c.instruction.mnemonic} {use}", _where(c)


def _race(c: FindingContext) -> tuple[str, ...]:
    """Two accesses that nothing orders: perhaps lanes of a warp that all issue what one thread should."""
    said = _at_cells("nothing orders {own} and {other}, which access the same cells")(c)
    one = all(c.entry[name] == c.entry[f"other_{name}"] for name in ("cta", "warp")) and c.other is c.instruction
    return (*said, "let one thread of the warp issue it (elect.sync)") if one else said


def _fence(c: FindingContext) -> tuple[str, str]:
    side = {AFTER: "after_thread_sync before this one", BEFORE: "before_thread_sync after the other one's wait"}
    said = side[c.words[1]]
    own = c.instruction.mnemonic
    return f"{own} and {c.against} of another warp or thread access the same cells, with no tcgen05.fence::{said}", _where(c)


_UNORDERED = {
    ITSELF: "{own} writes its accumulator where its own operand lies",
    SHIFTED: "{own} moves what {other} writes, which is under way",
    OPERAND: "A of this tcgen05.mma is where {other} writes, which is under way",
    FACTORS: "scale factors or metadata of this tcgen05.mma are where {other} writes, which is under way",
    PRODUCT: "the accumulator is that of {other} of another shape or kind, which is under way",
}


def _unordered(c: FindingContext) -> tuple[str, str]:
    return _at_cells(_UNORDERED[min(c.words[1], PRODUCT)])(c)


def _freed(c: FindingContext) -> tuple[str, str]:
    if c.words[1] == OTHERS:
        return _at_cells("nothing orders {own} and {other}, which uses its columns")(c)
    return _at_cells("{own} has columns that {other} may still use, which nobody has waited for")(c)


def _not_promised(c: FindingContext) -> tuple[str, str]:
    if c.words[1] == READ_BEFORE:
        return _at_cells("no tcgen05.wait::ld lies between {other} and {own}; all that was loaded has been stored")(c)
    behind = "the specification does not order them" if c.words[1] == OTHERS else "no tcgen05.wait lies between"
    return _at_cells("{own} overwrites cells that {other} before it uses: " + behind)(c)


def _apart(c: FindingContext) -> tuple[str, str]:
    column, columns, *_ = c.words
    return f"{c.instruction.mnemonic} reaches from one allocation into another", f"columns {column} to {column + columns - 1}"


def _differs(c: FindingContext) -> tuple[str, str]:
    own, other = (f"{word >> 32} columns at column {word & 0xFFFF}" for word in c.words[:2])
    return f"{own} are allocated, and by the other block of the pair {other}", ""


def _held(c: FindingContext) -> tuple[str, str]:
    column, columns, *_ = c.words
    return f"the block exits and holds {columns} columns that this has allocated", f"columns {column} to {column + columns - 1}"


def _grows(c: FindingContext) -> tuple[str, str]:
    columns, before, *_ = c.words
    return f"{columns} columns are allocated, after an allocation of {before}", ""


def _quarter(c: FindingContext) -> tuple[str, str]:
    own = int(c.entry["warp"]) % QUARTERS * LANES
    named = f"the address names lane {c.words[0]}"
    return f"{named}, and this warp has lanes {own} to {own + LANES - 1}, which are accessed", ""


SENTENCES: Mapping[int, Callable[[FindingContext], str | tuple[str, ...]]] = {
    rules.HELD.number: _held,
    rules.QUARTER.number: _quarter,
    rules.GROWS.number: _grows,
    rules.READ_EARLY.number: _at_cells(
        "{own} reads what {other} may not have written yet: no wait for its tcgen05.commit lies between"
    ),
    rules.WRITTEN_EARLY.number: _at_cells(
        "{own} overwrites what {other} may still use: no wait for its tcgen05.commit lies between"
    ),
    rules.WAIT_MISSING.number: _wait,
    rules.FENCE_MISSING.number: _fence,
    rules.COMMIT_FENCE_MISSING.number: _at_cells(
        "{own} uses what {other} wrote, with no tcgen05.fence::after_thread_sync after the wait for its tcgen05.commit"
    ),
    rules.RACE.number: _race,
    rules.UNORDERED.number: _unordered,
    rules.NOT_ALLOCATED.number: _apart,
    rules.FREED_EARLY.number: _freed,
    rules.NOT_PROMISED.number: _not_promised,
    rules.PAIR_DIFFERS.number: _differs,
    rules.UNWRITTEN.number: _at_cells("{own} uses cells that nothing has written since they were allocated"),
    rules.NOT_COMMITTED.number: lambda c: "the thread exits, and no tcgen05.commit has followed this",
    rules.OPERAND_OVERWRITTEN.number: lambda c: f"bytes are overwritten that {c.against}, which is under way, may still read",
}

FAULTS: Mapping[FaultKind, Rule] = {
    FaultKind.TENSOR_COUNT: rules.ALLOCATION,
    FaultKind.TENSOR_RELINQUISHED: rules.ALLOCATION,
    FaultKind.TENSOR_DEALLOC: rules.ALLOCATION,
    FaultKind.TENSOR_COLUMNS: rules.NOT_ALLOCATED,
    FaultKind.TENSOR_ALIGNED: rules.OPERAND,
    FaultKind.TENSOR_MATRIX: rules.OPERAND,
    FaultKind.TENSOR_ADDRESS: rules.OPERAND,
    FaultKind.TENSOR_PAIR: rules.PAIR,
}
