"""Who turns an address into a pointer: native moves are made for a door, and go through no other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mmulator.codegen.lang import Native
from mmulator.codegen.ops import select
from mmulator.codegen.types import Struct, ptr, u64
from mmulator.codegen.values import Value, constant

READ, WRITE = 0, 1


@dataclass(frozen=True)
class Door:
    """A way into one kind of memory.

    name: part of symbols. context: the type behind the first argument of the functions made for the door.
    find(context, lane, address, bytes, access, number): a native function or a macro, the host address as u64, or 0 if
    the bytes are not all there; access is READ or WRITE, number the operation's, as its caller has it.
    refuse: a native function of the same arguments to call then, if `find` does not do all itself.
    """

    name: str
    context: Any
    find: Native | Callable[..., Value]
    refuse: Native | None = None


# An image of memory in an array: its first byte, the address of that, and how many there are.
Image = Struct("Image", [("host", ptr), ("start", u64), ("size", u64)])


def _find(image: Value, lane: int, address: Value, size: int, access: int, number: int) -> Value:
    at, limit = address - image.field("start"), image.field("size")
    return select((at < limit) & (at + size <= limit), u64(image.field("host")) + at, constant(image.b, u64, 0))


IMAGE = Door("image", Image, _find)
