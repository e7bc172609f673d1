"""Sentences about registers and bytes that nobody has written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from mmulator.machine.launch.arena import blank, pointer
from mmulator.machine.launch.findings.context import Context
from mmulator.machine.launch.resident import Resident
from mmulator.machine.sanitizer.values import Source, ValuesState
from mmulator.machine.state import LANES
from mmulator.program.provenance import origins, variables_of
from mmulator.ptx.tree import Address, Reg, Symbol
from mmulator.rules.values import OUT_OF_VARIABLE, UNDEFINED_ADDRESS, UNDEFINED_BRANCH, UNDEFINED_COPY, UNDEFINED_STORE

_DOES = {
    UNDEFINED_STORE.number: "{} stores to global memory a value that nobody has written",
    UNDEFINED_BRANCH.number: "{} depends on a value that nobody has written",
    UNDEFINED_ADDRESS.number: "{} takes its address from a value that nobody has written",
    UNDEFINED_COPY.number: "{} copies to global memory bytes of shared memory that nobody has written",
}  # fmt: skip


def _use(c: Context) -> str:
    from_memory = f", from bytes that {c.other.mnemonic} read" if c.other is not None else ""
    return _DOES[int(c.entry["rule"])].format(c.instruction.mnemonic) + from_memory


def _outside(c: Context) -> str:
    place, size, *_ = c.words
    place -= (place >> 31) << 32
    ins, function = next(
        ((i, f.function) for f in c.grid.kernel.program.functions.values() for i in f.function.instructions
         if i.original.span == c.instruction.span), (c.instruction, None),
    )  # fmt: skip
    name = "its variable"
    if function is not None:
        variables = variables_of(c.grid.kernel.program.module, function)
        base = next(o for o in ins.operands if isinstance(o, Address)).base
        symbol = origins(function, variables).get(base.name) if isinstance(base, Reg) else base
        name = symbol.name.partition("@")[0] if isinstance(symbol, Symbol) else name
    return f"{c.instruction.mnemonic} accesses byte {place} of {name}, which has {size}"


SENTENCES: Mapping[int, Callable[[Context], str]] = {**dict.fromkeys(_DOES, _use), OUT_OF_VARIABLE.number: _outside}


def of_cluster(resident: Resident) -> Sequence[np.ndarray]:
    """A byte for each of shared and of local memory, and of each warp what it loaded last that has no value."""
    grid, warps = resident.grid, len(resident.warps)
    state = np.zeros(1, ValuesState.numpy_dtype())
    byte = np.dtype(np.uint8)
    shared = blank(grid.shape.shared * resident.size + 64, byte)
    local = blank(grid.kernel.local_bytes * LANES * warps + 64, byte)
    sources = np.zeros(warps, Source.numpy_dtype())
    state["shared"], state["shared_bytes"] = pointer(shared), grid.shape.shared
    state["local"], state["local_bytes"] = pointer(local), grid.kernel.local_bytes
    state["warps"], state["sources"] = warps, pointer(sources)
    return state, shared, local, sources
