"""Parallel Synchronization and Communication Instructions (PTX ISA 9.1) between grids: griddepcontrol."""

from mmulator.isa.effects import ACTS, Ptxas
from mmulator.isa.pieces import SYNC, one, row
from mmulator.isa.row import Row

ROWS: tuple[Row, ...] = (
    row("griddepcontrol", (one("action", "launch_dependents", "wait"),), (), f"{SYNC}: griddepcontrol", (7, 8), 90,
        effects=ACTS.where("launch_dependents", ptxas=Ptxas.EXPANDED)),
)  # fmt: skip
