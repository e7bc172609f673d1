"""membar and fence (PTX ISA 9.1, Parallel Synchronization and Communication Instructions)."""

from __future__ import annotations

from mmulator.machine.emit.emitter import Emitter
from mmulator.machine.meaning.binding import means
from mmulator.ptx.tree import Instruction


@means("membar", "fence")
def fence(e: Emitter, ins: Instruction) -> None:
    """A real fence: other blocks run on other threads."""
    e.b.line("fence seq_cst")
