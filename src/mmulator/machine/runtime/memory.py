"""Loads and stores between memory behind the door (windows.py) and registers."""

from __future__ import annotations

from functools import cache

from mmulator.codegen.lang import Native, unrolled
from mmulator.codegen.ops import advance, all_lanes, bits_mask, cast_ptr, gather, iota, load, stack, store, trailing_zeros
from mmulator.codegen.types import Ty, ptr, ptr_to, u8, u16, u32, u64
from mmulator.machine.runtime.events import READ, WRITE
from mmulator.machine.runtime.windows import NAMES, SPACES
from mmulator.machine.state import FULL, Warp

U64, POINTERS = u64.vec(32), ptr.vec(32)
_ELEMENT: dict[int, Ty] = {1: u8, 2: u16, 4: u32, 8: u64}


@cache
def load_function(space: str, size: int, count: int) -> Native:
    """`count` elements of `size` bytes a lane; element c of lane l goes to dst[32 * c + l]. Idle lanes get anything."""
    translate, element = SPACES[space], _ELEMENT[size]
    vector = element.vec(32)

    def load_(w: ptr_to(Warp), mask: u32, at: ptr_to(u64), dst: ptr, site: u32) -> None:
        host = stack(ptr, 32)
        ok = translate(w, mask, at, size * count, READ, site, host)
        if ok == 0:
            return
        where = load(U64, host)
        if ok == FULL and all_lanes((where - where[0]) == iota(U64, 0, size * count)) and count == 1:
            store(load(vector, host[0]), dst)
            return
        if size >= 4:
            h = load(POINTERS, host)
            for c in unrolled(count):
                store(gather(vector, advance(h, c * size), bits_mask(ok)), cast_ptr(vector, dst) + c)
            return
        out = cast_ptr(element, dst)
        left = ok
        while left != 0:
            lane = trailing_zeros(left)
            left = left & (left - 1)
            source = cast_ptr(element, host[lane])
            for c in unrolled(count):
                out[lane + 32 * c] = source[c]

    return Native(load_, f"load_{NAMES[space]}_{size}x{count}")


@cache
def store_function(space: str, size: int, count: int) -> Native:
    """The reverse. Of lanes that store to one address the highest wins."""
    translate, element = SPACES[space], _ELEMENT[size]
    vector = element.vec(32)

    def store_(w: ptr_to(Warp), mask: u32, at: ptr_to(u64), src: ptr, site: u32) -> None:
        host = stack(ptr, 32)
        ok = translate(w, mask, at, size * count, WRITE, site, host)
        if ok == 0:
            return
        where = load(U64, host)
        if count == 1 and ok == FULL and all_lanes((where - where[0]) == iota(U64, 0, size)):
            store(load(vector, src), host[0])
            return
        values = cast_ptr(element, src)
        left = ok
        while left != 0:
            lane = trailing_zeros(left)
            left = left & (left - 1)
            target = cast_ptr(element, host[lane])
            for c in unrolled(count):
                target[c] = values[lane + 32 * c]

    return Native(store_, f"store_{NAMES[space]}_{size}x{count}")


MEMORY = [*SPACES.values()]
