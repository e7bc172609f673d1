"""Elements of arguments that a launch watches, and the stores that it saw."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mmulator.errors import LaunchError
from mmulator.machine.launch.arguments import Arguments
from mmulator.machine.launch.shape import LaunchShape
from mmulator.machine.state import WATCH_LOG, Watch, WatchEntry
from mmulator.ptx.tree import Instruction

Watched = tuple[int, Any]  # number of an argument, and an index of one of its elements: a number or a tuple


@dataclass(frozen=True)
class Store:
    """A store to a watched element.

    argument, index: the element. block, thread: who stored, (x, y, z) each. instruction, file, line: of the PTX.
    value: the raw bits of the element after the store. source: the line that the PTX was compiled from, `mm.py:17`, or "".
    """

    argument: int
    index: tuple[int, ...]
    block: tuple[int, ...]
    thread: tuple[int, ...]
    instruction: str
    file: str
    line: int
    value: int
    source: str = ""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" + (f" ({self.source})" if self.source else "")
        return f"block {self.block}, thread {self.thread}: {self.instruction} at {place}, bits 0x{self.value:x}"


class Watches:
    """What is watched, as the machine reads it, and the log that it writes."""

    def __init__(self, watched: Sequence[Watched], args: Sequence[Any], arguments: Arguments) -> None:
        self.elements: list[tuple[int, tuple[int, ...]]] = []
        self.table = np.zeros(len(watched), Watch.numpy_dtype())
        self.log = np.zeros(WATCH_LOG, WatchEntry.numpy_dtype())
        for row, (number, index) in zip(self.table, watched):
            array = args[number] if isinstance(number, int) and 0 <= number < len(args) else None
            if not isinstance(array, np.ndarray):
                raise LaunchError(f"watch: argument {number} is no array")
            try:
                at = tuple(int(i) for i in (index if isinstance(index, tuple) else np.unravel_index(index, array.shape)))
                offset = int(np.ravel_multi_index(at, array.shape)) * array.itemsize
            except (ValueError, TypeError):
                raise LaunchError(f"watch: argument {number} of shape {array.shape} has no element {index}") from None
            if array.itemsize > 8:
                raise LaunchError(f"watch: elements of {array.itemsize} bytes; at most 8")
            place = array.ctypes.data
            buffer = next(b for b in arguments.buffers if b.array.ctypes.data == place and b.array.nbytes == array.nbytes)
            row["host"], row["start"] = place + offset, buffer.start + offset
            row["end"] = row["start"] + array.itemsize
            self.elements.append((number, at))

    def stores(self, seen: int, shape: LaunchShape, sites: Sequence[Instruction]) -> list[Store]:
        """`seen` stores in their order; of more than 4,096 the last ones."""
        (gx, gy, _), (bx, by, _) = shape.grid, shape.block
        found = []
        for n in range(max(0, seen - WATCH_LOG), seen):
            entry = self.log[n % WATCH_LOG]
            block, thread = int(entry["block"]), int(entry["thread"])
            ins = sites[int(entry["site"])]
            number, index = self.elements[int(entry["watch"])]
            found.append(
                Store(
                    number, index, (block % gx, block // gx % gy, block // (gx * gy)),
                    (thread % bx, thread // bx % by, thread // (bx * by)),
                    ins.mnemonic, ins.span.source.name, ins.span.line, int(entry["value"]), ins.span.brief,
                )
            )
        return found
