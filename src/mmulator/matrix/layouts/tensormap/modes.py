"""Interleave, swizzle, L2 promotion and fill of tensor maps: names, numbers, and the bits that a swizzle exchanges.

Interleave layout; Swizzling Modes (PTX ISA 9.1). Names are those of the driver's enumerators.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mmulator.base.errors import OperandError, shown

INTERLEAVES: Mapping[str, int] = {"none": 0, "16B": 1, "32B": 2}
SLICES: Mapping[str, int] = {"16B": 16, "32B": 32}  # bytes of a slice of channels
PROMOTIONS: Mapping[str, int] = {"none": 0, "64B": 1, "128B": 2, "256B": 3}
FILLS: Mapping[str, int] = {"zero": 0, "nan": 1}


@dataclass(frozen=True)
class TensorSwizzle:
    """A swizzle of the tensor copies.

    name: as TensorMap takes it.
    mode, atomicity: numbers in the map.
    driver: number of the CUtensorMapSwizzle.
    width: greatest number of bytes in a row of the box; 0 for no limit.
    exchanges: (to, from, bits): address bits from `to` on are XORed with as many bits from `from` on.
    alignment: alignment of the shared memory at which the pattern starts.
    """

    name: str
    mode: int
    atomicity: int
    driver: int
    width: int
    exchanges: tuple[tuple[int, int, int], ...]
    alignment: int

    def __call__(self, address: Any) -> Any:
        """The place of a byte that would be at `address` without swizzling; the function is its own inverse.

        address: an integer, an array, or any object with an integer's operators.
        """
        swizzled = address
        for to, source, bits in self.exchanges:
            swizzled = swizzled ^ ((address >> source) & ((1 << bits) - 1)) << to
        return swizzled


NONE = TensorSwizzle("none", 0, 0, 0, 0, (), 16)
SWIZZLES: Mapping[str, TensorSwizzle] = {
    s.name: s
    for s in (
        NONE,
        TensorSwizzle("32B", 1, 0, 1, 32, ((4, 7, 1),), 256),
        TensorSwizzle("64B", 2, 0, 2, 64, ((4, 7, 2),), 512),
        TensorSwizzle("128B", 3, 0, 3, 128, ((4, 7, 3),), 1024),
        # sm_100 and later
        TensorSwizzle("128B_atom_32B", 3, 1, 4, 128, ((5, 7, 2),), 512),
        TensorSwizzle("128B_atom_32B_flip_8B", 3, 2, 5, 128, ((5, 7, 2), (3, 7, 1)), 512),
        TensorSwizzle("128B_atom_64B", 3, 3, 6, 128, ((6, 7, 1),), 256),
        TensorSwizzle("96B", 4, 0, 7, 96, ((4, 7, 1),), 256),
    )
}
BY_DRIVER: Mapping[int, str] = {s.driver: s.name for s in SWIZZLES.values()}  # names, by numbers of CUtensorMapSwizzle
BY_MODE: Mapping[tuple[int, int], TensorSwizzle] = {(s.mode, s.atomicity): s for s in SWIZZLES.values()}


def choose(parameter: str, value: object, known: Mapping[str, Any], rule: str) -> Any:
    """The entry of `known` with this name. Raises OperandError for an unknown name."""
    if not isinstance(value, str) or value not in known:
        raise OperandError(f"{parameter} is {shown(value)}: no such mode", rule=rule, hint=f"known: {', '.join(known)}")
    return known[value]
