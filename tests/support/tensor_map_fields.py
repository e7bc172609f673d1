"""Tensor maps for whoever fuzzes: one of each kind, with fields at their edges, or bits at random."""

import random
from dataclasses import replace
from functools import cache
from itertools import chain, product

import numpy as np

from mmulator.matrix.layouts.tensormap import Encoded, fields
from mmulator.matrix.layouts.tensormap.modes import INTERLEAVES, SWIZZLES
from mmulator.matrix.layouts.tensormap.rules import refusals
from mmulator.matrix.layouts.tensormap.types import TYPES

FIELDS = (
    fields.GLOBAL_ADDRESS, fields.RANK, fields.IM2COL, fields.ELEMENT_TYPE, fields.INTERLEAVE, fields.SWIZZLE, fields.ATOMICITY,
    fields.FILL_NAN, fields.L2_PROMOTION, fields.PIXELS, *fields.GLOBAL_STRIDE, *fields.GLOBAL_DIM, *fields.ELEMENT_STRIDE,
    *fields.BOX_DIM, *chain(*fields.LOWER.values(), *fields.UPPER.values()),
)  # fmt: skip


@cache
def bases() -> list[tuple[int, bool, list[int]]]:
    """(rank, whether im2col, words) of a map of each kind, most of which CUDA's driver takes. The tensor begins at address 0 and
    has 64 KiB at most."""
    found = []
    for kind, rank, im2col, interleave in product(TYPES, range(1, 6), (False, True), INTERLEAVES):
        if im2col and rank < 3:
            continue
        row = 128 if kind.elements > 1 else 32
        sizes, strides = (128, 4, 4, 2, 2)[:rank], (1024, 4096, 16384, 32768)[: rank - 1]
        if im2col:
            corner = (0,) * (rank - 2)
            m = Encoded(kind, sizes, strides, (1,) * rank, im2col=True, lower=corner, upper=corner, channels=row, pixels=16,
                        interleave=interleave)  # fmt: skip
        else:
            m = Encoded(kind, sizes, strides, (1,) * rank, (row, 4, 2, 1, 1)[:rank], interleave=interleave)
        found.append((rank, im2col, np.frombuffer(m.encode(), "<u4").tolist()))
    return found


@cache
def legal(rank: int, im2col: bool) -> list[list[int]]:
    """Words of maps of a rank and mode that the driver takes, with each swizzle that does."""
    found = []
    for r, mode, words in bases():
        m = Encoded.decode(np.array(words, "<u4").tobytes())
        for name in SWIZZLES if (r, mode) == (rank, im2col) else ():
            for row in (m.channels or m.box[0], 16, 64):
                swizzled = replace(m, swizzle=name, **({"channels": row} if im2col else {"box": (row, *m.box[1:])}))
                if not any(refusals(swizzled)):
                    found.append(np.frombuffer(swizzled.encode(), "<u4").tolist())
    return found


def edges(field: fields.StoredField) -> list[int]:
    """Numbers that a field can store: at both ends, at its sign, and beside what rules and alignments speak of."""
    every = range(1 << field.bits)
    near = {0, 1, 2, 3, 7, 15, 31, 63, 127, 1023, 1024, 1 << field.bits - 1, (1 << field.bits - 1) - 1, (1 << 57) - 16, 1 << 57}
    return sorted(n for n in (every if field.bits <= 3 else {*near, (1 << field.bits) - 1, (1 << field.bits) - 2}) if n in every)


def put(words: list[int], field: fields.StoredField, stored: int) -> None:
    field.put(words, (stored + field.less) * field.unit)


def at_edges(rng: random.Random, words: list[int], count: int) -> list[int]:
    """A map with so many of its fields at an edge; half the time with a swizzle that there is."""
    words = [*words]
    for field in rng.choices(FIELDS, k=count):
        put(words, field, rng.choice(edges(field)))
    if rng.random() < 0.5:
        swizzle = rng.choice(list(SWIZZLES.values()))
        put(words, fields.SWIZZLE, swizzle.mode)
        put(words, fields.ATOMICITY, swizzle.atomicity)
    return words


def at_random(rng: random.Random) -> list[int]:
    return [rng.getrandbits(32) for _ in range(fields.WORDS)]
