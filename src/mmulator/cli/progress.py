"""Progress of a command on standard error: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from typing import Any

_EVERY = 10  # seconds between lines where there is no bar


class Progress:
    """Shows how far a command is.

    quiet: print nothing.
    count: show numbers and the remaining time.
    once: elsewhere than on a terminal, a line when a phase is done instead of one every ten seconds.
    """

    def __init__(self, quiet: bool, count: bool = False, once: bool = False) -> None:
        self.quiet, self.count, self.once = quiet, count, once
        self._bar: Any = None
        self._label = ""
        self._task: Any = None
        self._said = time.monotonic()

    def __enter__(self) -> Progress:
        if not self.quiet and sys.stderr.isatty():
            from rich import progress
            from rich.console import Console

            numbers = (progress.MofNCompleteColumn(),) if self.count else ()
            left = (progress.TimeRemainingColumn(),) if self.count else ()
            self._bar = progress.Progress(
                progress.TextColumn("{task.description}"), progress.BarColumn(), *numbers, progress.TimeElapsedColumn(), *left,
                console=Console(stderr=True), transient=True,
            )  # fmt: skip
            self._bar.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, label: str, done: int, total: int | None) -> None:
        """Show that `done` of `total` of a phase is done; total: None if it is not known."""
        if self.quiet:
            return
        if self._bar is not None:
            if label != self._label:
                if self._task is not None:
                    self._bar.remove_task(self._task)
                self._label, self._task = label, self._bar.add_task(label, total=total)
            self._bar.update(self._task, completed=done, total=total)
        elif self.once and done == total and label != self._label:
            self._label = label
            self.say(f"{label}: {done}/{total}")
        elif not self.once and time.monotonic() - self._said > _EVERY:
            self._said = time.monotonic()
            self.say(f"{done}/{total} {label}")

    def say(self, text: str) -> None:
        """Print a line above the bar."""
        if self.quiet:
            return
        if self._bar is not None:
            self._bar.console.print(text, markup=False, highlight=False)
        else:
            print(text, file=sys.stderr, flush=True)
