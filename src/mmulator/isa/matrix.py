"""The rows of matrix instructions, by opcode: all that is needed where no other instruction is asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from mmulator.isa import matrix_move, mma, wgmma, wmma
from mmulator.isa.form import Form, forms_of
from mmulator.isa.row import Row, prove

MATRIX_ROWS: tuple[Row, ...] = (*mma.ROWS, *wgmma.ROWS, *wmma.ROWS, *matrix_move.ROWS)
FAMILIES: Mapping[str, tuple[Row, ...]] = {
    family: tuple(row for row in MATRIX_ROWS if row.opcode == family)
    for family in ("mma", "wgmma", "wmma", "ldmatrix", "stmatrix", "movmatrix")
}
for _row in MATRIX_ROWS:
    prove(_row)


def matrix_forms(family: str | None = None) -> Iterator[Form]:
    """Every form of a family of matrix instructions, or of all: some two thousand, made as they are asked for."""
    for row in FAMILIES[family] if family else MATRIX_ROWS:
        yield from forms_of(row)
