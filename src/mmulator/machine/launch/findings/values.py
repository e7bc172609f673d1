"""Sentences about registers and bytes that nobody has written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from mmulator.machine.launch.arena import pointer
from mmulator.machine.launch.findings.context import Context
from mmulator.machine.launch.resident import Resident
from mmulator.machine.sanitizer.values import Source, ValuesState
from mmulator.machine.state import LANES
from mmulator.rules.values import UNDEFINED_ADDRESS, UNDEFINED_BRANCH, UNDEFINED_COPY, UNDEFINED_STORE

_DOES = {
    UNDEFINED_STORE.number: "stores to global memory", UNDEFINED_BRANCH.number: "decides by",
    UNDEFINED_ADDRESS.number: "takes as an address",
}  # fmt: skip


def _use(c: Context) -> str:
    ins, does = c.instruction, _DOES[int(c.entry["rule"])]
    if c.other is None:
        return f"{ins.mnemonic} {does} a register that no instruction has given a value on the way here"
    return f"{ins.mnemonic} {does} what comes from bytes that nobody has written when {c.conflict} reads them"


def _copy(c: Context) -> str:
    return f"{c.instruction.mnemonic} copies bytes of shared memory that nobody has written"


SENTENCES: Mapping[int, Callable[[Context], str]] = {**dict.fromkeys(_DOES, _use), UNDEFINED_COPY.number: _copy}


def of_cluster(resident: Resident) -> Sequence[np.ndarray]:
    """A byte for each of shared and of local memory, and of each warp what it loaded last that has no value."""
    grid, warps = resident.grid, len(resident.warps)
    state = np.zeros(1, ValuesState.numpy_dtype())
    shared = np.zeros(grid.shape.shared * resident.size + 64, np.uint8)
    local = np.zeros(grid.kernel.local_bytes * LANES * warps + 64, np.uint8)
    sources = np.zeros(warps, Source.numpy_dtype())
    state["shared"], state["shared_bytes"] = pointer(shared), grid.shape.shared
    state["local"], state["local_bytes"] = pointer(local), grid.kernel.local_bytes
    state["warps"], state["sources"] = warps, pointer(sources)
    return state, shared, local, sources
