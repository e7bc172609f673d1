"""Sentences about the generic and the asynchronous proxy, and memory for records of asynchronous operations."""

from collections.abc import Sequence

import numpy as np

from mmulator.base.rules import proxies as rules
from mmulator.ptx.program.addresses import SLOT_SHARED, SLOT_SHIFT
from mmulator.ptx.tree import Instruction
from mmulator.runtime.compiled import CompiledKernel
from mmulator.runtime.launch.arena import pointer
from mmulator.runtime.launch.grid import Grid
from mmulator.runtime.launch.resident import Resident
from mmulator.runtime.native.state import LANES
from mmulator.sanitizer.checks.proxy_state import GATHERED, METS, NO_RELEASE, UNORDERED, BulkLane, Gathered, Proxies
from mmulator.sanitizer.diagnostics.findings.context import FindingContext, Said, Sentences, location, memory_text
from mmulator.sanitizer.shadow.records import Met


def of_launch(grid: Grid) -> np.ndarray:
    """A byte for each cluster: whether it has executed a proxy fence for global memory."""
    return np.zeros(grid.shape.clusters, np.uint8)


def memory(resident: Resident) -> Sequence[np.ndarray]:
    """Memory of a resident cluster for sanitizer/checks/proxy_state.py."""
    warps = len(resident.warps)
    stride, lanes = -(-warps // resident.size // 4), warps * LANES
    groups = stride * resident.size
    state = np.zeros(1, Proxies.numpy_dtype())
    parts = [state, np.zeros(groups, np.uint32), np.zeros(lanes, BulkLane.numpy_dtype())]
    parts.append(np.zeros(groups * GATHERED, Gathered.numpy_dtype()))
    parts.append(np.zeros(groups * METS, Met.numpy_dtype()))
    state["groups"], state["lanes"], state["gathered"], state["met"] = (pointer(part) for part in parts[1:])
    state["group_count"], state["group_stride"], state["lane_count"] = groups, stride, lanes
    return parts


def _fences(kernel: CompiledKernel) -> list[tuple[Instruction, str]]:
    """Fences of the asynchronous proxy for one state space, and that space."""
    slots = ((ins, dict(ins.form.modifiers)) for ins in kernel.sites)
    return [(ins, str(of["space"])) for ins, of in slots if of.get("proxy") == "async" and of.get("space")]


def _fence_missing(c: FindingContext) -> Said:
    """The message of a missing proxy fence, and the hint of bytes in global memory. It names a fence for another state space if
    one lies between the accesses in the text.
    """
    said = f"bytes that {c.against} wrote are read through the asynchronous proxy with no fence.proxy.async between"
    shared = int(c.entry["at"]) >> SLOT_SHIFT == SLOT_SHARED
    begin, end = c.other.span.start if c.other is not None else 0, c.instruction.span.start
    for ins, space in c.grid.kernel.once(_fences):
        if space.startswith("shared") != shared and begin < ins.span.start < end:
            here = "shared" if shared else "global"
            said += f": {ins.mnemonic} ({location(ins)}) is for .{space}, and these bytes are in {here} memory"
            break
    return said if shared else (said, c.where(), rules.GLOBAL_FENCE)


def _read_before_wait(c: FindingContext) -> str:
    barrier, phase, waited = c.words[:3]
    if not barrier:
        return f"bytes are read that {c.against} may not have written yet"
    said = f"phase {waited - 1} of it" if waited else "none of its phases"
    where = memory_text(c.grid, barrier, 8)
    return (
        f"bytes are read that {c.against} may not have written yet: that is so when phase {phase} (parity {phase & 1}) of the "
        f"mbarrier in {where} is complete, and the reader knows of {said}"
    )


def _map_fence_missing(c: FindingContext) -> str:
    missing = c.words[0]
    begin = f"the tensor map was changed by {c.against}"
    if missing == UNORDERED:
        return f"{begin}, and nothing orders the change before this copy"
    if missing == NO_RELEASE:
        return f"{begin} with no fence.proxy.tensormap::generic.release after the change and before the acquire"
    return f"{begin}, and no fence.proxy.tensormap::generic.acquire of this map lies between the change and this copy"


SENTENCES: Sentences = {
    rules.FENCE_MISSING: _fence_missing, rules.COPY_FENCE_MISSING: _fence_missing, rules.READ_BEFORE_WAIT: _read_before_wait,
    rules.MAP_FENCE_MISSING: _map_fence_missing,
}  # fmt: skip
