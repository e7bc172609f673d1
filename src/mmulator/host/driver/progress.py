"""How far a launch is: a bar on a terminal for one that takes long, and where its warps are when a signal asks.

SIGUSR1 asks at any time; SIGQUIT (Ctrl-\\ on a terminal) while a launch runs that takes long. The launch goes on.
"""

from __future__ import annotations

import signal
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

from mmulator.base.demangle import demangle
from mmulator.base.names import shorter
from mmulator.host.driver.inquiries import say

PATIENCE = 2.0  # seconds that a launch takes without a word
_EVERY, _EVERY_LINE = 0.2, 10.0  # seconds between two states of the bar, and between lines where there is none
WIDTH = 80
_PARTS = 20  # of the bar


class ProgressSink(Protocol):
    """Where a bar is drawn. room: columns that it may have; none where nobody looks."""

    def room(self) -> int: ...
    def draw(self, text: str) -> None: ...
    def clear(self) -> None: ...


class ProgressScreen:
    """Standard error: the bar has a line of its own, which is empty again behind it."""

    def room(self) -> int:
        try:
            return WIDTH - 1 if sys.stderr is not None and sys.stderr.isatty() else 0
        except ValueError:  # it is closed
            return 0

    def draw(self, text: str) -> None:
        say(f"\r{text}\x1b[K", "")

    def clear(self) -> None:
        say("\r\x1b[K", "")


sink: list[ProgressSink] = [ProgressScreen()]  # the last one is used
_asked = 0  # signals so far
_running: list[Launching] = []


def clock(seconds: float) -> str:
    """`0:24`, `1:02:03`."""
    minutes, rest = divmod(int(seconds + 0.5), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class Launching:
    """One launch. kernel: its name. mode: of `Settings.progress`. done, total: blocks, or while it is compiled instructions."""

    def __init__(self, kernel: str, mode: str) -> None:
        self.kernel, self.mode, self.what = kernel, mode, "blocks"
        self.done, self.total = 0, 0
        self.begin = self.started = time.monotonic()
        self.next, self.answered, self.drawn = self.begin + PATIENCE, _asked, False
        self.before: Any = None  # who had SIGQUIT
        _running.append(self)

    def compiled(self, phase: str, done: int, total: int) -> None:
        """So many of the kernel's instructions are compiled."""
        self.what, self.done, self.total = "instructions compiled", done, total
        self.look(lambda: f"{done} of {total} instructions are compiled")

    def explored(self, done: int, total: int, what: str = "interleavings") -> None:
        """So many interleavings of about so many have been run, for a certificate, or lines left out."""
        self.what, self.done, self.total = what, done, total
        self.look(lambda: f"{done} of about {total} {what}")

    def counted(self, done: int, total: int) -> None:
        """So many blocks are done; called by any thread, first when the kernel is compiled and its blocks begin."""
        if self.what != "blocks":
            self.what, self.started = "blocks", time.monotonic()
        self.done, self.total = done, total

    def look(self, where: Callable[[], str]) -> None:
        """Called every few milliseconds by the thread that launched. where: says where its warps are."""
        if self.answered != _asked:
            self.answered = _asked
            self._tell(where)
        now = time.monotonic()
        if now < self.next:
            return
        if self.before is None:
            self.before = _take(signal.SIGQUIT) or False
        room = sink[-1].room() if self.mode != "never" else 0
        self.next = now + (_EVERY if room or self.mode != "always" else _EVERY_LINE)
        if room:
            sink[-1].draw(self.text(now, room))
            self.drawn = True
        elif self.mode == "always":
            say(f"mmulator: {self.text(now, WIDTH, bar=False)}")

    def text(self, now: float, room: int, bar: bool = True) -> str:
        """`mm_ 1701/4096 blocks [########            ] 0:24 left`"""
        took, share = now - self.started, self.done / self.total if self.total else 0.0
        left = f"{clock(took / share - took)} left" if share > 0.02 else clock(now - self.begin)
        count = f"{self.done}/{self.total} {self.what}" if self.total else "runs"
        parts = round(share * _PARTS)
        middle = f" [{'#' * parts}{' ' * (_PARTS - parts)}] " if bar and room >= 70 else ", "
        rest = f" {count}{middle}{left}"
        name = demangle(self.kernel)
        most = max(room - len(rest), 8)
        return ((name if len(name) <= most else name[: most - 3] + "...") + rest)[:room]

    def _tell(self, where: Callable[[], str]) -> None:
        if self.drawn:
            sink[-1].clear()
        try:
            told = where()
        except Exception:  # warps go on meanwhile, and what is read of them need not fit together
            told = f"{self.done} of {self.total} {self.what}"
        text = f"mmulator: {shorter(demangle(self.kernel), 2 * WIDTH)}, {clock(time.monotonic() - self.begin)}: {told}"
        say("\n".join(textwrap.wrap(text, WIDTH, subsequent_indent="  ", break_on_hyphens=False, break_long_words=False)))

    def close(self) -> None:
        """The launch is over."""
        _running.remove(self)
        if self.drawn:
            sink[-1].clear()
        if self.before:
            with suppress(ValueError):
                signal.signal(signal.SIGQUIT, signal.SIG_DFL)


def _ask(number: int, frame: object) -> None:
    global _asked
    _asked += 1
    if not _running:
        say("mmulator: no launch is running")


def _take(number: int) -> bool:
    """Whether a signal asks from now on; one that the program uses stays the program's, and only the main thread may say."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(number) is not signal.SIG_DFL:
        return False
    with suppress(ValueError, OSError):
        signal.signal(number, _ask)
        return True
    return False


def listen() -> None:
    """SIGUSR1 asks in this process, unless the program has it. Called again behind compilers of others: their LLVM takes the
    signal for itself, of which Python does not know.
    """
    if signal.getsignal(signal.SIGUSR1) is not _ask:
        _take(signal.SIGUSR1)
    elif threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGUSR1, _ask)
