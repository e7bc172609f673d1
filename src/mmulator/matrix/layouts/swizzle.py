"""Swizzles of shared memory: the XOR that wgmma, tcgen05 and the tensor copies apply to absolute address bits.

Shared Memory Matrix Layout, Matrix Descriptor Format (PTX ISA 9.1); measured on an NVIDIA H200. The swizzle with atoms of 32
bytes is tcgen05's alone: CUTLASS, mma_traits_sm100.hpp.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmulator.base.errors import OperandError


@dataclass(frozen=True)
class Swizzle:
    """One swizzling mode.

    name: `none`, `32B`, `64B`, `128B` or `128B_atom_32B`.
    code: its number; the value in a matrix descriptor of wgmma.
    width: bytes of a row of its atom.
    unit: bytes of a chunk, which moves as a whole.

    The number of an address's chunk is XORed with the number of its 128-byte line: address bits 4.. (chunks of 16 bytes) or 5..
    with bits 7.., as many as the mode has.
    """

    name: str
    code: int
    width: int
    unit: int = 16

    @property
    def mask(self) -> int:
        return self.width // self.unit - 1

    @property
    def lines(self) -> int:
        """Rows of the mode's atom."""
        return 128 // self.unit

    @property
    def repeat(self) -> int:
        """Bytes after which the pattern repeats. The pattern's base must be aligned to them, or base_offset gives the
        distance.
        """
        return self.lines * self.width

    def __call__(self, address: Any, base_offset: int = 0) -> NDArray[np.int64]:
        """The swizzled place of the byte at `address` (integers, before swizzling). For base_offset 0 the function is its own
        inverse.
        """
        return self.place(np.asarray(address, np.int64), base_offset)

    def place(self, x: Any, base_offset: Any) -> Any:
        """The swizzled place of `x`, any object with an integer's operators: native code calls this function while it is
        compiled.
        """
        return x ^ ((((x >> 7) - base_offset) * self.unit) & (self.width - self.unit))


NONE = Swizzle("none", 0, 16)
SWIZZLES: dict[str, Swizzle] = {s.name: s for s in (NONE, Swizzle("128B", 1, 128), Swizzle("64B", 2, 64), Swizzle("32B", 3, 32))}
ATOM_32B = Swizzle("128B_atom_32B", 4, 128, 32)
SWIZZLES5: dict[str, Swizzle] = SWIZZLES | {ATOM_32B.name: ATOM_32B}  # modes of tcgen05
BY_CODE: dict[int, Swizzle] = {s.code: s for s in SWIZZLES5.values()}


def swizzle(name: str, known: Mapping[str, Swizzle] = SWIZZLES) -> Swizzle:
    """The mode with this name. Raises OperandError for an unknown name.

    known: modes of an instruction, by name.
    """
    found = known.get(name) if isinstance(name, str) else None
    if found is None:
        raise OperandError(f"no swizzling mode {name!r}", hint=f"known: {', '.join(known)}")
    return found
