"""Counts of what a launch executed, and what follows from them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np

from mmulator.runtime.compiled import CompiledKernel


class Work:
    """Sums of what a launch executed, made when they are asked for: few launches are. counts: executions of each block of code
    (`blocks`); then TALLIES of tcgen05.mma, if the kernel has it.
    """

    def __init__(self, kernel: CompiledKernel, counts: np.ndarray) -> None:
        blocks = len(kernel.code)
        self.blocks, self.tallies, self._classes = counts[:blocks], counts[blocks:], kernel.classes
        self._weights, self._macs = kernel.block_instructions, kernel.matrix_blocks

    def same(self, other: Work) -> bool:
        """Whether it is the same work of the same kernel."""
        alike = self.blocks.tobytes() == other.blocks.tobytes() and self.tallies.tobytes() == other.tallies.tobytes()
        return self._classes is other._classes and alike

    @property
    def total(self) -> int:
        """Warp instructions."""
        return int(self.blocks @ self._weights)

    @property
    def instructions(self) -> dict[str, int]:
        return class_totals(self.blocks.tolist(), self._classes)

    @property
    def macs(self) -> int:
        return sum(int(self.blocks[n]) * macs for n, macs in self._macs) + int(self.tallies[:1].sum())


def class_totals(counts: Iterable[int], classes: Iterable[Counter[str]]) -> dict[str, int]:
    """Executed warp instructions by class, most frequent first, of blocks of code: executions and instructions by class."""
    total: Counter[str] = Counter()
    for executed, of_block in zip(counts, classes):
        if executed:
            for name, number in of_block.items():
                total[name] += int(executed) * number
    return dict(total.most_common())
