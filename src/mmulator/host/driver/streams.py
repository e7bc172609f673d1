"""Streams and events. A launch is over when the call returns, so a stream is a name and a clock that counts work.

Nothing here says how fast a GPU is. The figure is a pure function of a launch and of what its warps executed: it grows with
instructions and multiply-accumulates over the waves of blocks, and is the same each time and on each machine, so that an
autotuner chooses the same configuration everywhere.
"""

from __future__ import annotations

from contextvars import ContextVar
from itertools import count
from typing import TYPE_CHECKING, Any

from mmulator.host.driver.chips import CHIPS, DeviceProperties
from mmulator.runtime.launch.limits import held_by

if TYPE_CHECKING:
    from mmulator.host.report import Report

MOST = 64  # launches that are remembered until they are reckoned
ordering: list[Any] = []  # of a sanitized program: its order, which hears of streams, events, copies and memory
_numbers = count(0x5EA0_0010, 16)  # handles: 0 to 2 are CUDA's names of default streams


class Finished:
    """A stream or an event for whoever waits for it: all work is done when the call returns that submits it."""

    def query(self) -> bool:
        return True

    done = property(query)

    def synchronize(self) -> None:
        """Everything is done already."""


class Stream(Finished):
    """Operations in the order they are submitted. handle: what programs pass around, 0 for the default stream.
    seconds: that the work so far would have taken (`seconds`), reckoned when somebody asks. blocks: it and the legacy default
    stream wait for each other."""

    def __init__(self, handle: int | None = None, blocks: bool = True) -> None:
        self.blocks = blocks
        self.handle = next(_numbers) if handle is None else handle
        self._seconds = 0.0
        self._launches: list[tuple[Report, int]] = []  # that are not in it yet, and how often

    @property
    def seconds(self) -> float:
        launches, self._launches = self._launches, []
        self._seconds += sum(seconds(report) * times for report, times in launches)
        return self._seconds

    @seconds.setter
    def seconds(self, value: float) -> None:
        self._launches, self._seconds = [], value

    def add(self, report: Report) -> None:
        """A launch. Programs do the same again and again, which is reckoned once."""
        if self._launches and report.same_work(self._launches[-1][0]):
            same, times = self._launches[-1]
            self._launches[-1] = same, times + 1
            return
        self._launches.append((report, 1))
        if len(self._launches) > MOST:
            self._seconds = self.seconds

    def wait(self, event: Event) -> None:
        """Later work begins when an event has happened; an event that was never recorded has."""
        self.seconds = max(self.seconds, event.at or 0.0)
        if ordering:
            ordering[-1].wait(self, event)

    def query(self) -> bool:
        self.synchronize()
        return True

    def synchronize(self) -> None:
        if ordering:
            ordering[-1].synchronize(self)


class Event:
    """A place on a stream's clock."""

    def __init__(self) -> None:
        self.handle = next(_numbers)
        self.at: float | None = None

    def record(self, stream: Stream) -> None:
        self.at = stream.seconds
        if ordering:
            ordering[-1].record(self, stream)

    def synchronize(self) -> None:
        """The host waits for it; it has happened."""
        if ordering:
            ordering[-1].known(self)

    def elapsed(self, later: Event) -> float:
        """Milliseconds of counted work between two events that were recorded."""
        if self.at is None or later.at is None:
            raise ValueError("both events must be recorded before the time between them is asked for")
        return (later.at - self.at) * 1e3


measuring: ContextVar[bool] = ContextVar("measuring", default=False)
"""Whether launches are made for this clock alone: nobody reads what they leave, so a sample of their blocks will do."""

LAUNCH = 2e-6  # seconds that a launch takes, whatever it does
SCHEDULERS = 4  # of a multiprocessor: each issues an instruction a cycle
DEPENDENT = 4  # cycles from an instruction to one of the same warp that needs its result
# Cycles of a scheduler for an instruction of a warp, by the classes of reports; one where the table says nothing.
CYCLES = {"memory": 4, "cp.async": 4, "matrix move": 4, "wmma.load": 8, "wmma.store": 8, "atomic": 8, "barrier": 8}


# Dense f16 multiply-accumulates of a multiprocessor a cycle (data sheets).
MACS = {
    "sm_70": 512, "sm_72": 512, "sm_75": 512, "sm_80": 1024, "sm_86": 512, "sm_87": 1024, "sm_89": 512, "sm_90": 2048,
    "sm_100": 4096, "sm_103": 4096, "sm_107": 4096, "sm_110": 4096, "sm_120": 512, "sm_121": 512,
}  # fmt: skip


def blocks_per_multiprocessor(chip: DeviceProperties, threads: int, shared: int) -> int:
    """How many blocks of so many threads and bytes of shared memory a multiprocessor holds at once, registers aside."""
    return max(1, min(held_by(chip.name, threads, shared).values()))


def seconds(report: Report) -> float:
    """Seconds that a GPU would take for one launch, from its report."""
    chip, grid = CHIPS[report.device], report.grid
    blocks = grid[0] * grid[1] * grid[2]
    threads = report.block[0] * report.block[1] * report.block[2]
    warps = -(-threads // 32)
    held = blocks_per_multiprocessor(chip, threads, report.shared)
    issue = sum(n * CYCLES.get(name, 1) for name, n in report.instructions.items()) / blocks  # of a block
    waves, rest = divmod(blocks, chip.multiprocessors * held)

    def wave(of_one: int) -> float:
        """Cycles in which a multiprocessor works on so many blocks: one warp alone waits for its own results."""
        issued = max(of_one * issue / SCHEDULERS, issue / warps * DEPENDENT)
        return max(issued, of_one * report.macs / blocks / MACS[chip.name])

    cycles = waves * wave(held) + (wave(-(-rest // chip.multiprocessors)) if rest else 0.0)
    return LAUNCH + cycles / (chip.clock * 1e3)


def seconds_of_library(device: str, macs: float) -> float:
    """Seconds that a GPU would take for a library's function with so many multiply-accumulates of f16. device: as "sm_90"."""
    chip = CHIPS[device]
    return LAUNCH + macs / (MACS[chip.name] * chip.multiprocessors * chip.clock * 1e3)
