"""atom and red on host memory: one lane after the other, each one atomic operation of the host.

Windows lie where an address that is aligned for the kernel is aligned for the host too (machine/launch/arena.py). Nobody but
the worker that runs a cluster knows its shared memory, so there the host's plain operations are atomic. Lanes with one address
are one operation of the host, where the order of additions and the like does not show: each gets what was there before it.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from mmulator.codegen.lang import Native, unrolled
from mmulator.codegen.ops import cast_ptr, load, mask_bits, maximum, minimum, select, stack, trailing_zeros
from mmulator.codegen.types import Ty, ptr, ptr_to, u32, u64
from mmulator.codegen.values import Builder, Value
from mmulator.machine.runtime.combine import OWN, RMW
from mmulator.machine.runtime.events import BOTH
from mmulator.machine.runtime.windows import NAMES, SPACES, U64
from mmulator.machine.state import Warp


def atomic_rmw(op: str, pointer: Value, value: Value) -> Value:
    """Macro: LLVM's atomicrmw; the old value."""
    b = Builder.current()
    return b.emit(value.ty, f"atomicrmw {op} ptr {pointer.text}, {value.typed} seq_cst, align {value.ty.size}")


def compare_exchange(pointer: Value, expected: Value, new: Value) -> Value:
    """Macro: LLVM's cmpxchg; the old value."""
    b = Builder.current()
    ty = expected.ty.llvm
    text = f"cmpxchg ptr {pointer.text}, {expected.typed}, {new.typed} seq_cst seq_cst, align {expected.ty.size}"
    pair = b.emit(expected.ty, text)
    return b.emit(expected.ty, f"extractvalue {{ {ty}, i1 }} {pair.text}, 0")


def apply(op: str, old: Value, value: Value) -> Value:
    """Macro: what an operation on integers leaves there."""
    if op in ("min", "max"):
        return minimum(old, value) if op == "min" else maximum(old, value)
    return {"add": old + value, "and": old & value, "or": old | value, "xor": old ^ value, "exch": value}[op]


@cache
def atomic_function(space: str, op: str, ty: Ty, count: int = 1, combine: Any = None, name: str = "") -> Native:
    """atom/red, lane after lane, of `count` elements: dst[32 * c + l] = old value of element c of lane l.

    A vector is aligned as a whole, though each of its elements is an atomic operation of its own.
    combine: the new value from (old, operand), as a macro, for operations that are none on integers; `name`
    distinguishes it.
    """
    translate, size = SPACES[space], ty.size
    own = combine or OWN.get(op)
    rmw = "" if own or op == "cas" else RMW[op][ty.signed]
    alone = space.startswith("shared")
    gathers = not alone and rmw != "" and op != "exch" and count == 1  # lanes with one address

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
        while left != 0:
            lane = trailing_zeros(left)
            left = left & (left - 1)
            for c in unrolled(count):
                target = cast_ptr(ty, host[lane]) + c
                n = lane + 32 * c
                if alone:
                    found = target[0]
                    if op == "cas":
                        target[0] = select(found == src[n], other[n], found)
                    elif own is None:
                        target[0] = apply(op, found, src[n])
                    else:
                        target[0] = own(found, src[n])
                    dst[n] = found
                elif op == "cas":
                    dst[n] = compare_exchange(target, src[n], other[n])
                elif own is None:
                    dst[n] = atomic_rmw(rmw, target, src[n])
                else:
                    old = target[0]
                    seen = compare_exchange(target, old, own(old, src[n]))
                    while seen != old:
                        old = seen
                        seen = compare_exchange(target, old, own(old, src[n]))
                    dst[n] = old

    return Native(atomic, f"atom_{NAMES[space]}_{op}_{ty.name}x{count}{name}")
