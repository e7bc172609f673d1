"""The views of shared memory: swizzles, the tiles that matrix descriptors of wgmma and tcgen05 describe, and tensor maps: their
fields, and where the bytes of a box land.
"""

import re
from functools import cache
from itertools import product
from math import prod
from typing import Any

import numpy as np

from mmulator.base.errors import OperandError
from mmulator.matrix.explore.view import (
    CHUNKS,
    Choices,
    Document,
    View,
    code,
    facts,
    lines,
    table,
    takes,
    text,
    tree_of,
    whole_number,
)
from mmulator.matrix.inspect.descriptors.answer import DescriptorAnswer
from mmulator.matrix.inspect.descriptors.checks import Diagnostic
from mmulator.matrix.inspect.descriptors.describe import describe_descriptor, descriptor_fields, make_tile
from mmulator.matrix.inspect.tensormaps.box import TensorBox, tensor_box
from mmulator.matrix.inspect.tensormaps.fields import tensor_map_fields
from mmulator.matrix.inspect.views.chunks import CHUNK, LINE, Drawn, axes, box_cell, hue_of, tile_cells
from mmulator.matrix.layouts.swizzle import SWIZZLES5, Swizzle
from mmulator.matrix.layouts.tensormap.tensor_map import TensorMap

_MODES = {"128B": SWIZZLES5["128B"], **SWIZZLES5}  # the usual one first
_MAJORS = {"K-major": False, "M-major or N-major": True}
# What reads a tile -> types of elements, of which those beside it have the same tiles.
_TYPES = {
    "wgmma": {"f16, bf16": "f16", "tf32": "tf32", "e4m3, e5m2, s8, u8": "e4m3", "b1": "b1"},
    "tcgen05": {"f16, bf16": "f16", "tf32": "tf32", "e4m3 and others of a byte": "e4m3", "s8, u8": "s8", "e2m1 of mxf4": "mxf4"},
}
_SIZES = {"wgmma": {"a": (64,), "b": (8, 16, 32, 64, 128, 256)}, "tcgen05": {"a": (64, 128), "b": (16, 64, 128, 256)}}


# swizzles -------------------------------------------------------------------------------------------------------------
def _swizzles() -> Choices:
    return tree_of((name, str(n)) for name, mode in _MODES.items() for n in range(mode.mask + 1))


def _xor(mode: Swizzle) -> str:
    if not mode.mask:
        return "an address stays as it is"
    low, bits = mode.unit.bit_length() - 1, mode.mask.bit_length()
    return f"address bits {low + bits - 1}..{low} are XORed with bits {6 + bits}..7, which count lines of 128 bytes"


def swizzled(mode: Swizzle, base: int) -> dict[int, Drawn]:
    """The chunks of 16 bytes of one period, by the place where the swizzle puts them, with their numbers before it."""
    chunks = range(max(mode.repeat, LINE) // CHUNK)
    return {int(mode(CHUNK * n, base)) // CHUNK: Drawn(str(n), hue_of(n, n)) for n in chunks}


def _swizzle(mode: str, base: str) -> Document:
    s = SWIZZLES5[mode]
    drawn = swizzled(s, int(base))
    rows = [
        ("moves", f"{s.unit} bytes as a whole"), ("atom", f"{s.lines} rows of {s.width} bytes"),
        ("repeats every", f"{s.repeat} bytes"), ("does", _xor(s)), ("of wgmma and tcgen05", f"code {s.code} in a descriptor"),
    ]  # fmt: skip
    return [
        facts(rows),
        lines("shared memory: numbers of chunks of 16 bytes before the swizzle", drawn, sorted({n // CHUNKS for n in drawn})),
        text("Four banks of 4 bytes lie in a chunk: chunks in one column of the table are in the same banks."),
    ]


SWIZZLE = View(
    "swizzle", "Swizzles", "Where a swizzle puts each 16 bytes of shared memory.",
    (("mode", "Swizzle"), ("base", "Base offset")), _swizzles, _swizzle,
)  # fmt: skip


# descriptors ----------------------------------------------------------------------------------------------------------
@cache
def _tiles() -> Choices:
    every = (
        (reader, named, operand, f"{'m' if operand == 'a' else 'n'} = {size}", major, mode)
        for reader, types in _TYPES.items() for named, operand in product(types, "ab")
        for size, major, mode in product(_SIZES[reader][operand], _MAJORS, _MODES)
    )  # fmt: skip
    return tree_of(values for values in every if takes(answer, *values))


def _instruction(reader: str, named: str, operand: str, size: str) -> str:
    number = size.rpartition(" ")[2]
    m, n = (number, 64) if operand == "a" else (128 if reader == "tcgen05" else 64, number)
    return f"{reader} m{m}n{n} {_TYPES[reader][named]}"


def answer(
    reader: str, named: str, operand: str, size: str, major: str, mode: str, start: str = "", word: str = ""
) -> DescriptorAnswer:
    """The answer of `mmulator descriptor` to a choice: its tile packed from `start` on, or as a word places it."""
    instruction, mn_major = _instruction(reader, named, operand, size), _MAJORS[major]
    tile = make_tile(instruction, operand, mn_major=mn_major)
    given = whole_number(word, "0x400") if word else tile.packed(mode, whole_number(start or "0", "0x400"))
    return describe_descriptor(given, instruction, operand, mn_major=mn_major)


def drawn(found: DescriptorAnswer) -> dict[int, Drawn]:
    """The chunks of a tile, by their address in units of 16 bytes, with row and column of their first element."""
    tile = found.tile
    out = {}
    for c in tile_cells(found):
        row, column = tile.matrix(c.mn, c.k)
        name = f"{row},{column}" if c.inside else ""
        out[c.address // CHUNK] = Drawn(name if c.read else "-", c.hue)
    return out


def findings(found: tuple[Diagnostic, ...]) -> Document:
    """A table of what is wrong; none if nothing is."""
    rows = [(f.level, f.text, f.rule, f.hint) for f in found]
    return [table("findings", ("level", "finding", "rule", "hint"), rows)] if rows else []


def _descriptor(
    reader: str, named: str, operand: str, size: str, major: str, mode: str, start: str = "", word: str = ""
) -> Document:
    found = answer(reader, named, operand, size, major, mode, start, word)
    fields = descriptor_fields(found.word, found.tile.generation)
    chunks = drawn(found)
    read = sorted({n // CHUNKS for n, c in chunks.items() if c.hue is not None})
    first, last = found.bytes
    rows = [
        ("tile", str(found.tile)), ("word", f"{found.word:#018x}"), ("bytes read", f"{first:#x} to {last:#x}"),
        ("swizzle atom", "{} x {} elements (m or n, k)".format(*found.atom)), ("CuTe layout", found.cute or ""),
        ("base offset", found.base_offset_text()),
    ]  # fmt: skip
    return [
        facts(rows),
        table("fields of the word", ("field", "bits", "raw", "value"), [(f.name, f.bits, f.raw, f.value) for f in fields.fields]),
        table("offsets", ("field", "bytes", "what it means"), [(o.field, o.bytes, o.text) for o in found.offsets]),
        *findings(found.findings),
        lines(f"shared memory: {found.tile.axes} of the first element of each 16 bytes", chunks, read),
    ]


DESCRIPTOR = View(
    "descriptor", "Descriptors",
    "The tile that one instruction reads from shared memory, and its matrix descriptor: the tables of mmulator descriptor.",
    (("reader", "Instruction"), ("type", "Type"), ("operand", "Operand"), ("size", "Size"), ("major", "Contiguous"),
     ("mode", "Swizzle")),
    _tiles, _descriptor, (("start", "Start address", "0x400"), ("word", "Or a descriptor's word", "0x4000004000010040")),
)  # fmt: skip


# tensor maps ----------------------------------------------------------------------------------------------------------
ROWS, COLUMNS, DOWN = 20, 112, 8  # of the tensor; rows of a box
_MAPPED = {"u8": np.uint8, "f16": np.float16, "f32": np.float32}
_PLACES = {
    "at its first element": (0, 0), "across the lower edge": (ROWS - DOWN // 2, 0), "across the upper edge": (-DOWN // 2, 0),
}  # fmt: skip
_RIGHT = "across the right edge"
_MOST_DRAWN = 1 << 16  # elements of a box that are drawn


@cache
def _boxes() -> Choices:
    widths = [f"{width} bytes" for width in (16, 32, 64, 128)]
    every = [v for v in product(_MAPPED, widths, SWIZZLES5, ("zero", "nan")) if takes(box, *v, _RIGHT)]
    return tree_of((*values, place) for values in every for place in (*_PLACES, _RIGHT))


def box(
    kind: str, width: str, mode: str, fill: str, place: str, shape: str = "", box: str = "", coordinates: str = ""
) -> TensorBox:
    """The box that a choice means; `shape`, `box` and `coordinates` replace the view's own."""
    dtype = np.dtype(_MAPPED[kind])
    across = int(width.split()[0]) // dtype.itemsize
    extents, boxed = _numbers(shape) or (ROWS, COLUMNS), _numbers(box) or (DOWN, across)
    if prod(map(abs, extents)) > 1 << 28 or prod(map(abs, boxed)) > _MOST_DRAWN:
        raise OperandError("this is too large to draw", hint=f"a box of at most {_MOST_DRAWN} elements")
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


def _tensor_map(kind: str, width: str, mode: str, fill: str, place: str, **free: str) -> Document:
    found = box(kind, width, mode, fill, place, **free)
    fields = tensor_map_fields(found.map)
    chunks = {c.address // CHUNK: box_cell(found, c) for c in found.chunks}
    named = [(f.name, f.where, f.raw, f.value) for f in fields.fields]
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


TENSOR_MAP = View(
    "tensormap", "Tensor maps",
    f"Where a box of a tensor of {ROWS} rows and {COLUMNS} columns lands: the tables of mmulator tensormap.",
    (("kind", "Type"), ("width", "Row of the box"), ("mode", "Swizzle"), ("fill", "Out of bounds"), ("place", "The box lies")),
    _boxes, _tensor_map,
    (("shape", "Another shape", "64x128"), ("box", "Another box", "16x64"), ("coordinates", "Box at", "0,0")),
)  # fmt: skip
