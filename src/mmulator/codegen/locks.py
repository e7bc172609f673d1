"""Locks and time limits of whatever compiles: for several threads, for processes that fork, for callers in a hurry."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

no_fork = threading.RLock()
"""Held by whoever does what a child could not finish: work in LLVM, the import of modules. A fork waits for it."""

_local = threading.local()


class TimeUp(Exception):
    """The time limit of this thread has passed. Whoever set the limit catches it."""


@contextmanager
def time_limit(seconds: float | None) -> Iterator[None]:
    """Within, this thread waits for locks and compilations no longer than so many seconds in all; then TimeUp."""
    before = _deadline()
    after = before if seconds is None else min(before, time.monotonic() + seconds)
    _local.deadline = after
    try:
        yield
    finally:
        _local.deadline = before


def _deadline() -> float:
    return float(getattr(_local, "deadline", float("inf")))


def remaining() -> float | None:
    """Seconds that are left to this thread; None for all the time in the world. Raises TimeUp when none are."""
    deadline = _deadline()
    if deadline == float("inf"):
        return None
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeUp
    return min(left, threading.TIMEOUT_MAX)


class Lock:
    """A reentrant lock that obeys the thread's time limit, and that a forked child finds open.

    What it guards is written in one step at the end of the work, so the child sees it whole or not at all.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._held = threading.local()
        _locks.add(self)

    def __enter__(self) -> None:
        lock = self._lock
        left = remaining()
        if not lock.acquire(timeout=-1 if left is None else left):
            raise TimeUp
        self._stack().append(lock)

    def __exit__(self, *exc: object) -> None:
        self._stack().pop().release()

    def _stack(self) -> list[threading.RLock]:
        """The locks that this thread has taken here: after a fork, not the one that is taken next."""
        if not hasattr(self._held, "stack"):
            self._held.stack = []
        stack: list[threading.RLock] = self._held.stack
        return stack

    def renew(self) -> None:
        self._lock = threading.RLock()


_locks: weakref.WeakSet[Lock] = weakref.WeakSet()


def _in_child() -> None:
    """Threads that held a lock do not exist here."""
    for lock in list(_locks):
        lock.renew()


os.register_at_fork(after_in_child=_in_child)
