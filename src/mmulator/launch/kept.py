"""Things that a launch leaves for the next launch of a kernel in blocks of one shape: its tables, and memory of clusters."""

import weakref
from collections.abc import Sequence
from typing import Any

from mmulator.compiler.compiled import CompiledKernel
from mmulator.launch.arena import Heap
from mmulator.launch.arguments import Arguments
from mmulator.launch.grid import Grid
from mmulator.launch.launch import How, Launch
from mmulator.launch.observers import Observer
from mmulator.launch.resident import Resident
from mmulator.launch.shape import LaunchShape

KEPT_KERNELS, KEPT_SHAPES = 64, 4  # kernels, and shapes of each
KEPT_BYTES = 4 << 20  # of memory of clusters for each of those: four of a large GEMM

Kept = tuple[Grid, list[Resident]]
_keepers: dict[int, weakref.ref[CompiledKernel]] = {}  # kernels that keep some, by id; who was launched last is last


def _key(shape: LaunchShape, arguments: Arguments) -> Any:
    return shape.block, shape.cluster, shape.explicit, shape.cooperative, shape.shared, arguments.params.nbytes


def grid_for(launch: Launch, how: How, observers: Sequence[Observer] = ()) -> tuple[Grid, list[Resident]]:
    """A grid for a launch and memory for clusters: what is kept, which nobody else has until it is kept again, or a new grid."""
    kept: Kept | None = launch.kernel.kept.pop(_key(launch.shape, launch.arguments), None)
    if kept is None or Heap.from_environment().edge:
        return Grid(launch, how, observers), []
    grid, residents = kept
    grid.fill_in(launch, how, observers)
    for resident in residents:
        resident.join(grid)
        for observer in observers:
            observer.attach(resident)
    return kept


def keep(grid: Grid, residents: Sequence[Resident]) -> None:
    """Keep what a launch that ended well leaves, but nothing of the caller's."""
    if grid.heap.edge or grid.placement.copies:
        return
    kernel, key = grid.kernel, _key(grid.shape, grid.arguments)
    room, spare = KEPT_BYTES, []
    for resident in residents:
        room -= resident.nbytes
        if room < 0:
            break
        spare.append(resident)
        del resident.grid
    grid.leave()
    kernel.kept[key] = grid, spare
    for old_key in list(kernel.kept)[:-KEPT_SHAPES]:
        kernel.kept.pop(old_key, None)
    _keepers.pop(id(kernel), None)
    _keepers[id(kernel)] = weakref.ref(kernel)
    for number in list(_keepers)[:-KEPT_KERNELS]:
        old = _keepers.pop(number, None)
        if old is not None and (found := old()) is not None:
            found.kept.clear()
