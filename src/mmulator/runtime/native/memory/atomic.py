"""atom and red on host memory: one lane after another, each as one atomic operation of the host.

Windows are placed so that an address that is aligned for the kernel is aligned for the host too (runtime/launch/arena.py). Only
the worker that runs a cluster accesses its shared memory, so plain operations of the host are atomic there. Lanes with one
address share one operation of the host if the order of additions and similar operations does not show: each receives the value
before it. Of lanes side by side, those in 16 bytes share one operation.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from mmulator.base.codegen.lang import Native, native, unrolled
from mmulator.base.codegen.ops import (
    address,
    atomic_rmw,
    bitcast,
    bits_mask,
    bits_of,
    cast_ptr,
    compare_exchange,
    iota,
    load,
    mask_bits,
    maximum,
    minimum,
    reduce_add,
    reduce_or,
    select,
    stack,
    store,
    trailing_zeros,
)
from mmulator.base.codegen.types import Ty, boolean, ptr, ptr_to, u32, u64, u128
from mmulator.base.codegen.values import Value
from mmulator.runtime.native.asynchrony.waiting import fall_asleep
from mmulator.runtime.native.hooks.events import BOTH
from mmulator.runtime.native.memory.combine import OWN, RMW
from mmulator.runtime.native.memory.shapes import Shape, origin_function
from mmulator.runtime.native.memory.sums import WORD, settle_sums
from mmulator.runtime.native.memory.windows import NAMES, SPACES, U64
from mmulator.runtime.native.state import FULL, PART, Warp

U32 = u32.vec(32)
TOGETHER = 16  # bytes that one operation of the host exchanges


def apply(op: str, old: Value, value: Value) -> Value:
    """Macro: the result of an integer operation."""
    if op in ("min", "max"):
        return minimum(old, value) if op == "min" else maximum(old, value)
    return {"add": old + value, "and": old & value, "or": old | value, "xor": old ^ value, "exch": value}[op]


@native
def take_turns(w: ptr_to(Warp), failed: u32, tried: boolean) -> None:
    """Let other warps run first: when no lane of an atom.cas found what it expects, such as a free lock, and after an atom.exch
    behind that, so that who releases the lock is not who takes it again.
    """
    cluster = w.cta.cluster
    if tried:
        if failed != 0:
            cluster.contended = 1
            fall_asleep(w, failed)
    elif cluster.contended != 0:
        cluster.contended = 0
        fall_asleep(w, FULL)


@cache
def atomic_function(space: str, op: str, ty: Ty, count: int = 1, combine: Any = None, name: str = "") -> Native:
    """A function for atom/red, lane after lane, of `count` elements: dst[32 * c + l] = old value of element c of lane l.

    space: state space.
    op: the operation.
    ty: type of an element.
    count: elements of a vector, which is aligned as a whole; each element is a separate atomic operation.
    combine: a macro for the new value from (old, operand), for operations that are not on integers.
    name: distinguishes `combine`.
    """
    translate, size = SPACES[space], ty.size
    own = combine or OWN.get(op)
    rmw = "" if own or op == "cas" else RMW[op][ty.signed]
    alone = space.startswith("shared")
    gathers = not alone and rmw != "" and op != "exch" and count == 1  # lanes with one address
    rows = gathers or (not alone and combine is not None and count == 1 and name.startswith("_f32"))  # side by side
    several = ty.vec(TOGETHER // size)

    def step(found: Value, value: Value) -> Value:
        given = bitcast(several, found)
        return bitcast(u128, apply(op, given, value) if own is None else own(given, value))

    def atomic(
        w: ptr_to(Warp), mask: u32, at: ptr_to(u64), src: ptr_to(ty), other: ptr_to(ty), dst: ptr_to(ty), site: u32
    ) -> None:
        host = stack(ptr, 32)
        left = translate(w, mask, at, size * count, BOTH, site, host)
        if gathers:
            first = trailing_zeros(left)
            if (left & (left - 1)) != 0:
                if (left & mask_bits(load(U64, host) != u64(host[first]))) == 0:
                    whole = src[first]
                    others = left & (left - 1)
                    while others != 0:
                        whole = apply(op, whole, src[trailing_zeros(others)])
                        others = others & (others - 1)
                    there = atomic_rmw(rmw, cast_ptr(ty, host[first]), whole)
                    while left != 0:
                        own_lane = trailing_zeros(left)
                        left = left & (left - 1)
                        dst[own_lane] = there
                        there = apply(op, there, src[own_lane])
                    return
        if rows:
            if left == FULL and (u64(host[0]) & (TOGETHER - 1)) == 0:
                if mask_bits((load(U64, host) - iota(U64, 0, size)) != u64(host[0])) == 0:
                    for first_lane in range(u32(0), u32(32), TOGETHER // size):
                        place = cast_ptr(u128, host[first_lane])
                        values = load(several, src + first_lane)
                        before = place[0]
                        now = compare_exchange(place, before, step(before, values))
                        while now != before:
                            before = now
                            now = compare_exchange(place, before, step(before, values))
                        store(bitcast(several, before), dst + first_lane)
                    return
        failed = left
        for lane in bits_of(left):
            for c in unrolled(count):
                target = cast_ptr(ty, host[lane]) + c
                n = lane + 32 * c
                if alone:
                    found = target[0]
                    if op == "cas":
                        target[0] = select(found == src[n], other[n], found)
                        failed = select(found == src[n], 0, failed)
                    elif own is None:
                        target[0] = apply(op, found, src[n])
                    else:
                        target[0] = own(found, src[n])
                    dst[n] = found
                elif op == "cas":
                    found = compare_exchange(target, src[n], other[n])
                    failed = select(found == src[n], 0, failed)
                    dst[n] = found
                elif own is None:
                    dst[n] = atomic_rmw(rmw, target, src[n])
                else:
                    old = target[0]
                    seen = compare_exchange(target, old, own(old, src[n]))
                    while seen != old:
                        old = seen
                        seen = compare_exchange(target, old, own(old, src[n]))
                    dst[n] = old
        if op in ("cas", "exch"):
            take_turns(w, failed, op == "cas")

    return Native(atomic, f"atom_{NAMES[space]}_{op}_{ty.name}x{count}{name}")


# additions that wait ------------------------------------------------------------------------------------------------
@native
def sum_up(
    w: ptr_to(Warp), mask: u32, at: ptr_to(u64), src: ptr_to(u32), other: ptr_to(u32), dst: ptr_to(u32), site: u32
) -> None:
    """`atomic` for a red.global.add of 32 bits without ordering: additions to a small array are merged with later ones
    (sums.py).
    """
    if mask == 0 or w.cta.fault != 0:
        return
    window = stack(ptr, 3)
    low = u64(trailing_zeros(mask))
    a = load(U64, at)
    shape = _look(w, mask, low, at[low], a, site, window)
    start = u64(window[1]) & ~u64(PART - 1)
    if shape == Shape.UNKNOWN:
        _at_once(w, mask, at, src, other, dst, site)
        return
    sums = w.cta.cluster.sums
    if sums.touched != 0 and u64(sums.start) != start:
        settle_sums(w.cta.cluster)
    sums.start = window[1] + (start - u64(window[1]))
    sums.end = u64(window[2])
    words = cast_ptr(u32, address(sums.words))
    lanes = bits_mask(mask)
    offsets = a + (u64(window[0]) - start)
    sums.touched = sums.touched | reduce_or(select(lanes, U64(1) << (offsets // PART), U64(0)))
    if shape == Shape.ONE:
        one = words + (at[low] + (u64(window[0]) - start)) // WORD
        one[0] = one[0] + reduce_add(select(lanes, load(U32, src), U32(0)))
        return
    numbers = stack(u32, 32)
    store(U32(offsets // WORD), numbers)
    if mask == FULL:
        for n in unrolled(32):
            words[numbers[n]] = words[numbers[n]] + src[n]
        return
    for lane in bits_of(mask):
        words[numbers[lane]] = words[numbers[lane]] + src[lane]


_at_once, _look = atomic_function("global", "add", u32), origin_function("global", WORD, BOTH, True)
