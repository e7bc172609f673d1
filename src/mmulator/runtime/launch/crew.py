"""Threads of the host that wait for work between launches: to start one takes longer than many a launch."""

import threading
from collections.abc import Callable
from queue import SimpleQueue

from mmulator.base.codegen.locks import at_fork

Work = Callable[[], None]
MOST = 64  # that wait

_idle: list[SimpleQueue[Work]] = []  # a thread each


def call(work: Work) -> None:
    """`work()`, which raises nothing, in a thread."""
    try:
        queue = _idle.pop()
    except IndexError:
        queue = SimpleQueue()
        threading.Thread(target=_serve, args=(queue,), name="mmulator", daemon=True).start()
    queue.put(work)


def _serve(queue: SimpleQueue[Work]) -> None:
    while len(_idle) < MOST:
        queue.get()()
        _idle.append(queue)


at_fork(after_in_child=_idle.clear)  # a child has no threads
