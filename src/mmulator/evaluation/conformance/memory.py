"""Images of shared memory for wgmma: descriptors of every kind, and matrices put where they point."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmulator.evaluation.conformance.stream import RandomStream
from mmulator.isa.types import ElementType
from mmulator.matrix.layouts import MatrixDescriptor, operand_addresses

Array = NDArray[Any]
SWIZZLES = ("none", "32B", "64B", "128B")
_LINE = 1024  # the pattern of the widest swizzle repeats after so many bytes


@dataclass(frozen=True)
class OperandPlace:
    """A matrix operand in shared memory.

    rows: M or N.
    columns: along k, compressed for sparse A.
    mn_major: m or n is contiguous.
    first: its first byte.
    room: bytes it may take.
    """

    rows: int
    columns: int
    element: ElementType
    mn_major: bool
    first: int
    room: int

    def addresses(self, d: MatrixDescriptor) -> NDArray[np.int64]:
        return operand_addresses(d, self.rows, self.columns, self.element.bits, self.mn_major)

    def fits(self, d: MatrixDescriptor) -> bool:
        at = self.addresses(d)
        return bool(at.min() >= 0 and at.max() + max(1, self.element.bits // 8) <= self.first + self.room)


def room_for(rows: int, columns: int, element: ElementType) -> int:
    """Bytes for an operand in any layout: lines of the widest swizzle, and 1024 bytes to move in."""
    lines = -(-rows // 8) * 8
    if element.bits == 16:  # may be MN-major: a line for every 64 of the rows, in every column
        lines = max(lines, -(-rows // 64) * columns)
    return lines * 128 + _LINE


def descriptor(s: RandomStream, place: OperandPlace, swizzle: str, odd: bool, leading: int | None = None) -> MatrixDescriptor:
    """A descriptor for a place: as a kernel would write it, or odd (offsets that overlap, starts inside the pattern).

    odd: draw an odd one; one that does not fit the room is drawn again.
    leading: leading byte offset to use.
    """
    tidy = _tidy(place, swizzle)
    if leading is not None:
        tidy = MatrixDescriptor(tidy.start_address, leading, tidy.stride_byte_offset, 0, swizzle)
    if not odd:
        return tidy
    for _ in range(64):
        start = place.first + 16 * int(s.below(_LINE // 16, 1)[0])
        near = [tidy.leading_byte_offset, tidy.stride_byte_offset, 16, 32, 64, 80, 144, 256, 272, 512]
        lead = tidy.leading_byte_offset if leading is not None else max(0, s.pick(near) + 16 * s.pick((0, 0, 1, -1, 3)))
        stride = max(16, s.pick(near) + 16 * s.pick((0, 0, 1, -1, 5)))
        base = int(s.below(8, 1)[0]) if swizzle != "none" else 0
        d = MatrixDescriptor(start, lead, stride, base, swizzle)
        if place.fits(d):
            return d
    return tidy


def _tidy(place: OperandPlace, swizzle: str) -> MatrixDescriptor:
    """The descriptor of the swizzle's canonical layout, from the first byte of the room on."""
    width = 16 if swizzle == "none" else int(swizzle[:-1])
    block = 8 * width
    if not place.mn_major:
        across = -(-place.columns * place.element.bits // 8 // width)  # blocks along k
        down = -(-place.rows // 8)
    else:
        across = place.columns // 8
        down = -(-place.rows * place.element.bits // 8 // width)
    if not place.mn_major:
        lead, stride = block * down, block
    elif swizzle != "none":
        lead, stride = block * across, block
    else:
        lead, stride = block, block * across
    return MatrixDescriptor(place.first, lead, stride, 0, swizzle)


def put(image: NDArray[np.uint8], place: OperandPlace, d: MatrixDescriptor, raw: Array) -> None:
    """Write a matrix [count, rows, columns] of raw elements into images [count, bytes]. b1: elements are 0 and 1."""
    at = place.addresses(d)
    bits = place.element.bits
    if bits == 1:
        image[:, at[:, ::8]] = np.packbits(raw, axis=-1, bitorder="little")
        return
    size = bits // 8
    image.view(f"<u{size}")[:, at // size] = raw
