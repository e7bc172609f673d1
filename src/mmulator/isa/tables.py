"""Every matrix row of the instruction tables, by family."""

from __future__ import annotations

from collections.abc import Iterator

from mmulator.isa import matrix_move, mma, wgmma, wmma
from mmulator.isa.forms import MatrixForm, Row

ROWS: tuple[Row, ...] = (*mma.ROWS, *wgmma.ROWS, *wmma.ROWS, *matrix_move.ROWS)
FAMILIES: dict[str, tuple[Row, ...]] = {
    family: tuple(r for r in ROWS if r.family == family)
    for family in ("mma", "wgmma", "wmma", "ldmatrix", "stmatrix", "movmatrix")
}


def all_forms(family: str | None = None) -> Iterator[MatrixForm]:
    """Every form of a family, or of all: some two thousand, made as they are asked for."""
    for row in FAMILIES[family] if family else ROWS:
        yield from row.forms()
