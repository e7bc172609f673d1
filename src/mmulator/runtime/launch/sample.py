"""A sample of the clusters of a launch, for who wants to know what the launch costs and not what it leaves: an autotuner.

It is evenly spread, so that it has its part of all that blocks do in turn. The first and the last cluster are in it: accesses
out of bounds are mostly theirs.
"""

import numpy as np

from mmulator.base.classes import dataclass
from mmulator.runtime.compiled import CompiledKernel
from mmulator.runtime.launch.shape import LaunchShape

OF, LEAST = 32, 264  # one of so many runs, and at least so many: two for each multiprocessor of an H100
_GOLDEN = 0x9E3779B97F4A7C15  # of 2**64


def numbers(clusters: int) -> np.ndarray | None:
    """Numbers of the clusters that run, ascending, one of each piece of the launch. None: all run."""
    count = max(clusters // OF, LEAST)
    if clusters < 2 * count:
        return None
    n = np.arange(count, dtype=np.uint64)
    first, end = n * np.uint64(clusters) // np.uint64(count), (n + np.uint64(1)) * np.uint64(clusters) // np.uint64(count)
    place = n * np.uint64(_GOLDEN) >> np.uint64(32)  # in a piece, in units of 2**-32
    found = first + ((end - first) * place >> np.uint64(32))
    found[-1] = clusters - 1
    return found


@dataclass(frozen=True)
class Sample:
    """numbers: of the clusters that run. clusters: of the launch."""

    numbers: np.ndarray
    clusters: int

    def scaled(self, counts: np.ndarray) -> np.ndarray:
        """Counts as if all clusters had run."""
        found: np.ndarray = np.rint(counts * (self.clusters / len(self.numbers))).astype(np.uint64)
        return found


def of_launch(kernel: CompiledKernel, shape: LaunchShape) -> Sample | None:
    """The sample of a launch; None if all clusters run: there are few, or one may wait for another."""
    if shape.cooperative or kernel.prints or not kernel.facts.independent:
        return None
    found = numbers(shape.clusters)
    return None if found is None else Sample(found, shape.clusters)
