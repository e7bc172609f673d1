"""All rows, by opcode."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from mmulator.isa.row import Row, prove

# A mnemonic belongs to the first row that fits.
_ORDER = (
    "integer float half compare logic move convert stack memory atomic copies bulk tensor tensormap "
    "multimem texture surface video control barrier fence warp mma wgmma wmma matrix_move mbarrier "
    "cluster grid misc tcgen05"
)
CHAPTERS = tuple(import_module(f"mmulator.isa.{name}") for name in _ORDER.split())


def _collect() -> dict[str, tuple[Row, ...]]:
    rows: dict[str, list[Row]] = {}
    for chapter in CHAPTERS:
        for row in chapter.ROWS:
            prove(row)
            rows.setdefault(row.opcode, []).append(row)
    return {opcode: tuple(group) for opcode, group in rows.items()}


ROWS: Mapping[str, tuple[Row, ...]] = _collect()
