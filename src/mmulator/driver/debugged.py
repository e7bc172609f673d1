"""Launches of a program under the debugger."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from mmulator.debug.program import current
from mmulator.driver.why import device_arrays, stored_type
from mmulator.host.module import sanitizers
from mmulator.host.report import Report
from mmulator.launch.arena import bytes_at
from mmulator.launch.arguments import Arguments
from mmulator.launch.launch import How
from mmulator.launch.observers import Observer
from mmulator.launch.regions import Regions
from mmulator.launch.shape import LaunchShape
from mmulator.record.names import DeviceArray, DeviceNames
from mmulator.rules.choice import chosen
from mmulator.settings import STRICT, Settings


def debugged(
    settings: Settings, function: Any, shape: LaunchShape, arguments: Arguments, regions: Regions, how: How,
    arrays: Callable[[], Sequence[DeviceArray]],
) -> Report:  # fmt: skip
    """A launch under the debugger of the process. Parameters are as in `Function.run`. Raises what the launch raises."""
    if settings.sanitize:
        how.keep_going, how.watched = settings.keep_going, any(r.written is not None for r in regions)

    def observers() -> list[Observer]:
        return [sanitizers()(chosen(settings.rules, settings.sanitize == STRICT))] if settings.sanitize else []

    return current(settings.debug).launch(
        function.kernel, shape, arguments, function.loaded.device, how, observers,
        lambda: DeviceNames(device_arrays(function, arguments, arrays())),
        lambda: [(r.start, bytes_at(r.host, r.size)) for r in regions if r.writable],
        cache(lambda: stored_type(function)),
    )  # fmt: skip
