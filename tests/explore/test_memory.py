"""Tables of shared memory, metadata and formats: every position is what the package's functions say."""

from typing import Any

import numpy as np
import pytest

from mmulator.errors import OperandError
from mmulator.isa.types import TYPES
from mmulator.matrix.explore import formats, memory, site, sparsity
from mmulator.matrix.explore.view import View, leaves
from mmulator.matrix.inspect.layouts.layout import layout, operands
from mmulator.matrix.layouts import sparse
from mmulator.matrix.layouts.swizzle import SWIZZLES5
from mmulator.matrix.numerics.formats import container, from_raw


def chunks_of(document: list[dict[str, Any]]) -> dict[int, list[Any]]:
    """The cells of a document's lines, by their address in units of 16 bytes."""
    (block,) = (b for b in document if b["kind"] == "cells")
    return {int(name, 16) // 16 + n: cell for name, cells in block["rows"] for n, cell in enumerate(cells)}


def choices(view: View) -> list[tuple[str, ...]]:
    return [*leaves(view.choices())]


@pytest.mark.parametrize("values", choices(memory.SWIZZLE))
def test_swizzles(values: tuple[str, str]) -> None:
    mode, base = SWIZZLES5[values[0]], int(values[1])
    cells = chunks_of(memory.SWIZZLE.document(*values))
    for address in range(max(mode.repeat, 128)):
        assert cells[int(mode(address, base)) // 16][0] == str(address // 16)


def test_every_element_of_every_tile_lies_in_its_chunk() -> None:
    """A chunk is named by its first element; the others of its 16 bytes follow along the contiguous dimension."""
    every = choices(memory.DESCRIPTOR)
    assert len(every) > 300
    for values in every:
        found = memory.answer(*values)
        cells = chunks_of(memory.DESCRIPTOR.document(*values))
        tile = found.tile
        for (mn, k), address in np.ndenumerate(found.addresses):
            first = (mn // tile.per_chunk * tile.per_chunk, k) if tile.mn_major else (mn, k // tile.per_chunk * tile.per_chunk)
            assert cells[int(address) // 16][0] == "{},{}".format(*tile.matrix(*first)), (values, mn, k)
        assert sum(cell[1] is not None for cell in cells.values()) == len(np.unique(found.addresses // 16))


def test_every_element_of_every_box_lies_in_its_chunk() -> None:
    every = choices(memory.TENSOR_MAP)
    assert len(every) > 200
    for values in every:
        box = memory.box(*values)
        cells = chunks_of(memory.TENSOR_MAP.document(*values))
        for n, cell in cells.items():
            (row, column), *_ = [*box.element(16 * n), (None, None)]
            if row is None:
                assert cell[0].rstrip("*") in ("", "0", "NaN") or cell[0].endswith("*"), (values, n, cell)
            else:
                assert cell[0].rstrip("*") == f"{row},{column}"
        p = box.placed
        assert {*np.unique(p.shared // 16).tolist()} <= cells.keys()


def test_nibbles_lie_where_the_layout_of_the_metadata_says() -> None:
    for name, selector in choices(sparsity.VIEW):
        form = sparsity.forms()[name]
        own = layout(form, "sp_meta" if "sp_meta" in operands(form) else "e", selector=int(selector))
        _, nibbles, places = sparsity.VIEW.document(name, selector)
        assert len(places["rows"]) == own.rows * own.columns
        for lane, bits, row, columns in places["rows"]:
            low, first = int(bits.partition("..")[0]), int(columns.partition("..")[0])
            chunk = [span[0] for span in own.spans].index(first)
            assert [int(m[int(lane[1:]), 0, low // 4]) for m in own.maps[1:]] == [int(row), chunk]
        for value, cells in enumerate(nibbles["rows"]):
            assert (cells[2] == "yes") == (value in sparse.allowed(form))


@pytest.mark.parametrize("type", [name for name in formats._LISTED if name not in ("tf32", "b1", "s4", "u4")])
def test_values_are_those_of_numpy(type: str) -> None:
    """NumPy and ml_dtypes decode every code that is listed to the same value."""
    t = TYPES[type]
    for _, part in [v for v in choices(formats.VIEW) if v[0] == type]:
        codes = formats.codes(t, part)
        own = from_raw(t, np.array(codes, container(t))).astype(np.float64)
        for row, value in zip(formats.worth(t, codes), own.tolist(), strict=True):
            said = float(row[4].replace("infinity", "inf"))
            same = said == value and np.signbit(said) == np.signbit(value)
            assert same or (np.isnan(value) and row[4] == "NaN"), (type, row, value)
            if "*" in row[3]:
                significand, _, exponent = row[3].partition(" * 2^")
                assert np.ldexp(float(significand), int(exponent)) == value


@pytest.mark.parametrize(("view", "given"), [
    ("format", {"code": "0x10000"}), ("format", {"code": "x"}),
    ("descriptor", {"start": "3"}), ("descriptor", {"word": "z"}), ("descriptor", {"word": "0x10000000000000000"}),
    ("tensormap", {"shape": "0x8"}), ("tensormap", {"shape": "1x2x3x4x5x6x7x8", "box": "1"}),
    ("tensormap", {"box": "99999999x9999"}),
    ("tensormap", {"shape": "-1x4"}), ("tensormap", {"coordinates": "1"}), ("sparse", {"lane": "99"}), ("sparse", {"word": "-1"}),
    ("sparse", {"word": "0x100000000"}),
])  # fmt: skip
def test_wrong_texts_are_answered_with_what_is_wrong(view: str, given: dict[str, str]) -> None:
    first = dict(zip((name for name, _ in site.VIEWS[view].parameters), choices(site.VIEWS[view])[0]))
    found = site.answer(view, first | given)
    assert found.get("error"), found


def test_texts_replace_the_lists() -> None:
    def ask(view: str, **given: str) -> list[dict[str, Any]]:
        first = dict(zip((name for name, _ in site.VIEWS[view].parameters), choices(site.VIEWS[view])[0]))
        return site.document(view, first | given)

    assert ask("format", type="f16", part="notable codes", code="0x3c00")[-1]["rows"] == [
        ["0x3c00", "0 01111 0000000000", "normal", "1024 * 2^-10", "1.0"]
    ]
    assert ["word", "0x4000004000010040"] in ask("descriptor", word="0x4000004000010040")[0]["rows"]
    assert ["box at", "(1, 2, 0)"] in ask("tensormap", shape="4x8x16", box="1x2x16", coordinates="1,2,0")[0]["rows"]
    assert ask("sparse", lane="0", word="0xe9c84eed")[-1]["columns"][-1] == "meaning"
    with pytest.raises(OperandError):
        ask("format", nothing="1")


@pytest.mark.parametrize("view", ["swizzle", "descriptor"])
def test_what_is_seen_first_is_swizzled(view: str) -> None:
    """A table without a swizzle shows nothing."""
    assert "128B" in choices(site.VIEWS[view])[0]
