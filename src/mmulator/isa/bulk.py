"""Data Movement and Conversion Instructions (PTX ISA 9.1): bulk and tensor copies. Not modelled yet."""

from __future__ import annotations

from mmulator.isa.pieces import MOVES, SYNC, later
from mmulator.isa.row import Row

_BULK = "bulk asynchronous copies: later release"

ROWS: tuple[Row, ...] = (
    *later("cp.async.bulk cp.reduce", _BULK, MOVES, (8, 0), 90),
    *later("st.async", _BULK, MOVES, (8, 1), 90),
    *later("st.bulk", _BULK, MOVES, (8, 6), 100),
    *later("red.async", _BULK, SYNC, (8, 1), 90),
    *later("tensormap", "tensor maps: later release", MOVES, (8, 3), 90),
)
