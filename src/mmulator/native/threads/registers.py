"""The door to the register file for what reads and writes registers behind the program's back: asynchronous operations.

Instructions of a block read and write registers as values (compiler/emit/block.py), which an instrument sees there.
"""

from __future__ import annotations

from mmulator.codegen.lang import native
from mmulator.codegen.types import i32, ptr, ptr_to, u32, u64
from mmulator.native.hooks.events import registers
from mmulator.native.state import Warp


@native(inline=True)
def frame_of(w: ptr_to(Warp), frame: u64, slots: ptr_to(i32), count: u32, access: u32, site: u32) -> ptr:
    """Where the registers of a frame lie, for an access to those in these slots."""
    registers(w, frame, slots, count, access, site)
    return w.regs + frame
