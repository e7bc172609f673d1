"""griddepcontrol (PTX ISA 9.1, Parallel Synchronization and Communication Instructions)."""

from mmulator.compiler.emit.emitter import Emitter
from mmulator.compiler.lowering.binding import means
from mmulator.ptx.tree import Instruction


@means("griddepcontrol")
def griddepcontrol(e: Emitter, ins: Instruction) -> None:
    """Write nothing: launches do not overlap, so there is nothing to wait for."""
