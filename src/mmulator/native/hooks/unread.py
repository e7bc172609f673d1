"""The hook for registers that hold what a load read, which may stay unread (program/undefined.py)."""

from mmulator.codegen.lang import hook
from mmulator.codegen.types import ptr_to, u32
from mmulator.native.state import Warp

READ, WRITTEN, LOADED = range(3)


@hook
def value_moves(w: ptr_to(Warp), lanes: u32, number: u32, how: u32) -> None:
    """Called before lanes of a warp read or write such registers.

    w, lanes: the warp and lanes.
    number: number of the registers.
    how: READ, WRITTEN by another instruction, or LOADED.
    """
