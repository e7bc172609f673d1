# mypy: disable-error-code="valid-type, arg-type, attr-defined, index, call-overload, operator"
"""Batches of products whose registers lie lane after lane, as in `execute`: each operand becomes lines of a matrix.

If all products have the same A, or the same B, this operand is packed once, and several products are computed as one wide
product.
"""

import ctypes
import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmulator.base.codegen.lang import native, unrolled
from mmulator.base.codegen.loading import address
from mmulator.base.codegen.ops import minimum, null, prefetch
from mmulator.base.codegen.rounding import set_rounding
from mmulator.base.codegen.types import Struct, i32, i64, ptr, ptr_to, u8, u64
from mmulator.isa.form import Form
from mmulator.matrix.layouts import fragment
from mmulator.matrix.layouts.operands import BY_LANE
from mmulator.matrix.twin.fused import CORE_POINTERS
from mmulator.matrix.twin.lines import lines_function, registers_function
from mmulator.matrix.twin.places import key_of
from mmulator.matrix.twin.product import call_dot, call_pack
from mmulator.matrix.twin.registers import fitted
from mmulator.matrix.twin.sides import COLUMNS, beside_for
from mmulator.matrix.twin.threads import arranged, pointer, room, split, worth
from mmulator.matrix.twin.twin import Twin, twin_for
from mmulator.matrix.twin.wide import call_move, line_bytes, swaps

Array = NDArray[Any]
_P, _I = ctypes.c_void_p, ctypes.c_int64
WIDTH = 128  # columns of several products that share an operand
MANY = 16  # products; for fewer no code of their own is made

BatchTable = Struct("BatchTable", [
    ("pack_a", u64), ("pack_b", u64), ("dot", u64), ("lines_a", u64), ("lines_b", u64), ("lines_c", u64), ("registers_d", u64),
    ("m", i64), ("n", i64), ("k", i64),
    ("together", i64), ("sides", i64),  # products that are one; and how many A they have
    ("a_bytes", i64), ("b_bytes", i64), ("c_bytes", i64), ("d_bytes", i64),  # of a line of one fragment; of an element
    ("packed_a", u64), ("packed_b", u64), ("result", u64),  # offsets into the scratch memory; raw matrices at 0
    ("core", u64),  # of a fused dot product: `dot` for callers that have set the rounding mode toward zero
])  # fmt: skip
OPERANDS = 4  # a, b, c, d
_Operands = ctypes.c_uint64 * (2 * OPERANDS)


@native
def ahead(at: ptr, size: i64) -> None:
    """Prefetch the next operands while something else is computed."""
    for i in range(i64(0), size, 64):
        prefetch(at + i)


@native
def batch(table: ptr_to(BatchTable), scratch: ptr, operands: ptr_to(u64), first: i64, count: i64) -> None:
    """Compute `count` products of a table from number `first` on.

    table: their table.
    scratch: memory for intermediate results.
    operands: addresses of the registers of the first product's OPERANDS, then distances in bytes to those of the next.
    first, count: the products.
    """
    m = table.m
    n = table.n
    k = table.k
    nowhere = null(i32)
    base = null(i32)
    raw = ptr(scratch)
    a = ptr(operands[0])
    b = ptr(operands[1])
    c = ptr(operands[2])
    d = ptr(operands[3])
    a_step = i64(operands[4])
    b_step = i64(operands[5])
    c_step = i64(operands[6])
    d_step = i64(operands[7])
    if table.core != 0:
        set_rounding("rz")
    result = scratch + table.result
    packed_a = scratch + table.packed_a
    packed_b = scratch + table.packed_b
    nothing = [null(u8) for _ in unrolled(CORE_POINTERS)]
    last = first + count
    for t in range(first, last, table.together):
        here = minimum(last - t, table.together)
        there = here
        if table.sides > 1:  # the last product is used in place of missing ones
            there = table.together
        width = there * n
        if t == first or a_step != 0:
            for u in range(table.sides):
                at = minimum(t + u, last - 1)
                call_move(table.lines_a, nowhere, a + at * a_step, ptr(base), raw + u * m * table.a_bytes, table.a_bytes)
            call_pack(table.pack_a, raw, k, m, k, packed_a)
        for u in range(there):
            at = minimum(t + u, last - 1)
            call_move(table.lines_b, nowhere, b + at * b_step, ptr(base), raw + u * n * table.b_bytes, table.b_bytes)
        call_pack(table.pack_b, raw, k, width, k, packed_b)
        for u in range(there):
            at = minimum(t + u, last - 1)
            call_move(table.lines_c, nowhere, c + at * c_step, ptr(base), raw + u * n * table.c_bytes,
                      width * table.c_bytes)  # fmt: skip
        ahead(a + (t + there) * a_step, there * a_step)
        ahead(b + (t + there) * b_step, there * b_step)
        ahead(c + (t + there) * c_step, there * c_step)
        if table.core != 0:
            call_dot(table.core, packed_a, packed_b, raw, width, result, width, m, width, k, 0, *nothing)
        else:
            call_dot(table.dot, packed_a, packed_b, raw, width, result, width, m, width, k, 0)
        for u in range(here):
            call_move(table.registers_d, nowhere, d + (t + u) * d_step, ptr(base), result + u * n * table.d_bytes,
                      width * table.d_bytes)  # fmt: skip
    if table.core != 0:
        set_rounding("rn")


@dataclass(eq=False)
class Batch:
    """A batch of products of one form. where: address of its table. order: operands in the order of the product. scratch: bytes
    of scratch memory.
    """

    twin: Twin
    table: Array
    where: int
    order: tuple[str, str, str]
    scratch: int


@lru_cache(maxsize=1024)
def batch_of(form: Form, device: str, shared: str, many: bool) -> Batch:
    """The batch of a form. shared: "a" or "b" if all products have this operand in common, or "". many: whether there are more
    than a few products.
    """
    high = 1 << 10
    swap = swaps(form, high if shared == "b" else 1, high if shared == "a" else 1)
    key = key_of(form, swap)
    twin = twin_for(key, device)
    first, second = ("b", "a") if swap else ("a", "b")
    m, n, k = (form.n, form.m, form.k) if swap else (form.m, form.n, form.k)
    together = max(1, WIDTH // n) if shared == first else 1
    sides = COLUMNS // n if many and together == 1 and n in (16, 32) else 1
    beside = beside_for(key, device, sides) if sides > 1 else None
    if beside is None:
        sides = 1
    else:
        together = sides
    c_bytes, d_bytes = (fragment(form, x).bits // 8 for x in "cd")
    table = np.zeros(1, BatchTable.numpy_dtype())
    numbers = {
        "m": m, "n": n, "k": k, "together": together, "sides": sides,
        "lines_a": address(lines_function(form, first, swap, BY_LANE)),
        "lines_b": address(lines_function(form, second, swap, BY_LANE)),
        "lines_c": address(lines_function(form, "c", swap, BY_LANE)),
        "registers_d": address(registers_function(form, swap, BY_LANE)),
        "a_bytes": line_bytes(form, first), "b_bytes": line_bytes(form, second), "c_bytes": c_bytes, "d_bytes": d_bytes,
    }  # fmt: skip
    if beside is None:
        numbers |= {"pack_a": twin.pack_a, "pack_b": twin.pack_b, "dot": twin.dot, "core": twin.fused_core}
    else:
        numbers |= {"pack_a": beside.pack_a, "pack_b": twin.pack_b, "core": beside.dot}
    width = together * n
    raw = max(sides * m * numbers["a_bytes"], width * numbers["b_bytes"], m * width * c_bytes)
    rooms = {
        "": raw,
        "packed_a": beside.a_row * m if beside else twin.a_bytes(m, k),
        "packed_b": twin.b_bytes(width, k),
        "result": 0 if c_bytes == d_bytes else m * width * d_bytes,
    }  # fmt: skip
    places, scratch = arranged(rooms)
    for name, number in (numbers | places).items():
        table[name] = number
    return Batch(twin, table, pointer(table), (first, second, "c"), scratch)


def run(form: Form, device: str, a: Array, b: Array, c: Array, leading: tuple[int, ...]) -> Array:
    """D [*leading, lanes, registers] of dense products.

    form, device: the instruction and the device.
    a, b, c: registers [..., lanes, registers], which broadcast to `leading`.
    leading: leading dimensions of the result.
    """
    d = fragment(form, "d")
    out = np.empty((*leading, d.lanes, d.registers), f"<u{d.register_bits // 8}")
    count = math.prod(leading)
    if count == 0:
        return out
    given = {name: fitted(x, 2, leading, count) for name, x in zip("abc", (a, b, c))}
    shared = next((x for x in "ab" if given[x][1] == 0), "") if count > 1 else ""
    made = batch_of(form, device, shared, count >= MANY)
    both = [*(given[x] for x in made.order), (out, out.nbytes // count)]
    operands = _Operands(*(pointer(array) for array, _ in both), *(step for _, step in both))
    function = _function()

    def part(first: int, size: int) -> None:
        function(made.where, room(made.scratch), operands, first, size)

    split(part, count, worth(count * form.m * form.n * form.k))
    return out


@lru_cache(maxsize=1)
def _function() -> Any:
    return ctypes.CFUNCTYPE(None, _P, _P, _P, _I, _I)(address(batch))
