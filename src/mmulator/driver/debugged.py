"""Launches of a program under the debugger."""

from collections.abc import Callable, Sequence
from functools import cache

from mmulator.debug.program import current
from mmulator.driver.why import device_arrays, stored_type
from mmulator.host.report import Report
from mmulator.launch.launch import How, Launch
from mmulator.launch.observers import Observer
from mmulator.record.names import DeviceArray, DeviceNames


def debugged(
    debugger: str, launch: Launch, how: How, observers: Callable[[], list[Observer]], arrays: Callable[[], Sequence[DeviceArray]]
) -> Report:
    """A launch under the debugger of the process. Raises what the launch raises.

    debugger: as MMULATOR_DEBUG says.
    launch, how: what runs, and how.
    observers: makes the launch's own observers, new ones at each call.
    arrays: gives what the door knows of arrays among the parameters.
    """
    names, stored = lambda: DeviceNames(device_arrays(launch, arrays())), cache(lambda: stored_type(launch.kernel))
    return current(debugger).launch(launch, how, observers, names, stored)
