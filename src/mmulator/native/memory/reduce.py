"""Reductions of many elements into memory: bulk and tensor copies that combine (PTX ISA 9.1: cp.reduce.async.bulk).

Each element is a separate atomic operation, on the host too, because other clusters may reduce into the same array.
"""

from functools import cache

from mmulator.codegen.lang import Native
from mmulator.codegen.ops import atomic_rmw, cast_ptr, compare_exchange
from mmulator.codegen.types import ptr, u64
from mmulator.native.memory.combine import OWN, RMW, combiner


@cache
def reduce_function(op: str, kind: str, shared: bool = False) -> Native:
    """A function (target, source, count): target[i] = target[i] op source[i], element by element, in order.

    op: the operation.
    kind: a PTX type; `f32` keeps subnormals here, unlike atom.global.add, and `f32.ftz` does not.
    shared: whether the target is in shared memory, which only one thread of the host accesses.

    Both pointers are aligned to an element.
    """
    ty, combine, suffix = combiner(op, kind.removesuffix(".ftz"), kind == "f32")
    own = combine or OWN.get(op)
    rmw = "" if own else RMW[op][ty.signed]

    def reduce(target: ptr, source: ptr, count: u64) -> None:
        into, of = cast_ptr(ty, target), cast_ptr(ty, source)
        for i in range(count):
            if own is None:
                atomic_rmw(rmw, into + i, of[i])
            elif shared:
                into[i] = own(into[i], of[i])
            else:
                old = into[i]
                seen = compare_exchange(into + i, old, own(old, of[i]))
                while seen != old:
                    old = seen
                    seen = compare_exchange(into + i, old, own(old, of[i]))

    return Native(reduce, f"reduce_{op}_{ty.name}{suffix}{'_shared' if shared else ''}")
