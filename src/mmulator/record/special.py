"""Special registers of a thread, as far as the launch decides them (PTX ISA 9.1, Special Registers)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mmulator.native.state import LANES
from mmulator.record.trail import TrailStep

if TYPE_CHECKING:
    from mmulator.launch.shape import LaunchShape

_AXES = {"x": 0, "y": 1, "z": 2}


def special_value(shape: LaunchShape, step: TrailStep, lane: int, name: str) -> int | None:
    """The value of a special register for a lane of a step; None for those that change while a kernel runs."""
    family, _, axis = name.partition(".")
    number = _AXES.get(axis)
    if number is not None:
        at = shape.block_at(step.block)
        if family == "cluster_ctaid":
            return at[number] % shape.cluster[number]
        if family == "clusterid":
            return at[number] // shape.cluster[number]
        if family == "nclusterid":
            return shape.grid[number] // shape.cluster[number]
        sizes = {"ntid": shape.block, "nctaid": shape.grid, "cluster_nctaid": shape.cluster}
        if family in sizes:
            return sizes[family][number]
        if family == "tid":
            return shape.thread_at(step.place.warp * LANES + lane)[number]
        if family == "ctaid":
            return at[number]
        return None
    ones = (1 << 32) - 1
    return {
        "laneid": lane, "warpid": step.place.warp, "nwarpid": shape.warps, "cluster_ctarank": step.place.cta,
        "cluster_nctarank": shape.cluster_size, "lanemask_eq": 1 << lane, "lanemask_lt": (1 << lane) - 1,
        "lanemask_le": (2 << lane) - 1, "lanemask_gt": ones & ~((2 << lane) - 1), "lanemask_ge": ones & ~((1 << lane) - 1),
    }.get(name)  # fmt: skip
