"""Random words that are the same everywhere: NumPy promises the streams of its bit generators, not of its distributions.

A stream is named by a text and a seed; everything drawn from it follows from the Philox words alone.
"""

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

U32 = NDArray[np.uint32]
Int = NDArray[np.int32]


class RandomStream:
    """Draws from Philox4x64, keyed by the parts of a name (texts and integers)."""

    def __init__(self, *name: object) -> None:
        key = hashlib.blake2b("/".join(map(str, name)).encode(), digest_size=16).digest()
        self._generator = np.random.Philox(key=np.frombuffer(key, "<u8"))

    def words(self, *shape: int) -> U32:
        """Uniform 32-bit words."""
        count = int(np.prod(shape))
        raw: NDArray[np.uint64] = self._generator.random_raw(count + 1 >> 1).astype("<u8", copy=False)
        return raw.view("<u4")[:count].reshape(shape)

    def halves(self, *shape: int) -> NDArray[np.uint16]:
        """Uniform 16-bit words."""
        count = int(np.prod(shape))
        return self.words(count + 1 >> 1).view("<u2")[:count].reshape(shape)

    def doubles(self, *shape: int) -> NDArray[np.uint64]:
        """Uniform 64-bit words."""
        return self.words(int(np.prod(shape)) * 2).view("<u8").reshape(shape)

    def below(self, limit: int, *shape: int) -> Int:
        """Integers 0 <= x < limit (limit at most 65536), by multiply and shift of 16-bit words."""
        product = self.halves(*shape).astype(np.uint32) * np.uint32(limit) >> np.uint32(16)
        return product.astype(np.int32)

    def between(self, low: int, high: int, *shape: int) -> Int:
        """Integers low <= x <= high."""
        return self.below(high - low + 1, *shape) + np.int32(low)

    def chance(self, p: float, *shape: int) -> NDArray[np.bool_]:
        """True with probability p (to 1/65536)."""
        return self.halves(*shape) < np.uint16(min(65535, round(p * 65536)))

    def choice(self, values: Any, *shape: int) -> NDArray[Any]:
        """Uniform choice among a sequence of numbers."""
        table = np.asarray(values)
        return table[self.below(len(table), *shape)]

    def pick(self, values: Any) -> Any:
        """One element of a sequence."""
        return values[int(self.below(len(values), 1)[0])]
