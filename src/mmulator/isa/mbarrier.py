"""Parallel Synchronization and Communication Instructions: mbarrier (PTX ISA 9.1). Not modelled yet."""

from __future__ import annotations

from mmulator.isa.pieces import SYNC, later
from mmulator.isa.row import Row

_LATER = "mbarrier objects: later release"

ROWS: tuple[Row, ...] = (*later("mbarrier cp.async.mbarrier", _LATER, SYNC, (7, 0), 80),)
