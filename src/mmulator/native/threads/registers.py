"""The register file as asynchronous operations access it, between instructions of the program.

Instructions of a block read and write registers as values (compiler/emit/block.py), where an instrument sees them.
"""

from __future__ import annotations

from mmulator.codegen.lang import native
from mmulator.codegen.types import i32, ptr, ptr_to, u32, u64
from mmulator.native.hooks.events import registers
from mmulator.native.state import Warp


@native(inline=True)
def frame_of(w: ptr_to(Warp), frame: u64, slots: ptr_to(i32), count: u32, access: u32, site: u32) -> ptr:
    """Pointer to the registers of a frame, for an access to those in these slots."""
    registers(w, frame, slots, count, access, site)
    return w.regs + frame
