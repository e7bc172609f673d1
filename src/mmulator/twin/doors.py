"""Who turns an address into a pointer: native moves are made for a door, and go through no other."""

from __future__ import annotations

from typing import Any, NamedTuple

from mmulator.codegen.lang import Native


class Door(NamedTuple):
    """A way into one kind of memory.

    name: part of symbols. context: the type behind the first argument of the functions made for the door. place: a native
    function of it and an address, whose other arguments its user names; a pointer, or null if the bytes are not all there.
    access: what is passed to it as such. span: a native function of the context and two addresses; a pointer that leads from
    address 0 to all bytes between them, or null if they are not all there. seen: one of what `place` takes, which says what it
    would of an access where the pointer is known.
    """

    name: str
    context: Any
    place: Native
    access: int = 0
    span: Native | None = None
    seen: Native | None = None
