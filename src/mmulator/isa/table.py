"""All rows of the instructions that are no matrix instructions, by opcode."""

from __future__ import annotations

from collections.abc import Mapping

from mmulator.isa import (
    atomic,
    barrier,
    bulk,
    cluster,
    compare,
    control,
    convert,
    copies,
    fence,
    float,
    grid,
    half,
    integer,
    logic,
    mbarrier,
    memory,
    misc,
    move,
    stack,
    surface,
    tcgen05,
    texture,
    video,
    warp,
)
from mmulator.isa.row import TYPE_SLOTS, Row
from mmulator.isa.types import is_type

# A mnemonic belongs to the first row that fits.
CHAPTERS = (
    integer, float, half, compare, logic, move, convert, stack, memory, atomic, copies, bulk, texture, surface, video,
    control, barrier, fence, warp, mbarrier, cluster, grid, misc, tcgen05,
)  # fmt: skip


def _check(row: Row) -> None:
    """What must hold of every row; raises AssertionError at import if a table is wrong."""
    slots = {s.name for s in row.slots}
    if len(slots) != len(row.slots):
        raise AssertionError(f"{row.name}: two slots of one name")
    for slot in row.slots:
        if slot.name in TYPE_SLOTS and row.name != "cvt.pack" and not all(map(is_type, slot.choices)):
            raise AssertionError(f"{row.name}: {slot.choices} are not all types")
    for operand in row.operands:
        named = operand.type.removeprefix("wide:")
        if named and named not in slots and not is_type(named):
            raise AssertionError(f"{row.name}: operand {operand.name} has type {operand.type}")
        for reference in (operand.when, operand.per):
            if reference and reference not in slots:
                raise AssertionError(f"{row.name}: operand {operand.name} refers to {reference}")
    if not row.section.title or (row.open and row.status.runs):
        raise AssertionError(f"{row.name}: no section, or no reason")


def _collect() -> dict[str, tuple[Row, ...]]:
    rows: dict[str, list[Row]] = {}
    for chapter in CHAPTERS:
        for row in chapter.ROWS:
            _check(row)
            rows.setdefault(row.opcode, []).append(row)
    return {opcode: tuple(group) for opcode, group in rows.items()}


ROWS: Mapping[str, tuple[Row, ...]] = _collect()
