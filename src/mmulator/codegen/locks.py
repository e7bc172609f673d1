"""Locks and time limits of compilations: for several threads, for processes that fork, and for callers with a time limit."""

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
    """The time limit of this thread has passed. The code that set the limit catches it."""


@contextmanager
def time_limit(seconds: float | None) -> Iterator[None]:
    """A context in which this thread waits for locks and compilations at most a number of seconds in all; then TimeUp is
    raised.
    """
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
    """Seconds that this thread may still wait; None without a limit. Raises TimeUp at 0."""
    deadline = _deadline()
    if deadline == float("inf"):
        return None
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeUp
    return min(left, threading.TIMEOUT_MAX)


class Lock:
    """A reentrant lock that obeys the thread's time limit, and that is free in a forked child.

    Data that it protects is written in one step at the end of the work, so that the child sees all of it or nothing.
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
        """The locks that this thread has acquired here; after a fork, a new lock is used next."""
        if not hasattr(self._held, "stack"):
            self._held.stack = []
        stack: list[threading.RLock] = self._held.stack
        return stack

    def renew(self) -> None:
        self._lock = threading.RLock()


_locks: weakref.WeakSet[Lock] = weakref.WeakSet()


def _in_child() -> None:
    """Replace all locks in a forked child: threads that held them do not exist there."""
    for lock in list(_locks):
        lock.renew()


os.register_at_fork(after_in_child=_in_child)
