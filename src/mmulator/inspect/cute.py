"""CuTe layouts of register fragments: (thread, value) to an element, as CUTLASS writes its MMA traits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from mmulator.inspect.layouts import Layout

Mode = tuple[int, int]  # shape, stride


def linear(layout: Layout) -> NDArray[np.int64]:
    """What the CuTe layout gives: int64 [lanes, values]; value = register * elements of a register + index.

    CuTe counts A as (m, k), B as (n, k), C and D as (m, n), the first coordinate contiguous; matrices of a copy follow
    one another. -1 where nothing lies.
    """
    copy, row, column = layout.maps
    size = layout.rows * layout.columns
    index = column + row * layout.columns if layout.operand == "b" else row + column * layout.rows
    return np.where(row < 0, -1, copy * size + index).reshape(layout.lanes, -1)


def _modes(line: NDArray[np.int64]) -> list[Mode] | None:
    """Modes of one axis, the fewest; None if it has none. The line begins with 0."""
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


def cute_layout(layout: Layout) -> str | None:
    """The layout as `((4,8),(2,2,2)):((32,1),(16,8,128))`, modes merged where they can be; None where there is none."""
    at = linear(layout)
    if (at < 0).any() or at[0, 0]:
        return None
    threads, values = _modes(at[:, 0]), _modes(at[0])
    if threads is None or values is None or not np.array_equal(at, at[:, :1] + at[:1]):
        return None
    (shape_t, stride_t), (shape_v, stride_v) = _print(threads), _print(values)
    return f"({shape_t},{shape_v}):({stride_t},{stride_v})"


def cute_note(layout: Layout) -> str:
    """What the layout's numbers mean, or why there is none."""
    if layout.cute is None:
        return (
            "no CuTe layout: it would map every (thread, value) to an element, and not every lane holds "
            f"{'metadata' if layout.kind == 'metadata' else 'scale factors'} here"
        )
    column = "chunk" if layout.kind == "metadata" else "k" if layout.operand == "a" else "n"
    if layout.operand == "b":
        where = f"n + {layout.columns} k"
    elif layout.operand in ("r", "scale_a", "scale_b"):
        where = f"row + {layout.rows} column"
    else:
        where = f"m + {layout.rows} {column}"
    if layout.copies > 1:
        where += f" + {layout.rows * layout.columns} matrix"
    per = layout.per_register
    text = f"(thread, value) -> {where}; value = {'register' if per == 1 else f'{per} register + index'}"
    if layout.kind == "elements" and layout.spans:
        text += ", k counts stored columns"
    return text
