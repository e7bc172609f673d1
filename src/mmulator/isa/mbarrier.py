"""Parallel Synchronization and Communication Instructions: mbarrier (PTX ISA 9.1)."""

from __future__ import annotations

from mmulator.isa.effects import ACTS, Ends, Memory
from mmulator.isa.pieces import SYNC, addr, later, maybe, one, row, src, type_
from mmulator.isa.row import OperandSpec, Row

_LATER = "mbarrier objects: later release"
_SPACE = maybe("space", "shared", "shared::cta")
_WORD = ACTS.but(memory=Memory.ATOMIC, counted_as="barrier")
_WAIT = ACTS.but(memory=Memory.READ, ends=Ends.WAIT, counted_as="barrier")

ROWS: tuple[Row, ...] = (
    row("mbarrier.init", (_SPACE, type_("b64")), (addr(), src("count", "u32")),
        f"{SYNC}: mbarrier.init", (7, 0), 80, effects=_WORD),
    row("mbarrier.try_wait.parity", (_SPACE, type_("b64")),
        (OperandSpec("waitComplete", "dst", "pred", "w"), addr(), src("phaseParity", "u32")),
        f"{SYNC}: mbarrier.try_wait", (7, 8), 90, effects=_WAIT),
    row("mbarrier.arrive", (one("tx", "expect_tx"), _SPACE, type_("b64")),
        (OperandSpec("state", "dst", "b64", "w", sink=True), addr(), src("txCount", "u32")),
        f"{SYNC}: mbarrier.arrive", (8, 0), 90,
        effects=_WORD),
    row("mbarrier.arrive", (_SPACE, type_("b64")),
        (OperandSpec("state", "dst", "b64", "w", sink=True), addr()), f"{SYNC}: mbarrier.arrive", (7, 0), 80, effects=_WORD),
    *later("mbarrier cp.async.mbarrier", _LATER, SYNC, (7, 0), 80),
)
