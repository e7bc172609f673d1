"""All rows of the scalar tables, by opcode."""

from __future__ import annotations

from collections.abc import Mapping

from mmulator.isa import scalar_control, scalar_float, scalar_integer, scalar_logic, scalar_memory, scalar_move
from mmulator.isa.scalar import Row

CHAPTERS = (
    scalar_integer.ROWS,
    scalar_float.ROWS,
    scalar_logic.ROWS,
    scalar_move.ROWS,
    scalar_memory.ROWS,
    scalar_control.ROWS,
)


def _collect() -> dict[str, tuple[Row, ...]]:
    rows: dict[str, list[Row]] = {}
    for chapter in CHAPTERS:
        for row in chapter:
            rows.setdefault(row.opcode, []).append(row)
    return {opcode: tuple(group) for opcode, group in rows.items()}


ROWS: Mapping[str, tuple[Row, ...]] = _collect()
