"""atom and red on host memory: one lane after the other, each one atomic operation of the host.

Windows lie where an address that is aligned for the kernel is aligned for the host too (machine/launch/arena.py).
"""

from __future__ import annotations

from functools import cache
from typing import Any

from mmulator.codegen.lang import Native, unrolled
from mmulator.codegen.ops import cast_ptr, stack, trailing_zeros
from mmulator.codegen.types import Ty, ptr, ptr_to, u32, u64
from mmulator.codegen.values import Builder, Value
from mmulator.machine.runtime.combine import OWN, RMW
from mmulator.machine.runtime.events import BOTH
from mmulator.machine.runtime.windows import NAMES, SPACES
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

    def atomic(
        w: ptr_to(Warp), mask: u32, at: ptr_to(u64), src: ptr_to(ty), other: ptr_to(ty), dst: ptr_to(ty), site: u32
    ) -> None:
        host = stack(ptr, 32)
        left = translate(w, mask, at, size * count, BOTH, site, host)
        while left != 0:
            lane = trailing_zeros(left)
            left = left & (left - 1)
            for c in unrolled(count):
                target = cast_ptr(ty, host[lane]) + c
                n = lane + 32 * c
                if op == "cas":
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
