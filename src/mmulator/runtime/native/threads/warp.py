"""Communication between the lanes of a warp: shfl, vote, match, redux (PTX ISA 9.1, Parallel Synchronization ...)."""

from __future__ import annotations

from functools import cache

from mmulator.base.codegen.lang import Native
from mmulator.base.codegen.ops import bits_mask, bits_of, cast_ptr, iota, load, mask_bits, select, store, trailing_zeros
from mmulator.base.codegen.rounding import word_at
from mmulator.base.codegen.types import Ty, i32, ptr_to, u32
from mmulator.base.codegen.values import Builder, Value
from mmulator.runtime.native.state import FULL

U32, I32 = u32.vec(32), i32.vec(32)
LOWEST = 0x80000000


@cache
def shfl_sources(mode: str, by: int, clamp: int) -> list[tuple[int, bool]]:
    """For each lane (its source lane, whether that was in range), when all lanes give the same numbers."""
    by, segment, limit = by & 31, clamp >> 8 & 31, clamp & 31
    found = []
    for lane in range(32):
        low = lane & segment
        high = low | limit & ~segment
        source = {"up": lane - by, "down": lane + by, "bfly": lane ^ by, "idx": low | by & ~segment}[mode]
        ok = source >= high if mode == "up" else source <= high
        found.append((source if ok else lane, ok))
    return found


@cache
def shfl_function(mode: str) -> Native:
    """A function for shfl: d[lane] = a[source lane]; returns the mask of lanes whose source was in range. A lane out of range
    gets its own value.
    """

    def shfl(a: ptr_to(u32), b: ptr_to(u32), c: ptr_to(u32), d: ptr_to(u32)) -> u32:
        lane = iota(I32)
        by = I32(load(U32, b) & 31)
        clamp = load(U32, c)
        segment = I32((clamp >> 8) & 31)
        limit = I32(clamp & 31)
        low = lane & segment
        high = low | (limit & ~segment)
        if mode == "up":
            source = lane - by
            ok = source >= high
        elif mode == "down":
            source = lane + by
            ok = source <= high
        elif mode == "bfly":
            source = lane ^ by
            ok = source <= high
        else:
            source = low | (by & ~segment)
            ok = source <= high
        source = select(ok, source, lane)
        store(word_at(a, U32(source)), d)
        return mask_bits(ok)

    return Native(shfl, f"shfl_{mode}")


@cache
def match_function(every: bool, ty: Ty) -> Native:
    """A function for match. match.any: d[lane] = lanes with the same value. match.all: members if all agree, else 0; returns
    the predicate.
    """

    def match_(a: ptr_to(ty), members: ptr_to(u32), active: u32, d: ptr_to(u32)) -> u32:
        agree = u32(0)
        for lane in bits_of(active):
            mask = members[lane] & active
            same = mask_bits(load(ty.vec(32), a) == a[lane]) & mask
            if every:
                if same == mask:
                    agree = agree | (u32(1) << lane)
                    d[lane] = mask
                else:
                    d[lane] = 0
            else:
                d[lane] = same
        return agree

    return Native(match_, f"match_{'all' if every else 'any'}_{ty.name}")


_NEUTRAL = {"add": 0, "or": 0, "xor": 0, "and": FULL}


@cache
def redux_function(op: str, signed: bool) -> Native:
    """A function for redux.sync of 32-bit integers: d[lane] = op over the members of the lane's mask."""
    ty = i32 if signed else u32
    neutral = {"min": 0x7FFFFFFF if signed else FULL, "max": LOWEST if signed else 0}.get(op, _NEUTRAL.get(op, 0))
    name = {"min": "smin" if signed else "umin", "max": "smax" if signed else "umax"}.get(op, op)

    def redux(a: ptr_to(ty), members: ptr_to(u32), active: u32, d: ptr_to(ty)) -> None:
        left = active
        while left != 0:
            lane = trailing_zeros(left)
            mask = members[lane] & active
            chosen = select(bits_mask(mask), load(ty.vec(32), a), ty(neutral))
            result = reduce(name, chosen)
            same = mask_bits(load(U32, members) == members[lane]) & active & mask
            out = cast_ptr(ty.vec(32), d)
            out[0] = select(bits_mask(same), ty.vec(32)(result), out[0])
            left = left & ~(same | (u32(1) << lane))

    return Native(redux, f"redux_{op}_{ty.name}")


def reduce(name: str, value: Value) -> Value:
    """Macro: a reduction by llvm.vector.reduce."""
    return Builder.current().intrinsic(f"vector.reduce.{name}", value.ty.element, [value])
