"""wmma.load and wmma.store: the twin's moves, through the memory windows."""

from mmulator.codegen.lang import Native
from mmulator.layouts import Fragment
from mmulator.native.hooks.events import READ, WRITE
from mmulator.native.memory.locate import locate_function
from mmulator.native.state import Warp
from mmulator.twin.doors import Door
from mmulator.twin.moves import wmma_load_function, wmma_store_function


def load_function(space: str, f: Fragment) -> Native:
    return wmma_load_function(Door(space, Warp, locate_function(space), READ), f.bits, f.per_register)


def store_function(space: str, f: Fragment) -> Native:
    return wmma_store_function(Door(space, Warp, locate_function(space), WRITE), f.bits, f.per_register)
