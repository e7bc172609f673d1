"""The content of the 128 bytes of a tensor map, encoded and decoded.

All fields are in the hardware's order: dimension 0 is the innermost, whose elements are adjacent.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from mmulator.base.classes import dataclass
from mmulator.base.errors import OperandError
from mmulator.matrix.layouts.tensormap import fields as f
from mmulator.matrix.layouts.tensormap.modes import (
    BY_MODE,
    FILLS,
    INTERLEAVES,
    PROMOTIONS,
    SLICES,
    SWIZZLES,
    TensorSwizzle,
)  # fmt: skip
from mmulator.matrix.layouts.tensormap.types import BY_CODE, TensorType

RULE = "Tensor-map (PTX ISA 9.1)"


def _name(known: dict[str, int], number: int, what: str) -> str:
    for name, code in known.items():
        if code == number:
            return name
    raise OperandError(f"the map's {what} is {number}: no such mode", rule=RULE, hint="these bytes are no tensor map")


@dataclass(frozen=True)
class Encoded:
    """A tensor map, field by field.

    type: type of the elements.
    sizes: elements of each dimension.
    strides: bytes between elements of dimensions 1, 2, ... .
    element_strides: step within the box, for each dimension.
    box: elements of each dimension that a tiled box spans.
    im2col: whether the map is im2col instead of tiled.
    lower, upper: im2col: corners of the bounding box along W, H, D.
    channels, pixels: im2col: size of a column.
    interleave, swizzle, l2_promotion, oob_fill: names of modes (modes.py).
    address: address of the tensor in global memory.
    box_bytes, alignment: the map's own fields about a box in shared memory; None if they follow from the others.

    Interleaved, dimension 0 counts slices of 16 or 32 bytes of channels, which are adjacent.
    """

    type: TensorType
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    element_strides: tuple[int, ...]
    box: tuple[int, ...] = ()
    im2col: bool = False
    lower: tuple[int, ...] = ()
    upper: tuple[int, ...] = ()
    channels: int = 0
    pixels: int = 0
    interleave: str = "none"
    swizzle: str = "none"
    l2_promotion: str = "none"
    oob_fill: str = "zero"
    address: int = 0
    box_bytes: int | None = None
    alignment: int | None = None

    @property
    def rank(self) -> int:
        return len(self.sizes)

    @property
    def mode(self) -> TensorSwizzle:
        return SWIZZLES[self.swizzle]

    @property
    def slice(self) -> int:
        """Bytes of a slice of interleaved channels; 0 without interleaving."""
        return SLICES.get(self.interleave, 0)

    @property
    def loaded(self) -> tuple[int, ...]:
        """Elements that a copy moves along each dimension of its box; (channels, pixels) for im2col. Interleaved: slices along
        dimension 0, and always 1 for the dimension of the channels' slices, the last but one.
        """
        if self.im2col:
            return (1 if self.slice else self.channels, self.pixels)
        steps = self.element_strides if self.slice else (1, *self.element_strides[1:])
        counts = tuple(-(-box // step) for box, step in zip(self.box, steps))
        return (*counts[:-2], 1, counts[-1]) if self.slice else counts

    @property
    def row_bytes(self) -> int:
        """Bytes of a row of the box, along dimension 0, in shared memory."""
        return self.loaded[0] * self.slice or self.loaded[0] // self.type.elements * self.type.shared

    @property
    def pitch(self) -> int:
        """Bytes of shared memory from one row of the box to the next: swizzled rows take the whole width of the swizzle, unless
        they are interleaved.
        """
        return self.row_bytes if self.slice else self.mode.width or self.row_bytes

    @property
    def span(self) -> int:
        """Bytes of shared memory that a box occupies, including gaps between its rows."""
        return self.pitch * prod(self.loaded[1:])

    @property
    def transaction_bytes(self) -> int:
        """Bytes of a box without the padding of small types: the number that a copy adds to an mbarrier's count."""
        row, *others = self.loaded
        return (row * self.slice or self.type.bytes_of(row)) * prod(others)

    @property
    def described_bytes(self) -> int:
        """Size of the box as the driver writes it into the map: like `transaction_bytes`, but counts are divided by steps
        without the remainder, along dimension 0 too. Copies do not read it.
        """
        if self.im2col:
            return self.type.bytes_of(self.channels * self.pixels)
        return self.type.bytes_of(prod(box // max(step, 1) for box, step in zip(self.box, self.element_strides)))

    def encode(self) -> bytes:
        """The 128 bytes."""
        words = [0] * f.WORDS
        named = [
            (f.GLOBAL_ADDRESS, self.address), (f.IM2COL, int(self.im2col)), (f.RANK, self.rank),
            (f.ELEMENT_TYPE, self.type.code), (f.INTERLEAVE, INTERLEAVES[self.interleave]), (f.SWIZZLE, self.mode.mode),
            (f.ATOMICITY, self.mode.atomicity), (f.FILL_NAN, FILLS[self.oob_fill]),
            (f.L2_PROMOTION, PROMOTIONS[self.l2_promotion]),
            (f.BOX_BYTES, self.described_bytes if self.box_bytes is None else self.box_bytes),
            (f.SHARED_ALIGNMENT, self.mode.alignment if self.alignment is None else self.alignment),
        ]  # fmt: skip
        named += zip(f.GLOBAL_STRIDE, self.strides)
        named += zip(f.GLOBAL_DIM, self.sizes)
        named += zip(f.ELEMENT_STRIDE, self.element_strides)
        if self.im2col:
            named += [(f.CHANNELS, self.channels), (f.PIXELS, self.pixels)]
            named += zip(f.LOWER[self.rank], self.lower)
            named += zip(f.UPPER[self.rank], self.upper)
        else:
            named += zip(f.BOX_DIM, self.box)
        for field, value in named:
            field.put(words, value)
        return b"".join(word.to_bytes(4, "little") for word in words)

    @classmethod
    def decode(cls, data: bytes) -> Encoded:
        """The content of 128 bytes. Raises OperandError for bytes that no tensor map has."""
        if len(data) != f.BYTES:
            raise OperandError(f"a tensor map has {f.BYTES} bytes, and these are {len(data)}", rule=RULE)
        words = [int.from_bytes(data[at : at + 4], "little") for at in range(0, f.BYTES, 4)]
        rank, im2col, code = f.RANK.get(words), bool(f.IM2COL.get(words)), f.ELEMENT_TYPE.get(words)
        least = 3 if im2col else 1
        if not least <= rank <= f.MOST_RANK:
            raise OperandError(
                f"the map's rank is {rank}: {'im2col' if im2col else 'tiled'} maps have {least} to {f.MOST_RANK} dimensions",
                rule=RULE, hint="these bytes are no tensor map",
            )  # fmt: skip
        if code not in BY_CODE:
            raise OperandError(f"the map's element type is {code}: no such type", rule=RULE, hint="these bytes are no tensor map")
        mode, atomicity = f.SWIZZLE.get(words), f.ATOMICITY.get(words)
        # what is no mode of any chip is read as sm_90 reads it, which has neither atomicity nor 96B
        swizzle = BY_MODE.get((mode, atomicity)) or BY_MODE[mode & 3, 0]

        def all_of(which: tuple[f.StoredField, ...], count: int) -> tuple[int, ...]:
            return tuple(field.get(words) for field in which[:count])

        found = cls(
            BY_CODE[code], all_of(f.GLOBAL_DIM, rank), all_of(f.GLOBAL_STRIDE, rank - 1), all_of(f.ELEMENT_STRIDE, rank),
            interleave=_name(dict(INTERLEAVES), f.INTERLEAVE.get(words), "interleave"), swizzle=swizzle.name,
            l2_promotion=_name(dict(PROMOTIONS), f.L2_PROMOTION.get(words), "L2 promotion"),
            oob_fill=_name(dict(FILLS), f.FILL_NAN.get(words), "fill"), address=f.GLOBAL_ADDRESS.get(words),
            box_bytes=f.BOX_BYTES.get(words), alignment=f.SHARED_ALIGNMENT.get(words), im2col=im2col,
        )  # fmt: skip
        if not im2col:
            return replace(found, box=all_of(f.BOX_DIM, rank))
        return replace(
            found, lower=all_of(f.LOWER[rank], 3), upper=all_of(f.UPPER[rank], 3), channels=f.CHANNELS.get(words),
            pixels=f.PIXELS.get(words),
        )  # fmt: skip
