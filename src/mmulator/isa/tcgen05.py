"""TensorCore 5th Generation Family Instructions (PTX ISA 9.1). Not modelled yet."""

from __future__ import annotations

from mmulator.isa.pieces import later
from mmulator.isa.row import Row

ROWS: tuple[Row, ...] = (
    *later("tcgen05", "fifth generation tensor cores: later release",
           "TensorCore 5th Generation Family Instructions", (8, 6), 100),
)
