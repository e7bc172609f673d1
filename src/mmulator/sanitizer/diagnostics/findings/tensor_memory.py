"""Sentences about tensor memory, and memory for the records of accesses to it."""

from collections.abc import Sequence

import numpy as np

from mmulator.base.rules import tensor_memory as rules
from mmulator.ptx.program.read_loads import read_loads
from mmulator.runtime.compiled import CompiledKernel
from mmulator.runtime.launch.arena import pointer
from mmulator.runtime.launch.pages import blank
from mmulator.runtime.launch.resident import Resident
from mmulator.runtime.native.matrix.tensor_state import TENSOR_COLUMNS
from mmulator.runtime.native.state import LANES
from mmulator.sanitizer.checks import tensor_state as checks
from mmulator.sanitizer.diagnostics.findings.context import FindingContext, Said, Sentences


def memory(resident: Resident) -> Sequence[np.ndarray] | None:
    """Memory of the checks of tensor memory for a resident cluster; None if the kernel does not use it."""
    if not resident.grid.kernel.matrix.tensor:
        return None
    warps = len(resident.warps)
    kernel = resident.grid.kernel
    state = np.zeros(1, checks.TensorChecks.numpy_dtype())
    parts = {
        "cells": blank(resident.size * checks.QUARTERS * TENSOR_COLUMNS * checks.Cells.size, np.dtype(np.uint8)),
        "movers": np.zeros(warps, checks.Mover.numpy_dtype()), "issuers": np.zeros(warps * LANES, checks.Issuer.numpy_dtype()),
        "held": np.zeros(resident.size, checks.Held.numpy_dtype()), "after": np.zeros(warps * LANES, np.uint32),
        "read": kernel.once_stored(_read_loads),
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


def _cells(c: FindingContext, text: str = "") -> Said:
    """The message of the rule, or a text with {own} and {other} for the names of the instructions, about cells."""
    return text.format(own=c.name, other=c.against) if text else c.says(), _where(c)


def _wait(c: FindingContext) -> Said:
    wait, use = ("st", "uses what it stores") if c.words[2] else ("ld", "overwrites what it loads")
    return f"no tcgen05.wait::{wait} has followed {c.against} when {c.name} {use}", _where(c)


def _race(c: FindingContext) -> Said:
    """Two accesses that nothing orders: perhaps lanes of a warp that all issue what one thread should."""
    one = all(c.entry[name] == c.entry[f"other_{name}"] for name in ("cta", "warp")) and c.other is c.instruction
    return (*_cells(c), *(("let one thread of the warp issue it (elect.sync)",) if one else ()))


def _fence(c: FindingContext) -> Said:
    side = {checks.AFTER: "after_thread_sync before this one", checks.BEFORE: "before_thread_sync after the other one's wait"}
    said = side[c.words[1]]
    own = c.name
    return f"{own} and {c.against} of another warp or thread access the same cells, with no tcgen05.fence::{said}", _where(c)


_UNORDERED = {
    checks.ITSELF: "{own} writes its accumulator where its own operand lies",
    checks.SHIFTED: "{own} moves what {other} writes, which is under way",
    checks.OPERAND: "A of this tcgen05.mma is where {other} writes, which is under way",
    checks.FACTORS: "scale factors or metadata of this tcgen05.mma are where {other} writes, which is under way",
    checks.PRODUCT: "the accumulator is that of {other} of another shape or kind, which is under way",
}


def _unordered(c: FindingContext) -> Said:
    return _cells(c, _UNORDERED[min(c.words[1], checks.PRODUCT)])


def _freed(c: FindingContext) -> Said:
    if c.words[1] == checks.OTHERS:
        return _cells(c, "nothing orders {own} and {other}, which uses its columns")
    return _cells(c, "{own} has columns that {other} may still use, which nobody has waited for")


def _not_promised(c: FindingContext) -> Said:
    if c.words[1] == checks.READ_BEFORE:
        return _cells(c, "no tcgen05.wait::ld lies between {other} and {own}; all that was loaded has been stored")
    behind = "the specification does not order them" if c.words[1] == checks.OTHERS else "no tcgen05.wait lies between"
    return _cells(c, "{own} overwrites cells that {other} before it uses: " + behind)


def _apart(c: FindingContext) -> Said:
    column, columns, *_ = c.words
    return f"{c.name} reaches from one allocation into another", f"columns {column} to {column + columns - 1}"


def _differs(c: FindingContext) -> Said:
    own, other = (f"{word >> 32} columns at column {word & 0xFFFF}" for word in c.words[:2])
    return f"{own} are allocated, and by the other block of the pair {other}"


def _held(c: FindingContext) -> Said:
    column, columns, *_ = c.words
    return f"the block exits and holds {columns} columns that this has allocated", f"columns {column} to {column + columns - 1}"


def _grows(c: FindingContext) -> Said:
    columns, before, *_ = c.words
    return f"{columns} columns are allocated, after an allocation of {before}"


def _quarter(c: FindingContext) -> Said:
    own = int(c.entry["warp"]) % checks.QUARTERS * LANES
    named = f"the address names lane {c.words[0]}"
    return f"{named}, and this warp has lanes {own} to {own + LANES - 1}, which are accessed"


SENTENCES: Sentences = {
    rules.HELD: _held, rules.QUARTER: _quarter, rules.GROWS: _grows, rules.READ_EARLY: _cells, rules.WRITTEN_EARLY: _cells,
    rules.WAIT_MISSING: _wait, rules.FENCE_MISSING: _fence, rules.COMMIT_FENCE_MISSING: _cells, rules.RACE: _race,
    rules.UNORDERED: _unordered, rules.NOT_ALLOCATED: _apart, rules.FREED_EARLY: _freed, rules.NOT_PROMISED: _not_promised,
    rules.PAIR_DIFFERS: _differs, rules.UNWRITTEN: _cells,
}  # fmt: skip
