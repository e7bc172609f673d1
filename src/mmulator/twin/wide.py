# mypy: disable-error-code="valid-type, arg-type, attr-defined, index"
"""Several products of one form that share fragments, as one wide product.

rows x columns x steps of them: those of a row have the same A, those of a column the same B, and D of a step is C of the next.
Each fragment becomes lines of one matrix A [rows * m, steps * k], B [columns * n, steps * k] or C, each matrix is packed once.
Order and bits are those of the single products: the twin adds instruction after instruction along k.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmulator.codegen.lang import Native
from mmulator.codegen.ops import select
from mmulator.codegen.types import Struct, i32, i64, ptr, ptr_to, u64
from mmulator.codegen.values import Value
from mmulator.isa.form import Form
from mmulator.layouts import Fragment, element_of, fragment
from mmulator.layouts.places import operand_places, register_elements
from mmulator.lazy import cached_property
from mmulator.numerics.profiles import dot_key
from mmulator.twin.lines import CHUNK, Index, Where, collect, spread
from mmulator.twin.places import commutes
from mmulator.twin.product import call_dot, call_pack
from mmulator.twin.twin import Twin, twin_for

# Where a register's 32 lanes lie, as an i32: bytes from the first base (the register file), or with OWN set from the second.
OWN = 1 << 31

WideTable = Struct("WideTable", [
    ("pack_a", u64), ("pack_b", u64), ("dot", u64), ("flags", i64),
    ("rows", i64), ("columns", i64), ("steps", i64),
    # places of registers: of A [step][row][register], of B [step][column][register], of C and D [row][column][register]
    ("a_at", ptr_to(i32)), ("b_at", ptr_to(i32)), ("c_at", ptr_to(i32)), ("d_at", ptr_to(i32)),
    ("packed_a", u64), ("packed_b", u64), ("result", u64),  # offsets into the scratch memory; raw matrices at 0
])  # fmt: skip


def widens(form: Form) -> bool:
    """Whether products of a form can be one."""
    return form.family in ("mma", "wmma") and not (form.sparse or form.block_scale) and fragment(form, "d").copies == 1


def registers_at(at: Value, number: Any, regs: Value, own: Value, f: Fragment) -> Where:
    """Macro: where the chunks of the fragment lie whose registers are at[number], at[number + 1], ..."""
    known: dict[int, Value] = {}
    chunks = f.lanes * f.register_bits // 8 // CHUNK

    def where(chunk: int) -> Value:
        register, part = divmod(chunk, chunks)
        if register not in known:
            place = at[number + register]
            known[register] = select(place < 0, own, regs) + i64(place & (OWN - 1))
        return known[register] + part * CHUNK

    return where


@dataclass(frozen=True, eq=False)
class Shape:
    """One form's product with lines along `swap` ? m : n: places of its fragments, whatever number of them are one product."""

    form: Form
    swap: bool
    order: tuple[str, str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "order", ("b", "a") if self.swap else ("a", "b"))

    @property
    def m(self) -> int:
        return self.form.n if self.swap else self.form.m

    @property
    def n(self) -> int:
        return self.form.m if self.swap else self.form.n

    def operand(self, name: str) -> tuple[Fragment, Index]:
        """Fragment, and places [lines, elements] of a, b, c as the product takes them."""
        places = operand_places(self.form, name, (name == "b") if name in "ab" else self.swap)
        return fragment(self.form, name), places[0]

    @cached_property
    def result(self) -> Index:
        return register_elements(self.form, "d", self.swap)

    @cached_property
    def symbol(self) -> str:
        told = hashlib.sha256(self.result.tobytes())
        for name in (*self.order, "c"):
            f, places = self.operand(name)
            told.update(f"{f.bits} {f.shift} {f.width} {f.register_bits} {places.shape}".encode())
            told.update(places.tobytes())
        told.update(f"{fragment(self.form, 'd').bits}".encode())
        return f"wide_{self.form.shape}{'_t' if self.swap else ''}_{told.hexdigest()[:12]}"

    @cached_property
    def function(self) -> Native:
        return wide_function(self)


@lru_cache(maxsize=512)
def shape_of(form: Form, swap: bool) -> Shape:
    return Shape(form, swap)


def bytes_of_line(form: Form, name: str) -> int:
    """Bytes of the elements along k of one product."""
    return (form.k // 2 if form.sparse and name == "a" else form.k) * max(8, element_of(form, name).bits) // 8


def wide_function(shape: Shape) -> Native:
    """The product of a WideTable. regs, own: the two bases of its places."""
    form, m, n, k = shape.form, shape.m, shape.n, shape.form.k
    (a_name, b_name) = shape.order
    (fa, a_places), (fb, b_places), (fc, c_places) = (shape.operand(x) for x in (a_name, b_name, "c"))
    fd, d_elements = fragment(form, "d"), shape.result
    a_line, b_line = bytes_of_line(form, a_name), bytes_of_line(form, b_name)
    c_size, d_size = fc.bits // 8, fd.bits // 8
    partly = [(f.shift, f.width) if f.width < f.bits else (0, 0) for f in (fa, fb)]

    def gather_a(at: ptr_to(i32), number: i64, regs: ptr, own: ptr, out: ptr, pitch: i64) -> None:
        collect(registers_at(at, number, regs, own, fa), a_places, fa.bits, out, pitch, *partly[0])

    def gather_b(at: ptr_to(i32), number: i64, regs: ptr, own: ptr, out: ptr, pitch: i64) -> None:
        collect(registers_at(at, number, regs, own, fb), b_places, fb.bits, out, pitch, *partly[1])

    def gather_c(at: ptr_to(i32), number: i64, regs: ptr, own: ptr, out: ptr, pitch: i64) -> None:
        collect(registers_at(at, number, regs, own, fc), c_places, fc.bits, out, pitch)

    def spread_d(at: ptr_to(i32), number: i64, regs: ptr, own: ptr, source: ptr, pitch: i64) -> None:
        spread(registers_at(at, number, regs, own, fd), d_elements, fd.bits, source, pitch, n)

    of_a, of_b, of_c, to_d = (Native(f, f"{shape.symbol}_{f.__name__}") for f in (gather_a, gather_b, gather_c, spread_d))

    def wide(table: ptr_to(WideTable), scratch: ptr, regs: ptr, own: ptr) -> None:
        rows = table.rows
        columns = table.columns
        steps = table.steps
        depth = steps * k
        for step in range(steps):
            for row in range(rows):
                of_a(table.a_at, (step * rows + row) * fa.registers, regs, own,
                     scratch + (row * m * steps + step) * a_line, steps * a_line)  # fmt: skip
        call_pack(table.pack_a, scratch, depth, rows * m, depth, scratch + table.packed_a)
        for step in range(steps):
            for column in range(columns):
                of_b(table.b_at, (step * columns + column) * fb.registers, regs, own,
                     scratch + (column * n * steps + step) * b_line, steps * b_line)  # fmt: skip
        call_pack(table.pack_b, scratch, depth, columns * n, depth, scratch + table.packed_b)
        width = columns * n
        for row in range(rows):
            for column in range(columns):
                of_c(table.c_at, (row * columns + column) * fc.registers, regs, own,
                     scratch + (row * m * width + column * n) * c_size, width * c_size)  # fmt: skip
        result = scratch + table.result
        call_dot(table.dot, scratch + table.packed_a, scratch + table.packed_b, scratch, width, result, width,
                 rows * m, width, depth, table.flags)  # fmt: skip
        for row in range(rows):
            for column in range(columns):
                to_d(table.d_at, (row * columns + column) * fd.registers, regs, own,
                     result + (row * m * width + column * n) * d_size, width * d_size)  # fmt: skip

    return Native(wide, shape.symbol)


# tables ---------------------------------------------------------------------------------------------------------------
@dataclass(eq=False)
class Wide:
    """A wide product, ready to be called: `function` with the address of `table`. scratch: bytes that a call needs."""

    shape: Shape
    twin: Twin
    table: NDArray[Any]
    scratch: int
    keep: list[Any]

    @property
    def function(self) -> Native:
        return self.shape.function


def swaps(form: Form, rows: int, columns: int) -> bool:
    """Whether the transposed product, whose lines run along m, is the cheaper one."""
    height, width = rows * form.m, columns * form.n
    return commutes(form) and _cost(width, height) < _cost(height, width)


def _cost(height: int, width: int) -> int:
    """Of a product in lines of `width`: 64 columns cost less than three times 16, and each line has to be packed, too."""
    wide, rest = divmod(width, 64)
    return height * (5 * wide + 2 * -(-rest // 16) + 1)


def wide_product(form: Form, device: str, rows: int, columns: int, steps: int, at: dict[str, Any]) -> Wide:
    """at: places of the registers as in a WideTable, of a, b, c, d as the form has them.

    Raises UnsupportedError where the device lacks the instruction.
    """
    twin = twin_for(dot_key(form), device)
    swap = swaps(form, rows, columns)
    shape = shape_of(form, swap)
    table = np.zeros(1, WideTable.numpy_dtype())
    keep: list[Any] = [twin, table]
    table["pack_a"], table["pack_b"], table["dot"] = twin.pack_a, twin.pack_b, twin.dot
    places = dict(at)
    if swap:
        places["a"], places["b"] = at["b"], at["a"]
        for name in "cd":
            grid = np.asarray(at[name]).reshape(rows, columns, -1)
            places[name] = grid.transpose(1, 0, 2)
        rows, columns = columns, rows
    table["rows"], table["columns"], table["steps"] = rows, columns, steps
    for name, values in places.items():
        array = np.ascontiguousarray(np.asarray(values, np.int64).reshape(-1) & 0xFFFFFFFF, np.uint32)
        keep.append(array)
        table[f"{name}_at"] = array.ctypes.data
    height, width, depth = rows * shape.m, columns * shape.n, steps * form.k
    names = shape.order
    lines = max(height * bytes_of_line(form, names[0]), width * bytes_of_line(form, names[1])) * steps
    c_bytes, d_bytes = (height * width * fragment(form, x).bits // 8 for x in "cd")
    scratch = 0
    rooms = (
        ("", max(lines, c_bytes)), ("packed_a", twin.a_bytes(height, depth)), ("packed_b", twin.b_bytes(width, depth)),
        ("result", 0 if c_bytes == d_bytes else d_bytes),
    )  # fmt: skip
    for name, room in rooms:
        if name and room:
            table[name] = scratch
        scratch += -(-(room + 64) // 64) * 64
    return Wide(shape, twin, table, scratch, keep)
