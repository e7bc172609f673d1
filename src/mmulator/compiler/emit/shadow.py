"""Masks of the lanes that hold a defined value in a register that may be undefined, kept while a block is written.

A lane's bit becomes 1 when it gets a value; the register file begins with zeros. Only used under an instrument that needs it.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from mmulator.base.codegen.types import ptr_to, u8, u32
from mmulator.base.codegen.values import Builder, Value, constant
from mmulator.base.errors import InternalError
from mmulator.ptx.program.blocks import Block
from mmulator.ptx.program.frames import Frame, state_of
from mmulator.ptx.program.undefined import MaybeUndefined

FULL = 0xFFFFFFFF
Masks = list["Value | None"]


class Writer(Protocol):
    """The parts of a block's writer that are used here: registers, and the executing lanes."""

    b: Builder
    block: Block
    frame: Frame
    regs: Value
    mask: Value


class Shadow:
    """The masks of one block. A mask has 32 bits, one for each lane; None stands for all lanes."""

    def __init__(self, e: Writer, doubt: MaybeUndefined) -> None:
        self.e, self.doubt = e, doubt
        self.known: dict[str, Value] = {}
        self.dirty: dict[str, None] = {}

    def doubts(self, name: str) -> bool:
        return name in self.doubt.registers

    def _place(self, name: str) -> Value:
        return self.e.b.emit(ptr_to(u8), f"getelementptr i8, ptr {self.e.regs.text}, i64 {self.e.frame.slots[state_of(name)]}")

    def of(self, name: str) -> Value | None:
        """Mask of the lanes that hold a value in a register."""
        if name not in self.doubt.registers:
            return None
        if name not in self.known:
            there = state_of(name) in self.e.frame.slots
            self.known[name] = self.e.b.load(u32, self._place(name)) if there else constant(self.e.b, u32, 0)
        return self.known[name]

    def set(self, name: str, mask: Value | None, lanes: Value | None = None) -> None:
        """Set the mask of a register; lanes outside `lanes` keep their bit."""
        if name not in self.doubt.registers:
            return
        value = mask if mask is not None else constant(self.e.b, u32, FULL)
        if lanes is not None:
            old = self.of(name)
            value = (value & lanes) | (old & ~lanes) if old is not None else value | ~lanes
        self.known[name] = value
        self.dirty[name] = None

    def set_behind(self, names: Sequence[str], rule: str) -> Callable[[], None]:
        """The check, behind an instruction, that its function has called `set` for each register. rule: the text of the error."""
        before = {name: self.known.get(name) for name in names if self.doubts(name)}

        def check() -> None:
            missing = [name for name, mask in before.items() if self.known.get(name) is mask]
            if missing:
                raise InternalError(f"{rule}, but {', '.join(missing)} has no new mask")

        return check

    def flush(self) -> None:
        """Store what later blocks read."""
        live = self.e.frame.live_out[self.e.block.index]
        for name in self.dirty:
            if state_of(name) in live and state_of(name) in self.e.frame.slots:
                place, mask = self._place(name), self.e.mask
                self.e.b.store((self.known[name] & mask) | (self.e.b.load(u32, place) & ~mask), place)
        self.dirty.clear()


def every(masks: Iterable[Value | None]) -> Value | None:
    """Mask of the lanes that are in all masks."""
    out: Value | None = None
    for mask in masks:
        if mask is not None:
            out = mask if out is None else out & mask
    return out


def some(masks: Iterable[Value | None]) -> Value | None:
    """Mask of the lanes that are in one of the masks."""
    out: Value | None = None
    for n, mask in enumerate(masks):
        if mask is None:
            return None
        out = mask if n == 0 or out is None else out | mask
    return out
