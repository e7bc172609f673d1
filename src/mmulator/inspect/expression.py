"""Maps in words: integer expressions for arrays that are additive over the bits of their axes."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Index = NDArray[np.int64]
Axis = tuple[str, int]


def expression(values: Index, axes: Sequence[Axis]) -> str:
    """An expression for an array, such as `lane / 4 + 8 * (register % 2)`; `/` rounds down.

    axes: name and extent of every axis of the array. Every bit of every axis adds a step of its own.
    """
    array = values.reshape(tuple(extent for _, extent in axes))
    origin = int(array.flat[0])
    terms: list[str] = []
    rebuilt = np.full(array.shape, origin, np.int64)
    for number, (name, extent) in enumerate(axes):
        line = np.moveaxis(array, number, 0).reshape(extent, -1)[:, 0]
        steps = [int(line[1 << bit]) - origin for bit in range((extent - 1).bit_length())]
        terms += _terms(name, steps)
        place = np.arange(extent).reshape([-1 if n == number else 1 for n in range(len(axes))])
        for bit, step in enumerate(steps):
            rebuilt += (place >> bit & 1) * step
    if not np.array_equal(rebuilt, array):
        raise AssertionError("the map is not additive over bits")
    if origin or not terms:
        terms.append(str(origin))
    return " + ".join(terms)


def _terms(name: str, steps: list[int]) -> list[str]:
    """One term for each run of bits whose steps double."""
    out = []
    start = 0
    while start < len(steps):
        stop = start + 1
        while stop < len(steps) and steps[stop] == 2 * steps[stop - 1]:
            stop += 1
        if steps[start]:
            part = name if not start else f"{name} / {1 << start}"
            part += f" % {1 << (stop - start)}" if stop < len(steps) else ""
            out.append(part if steps[start] == 1 else f"{steps[start]} * {part if part == name else f'({part})'}")
        start = stop
    return out
