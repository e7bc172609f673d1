"""Data Movement and Conversion Instructions (PTX ISA 9.1): bulk and tensor copies. Not modelled yet."""

from __future__ import annotations

from mmulator.isa.effects import ACTS, Memory, Queue, Step
from mmulator.isa.pieces import MOVES, SYNC, addr, later, one, row, src
from mmulator.isa.row import Row

_BULK = "bulk asynchronous copies: later release"

_COPIES = ACTS.but(memory=Memory.COPY, queue=Queue.BULK, step=Step.ISSUE, counted_as="memory")

ROWS: tuple[Row, ...] = (
    row("cp.async.bulk", (one("dst", "shared::cluster"), one("src", "global"), one("completes", "mbarrier::complete_tx::bytes")),
        (addr("dstMem"), addr("srcMem"), src("size", "u32"), addr("mbar")), f"{MOVES}: cp.async.bulk", (8, 0), 90,
        effects=_COPIES),
    *later("cp.async.bulk cp.reduce", _BULK, MOVES, (8, 0), 90),
    *later("st.async", _BULK, MOVES, (8, 1), 90),
    *later("st.bulk", _BULK, MOVES, (8, 6), 100),
    *later("red.async", _BULK, SYNC, (8, 1), 90),
    *later("tensormap", "tensor maps: later release", MOVES, (8, 3), 90),
)
