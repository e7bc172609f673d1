"""Memory for the clocks and views of happens-before (sanitizer/order/clocks.py). The arrays are large, but pages that are never
touched cost no memory.
"""

from collections.abc import Mapping

import numpy as np

from mmulator.base.codegen.types import Struct
from mmulator.runtime.launch.arena import pointer
from mmulator.runtime.launch.grid import Grid
from mmulator.runtime.launch.pages import blank
from mmulator.runtime.launch.resident import Resident
from mmulator.runtime.native.state import COPIES, LANES, NUM_BARRIERS
from mmulator.sanitizer.order.locations import LOCATIONS, PHASERS, Location, Phaser
from mmulator.sanitizer.order.views import ALL, FIRST, ISSUES, PROXIES, SPARE_AGENTS, Collector, Orders, WarpClocks
from mmulator.sanitizer.order.world import PLACES, ForeignAgent, Place, World

VIEWS_OF_THREAD = 64
MOST_VIEWS, MOST_SNAPSHOTS, MOST_ROWS = 1 << 28, 1 << 27, 1 << 26  # bytes; unused pages cost no memory
LEAST_VIEWS = 256
_WORD = np.dtype(np.uint32)
MOST_CLUSTERS = 8192  # up to this number, the releases of each cluster are recorded separately
MOST_NAMED = (1 << 32) - 1  # of clusters have numbers in the sanitizer's structs


def _filled(struct: Struct, parts: Mapping[str, np.ndarray], **numbers: int) -> list[np.ndarray]:
    """A struct with pointers to `parts` and with `numbers` as its fields, followed by the arrays themselves."""
    one = np.zeros(1, struct.numpy_dtype())
    for name, part in parts.items():
        one[name] = pointer(part) if part.size else 0
    for name, number in numbers.items():
        one[name] = number
    return [one, *parts.values()]


def _bytes(struct: Struct, count: int) -> np.ndarray:
    return blank(struct.size * count, np.dtype(np.uint8))


def _agents(grid: Grid) -> tuple[int, int, int]:
    """(threads of a cluster, 1 if each has an agent for its cp.async, greatest number of agents)."""
    threads, kernel = grid.shape.warps * grid.shape.cluster_size * LANES, grid.kernel
    copies = int(any(kind is COPIES for kind in kernel.queues))
    return threads, copies, threads * (1 + copies + 2 * bool(kernel.movers)) + SPARE_AGENTS


def of_cluster(resident: Resident) -> list[np.ndarray]:
    """Memory of the clocks and views of a cluster (sanitizer/order/clocks.py)."""
    kernel, warps, ctas = resident.grid.kernel, len(resident.warps), resident.size
    threads, copies, stride = _agents(resident.grid)
    capacity = max(min(VIEWS_OF_THREAD * threads, MOST_VIEWS // (4 * stride)), LEAST_VIEWS)
    pool = blank(capacity * stride, _WORD)
    pool[stride * ALL : stride * (ALL + 1)] = 0xFFFFFFFF
    parts = {
        "pool": pool, "counts": blank(capacity, _WORD), "free": blank(capacity, _WORD),
        "knowers": _bytes(WarpClocks, warps), "barriers": _bytes(Collector, ctas * NUM_BARRIERS), "gone": _bytes(Collector, ctas),
        "phasers": _bytes(Phaser, PHASERS * kernel.mbarriers), "locations": _bytes(Location, LOCATIONS),
        "issues": _bytes(Collector, ISSUES * warps * bool(kernel.matrix.tiles)), "strangers": _bytes(ForeignAgent, stride),
    }  # fmt: skip
    base, least = threads * (1 + copies), PROXIES if kernel.mbarriers or kernel.movers or kernel.matrix.tiles else 1
    return _filled(
        Orders, parts, threads=threads, copies=copies, base=base, bound=base, stride=stride, capacity=capacity,
        least=least, barrier_count=ctas * NUM_BARRIERS,
    )  # fmt: skip


def renew(memory: list[np.ndarray]) -> None:
    """Forget the foreign agents."""
    memory[0]["stranger_count"] = 0


def of_launch(grid: Grid) -> list[np.ndarray] | None:
    """Memory of the locations through which clusters of a grid release to each other (sanitizer/order/world.py)."""
    clusters, stride = grid.shape.clusters, _agents(grid)[2]
    if clusters == 1:
        return None
    capacity = max(MOST_SNAPSHOTS // (4 * stride), FIRST)
    rows = FIRST if clusters > MOST_CLUSTERS else max(min(MOST_ROWS // (4 * clusters), PLACES), FIRST)
    parts = {
        "free": blank(capacity, _WORD), "counts": blank(capacity, _WORD), "places": _bytes(Place, PLACES),
        "snapshots": blank(capacity * stride, _WORD), "row_free": blank(rows, _WORD),
        "rows": blank(rows * (clusters if rows > FIRST else 1), _WORD),
    }  # fmt: skip
    return _filled(
        World, parts, clusters=min(clusters, MOST_NAMED), stride=stride, capacity=capacity, fresh=FIRST, row_capacity=rows,
        row_fresh=FIRST,
    )  # fmt: skip
