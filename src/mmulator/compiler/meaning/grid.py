"""griddepcontrol (PTX ISA 9.1, Parallel Synchronization and Communication Instructions)."""

from mmulator.compiler.emit.emitter import Emitter
from mmulator.compiler.lowering.binding import means
from mmulator.ptx.tree import Instruction
from mmulator.runtime.native.hooks.blocks import grid_waited


@means("griddepcontrol")
def griddepcontrol(e: Emitter, ins: Instruction) -> None:
    """Tell an instrument of a wait: launches do not overlap, so there is nothing to wait for."""
    if ins.form["action"] == "wait":
        e.call(grid_waited, e.w, e.lanes_of(ins), e.site)
