"""Tensor memory of tcgen05: the lanes and columns of registers, accumulators, A, scale factors and metadata.

Tensor Memory; Matrix and Data Movement Shape; Data Path Layout Organization (PTX ISA 9.1), whose layouts are pictures; the
formulas agree with those of CuTe (copy_traits_sm100.hpp, mma_traits_sm100_frag.hpp) and of Triton. No B200 was asked.
"""

from dataclasses import dataclass
from typing import Any

LANES, COLUMNS = 128, 512  # of a CTA; a cell has 32 bits
QUARTER = 32  # lanes that one warp of a warpgroup reaches

# Shape of tcgen05.ld and tcgen05.st: registers of a thread, and columns, for each repetition.
MOVES: dict[str, tuple[int, int]] = {
    "32x32b": (1, 1), "16x64b": (1, 2), "16x128b": (2, 4), "16x256b": (4, 8), "16x32bx2": (1, 1),
}  # fmt: skip


def moved(shape: str, thread: Any, register: Any, split: Any = 0, wide: int = 1) -> tuple[Any, Any]:
    """(lane, column) of a register, relative to the address of tcgen05.ld or tcgen05.st.

    shape: a key of MOVES.
    thread: lane of the warp. register: number in the instruction's vector.
    split: of .16x32bx2, immHalfSplitoff: columns from those of threads 0 to 15 to those of threads 16 to 31.
    wide: columns of a register: 2 with .pack::16b and .unpack::16b, where it holds the low halves of this column and the next.

    thread, register and split are integers, or any objects with an integer's operators.
    """
    t, r = thread, register
    if shape == "32x32b":
        return t, r * wide
    if shape == "16x64b":
        return t // 4 + t % 2 * 8, (r * 2 + t // 2 % 2) * wide
    if shape == "16x128b":
        return t // 4 + r % 2 * 8, (r // 2 * 4 + t % 4) * wide
    if shape == "16x256b":
        return t // 4 + r // 2 % 2 * 8, (r // 4 * 8 + t % 4 * 2 + r % 2) * wide
    return t % 16, r * wide + t // 16 * split


def registers_of(shape: str, num: int, packed: bool = False) -> int:
    """Registers of a thread: as many with .pack::16b and .unpack::16b, which double the columns."""
    return MOVES[shape][0] * num


def columns_of(shape: str, num: int, packed: bool = False) -> int:
    """Columns that one tcgen05.ld or tcgen05.st covers; of .16x32bx2, those of each half."""
    return MOVES[shape][1] * num * (1 + packed)


def layout_id(m: int, pair: bool, ws: bool, sparse: bool) -> str:
    """The letter of a layout in the specification, `A` to `G`.

    m: rows of D, of both CTAs for a pair. pair: .cta_group::2. ws: .ws. sparse: .sp.
    """
    if pair:
        return "A" if m == 256 else "C" if sparse else "B"
    return {32: "G", 64: "E" if ws else "F", 128: "D"}[m]


@dataclass(frozen=True)
class TensorPiece:
    """A block of D whose rows lie in consecutive lanes and whose columns lie in consecutive columns of tensor memory.

    row, rows: first row of the CTA's part, and how many.
    first, columns: first column of D, and how many.
    lane, column: where the block begins, relative to the address of D.
    """

    row: int
    rows: int
    first: int
    columns: int
    lane: int
    column: int


PARTS = {"A": 128, "D": 128, "F": 64, "C": 64, "B": 64, "E": 64, "G": 32}  # rows of a CTA, by layout


def pieces(layout: str, columns: int) -> tuple[TensorPiece, ...]:
    """The blocks of D [rows of a CTA, columns] in tensor memory.

    A in tensor memory has the lanes of D, its elements along k packed in cells from the address of A on: B, E and G need it
    in the lanes of each piece (B: CuTe; E and G: inferred).
    """
    rows = PARTS[layout]
    if layout in "FC":
        return tuple(TensorPiece(16 * q, 16, 0, columns, QUARTER * q, 0) for q in range(4))
    parts = LANES // rows
    each = columns // parts
    return tuple(TensorPiece(0, rows, each * p, each, rows * p, 0) for p in range(parts))


def place(layout: str, m: Any, n: Any, columns: Any) -> tuple[Any, Any]:
    """(lane, column) of element (m, n) of D, relative to the address of D.

    layout: a letter from `layout_id`.
    m: row within the CTA's part.
    n: column of D, which has so many `columns`.
    """
    rows = PARTS[layout]
    if layout in "FC":
        return m // 16 * QUARTER + m % 16, n
    each = columns // (LANES // rows)
    return m + n // each * rows, n % each


def a_place(layout: str, bits: int, m: Any, k: Any, copy: Any = 0) -> tuple[Any, Any, Any]:
    """(lane, column, lowest bit) of element (m, k) of A in tensor memory, relative to the address of A.

    layout: a letter from `layout_id`.
    bits: of an element's place: 32, 16, 8, or 4 for the kinds mxf4 and mxf4nvf4.
    m, k: row within the CTA's part, and number of a stored element.
    copy: the layouts B (2 copies), E (2) and G (4) hold A more than once.
    """
    per = 32 // bits
    return place(layout, m, copy, LANES // PARTS[layout])[0], k // per, k % per * bits


def copies(layout: str) -> int:
    """How often A and the metadata are held, each time PARTS[layout] lanes further."""
    return 1 if layout in "FC" else LANES // PARTS[layout]


def scale_place(i: Any, s: Any, lines: Any = 0) -> tuple[Any, Any, Any]:
    """(lane % 32, column, byte) of scale factor s of row or column i; all quarters of the lanes hold a copy.

    i: row of A or column of B, of so many `lines`. s: number of the factor, with the scale factor ID of the instruction
        descriptor added. From 4 on, at K = 96, factors are in cells further on (CUTLASS's layout; B: figures for N up to 128 and
        beyond).
    """
    return i % QUARTER, i // QUARTER + s // 4 * scale_step(lines), s % 4


def scale_step(lines: Any) -> Any:
    """Columns from the cells of scale factors 0 to 3 to those of factors 4 to 7."""
    return (lines + 127) // 128 * 4


def scale_span(lines: int, first: int, factors: int) -> int:
    """Columns that hold the scale factors of rows of A or columns of B. first: scale factor ID. factors: of each line."""
    return max(first + factors - 1, 0) // 4 * scale_step(lines) + -(-lines // QUARTER)


def scale_parts(layout: str, side: str, lines: int) -> tuple[tuple[int, int, tuple[int, ...]], ...]:
    """(first line, lines, quarters that hold them) of scale factors: rows of A or columns of B; `scale_place` counts from
    the first line of its part.

    Layout B has the first half of B's columns in quarters 0 and 1, the second half in quarters 2 and 3.
    """
    if layout == "B" and side == "b":
        half = lines // 2
        return (0, half, (0, 1)), (half, half, (2, 3))
    return ((0, lines, (0, 1, 2, 3)),)


def metadata_place(bits: int, m: Any, j: Any, layout: str = "D", copy: Any = 0, selector: Any = 0) -> tuple[Any, Any, Any]:
    """(lane, column, lowest bit) of the index of stored element j of row m, relative to the address of the metadata.

    bits: of an element of A: 32 (tf32: an index has 4 bits), 16, 8 (also narrower elements in bytes), or 4 (mxf4 and
        mxf4nvf4: two neighbours share an index).
    m: row within the CTA's part.
    layout: a letter from `layout_id`. A and D: CuTe. E and G hold copies: CuTe. F and C, with 16 lanes in a quarter: inferred.
    copy: number of the copy.
    selector: sparsity selector, 0 or 1 with 16 and 32 bits: the column of two (CuTe, Mosaic).
    """
    bit = j // 2 * 2 if bits == 4 else j * (4 if bits == 32 else 2)
    group = QUARTER if layout in "FC" else 16
    first = m // 16 * group + copy * PARTS[layout]
    if bits <= 8:
        return first + m % 16, bit // 32, bit % 32
    return first + m % 8 + bit // 16 * 8, bit * 0 + selector, m // 8 % 2 * 16 + bit % 16
