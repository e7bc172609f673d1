"""Substitutes that run in place of kernels, in this process: for who tries whether tests notice another kernel.

Every launch of a module's kernel comes by (`Kernel.run`), of `mm.Module` and of all doors, from a graph or for the first time.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from mmulator.runtime.launch.launch import How, Launch
from mmulator.runtime.launch.observers import Observer

Instead = Callable[[Launch, How, Sequence[Observer]], Any]  # gives the report of the launch
stack: list[Instead] = []  # the last one counts


@contextmanager
def instead(run: Instead) -> Iterator[None]:
    """Within, `run` is called for every launch. It calls `Kernel.run_itself` of the kernel that it wants."""
    stack.append(run)
    try:
        yield
    finally:
        stack.remove(run)
