"""The view of tensor maps: the fields of a map, and where the bytes of a box land in shared memory."""

import re
from functools import cache
from itertools import product
from math import prod
from typing import Any

import numpy as np

from mmulator.errors import MmulatorError, OperandError
from mmulator.explore.blocks import CHUNKS, code, facts, lines, table
from mmulator.explore.memory import findings
from mmulator.explore.view import Choices, Document, View
from mmulator.inspect.tensormaps.box import TensorBox, tensor_box
from mmulator.inspect.tensormaps.fields import tensor_map_fields
from mmulator.inspect.views.box import axes, shown
from mmulator.inspect.views.lines import Drawn
from mmulator.layouts.swizzle import SWIZZLES5
from mmulator.layouts.tensormap.tensor_map import TensorMap

ROWS, COLUMNS, DOWN = 20, 112, 8  # of the tensor; rows of a box
_TYPES = {"u8": np.uint8, "f16": np.float16, "f32": np.float32}
_PLACES = {
    "at its first element": (0, 0), "across the lower edge": (ROWS - DOWN // 2, 0), "across the upper edge": (-DOWN // 2, 0),
}  # fmt: skip
_RIGHT = "across the right edge"
_MOST = 1 << 16  # elements of a box that are drawn


@cache
def choices() -> Choices:
    tree: Choices = {}
    for kind, width, mode, fill in product(_TYPES, (16, 32, 64, 128), SWIZZLES5, ("zero", "nan")):
        values = kind, f"{width} bytes", mode, fill
        try:
            box(*values, _RIGHT)
        except MmulatorError:
            continue
        at = tree
        for value in values:
            at = at.setdefault(value, {})
        at.update(dict.fromkeys((*_PLACES, _RIGHT)))
    return tree


def box(
    kind: str, width: str, mode: str, fill: str, place: str, shape: str = "", box: str = "", coordinates: str = ""
) -> TensorBox:
    """The box that a choice means; `shape`, `box` and `coordinates` replace the view's own."""
    dtype = np.dtype(_TYPES[kind])
    across = int(width.split()[0]) // dtype.itemsize
    extents, boxed = _numbers(shape) or (ROWS, COLUMNS), _numbers(box) or (DOWN, across)
    if prod(map(abs, extents)) > 1 << 28 or prod(map(abs, boxed)) > _MOST:
        raise OperandError("this is too large to draw", hint=f"a box of at most {_MOST} elements")
    if min(extents) < 1:
        raise OperandError(f"shape is {extents}: each extent is 1 or more")
    at = _numbers(coordinates) or _PLACES.get(place) or (0, COLUMNS - across // 2)
    given: dict[str, Any] = {"swizzle": mode, "oob_fill": fill}
    return tensor_box(TensorMap.tiled(np.empty(extents, dtype), boxed, **given), at[: len(extents)] if not coordinates else at)


def _numbers(given: str) -> tuple[int, ...]:
    parts = re.split(r"[\sx,]+", given.strip()) if given.strip() else []
    try:
        return tuple(int(part) for part in parts)
    except ValueError:
        raise OperandError(f"{given!r} is no list of numbers", hint="such as 64x128") from None


def drawn(found: TensorBox) -> dict[int, Drawn]:
    """The chunks of a box, by their address in units of 16 bytes."""
    return {c.address // 16: shown(found, c) for c in found.chunks}


def _document(kind: str, width: str, mode: str, fill: str, place: str, **free: str) -> Document:
    found = box(kind, width, mode, fill, place, **free)
    fields = tensor_map_fields(found.map)
    chunks, named = drawn(found), [(f.name, f.where, f.raw, f.value) for f in fields.fields]
    caption = f"shared memory: {axes(found)} of the first element of each 16 bytes"
    rows = [
        ("map", repr(found.map)), ("box at", found.coordinates), ("bytes", found.map.box_bytes),
        ("alignment in shared memory", f"{found.map.alignment} bytes"), ("elements out of bounds", found.filled),
    ]  # fmt: skip
    return [
        facts(rows),
        lines(caption, chunks, sorted({n // CHUNKS for n in chunks})),
        table("fields of the 128 bytes", ("field", "where", "raw", "value"), named),
        *findings(fields.findings),
        code("in C", fields.driver_call()),
    ]


VIEW = View(
    "tensormap", "Tensor maps",
    f"Where a box of a tensor of {ROWS} rows and {COLUMNS} columns lands: the tables of mmulator tensormap.",
    (("kind", "Type"), ("width", "Row of the box"), ("mode", "Swizzle"), ("fill", "Out of bounds"), ("place", "The box lies")),
    choices, _document,
    (("shape", "Another shape", "64x128"), ("box", "Another box", "16x64"), ("coordinates", "Box at", "0,0")),
)  # fmt: skip
