"""A clock for programs that measure: how long counted work would take a chip, roughly.

Nothing here says how fast a GPU is. The figure grows with the instructions and multiply-accumulates that a kernel executes,
and is the same each time, so that an autotuner chooses the same configuration on each machine.
"""

from __future__ import annotations

LAUNCH = 2e-6  # seconds that a launch takes, whatever it does
WARP_INSTRUCTIONS = 4 * 132 * 1.5e9  # a second: four schedulers a multiprocessor
MACS = 132 * 4096 * 1.5e9  # a second, of matrix instructions


def seconds(instructions: int, macs: int) -> float:
    """Of one launch. instructions: executed by warps."""
    return LAUNCH + instructions / WARP_INSTRUCTIONS + macs / MACS
