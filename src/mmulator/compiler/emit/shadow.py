"""Which lanes hold a value in a register that may be undefined, beside the register itself: while a block is written.

A lane's bit is 1 once it has been given a value; the register file begins with zeros. Only under an instrument that asks.
"""

from __future__ import annotations

from typing import Protocol

from mmulator.codegen.types import ptr_to, u8, u32
from mmulator.codegen.values import Builder, Value, constant
from mmulator.program.blocks import Block
from mmulator.program.frames import Frame, state_of
from mmulator.program.undefined import MaybeUndefined

FULL = 0xFFFFFFFF


class Writer(Protocol):
    """What is known of the block that is written: its registers, the lanes that execute it."""

    b: Builder
    block: Block
    frame: Frame
    regs: Value
    mask: Value


class Shadow:
    """Of one block. A mask is 32 bits, one a lane; None: all of them."""

    def __init__(self, e: Writer, doubt: MaybeUndefined) -> None:
        self.e, self.doubt = e, doubt
        self.known: dict[str, Value] = {}
        self.dirty: dict[str, None] = {}

    def doubts(self, name: str) -> bool:
        return name in self.doubt.registers

    def _place(self, name: str) -> Value:
        return self.e.b.emit(ptr_to(u8), f"getelementptr i8, ptr {self.e.regs.text}, i64 {self.e.frame.slots[state_of(name)]}")

    def of(self, name: str) -> Value | None:
        """Lanes that hold a value in a register."""
        if name not in self.doubt.registers:
            return None
        if name not in self.known:
            there = state_of(name) in self.e.frame.slots
            self.known[name] = self.e.b.load(u32, self._place(name)) if there else constant(self.e.b, u32, 0)
        return self.known[name]

    def set(self, name: str, mask: Value | None, lanes: Value | None = None) -> None:
        """What a register holds from here on; lanes outside `lanes` keep what they have."""
        if name not in self.doubt.registers:
            return
        value = mask if mask is not None else constant(self.e.b, u32, FULL)
        if lanes is not None:
            old = self.of(name)
            value = (value & lanes) | (old & ~lanes) if old is not None else value | ~lanes
        self.known[name] = value
        self.dirty[name] = None

    def flush(self) -> None:
        """Store what later blocks read."""
        live = self.e.frame.live_out[self.e.block.index]
        for name in self.dirty:
            if state_of(name) in live and state_of(name) in self.e.frame.slots:
                place, mask = self._place(name), self.e.mask
                self.e.b.store((self.known[name] & mask) | (self.e.b.load(u32, place) & ~mask), place)
        self.dirty.clear()
