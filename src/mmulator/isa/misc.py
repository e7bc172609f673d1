"""Miscellaneous Instructions (PTX ISA 9.1)."""

from __future__ import annotations

from mmulator.isa.pieces import imm, later, one, row, src, type_
from mmulator.isa.row import Row

_MISC = "Miscellaneous Instructions"

ROWS: tuple[Row, ...] = (
    row("nanosleep", (type_("u32"),), (src("t", "u32"),), f"{_MISC}: nanosleep", (6, 3), 70),
    row("trap", (), (), f"{_MISC}: trap"),
    row("brkpt", (), (), f"{_MISC}: brkpt"),
    row("pmevent", (), (imm("a", 0, 15),), f"{_MISC}: pmevent", (1, 4)),
    row("pmevent.mask", (), (imm("a", 0, 0xFFFF),), f"{_MISC}: pmevent", (3, 0), 20),
    row("setmaxnreg", (one("action", "inc", "dec"), one("sync", "sync"), one("aligned", "aligned"), type_("u32")),
        (imm("imm-reg-count", values=tuple(range(24, 257, 8))),), f"{_MISC}: setmaxnreg", (8, 0), 90, specific=True),
    *later("fabric", "fabric operations are not modelled", "Fabric Instructions", (9, 3), 100),
)  # fmt: skip
