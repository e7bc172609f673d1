"""Loads and stores whose lanes are expected side by side (ptx/program/steps.py): those of memory.py, behind a straight path.

If all 32 lanes act and their bytes are side by side in one window, one check of the bounds holds for all, and whole vectors move.
Better code of a block contains this path, so that values stay in the host's registers (base/codegen/loading.py). Whatever
else there is, faults too, is for the functions of memory.py. These functions are not for instruments.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

from mmulator.base.codegen.lang import Native
from mmulator.base.codegen.ops import cast_ptr, load, rarely, stack, store
from mmulator.base.codegen.types import Ty, ptr, ptr_to, u8, u32, u64
from mmulator.runtime.native.hooks.events import READ, WRITE
from mmulator.runtime.native.memory.memory import (
    ELEMENT,
    ahead,
    joined,
    load_function,
    load_word_function,
    parted,
    put,
    store_function,
    vectors,
)
from mmulator.runtime.native.memory.shapes import row_function
from mmulator.runtime.native.state import Warp

U64, U32 = u64.vec(32), u32.vec(32)
SPACES = ("global", "shared")


def _both(function: Callable[..., Any], name: str, other: Native) -> Native:
    """A native function that can also be inlined. other: the one that it calls."""
    made = Native(function, name)
    made.other = other
    return made


@cache
def load_row_function(space: str, size: int, count: int) -> Native:
    """load_function for lanes that are expected side by side."""
    element: Ty = ELEMENT[size]
    bytes, far, vector = size * count, space == "global", element.vec(32)
    row: Any = row_function(space, bytes, READ)
    other = load_function(space, size, count)

    def load_row(w: ptr_to(Warp), mask: u32, at: ptr_to(u64), dst: ptr, site: u32) -> None:
        a = load(U64, at)
        place = row(w, mask, a, site)
        if rarely(u64(place) == 0):
            places = stack(u64, 32)  # of its own: a place whose address is known elsewhere is no register of the host
            image = stack(vector, count)
            store(a, places)
            other(w, mask, places, cast_ptr(u8, image), site)
            put(vectors(vector, cast_ptr(u8, image), count), dst)
        else:
            if far:
                ahead(place, 32 * bytes)
            put(parted(vectors(vector, place, count)), dst)

    return _both(load_row, f"load_row_{space}_{size}x{count}", other)


@cache
def load_row_word_function(space: str) -> Native:
    """load_word_function for lanes that are expected side by side."""
    row: Any = row_function(space, 4, READ)
    other: Any = load_word_function(space)
    far = space == "global"

    def load_row_word(w: ptr_to(Warp), mask: u32, a: U64, site: u32) -> U32:
        place = row(w, mask, a, site)
        if rarely(u64(place) == 0):
            return other(w, mask, a, site)
        if far:
            ahead(place, 128)
        return load(U32, place)

    return _both(load_row_word, f"load_row_word_{space}", other)


@cache
def store_row_function(space: str, size: int, count: int) -> Native:
    """store_function for lanes that are expected side by side."""
    element: Ty = ELEMENT[size]
    bytes, far, vector = size * count, space == "global", element.vec(32)
    row: Any = row_function(space, bytes, WRITE)
    other = store_function(space, size, count)

    def store_row(w: ptr_to(Warp), mask: u32, at: ptr_to(u64), src: ptr, site: u32) -> None:
        a = load(U64, at)
        place = row(w, mask, a, site)
        if rarely(u64(place) == 0):
            places = stack(u64, 32)
            image = stack(vector, count)
            store(a, places)
            put(vectors(vector, src, count), cast_ptr(u8, image))
            other(w, mask, places, cast_ptr(u8, image), site)
        else:
            if far:
                ahead(place, 32 * bytes, True)
            put(joined(vectors(vector, src, count)), place)

    return _both(store_row, f"store_row_{space}_{size}x{count}", other)
