"""Special registers of a thread, as far as the launch decides them (PTX ISA 9.1, Special Registers)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mmulator.record.trail import TrailStep

if TYPE_CHECKING:
    from mmulator.launch.shape import LaunchShape

_AXES = {"x": 0, "y": 1, "z": 2}


def special_value(shape: LaunchShape, step: TrailStep, lane: int, name: str) -> int | None:
    """The value of a special register for a lane of a step; None for those that change while a kernel runs."""
    family, _, axis = name.partition(".")
    number = _AXES.get(axis)
    if number is not None:
        at = (
            step.block % shape.grid[0],
            step.block // shape.grid[0] % shape.grid[1],
            step.block // (shape.grid[0] * shape.grid[1]),
        )
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
            return thread_of(shape, step, lane)[number]
        if family == "ctaid":
            return at[number]
        return None
    ones = (1 << 32) - 1
    return {
        "laneid": lane, "warpid": step.place.warp, "nwarpid": shape.warps, "cluster_ctarank": step.place.cta,
        "cluster_nctarank": shape.cluster_size, "lanemask_eq": 1 << lane, "lanemask_lt": (1 << lane) - 1,
        "lanemask_le": (2 << lane) - 1, "lanemask_gt": ones & ~((2 << lane) - 1), "lanemask_ge": ones & ~((1 << lane) - 1),
    }.get(name)  # fmt: skip


def thread_of(shape: LaunchShape, step: TrailStep, lane: int) -> tuple[int, int, int]:
    """(x, y, z) of a lane's thread in its block."""
    bx, by, _ = shape.block
    thread = step.place.warp * 32 + lane
    return thread % bx, thread // bx % by, thread // (bx * by)
