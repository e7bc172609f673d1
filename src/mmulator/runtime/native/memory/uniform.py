"""Loads of a warp whose lanes are known to have one address (ptx/program/uniform.py)."""

from __future__ import annotations

from functools import cache

from mmulator.base.codegen.lang import Native, unrolled
from mmulator.base.codegen.ops import cast_ptr, null, stack, store, trailing_zeros
from mmulator.base.codegen.types import Ty, boolean, ptr_to, u8, u16, u32, u64
from mmulator.ptx.program.addresses import SLOT_CONST, SLOT_LOCAL, SLOT_PARAM, SLOT_SHARED, SLOT_SHIFT
from mmulator.runtime.native.hooks.events import READ
from mmulator.runtime.native.memory import memory
from mmulator.runtime.native.memory.windows import NAMES, OFFSET_MASK, find_host, shared_span, window_of
from mmulator.runtime.native.state import Warp

U64 = u64.vec(32)
_ELEMENT: dict[int, Ty] = {1: u8, 2: u16, 4: u32, 8: u64}
_SLOT = {"const": SLOT_CONST, "param": SLOT_PARAM}


@cache
def _slowly(space: str, size: int, count: int) -> Native:
    """A function that loads lane by lane and records faults."""
    element, every = _ELEMENT[size], memory.load_function(space, size, count)

    def load_each(w: ptr_to(Warp), mask: u32, at: u64, dst: ptr_to(element), site: u32) -> None:
        places = stack(u64, 32)
        store(U64(at), places)
        image = stack(element, 32 * count)
        every(w, mask, places, image, site)
        for c in unrolled(count):
            dst[c] = image[trailing_zeros(mask) + 32 * c]

    return Native(load_each, f"load_each_{NAMES[space]}_{size}x{count}")


@cache
def run_function(space: str, size: int) -> Native:
    """A function that loads one element from each of several addresses, most of which are in one window, into words of `dst`.
    sites: of their instructions.
    """
    element, one = _ELEMENT[size], load_function(space, size, 1)
    near = space == "global"

    def load_run(w: ptr_to(Warp), mask: u32, at: ptr_to(u64), dst: ptr_to(u64), count: u32, sites: ptr_to(u32)) -> None:
        value = stack(element)
        one(w, mask, at[0], value, sites[0])
        dst[0] = u64(value[0])
        start = u64(0)
        most = u64(0)
        host = null(u8)
        if near:
            if w.cta.fault == 0:
                window = window_of(w.cta, at[0], sites[0])
                start = window.start
                if window.size >= size:
                    most = window.size - size
                    host = find_host(w, trailing_zeros(mask), at[0], size, READ, sites[0])
        for n in range(u32(1), count):
            offset = at[n] - start
            if u64(host) != 0 and offset <= most and (at[n] & (size - 1)) == 0:
                dst[n] = u64(cast_ptr(element, host + (at[n] - at[0]))[0])
            else:
                one(w, mask, at[n], value, sites[n])
                dst[n] = u64(value[0])

    return Native(load_run, f"load_run_{NAMES[space]}_{size}")


@cache
def load_function(space: str, size: int, count: int) -> Native:
    """A function that loads `count` elements of `size` bytes, once for all lanes of `mask`. It is equivalent to
    memory.load_function, with its faults, except that after a fault it may load arbitrary values, which are not used.
    """
    element, slowly, bytes = _ELEMENT[size], _slowly(space, size, count), size * count
    shared, base, own_slot = space == "shared", _SLOT.get(space, 0) << SLOT_SHIFT, space in _SLOT
    of_cluster = int(space == "shared::cluster")  # each block's at a place of its own

    def load_one(w: ptr_to(Warp), mask: u32, at: u64, dst: ptr_to(element), site: u32) -> None:
        if mask == 0:
            return
        host = null(element)
        other = u32(1)
        if shared:
            if (at & (bytes - 1)) == 0:
                first = shared_span(w, at, at + (bytes - 1))
                if u64(first) != 0:
                    host = cast_ptr(element, first + at)
        else:
            slot = at >> SLOT_SHIFT
            strange = slot == SLOT_SHARED or slot == SLOT_LOCAL or boolean(of_cluster)
            if own_slot:
                strange = at > OFFSET_MASK
            if not strange:
                other = u32(0)
                host = cast_ptr(element, find_host(w, trailing_zeros(mask), at | base, bytes, READ, site))
        if u64(host) != 0:
            for c in unrolled(count):
                dst[c] = host[c]
        elif other != 0:
            slowly(w, mask, at, dst, site)

    return Native(load_one, f"load_one_{NAMES[space]}_{size}x{count}")
