"""What the pages show is what the package's functions say, at every position of every operand of every form."""

import json
from functools import cache
from typing import Any

import numpy as np
import pytest

from mmulator.isa.names.words import legal_forms
from mmulator.matrix.explore import fragments, site
from mmulator.matrix.explore.view import leaves
from mmulator.matrix.inspect.layouts.layout import layout, operands
from mmulator.matrix.inspect.views.layout import subtitle


@cache
def files() -> dict[str, Any]:
    """The tables of the static files, by name."""
    found = {}
    name = ""
    for name, text in site.static():
        if name.startswith("data/"):
            table, _, value = text.removeprefix("table(").removesuffix(")\n").partition(",")
            assert name == f"data/{json.loads(table)}.js"
            found[json.loads(table)] = value
    assert name == "index.html", "a page stands where all that it loads is in place"
    return found


@cache
def pack(number: int) -> list[Any]:
    return json.loads(files()[f"documents-{number}"])


def document(number: int, packed: int) -> list[dict[str, Any]]:
    """A document as the page puts it together."""
    parts = pack(number // packed)[number % packed]
    return [large(block["file"]) if "file" in block else block for block in parts]


@cache
def large(number: int) -> dict[str, Any]:
    """A block in a file of its own, which several documents have."""
    return json.loads(files()[f"block-{number}"])


def maps_of(grid: dict[str, Any]) -> tuple[np.ndarray, ...]:
    """Copy, row and column of every (lane, register, index), from the cells of a grid."""
    registers = 1 + max(register for _, register, _ in grid["items"])
    shape = grid["lanes"], registers, len(grid["items"]) // registers
    found = [
        (place, copy, row, column) for copy, rows in enumerate(grid["cells"]) for row, cells in enumerate(rows)
        for column, cell in enumerate(cells) for place in (cell if isinstance(cell, list) else [cell])
    ]  # fmt: skip
    places, *axes = np.array(found).T
    maps = np.full((3, *shape), -1, np.int64)
    maps.reshape(3, -1)[:, places] = axes
    return tuple(maps)


@pytest.mark.full
def test_every_position_of_every_operand_of_every_form() -> None:
    assert sum(map(len, files().values())) < 15e6
    index = json.loads(files()["index"])
    view = next(v for v in index["views"] if v["name"] == "layout")
    grids: dict[int, tuple[np.ndarray, ...]] = {}
    seen = set()
    for family, instruction, operand, variant in leaves(fragments.choices()):
        number = view["choices"][family][instruction][operand][variant]
        said, grid, *_ = found = document(number, index["packed"])
        if number not in grids:
            grids[number] = maps_of(grid)
        form = fragments.forms()[instruction]
        own = layout(form, operand, **fragments.variants(form, operand)[variant])
        assert all(map(np.array_equal, grids[number], own.maps)), (instruction, operand, variant)
        per = own.per_register
        for n in (0, len(grid["items"]) - 1):
            held = own.holder(0, *divmod(n, per))
            bits = f"{held.low}" if held.low == held.high else f"{held.low}..{held.high}"
            assert grid["items"][n] == [held.name, held.register, bits]
        assert [*map(tuple, grid["spans"])] == [*own.spans] and said["lines"] == [subtitle(own)]
        assert found[2]["rows"][: len(own.rule)] == [*map(list, own.rule)]
        assert {*own.notes} <= {*found[3]["lines"]} and own.section in found[3]["lines"][-1]
        seen.add((instruction, operand))
    forms = [f for f in legal_forms() if operands(f)]
    assert {(f.mnemonic, operand) for f in forms for operand in operands(f)} <= seen and len(grids) > 900
