"""Swizzles of shared memory: the XOR that wgmma and the tensor copies apply to absolute address bits.

Shared Memory Matrix Layout, Matrix Descriptor Format (PTX ISA 9.1); measured on an NVIDIA H200.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmulator.errors import OperandError


@dataclass(frozen=True)
class Swizzle:
    """One swizzling mode.

    name: `none`, `32B`, `64B` or `128B`.
    code: its value in a matrix descriptor.
    width: bytes of a row of its atom.

    The number of an address's 16-byte chunk is XORed with the number of its 128-byte line: address bits 4.. with bits 7.., as
    many as the mode has.
    """

    name: str
    code: int
    width: int

    @property
    def mask(self) -> int:
        return self.width // 16 - 1

    @property
    def repeat(self) -> int:
        """Bytes after which the pattern repeats. The pattern's base must be aligned to them, or base_offset gives the
        distance.
        """
        return 8 * self.width

    def __call__(self, address: Any, base_offset: int = 0) -> NDArray[np.int64]:
        """The swizzled place of the byte at `address` (integers, before swizzling). For base_offset 0 the function is its own
        inverse.
        """
        return self.place(np.asarray(address, np.int64), base_offset)

    def place(self, x: Any, base_offset: Any) -> Any:
        """The swizzled place of `x`, any object with an integer's operators: native code calls this function while it is
        compiled.
        """
        return x ^ ((((x >> 7) - base_offset) & self.mask) << 4)


NONE = Swizzle("none", 0, 16)
SWIZZLES: dict[str, Swizzle] = {
    s.name: s for s in (NONE, Swizzle("128B", 1, 128), Swizzle("64B", 2, 64), Swizzle("32B", 3, 32))
}
BY_CODE: dict[int, Swizzle] = {s.code: s for s in SWIZZLES.values()}


def swizzle(name: str) -> Swizzle:
    """The mode with this name. Raises OperandError for an unknown name."""
    found = SWIZZLES.get(name) if isinstance(name, str) else None
    if found is None:
        raise OperandError(f"no swizzling mode {name!r}", hint=f"known: {', '.join(SWIZZLES)}")
    return found
