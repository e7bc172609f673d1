"""The interface of native moves to memory: each move is compiled for a door, which alone turns addresses into pointers."""

from typing import Any, NamedTuple

from mmulator.base.codegen.lang import Native


class Door(NamedTuple):
    """A way into one kind of memory.

    name: part of symbols.
    context: type to which the first argument of the functions made for the door points.
    place: a native function of the context and an address, with further arguments of its user; returns a pointer, or null
        unless all bytes are there.
    access: the access that is passed to `place`.
    span: a native function of the context and two addresses; returns a pointer that leads from address 0 to all bytes between
        them, or null unless all are there.
    seen: a native function with the arguments of `place` that reports an access whose pointer is already known.
    begin: a native function of the context that returns the first line that is wanted.
    """

    name: str
    context: Any
    place: Native
    access: int = 0
    span: Native | None = None
    seen: Native | None = None
    begin: Native | None = None
