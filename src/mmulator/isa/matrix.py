"""The rows of matrix instructions, by opcode. Code that handles only matrix instructions imports these instead of all rows."""

from collections.abc import Iterator, Mapping

from mmulator.isa import matrix_move, mma, wgmma, wmma
from mmulator.isa.form import Form, forms_of
from mmulator.isa.row import Row, prove

CHAPTERS = (mma, wgmma, wmma, matrix_move)
MATRIX_ROWS: tuple[Row, ...] = tuple(row for chapter in CHAPTERS for row in chapter.ROWS)
FAMILIES: Mapping[str, tuple[Row, ...]] = {
    family: tuple(row for row in MATRIX_ROWS if row.opcode == family)
    for family in dict.fromkeys(row.opcode for row in MATRIX_ROWS)
}
# The file that a family's rows are in; the files of other storeys have its name.
FILES: Mapping[str, str] = {row.opcode: chapter.__name__.rpartition(".")[2] for chapter in CHAPTERS for row in chapter.ROWS}
for _row in MATRIX_ROWS:
    prove(_row)


def matrix_forms(family: str | None = None) -> Iterator[Form]:
    """Every form of a family of matrix instructions, or of all families: about two thousand, generated on demand."""
    for row in FAMILIES[family] if family else MATRIX_ROWS:
        yield from forms_of(row)
