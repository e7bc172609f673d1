"""The format of the 128 bytes of a tensor map, as data: the bits of 32-bit words in which each number lies.

Found on an NVIDIA H100 and H200 by changing one argument of cuTensorMapEncodeTiled and cuTensorMapEncodeIm2col at a time, and
in the machine code that ptxas generates for tensormap.replace; no document describes them.
"""

from collections.abc import MutableSequence, Sequence

from mmulator.base.classes import dataclass
from mmulator.isa.types import MAP_ALIGNMENT, MAP_BYTES

BYTES, ALIGNMENT = MAP_BYTES, MAP_ALIGNMENT
WORDS = BYTES // 4
MOST_RANK = 5


@dataclass(frozen=True)
class BitRange:
    """Bits of one 32-bit word that store a part of a number.

    word: index of the word.
    shift: lowest bit in the word.
    width: number of bits.
    low: lowest bit of the stored number in this part.
    """

    word: int
    shift: int
    width: int
    low: int = 0

    @property
    def mask(self) -> int:
        return (1 << self.width) - 1


@dataclass(frozen=True)
class StoredField:
    """A number in a map, stored in one or more parts as value / unit - less. signed: whether it is in two's complement."""

    parts: tuple[BitRange, ...]
    unit: int = 1
    less: int = 0
    signed: bool = False

    @property
    def bits(self) -> int:
        return sum(part.width for part in self.parts)

    def put(self, words: MutableSequence[int], value: int) -> None:
        """Write a value into the words; bits beyond the field are lost, as on hardware."""
        stored = value // self.unit - self.less
        for p in self.parts:
            words[p.word] = words[p.word] & ~(p.mask << p.shift) | (stored >> p.low & p.mask) << p.shift

    def get(self, words: Sequence[int]) -> int:
        stored = sum((words[p.word] >> p.shift & p.mask) << p.low for p in self.parts)
        if self.signed and stored >> (self.bits - 1):
            stored -= 1 << self.bits
        return (stored + self.less) * self.unit


def _one(word: int, shift: int, width: int, unit: int = 1, less: int = 0, signed: bool = False) -> StoredField:
    return StoredField((BitRange(word, shift, width),), unit, less, signed)


GLOBAL_ADDRESS = StoredField((BitRange(0, 0, 32), BitRange(1, 0, 32, 32)))
IM2COL = _one(2, 0, 1)
RANK = _one(2, 4, 3, less=1)
# Four bits of a number and, as its bit 4, that elements are rounded to tf32: `types.py` has the numbers.
ELEMENT_TYPE = StoredField((BitRange(2, 7, 4), BitRange(2, 16, 1, 4)))
INTERLEAVE = _one(2, 11, 2)
# 96B swizzling (sm_103a) is number 4, whose third bit is in a separate place.
SWIZZLE = StoredField((BitRange(2, 13, 2), BitRange(2, 22, 1, 2)))
FILL_NAN = _one(2, 15, 1)
L2_PROMOTION = _one(2, 17, 2)
ATOMICITY = _one(2, 19, 2)
# Set by newer drivers for tensors of 128 KB or more apart; no meaning for what a copy moves is known.
OUT_OF_BOUNDS_MODE = _one(2, 21, 1)
# Of dimensions 1 to 4, in units of 16 bytes: 32 bits of each in a word, 4 more together in word 7.
_STRIDES = tuple(StoredField((BitRange(3 + n, 0, 32), BitRange(7, 4 * n, 4, 32)), unit=16) for n in range(5))
GLOBAL_STRIDE = _STRIDES[:4]
GLOBAL_DIM = tuple(_one(8 + n, 0, 32, less=1) for n in range(5))
ELEMENT_STRIDE = tuple(_one(13, 3 * n, 3, less=1) for n in range(5))
BOX_DIM = (_one(13, 24, 8, less=1), *(_one(14, 8 * n, 8, less=1) for n in range(4)))
# im2col: channels per pixel where a tiled map has the box of dimension 0.
CHANNELS = BOX_DIM[0]
PIXELS = _one(15, 0, 32, less=1)
# im2col, by rank: corners of dimensions 1, 2, 3 (W, H, D), in 16 bits of word 14 each.
LOWER = {3: (_one(14, 0, 16, signed=True),),
         4: tuple(_one(14, 8 * n, 8, signed=True) for n in range(2)),
         5: tuple(_one(14, 5 * n, 5, signed=True) for n in range(3))}  # fmt: skip
UPPER = {3: (_one(14, 16, 16, signed=True),),
         4: tuple(_one(14, 16 + 8 * n, 8, signed=True) for n in range(2)),
         5: tuple(_one(14, 16 + 5 * n, 5, signed=True) for n in range(3))}  # fmt: skip
BOX_BYTES = _one(16, 0, 32)
SHARED_ALIGNMENT = _one(18, 0, 32)

# What tensormap.replace writes, by the name of its field: one entry, or one for each ordinal. `new_val` is the value as
# `StoredField.put` takes it, but for .rank (already less one: REPLACED_RANK) and .elemtype (a number: `types.BY_NUMBER`),
# which sets the bit of tf32 and never clears it. There is no fifth stride: an H200 takes its ordinal, and
# writes over the upper bits of the others.
REPLACED_RANK = _one(2, 4, 3)
REPLACE: dict[str, tuple[StoredField, ...]] = {
    "global_address": (GLOBAL_ADDRESS,),
    "rank": (REPLACED_RANK,),
    "box_dim": BOX_DIM,
    "global_dim": GLOBAL_DIM,
    "global_stride": _STRIDES,
    "element_stride": ELEMENT_STRIDE,
    "elemtype": (ELEMENT_TYPE,),
    "interleave_layout": (INTERLEAVE,),
    "swizzle_mode": (SWIZZLE,),
    "swizzle_atomicity": (ATOMICITY,),
    "fill_mode": (FILL_NAN,),
}
