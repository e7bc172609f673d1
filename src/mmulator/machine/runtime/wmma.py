"""wmma.load and wmma.store: the twin's moves through the windows of a launch."""

from __future__ import annotations

from mmulator.codegen.lang import Native
from mmulator.machine.runtime.memory import locate_function
from mmulator.machine.state import Warp
from mmulator.twin.doors import Door
from mmulator.twin.moves import wmma_load_function, wmma_store_function


def _door(space: str) -> Door:
    return Door(space, Warp, locate_function(space))


def load_function(space: str, bits: int) -> Native:
    return wmma_load_function(_door(space), bits)


def store_function(space: str, bits: int) -> Native:
    return wmma_store_function(_door(space), bits)
