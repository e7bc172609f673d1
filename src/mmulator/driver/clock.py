"""A clock for programs that measure: how long counted work would take a chip, roughly.

Nothing here says how fast a GPU is. The figure is a pure function of a launch and of what its warps executed: it grows with
instructions and multiply-accumulates over the waves of blocks, and is the same each time and on each machine, so that an
autotuner chooses the same configuration everywhere.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING

from mmulator.driver.chips import CHIPS, DeviceProperties
from mmulator.launch.limits import held_by

if TYPE_CHECKING:
    from mmulator.host.report import Report

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
