"""Memory that the topics of the sanitizer need, of a launch and of a resident cluster, by its name in the structs of
sanitizer/state.py. A topic that needs none for this kernel gives None; of several arrays the first has the addresses of
the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from mmulator.diagnostics.findings import accumulators, execution, mbarriers, orders, proxies, shadows, values, waits
from mmulator.launch.grid import Grid
from mmulator.launch.resident import Resident

Memory = np.ndarray | Sequence[np.ndarray] | None
OF_LAUNCH: Mapping[str, Callable[[Grid], Memory]] = {
    "orders": orders.of_launch,
    "races": shadows.of_launch,
    "proxies": proxies.of_launch,
    "values": values.of_launch,
}
OF_CLUSTER: Mapping[str, Callable[[Resident], Memory]] = {
    "orders": orders.of_cluster,
    "races": shadows.of_cluster,
    "accumulators": accumulators.memory,
    "mbarriers": mbarriers.of_cluster,
    "clusters": mbarriers.of_blocks,
    "execution": execution.of_cluster,
    "skips": execution.of_barriers,
    "values": values.of_cluster,
    "waits": waits.of_cluster,
    "proxies": proxies.memory,
}
