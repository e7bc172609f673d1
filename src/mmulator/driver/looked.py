"""A launch of a program that is looked at: it is captured as files (captured.py), or recorded and compared (recorded.py)."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from mmulator.driver.captured import capturing
from mmulator.driver.kept import keeping
from mmulator.driver.recorded import following
from mmulator.driver.seen import Seen
from mmulator.driver.why import device_arrays
from mmulator.errors import ExecutionFault
from mmulator.host.report import Report
from mmulator.launch.launch import How, Launch
from mmulator.launch.observers import Observer
from mmulator.record.names import DeviceArray


def looked_at(
    settings: Any, launch: Launch, how: How, observers: list[Observer], arrays: Callable[[], Sequence[DeviceArray]],
    run: Callable[[], Report],
) -> Report:  # fmt: skip
    """A launch, looked at for what the settings ask.

    settings: with `capture`, `record` or `replay`, or with `why` of what comparisons reject.
    launch, how: what runs, and how.
    observers: of the launch; one is added.
    arrays: gives what the door knows of arrays among the parameters.
    run: runs it.
    """
    wanting: list[Any] = []
    if settings.capture:
        wanting += capturing(settings.capture, settings.capture_to).wants(launch.kernel.name)
    if settings.record or settings.replay:
        wanting += following(settings.record, settings.replay).wants()
    if settings.keeps:
        wanting.append(partial(keeping(settings.why_depth, settings.why_against).take, how))
    if not wanting:
        return run()
    seen = Seen(launch, how.seed, device_arrays(launch, arrays()))
    observers.append(seen.touched)
    how.threads = 1
    error: BaseException | None = None
    try:
        return run()
    except (ExecutionFault, KeyboardInterrupt) as stop:
        error = stop
        raise
    finally:
        seen.over()
        for take in wanting:
            take(seen, error)
