"""All rows of the scalar tables, by opcode."""

from __future__ import annotations

from collections.abc import Mapping

from mmulator.isa import control, float, integer, logic, memory, move, video
from mmulator.isa.scalar import TYPE_GROUPS, Row, is_type

CHAPTERS = (
    integer.ROWS,
    float.ROWS,
    logic.ROWS,
    move.ROWS,
    memory.ROWS,
    video.ROWS,
    control.ROWS,
)


def _check(row: Row) -> None:
    """What must hold of every row; raises AssertionError at import if a table is wrong."""
    groups = {g.name: g for g in row.groups}
    if len(groups) != len(row.groups):
        raise AssertionError(f"{row.name}: two groups of one name")
    for group in row.groups:
        if group.name in TYPE_GROUPS and row.name != "cvt.pack" and not all(map(is_type, group.alternatives)):
            raise AssertionError(f"{row.name}: {group.alternatives} are not all types")
    for operand in row.operands:
        named = operand.type.removeprefix("wide:")
        if named and named not in groups and not is_type(named):
            raise AssertionError(f"{row.name}: operand {operand.name} has type {operand.type}")
        for reference in (operand.when, operand.count):
            if isinstance(reference, str) and reference and reference not in groups:
                raise AssertionError(f"{row.name}: operand {operand.name} refers to {reference}")
    if not row.section or (row.open and not row.unsupported):
        raise AssertionError(f"{row.name}: no section, or no reason")


def _collect() -> dict[str, tuple[Row, ...]]:
    rows: dict[str, list[Row]] = {}
    for chapter in CHAPTERS:
        for row in chapter:
            _check(row)
            rows.setdefault(row.opcode, []).append(row)
    return {opcode: tuple(group) for opcode, group in rows.items()}


ROWS: Mapping[str, tuple[Row, ...]] = _collect()
