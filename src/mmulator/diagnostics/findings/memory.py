"""Tables of the functions that make the sanitizer's memory, for a launch and for a resident cluster. A name in a table is a
field of a struct in sanitizer/state.py.

Such a function returns None if the kernel does not need the topic. If it returns several arrays, the first one holds the
addresses of the others.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from mmulator.diagnostics.findings import (
    accumulators,
    execution,
    mbarriers,
    orders,
    proxies,
    shadows,
    tensor_memory,
    values,
    waits,
)
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
    "tensor": tensor_memory.memory,
}
# Functions that remove from a cluster's memory what is of a launch, for the next one. A cluster that begins renews all else.
RENEWED: Mapping[str, Callable[[Any], None]] = {"orders": orders.renew, "races": shadows.renew, "values": values.renew}
