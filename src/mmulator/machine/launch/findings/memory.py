"""Memory that the topics of the sanitizer need, of a launch and of a resident cluster, by its name in the structs of
machine/sanitizer/state.py. A topic that needs none for this kernel gives None; of several arrays the first has the addresses of
the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from mmulator.machine.launch.arena import pointer
from mmulator.machine.launch.findings import (
    accumulators,
    execution,
    mbarriers,
    proxies,
    shadows,
    values,
)
from mmulator.machine.launch.grid import Grid
from mmulator.machine.launch.resident import Resident
from mmulator.machine.sanitizer.clocks import ALL, PLANES, Collector, Knower, Orders
from mmulator.machine.sanitizer.phases import PHASERS, Phaser
from mmulator.machine.state import COPIES, LANES, NUM_BARRIERS

SPARE_AGENTS, SPARE_VIEWS = 256, 512
Memory = np.ndarray | Sequence[np.ndarray] | None
OF_LAUNCH: Mapping[str, Callable[[Grid], Memory]] = {"races": shadows.of_launch}


def _orders(resident: Resident) -> Memory:
    """Who knows of whom (machine/sanitizer/clocks.py). Memory that is never touched is none."""
    kernel, warps, ctas = resident.grid.kernel, len(resident.warps), resident.size
    threads, copies = warps * LANES, any(kind is COPIES for kind in kernel.queues)
    base = threads * (1 + copies)
    stride = base + SPARE_AGENTS + LANES * -(-(2 * threads * bool(kernel.movers)) // LANES)
    capacity = PLANES * 3 * threads + SPARE_VIEWS
    parts = [np.zeros(1, Orders.numpy_dtype()), np.zeros(capacity * stride, np.uint32)]
    parts += [np.zeros(capacity, np.uint32) for _ in range(2)]
    parts += [np.zeros(n * s.size, np.uint8) for n, s in (
        (warps, Knower), (ctas * NUM_BARRIERS, Collector), (ctas, Collector), (PHASERS * kernel.mbarriers, Phaser),
    )]  # fmt: skip
    parts[1][stride * ALL : stride * (ALL + 1)] = 0xFFFFFFFF
    names = "pool", "counts", "free", "knowers", "barriers", "gone", "phasers"
    for name, part in zip(names, parts[1:], strict=True):
        parts[0][name] = pointer(part) if part.size else 0
    for name, value in (
        ("threads", threads), ("copies", copies), ("base", base), ("bound", base), ("stride", stride), ("capacity", capacity),
        ("barrier_count", ctas * NUM_BARRIERS),
    ):  # fmt: skip
        parts[0][name] = value
    return parts


OF_CLUSTER: Mapping[str, Callable[[Resident], Memory]] = {
    "orders": _orders,
    "races": shadows.of_cluster,
    "accumulators": accumulators.memory,
    "mbarriers": mbarriers.of_cluster,
    "clusters": mbarriers.of_blocks,
    "execution": execution.of_cluster,
    "values": values.of_cluster,
    "proxies": proxies.memory,
}
