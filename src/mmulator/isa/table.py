"""All rows, by opcode."""

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
    matrix_move,
    mbarrier,
    memory,
    misc,
    mma,
    move,
    multimem,
    stack,
    tcgen05,
    tensor,
    tensormap,
    texture,
    video,
    warp,
    wgmma,
    wmma,
)
from mmulator.isa.row import Row, prove

# A mnemonic belongs to the first row that fits.
CHAPTERS = (
    integer, float, half, compare, logic, move, convert, stack, memory, atomic, copies, bulk, tensor, tensormap, multimem,
    texture, video, control, barrier, fence, warp, mma, wgmma, wmma, matrix_move, mbarrier, cluster, grid, misc, tcgen05,
)  # fmt: skip


def _collect() -> dict[str, tuple[Row, ...]]:
    rows: dict[str, list[Row]] = {}
    for chapter in CHAPTERS:
        for row in chapter.ROWS:
            prove(row)
            rows.setdefault(row.opcode, []).append(row)
    return {opcode: tuple(group) for opcode, group in rows.items()}


ROWS: Mapping[str, tuple[Row, ...]] = _collect()
