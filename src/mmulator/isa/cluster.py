"""Instructions of thread block clusters (PTX ISA 9.1). Of a cluster of one block, all that is modelled, mapa and getctarank."""

from __future__ import annotations

from mmulator.isa.pieces import MOVES, SYNC, dst, later, maybe, row, src, type_
from mmulator.isa.row import OperandSpec, Row

_SIZE = type_("u32", "u64")
_LATER = "thread block clusters: later release"

ROWS: tuple[Row, ...] = (
    row("mapa", (maybe("space", "shared::cluster"), _SIZE), (dst(), OperandSpec("a", "symbol", "type"), src("b", "u32")),
        f"{MOVES}: mapa", (7, 8), 90),
    row("getctarank", (maybe("space", "shared::cluster"), _SIZE), (dst("u32"), OperandSpec("a", "symbol", "type")),
        f"{MOVES}: getctarank", (7, 8), 90),
    *later("barrier.cluster", _LATER, SYNC, (7, 8), 90),
    *later("clusterlaunchcontrol", _LATER, SYNC, (8, 6), 100),
)  # fmt: skip
