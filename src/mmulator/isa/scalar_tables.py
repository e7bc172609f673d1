"""All rows of the scalar tables, by opcode."""

from __future__ import annotations

from collections.abc import Mapping

from mmulator.isa.scalar import Row


def _collect() -> dict[str, tuple[Row, ...]]:
    rows: dict[str, list[Row]] = {}
    for chapter in ():
        for row in chapter:
            rows.setdefault(row.opcode, []).append(row)
    return {opcode: tuple(group) for opcode, group in rows.items()}


ROWS: Mapping[str, tuple[Row, ...]] = _collect()
