"""The trace of a program that launches through a door: launches one after the other, each block a process of the trace."""

import atexit
import json
import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from mmulator import files
from mmulator.errors import LaunchError

VARIABLE = "MMULATOR_TRACES"  # the folder to which processes of `mmulator exec` write, and who reads it writes the trace
MOST = 1_000_000  # events of a trace; launches that come later are left out

Event = dict[str, Any]


class Timelines:
    """The launches of this process. file: where they are written as it ends."""

    def __init__(self, file: str) -> None:
        self.file, self.process, self.lock = file, os.getpid(), threading.Lock()
        self.launches: list[list[Event]] = []
        self.count = 0
        atexit.register(self.finish)

    def add(self, events: list[Event]) -> None:
        """Add a launch, if there is room."""
        with self.lock:
            if self.process != os.getpid():  # a forked child's are its own
                self.launches, self.count, self.process = [], 0, os.getpid()
            if self.count < MOST:
                self.launches.append(events)
                self.count += len(events)

    def flush(self) -> None:
        """Write now."""
        from mmulator.record.trace import write

        with self.lock:
            launches, self.launches, self.count = self.launches, [], 0
        if launches:
            write(self.file, [*joined(launches)])

    def finish(self) -> None:
        """Write, or pass on to who writes."""
        if not self.launches or self.process != os.getpid():
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
