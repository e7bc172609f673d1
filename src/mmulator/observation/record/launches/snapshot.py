"""One launch of a program as data: the memory that it found, which bytes it read and wrote, and what it left.

Inquiries that want it (capture.py, replay.py, rejections.py) say what becomes of it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from mmulator.base.errors import ExecutionFault
from mmulator.base.lazy import cached_property
from mmulator.host.driver.inquiries import Inquiry, ProgramLaunch
from mmulator.host.report import Report
from mmulator.observation.record.names import DeviceArray
from mmulator.ptx.program.addresses import SLOT_SHIFT
from mmulator.runtime.launch.arena import bytes_at
from mmulator.runtime.launch.launch import Launch
from mmulator.sanitizer.diagnostics.touched import Touched

WORD = 8


@dataclass
class MemorySnapshot:
    """Memory of a launch.

    name: a variable's name, or how messages call the memory.
    start: generic address of its first byte.
    live: its bytes, uint8.
    is_variable: it belongs to the module.
    read, written: a bool for each byte; None: of no byte.
    """

    name: str
    start: int
    live: np.ndarray
    is_variable: bool
    read: np.ndarray | None = None
    written: np.ndarray | None = None

    def __post_init__(self) -> None:
        self.before = self.live.copy()

    @property
    def end(self) -> int:
        return self.start + len(self.live)

    @property
    def touched(self) -> bool:
        return self.read is not None or self.written is not None


class LaunchSnapshot:
    """A launch and its memory, from before it runs.

    launch, seed: what ran, and the seed of the scheduler's choices.
    arrays: what is known of arrays among its memory.
    pieces: the memory that it may touch, in the order of their addresses.
    touched: the observer that notes bytes.
    """

    def __init__(self, launch: Launch, seed: int, arrays: Sequence[DeviceArray]) -> None:
        self.launch, self.seed, self.arrays = launch, seed, arrays
        self.kernel, arguments = launch.kernel, launch.arguments
        image = self.kernel.module.image
        self.pieces = [MemorySnapshot(name, image.addresses[name], image.bytes_of(name), True) for name in image.addresses]
        given = (*arguments.buffers, *arguments.regions)
        self.pieces += [MemorySnapshot(r.label, r.start, bytes_at(r.host, r.size), False) for r in given if r.size]
        self.pieces.sort(key=lambda p: p.start)
        self._open = self.pieces  # of which it is not noted yet
        self._windows, size = _windows(self.pieces)
        self.touched = Touched(self._windows, size)

    def over(self) -> None:
        """Note what was touched, when the launch is over; once."""
        pieces, self._open = self._open, []
        for p in pieces:
            start, _, first = next(w for w in reversed(self._windows) if w[0] <= p.start)
            at = first + p.start - start
            p.read, p.written = (_bits(bitmap, at, len(p.live)) for bitmap in (self.touched.read, self.touched.written))

    def at(self, address: int) -> MemorySnapshot | None:
        """The memory at an address."""
        return next((p for p in self.pieces if p.start <= address < p.end), None)

    @cached_property
    def pointers(self) -> list[int]:
        """Words of the parameters that lead to memory, in order."""
        params = self.launch.arguments.params
        words = params[: len(params) // WORD * WORD].view(np.uint64)
        return [int(w) for w in words if self.at(int(w)) is not None]


Take = Callable[[LaunchSnapshot, "BaseException | None"], None]


class SnapshotInquiry(Inquiry):
    """The base of inquiries that get the snapshot of a launch when it is over. All of one launch get the same."""

    def sink(self, one: ProgramLaunch) -> Take | None:
        """The function that gets the snapshot, and what ended the launch; None: this launch is not wanted."""
        raise NotImplementedError

    def around(self, one: ProgramLaunch, run: Callable[[], Report]) -> Report:
        """Run a launch on one thread, and hand its snapshot over."""
        take = self.sink(one)
        if take is None:
            return run()
        if one.snapshot is None:
            one.snapshot = LaunchSnapshot(one.launch, one.how.seed, one.arrays())
            one.observers.append(one.snapshot.touched)
            one.how.threads = 1
        error: BaseException | None = None
        try:
            return run()
        except (ExecutionFault, KeyboardInterrupt) as stop:
            error = stop
            raise
        finally:
            one.snapshot.over()
            take(one.snapshot, error)


def _windows(pieces: Sequence[MemorySnapshot]) -> tuple[list[tuple[int, int, int]], int]:
    """(address, bytes, number of the first byte) of stretches of addresses that hold all pieces, and the bytes of all. No two
    have a slot (4 GiB) in common."""
    found: list[tuple[int, int, int]] = []
    for p in pieces:
        if found and p.start >> SLOT_SHIFT <= (sum(found[-1][:2]) - 1) >> SLOT_SHIFT:
            start, _, first = found.pop()
        else:
            start, first = p.start, sum(found[-1][1:]) if found else 0
        found.append((start, p.end - start, first))
    return found, sum(found[-1][1:]) if found else 0


def _bits(bitmap: np.ndarray, at: int, count: int) -> np.ndarray | None:
    """Bits of a bitmap as bools; None if none is set."""
    raw = bitmap.view(np.uint8)[at // 8 : (at + count + 7) // 8]
    found = np.unpackbits(raw, bitorder="little")[at % 8 :][:count].view(bool) if raw.any() else np.zeros(0, bool)
    return found if found.any() else None
