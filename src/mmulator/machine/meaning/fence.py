"""membar and fence (PTX ISA 9.1, Parallel Synchronization and Communication Instructions)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mmulator.machine.meaning import lower
from mmulator.ptx.tree import Instruction

if TYPE_CHECKING:
    from mmulator.machine.compile.control import Emitter


@lower("membar", "fence")
def fence(e: Emitter, ins: Instruction) -> None:
    """A real fence: other blocks run on other threads."""
    e.b.line("fence seq_cst")
