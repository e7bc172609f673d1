"""The trace of a program that launches through a door: launches one after the other, each block a process of the trace."""

import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from mmulator.base import files
from mmulator.base.errors import LaunchError
from mmulator.host.driver.inquiries import Inquiry, ProcessRecord, ProgramLaunch
from mmulator.host.report import Report

VARIABLE = "MMULATOR_TRACES"  # the folder to which processes of `mmulator exec` write, and who reads it writes the trace
MOST = 1_000_000  # events of a trace; launches that come later are left out

Event = dict[str, Any]


class Timelines(ProcessRecord):
    """The launches of this process. file: where they are written as it ends."""

    def __init__(self, file: str) -> None:
        self.file = file
        super().__init__()

    def clear(self) -> None:
        self.launches: list[list[Event]] = []
        self.count = 0

    def add(self, events: list[Event]) -> None:
        """Add a launch, if there is room."""
        with self:
            if self.count < MOST:
                self.launches.append(events)
                self.count += len(events)

    def flush(self) -> None:
        """Write now."""
        from mmulator.observation.record.trace import write

        with self.lock:
            launches = self.launches
            self.clear()
        if launches:
            write(self.file, [*joined(launches)])

    def finish(self) -> None:
        """Write, or pass on to who writes."""
        if not self.launches:
            return
        folder = os.environ.get(VARIABLE)
        if folder is None:
            self.flush()
            return
        files.append(Path(folder, f"trace-{os.getpid()}.json"), json.dumps(self.launches).encode(), LaunchError)


def joined(launches: Iterable[list[Event]]) -> Iterator[Event]:
    """The events of all launches, with numbers of processes and flows that no two launches share."""
    first = 0
    for number, events in enumerate(launches, 1):
        most = 0
        for event in events:
            most = max(most, event["pid"] + 1)
            found = {**event, "pid": event["pid"] + first}
            if event["ph"] == "M" and event["name"] == "process_name":
                found["args"] = {"name": f"launch {number}: {event['args']['name']}"}
            elif event["ph"] in "sfbe":
                found["id"] = f"{number}.{event['id']}"
            yield found
        first += most


def read(folder: str | Path) -> list[list[Event]]:
    """The launches that processes wrote into a folder, in the order in which the processes ended."""
    files = sorted(Path(folder).glob("trace-*.json"), key=lambda file: file.stat().st_mtime_ns)
    found: list[list[Event]] = []
    for file in files:
        with suppress(ValueError):  # the process was killed as it wrote
            found += json.loads(file.read_text(encoding="utf-8"))
    return found


@cache
def traces(file: str) -> Timelines:
    """The launches of this process that `Settings.trace` asks for."""
    return Timelines(file)


class TraceInquiry(Inquiry):
    """The wish for what happened when: `Settings.trace`."""

    each = True

    def around(self, one: ProgramLaunch, run: Callable[[], Report]) -> Report:
        try:
            return run()
        finally:
            traces(one.settings.trace).add(next(o.events for o in one.observers if hasattr(o, "events")))


TRACE = TraceInquiry()
