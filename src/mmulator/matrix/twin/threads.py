"""Division of work among threads: native code that holds no interpreter lock, and scratch memory for each thread."""

import os
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache, partial
from time import perf_counter
from typing import Any

import numpy as np

from mmulator.base.codegen import loading
from mmulator.base.codegen.locks import at_fork
from mmulator.base.floating import in_plain_floats

CORES = os.cpu_count() or 1
_MACS_OF_A_THREAD = 1 << 18  # less is not worth a thread of its own


def worth(macs: int, most: int | None = None) -> int:
    """Number of threads that pay for a number of multiply-accumulates. most: greatest number, by default one for each core."""
    return max(1, min(most or CORES, macs // _MACS_OF_A_THREAD))


def shares(count: int, parts: int, unit: int = 1) -> list[tuple[int, int]]:
    """(first, size) of each part of `count` items, in whole units; at most `parts` parts."""
    size = max(1, -(-count // parts // unit) * unit)
    return [(first, min(size, count - first)) for first in range(0, count, size)]


def split(part: Callable[[int, int], None], count: int, threads: int) -> None:
    """Call `part(first, size)` for all of `count` items, on `threads` threads."""
    begun = perf_counter()
    if threads < 2:
        part(0, count)
        _ran(begun)
    else:
        together([partial(part, *share) for share in shares(count, threads)], threads)


def together(tasks: Sequence[Callable[[], object]], threads: int) -> None:
    """Run all tasks: in sequence, or on `threads` threads, one of which is the caller's."""
    waiting, begun = deque(tasks), perf_counter()

    def work() -> None:
        try:
            while (task := _next(waiting)) is not None:
                task()
        finally:
            waiting.clear()  # after a failure nothing is begun

    helpers = min(threads, len(tasks)) - 1
    others = [_pool(threads - 1).submit(_run, work) for _ in range(helpers)] if helpers > 0 else []
    try:
        work()
    finally:
        running = [other for other in others if not other.cancel()]  # not those that wait for somebody else's work
        wait(running)  # whatever has happened, memory of the tasks is in use until then
    for other in running:
        other.result()
    _ran(begun)


def _ran(begun: float) -> None:
    loading.ran(perf_counter() - begun)
    if not loading.patience():
        loading.improve()


def _next(waiting: deque[Callable[[], object]]) -> Callable[[], object] | None:
    try:
        return waiting.popleft()
    except IndexError:
        return None


@in_plain_floats
def _run(task: Callable[[], object]) -> None:
    """Run a task in a helper thread."""
    task()


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="mmulator")


at_fork(after_in_child=_pool.cache_clear)  # its threads do not exist there

_room = threading.local()


def room(size: int, which: str = "scratch") -> int:
    """Address of at least `size` bytes of this thread's scratch memory, a multiple of 64. which: names separate areas."""
    memory, length, address = getattr(_room, which, (None, 0, 0))
    if length < size:
        memory = np.empty(size + 64, np.uint8)
        address = (pointer(memory) + 63) & -64
        setattr(_room, which, (memory, size, address))
    return int(address)


def arranged(rooms: Mapping[str, int]) -> tuple[dict[str, int], int]:
    """(offset of each named room that is not empty, bytes of all): areas of scratch memory one after the other, 64 bytes or more
    behind the end of the last.

    rooms: bytes of each, by name; the first may have the name "".
    """
    offsets, end = {}, 0
    for name, size in rooms.items():
        if name and size:
            offsets[name] = end
        end += -(-(size + 64) // 64) * 64
    return offsets, end


def pointer(array: Any) -> int:
    """Address of an array's first byte."""
    return int(array.ctypes.data)
