"""CuTe layouts of register fragments: (thread, value) to an element, as CUTLASS writes its MMA traits."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Index = NDArray[np.int64]
Mode = tuple[int, int]  # shape, stride


def offsets(maps: tuple[Index, Index, Index], rows: int, columns: int, column_first: bool) -> Index:
    """Offsets of the elements: int64 [lanes, values]; value = register * elements of a register + index. -1 where nothing lies.

    CuTe counts A as (m, k), B as (n, k), C and D as (m, n), the first coordinate contiguous; matrices of several copies follow
    one
    another.

    maps: copy, row and column of every (lane, register, index).
    rows, columns: of the matrix.
    column_first: the first coordinate is the column, as for B.
    """
    copy, row, column = maps
    index = column + row * columns if column_first else row + column * rows
    return np.where(row < 0, -1, copy * rows * columns + index).reshape(len(row), -1)


def _modes(line: Index) -> list[Mode] | None:
    """Modes of one axis, as few as possible; None if it has none. The line begins with 0."""
    modes: list[Mode] = []
    done, total = 1, len(line)
    while done < total:
        stride, size = int(line[done]), 2
        while done * size < total and line[done * size] == size * stride:
            size += 1
        while total % (done * size):
            size -= 1
        if size == 1:
            return None
        modes.append((size, stride))
        done *= size
    at = np.arange(total)
    rebuilt, weight = np.zeros(total, np.int64), 1
    for size, stride in modes:
        rebuilt += at // weight % size * stride
        weight *= size
    return modes if np.array_equal(rebuilt, line) else None


def _print(modes: list[Mode]) -> tuple[str, str]:
    if len(modes) < 2:
        size, stride = modes[0] if modes else (1, 0)
        return str(size), str(stride)
    return f"({','.join(str(m[0]) for m in modes)})", f"({','.join(str(m[1]) for m in modes)})"


def text(at: Index) -> str | None:
    """Offsets as `((4,8),(2,2,2)):((32,1),(16,8,128))`, modes merged where they can be; None where no layout has them."""
    if (at < 0).any() or at[0, 0]:
        return None
    threads, values = _modes(at[:, 0]), _modes(at[0])
    if threads is None or values is None or not np.array_equal(at, at[:, :1] + at[:1]):
        return None
    (shape_t, stride_t), (shape_v, stride_v) = _print(threads), _print(values)
    return f"({shape_t},{shape_v}):({stride_t},{stride_v})"
