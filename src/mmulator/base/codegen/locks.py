"""Locks and time limits of compilations: for several threads, for processes that fork, and for callers with a time limit."""

import gc
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager

no_fork = threading.RLock()
"""Held by whoever does what a child could not finish: work in LLVM, the import of modules. A fork waits for it."""

FOREVER = float("inf")


class _Limit(threading.local):
    deadline = FOREVER  # of this thread


_local = _Limit()


class TimeUp(Exception):
    """The time limit of this thread has passed. The code that set the limit catches it."""


@contextmanager
def time_limit(seconds: float | None) -> Iterator[None]:
    """A context in which this thread waits for locks and compilations at most a number of seconds in all; then TimeUp is
    raised.
    """
    before = _local.deadline
    after = before if seconds is None else min(before, time.monotonic() + seconds)
    _local.deadline = after
    try:
        yield
    finally:
        _local.deadline = before


def remaining() -> float | None:
    """Seconds that this thread may still wait; None without a limit. Raises TimeUp at 0."""
    deadline = _local.deadline
    if deadline == FOREVER:
        return None
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeUp
    return min(left, threading.TIMEOUT_MAX)


_paused: list[bool] = []  # whether Python's search for garbage is off for a moment


@contextmanager
def no_collection() -> Iterator[None]:
    """A context in which Python does not search for circles of garbage: many objects are made that stay, and each few hundred
    of them would start a search, a fifth of all time.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    _paused.append(True)
    try:
        yield
    finally:
        _paused.clear()
        gc.enable()


class _Held(threading.local):
    """Locks that a thread has acquired; after a fork, a new lock is used next."""

    def __init__(self) -> None:
        self.stack: list[threading.RLock] = []


class Lock:
    """A reentrant lock that obeys the thread's time limit, and that is free in a forked child.

    Data that it protects is written in one step at the end of the work, so that the child sees all of it or nothing.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._held = _Held()
        _locks.add(self)

    def __enter__(self) -> None:
        lock = self._lock
        left = None if _local.deadline == FOREVER else remaining()
        if not lock.acquire(timeout=-1 if left is None else left):
            raise TimeUp
        self._held.stack.append(lock)

    def __exit__(self, *exc: object) -> None:
        self._held.stack.pop().release()

    def renew(self) -> None:
        self._lock = threading.RLock()


_locks: weakref.WeakSet[Lock] = weakref.WeakSet()


def _in_child() -> None:
    """Replace all locks in a forked child, and search for garbage again: threads that held the locks do not exist there."""
    for lock in list(_locks):
        lock.renew()
    if _paused:
        _paused.clear()
        gc.enable()


def at_fork(**functions: Callable[[], object]) -> None:
    """os.register_at_fork, on systems whose processes fork."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(**functions)


at_fork(after_in_child=_in_child)
