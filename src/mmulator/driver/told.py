"""What a user sees of findings in a program that launches through a door: each once, when its launch is over, and a last line."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from contextlib import suppress
from functools import cache

from mmulator.demangle import demangle
from mmulator.errors import MmulatorError
from mmulator.findings import WIDTH, Finding, counted, paragraphs


class Told:
    """Paragraphs on standard error, and what it comes to as the process ends. launches: that were looked at."""

    def __init__(self) -> None:
        self.launches, self.process, self.lock = 0, os.getpid(), threading.Lock()
        self.found: dict[tuple[str, ...], Finding] = {}
        atexit.register(self.finish)

    def __call__(self, kernel: str, findings: tuple[Finding, ...], error: MmulatorError | None = None) -> None:
        with self.lock:
            if self.process != os.getpid():  # a forked child's are its own
                self.launches, self.found, self.process = 0, {}, os.getpid()
            self.launches += 1
            new = [f for f in findings if (kernel, *f.key) not in self.found]
            self.found |= {(kernel, *f.key): f for f in new}
        for lines in paragraphs(new, WIDTH):
            _say("\n".join([f"mmulator: {demangle(kernel)}:", *lines, ""]))

    def finish(self) -> None:
        if self.launches and self.process == os.getpid():
            _say(f"mmulator: {counted([*self.found.values()])}, in {self.launches:,} launch{'es' * (self.launches != 1)}")


def _say(text: str) -> None:
    with suppress(OSError, ValueError):  # nobody reads any more
        if sys.stderr is not None:
            sys.stderr.write(text + "\n")
            sys.stderr.flush()


@cache
def reader() -> Told:
    """One a process."""
    return Told()
