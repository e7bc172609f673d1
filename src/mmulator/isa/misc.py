"""Miscellaneous Instructions (PTX ISA 9.1)."""

from mmulator.isa.effects import ACTS, Ends, Ptxas, Together
from mmulator.isa.pieces import imm, later, one, row, src, type_
from mmulator.isa.row import Row

_MISC = "Miscellaneous Instructions"
_STOPS = ACTS.but(ends=Ends.TRAP, counted_as="control")
_EXPANDED = ACTS.but(ptxas=Ptxas.EXPANDED)

ROWS: tuple[Row, ...] = (
    row("nanosleep", (type_("u32"),), (src("t", "u32"),), f"{_MISC}: nanosleep", (6, 3), 70, effects=ACTS),
    row("trap", (), (), f"{_MISC}: trap", effects=_STOPS),
    row("brkpt", (), (), f"{_MISC}: brkpt", effects=_STOPS),
    row("pmevent", (), (imm("a", 0, 15),), f"{_MISC}: pmevent", (1, 4), effects=_EXPANDED),
    row("pmevent.mask", (), (imm("a", 0, 0xFFFF),), f"{_MISC}: pmevent", (3, 0), 20, effects=_EXPANDED),
    row("setmaxnreg", (one("action", "inc", "dec"), one("sync"), one("aligned"), type_("u32")),
        (imm("imm-reg-count", values=tuple(range(24, 257, 8))),), f"{_MISC}: setmaxnreg", (8, 0), 90, specific=True,
        leading="action", effects=_EXPANDED.but(resizes=True, together=Together.WARP).where("inc", ends=Ends.WAIT)),
    *later("fabric", "fabric operations are not modelled", "Fabric Instructions", (9, 3), 100),
)  # fmt: skip
