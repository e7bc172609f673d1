"""Inquiries: what is asked about the launches of a program besides running them, such as `--why`, `--profile` or `--capture`.

An inquiry is one file of a room above: the setting that it answers to, what it does with a launch, and what it tells as the
process ends. `Settings.inquiries` names those that are wanted, `entries.pyi` says where they are.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from mmulator.host import entries

if TYPE_CHECKING:
    from mmulator.host.report import Report
    from mmulator.host.settings import Settings
    from mmulator.runtime.launch.launch import How, Launch
    from mmulator.runtime.launch.observers import Observer

Arrays: TypeAlias = "Callable[[], Sequence[entries.DeviceArray]]"


@dataclass
class ProgramLaunch:
    """One launch of a program, as inquiries have it.

    launch, how: what runs, and how.
    settings: of the program.
    observers: of the launch; inquiries add theirs before it runs.
    known: gives what the door knows of arrays among the parameters.
    compiling: is called as the kernel is compiled.
    snapshot: of the memory before and after it, once somebody has wanted one (observation/record/launches/snapshot.py).
    """

    launch: Launch
    how: How
    settings: Settings
    observers: list[Observer]
    known: Arrays
    compiling: Any
    snapshot: Any = None

    def arrays(self) -> list[entries.DeviceArray]:
        """The arrays in the memory of the launch, those that the door knows among them."""
        return entries.device_arrays(self.launch, self.known())

    def run(self, *more: Observer) -> Report:
        """Run it, with more observers perhaps. Raises what the launch raises."""
        return cast("Report", self.launch.run(self.how, [*self.observers, *more], compiling=self.compiling))


class Inquiry:
    """The base of inquiries, which does nothing. each: whether launches under every seed are looked at, not just the first's."""

    each = False

    def begin(self, settings: Settings, listeners: list[Callable[[Report], object]]) -> None:
        """The process's driver is made. listeners: are called with the report of each launch."""

    def around(self, one: ProgramLaunch, run: Callable[[], Report]) -> Report:
        """The report of a launch, which `run` runs. Raises what the launch raises."""
        return run()


def say(text: str, end: str = "\n") -> None:
    """Write on standard error, if anybody reads it."""
    with suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(text + end)
        sys.stderr.flush()


class ProcessRecord:
    """The base of what a process gathers of its launches and tells as it ends. `with` it, a thread has it for itself; a forked
    child has one of its own, which is empty."""

    def __init__(self) -> None:
        self.process, self.lock = os.getpid(), threading.RLock()
        self.clear()
        atexit.register(self.end)

    def clear(self) -> None:
        """Begin with nothing."""

    def finish(self) -> None:
        """Tell, as the process ends."""

    def end(self) -> None:
        if self.process == os.getpid():
            self.finish()

    def __enter__(self) -> None:
        self.lock.acquire()
        if self.process != os.getpid():
            self.process = os.getpid()
            self.clear()

    def __exit__(self, *_: object) -> None:
        self.lock.release()
