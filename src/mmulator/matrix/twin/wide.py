# mypy: disable-error-code="valid-type, arg-type, attr-defined, index"
"""Several products of one form that share fragments, computed as one wide product.

They are rows x columns x steps: products of a row have the same A, those of a column the same B, and D of a step is C of the
next. Fragments become lines of one matrix A [rows * m, steps * k], B [columns * n, steps * k] or C, and each matrix is packed
once. Order and bits are those of the single products: the twin adds instruction after instruction along k.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmulator.base.codegen.lang import native
from mmulator.base.codegen.loading import address
from mmulator.base.codegen.ops import cast_ptr
from mmulator.base.codegen.types import Struct, i32, i64, ptr, ptr_to, u32, u64, void
from mmulator.base.codegen.values import Builder, Value
from mmulator.base.errors import InternalError
from mmulator.isa.effects import Together
from mmulator.isa.form import Form
from mmulator.matrix.layouts import element_of, fragment
from mmulator.matrix.twin.lines import lines_function, place_of, registers_function
from mmulator.matrix.twin.places import commutes, index_table, key_of, scale_maps
from mmulator.matrix.twin.product import IndexTable, call_dot, call_pack, dense_indices
from mmulator.matrix.twin.threads import arranged
from mmulator.matrix.twin.twin import Twin, twin_for

WideTable = Struct("WideTable", [
    ("pack_a", u64), ("pack_b", u64), ("dot", u64), ("flags", i64),
    ("lines_a", u64), ("lines_b", u64), ("lines_c", u64), ("registers_d", u64),  # functions of the fragments
    ("m", i64), ("n", i64), ("k", i64), ("ka", i64),  # of one product; ka: columns of A, k / 2 if it is sparse
    ("a_bytes", i64), ("b_bytes", i64), ("c_bytes", i64), ("d_bytes", i64),  # of a line of one fragment; of an element
    ("rows", i64), ("columns", i64), ("steps", i64),
    # places of registers (lines.py): A [step][row][register], B [step][column][register], C and D [row][column][register]
    ("a_at", ptr_to(i32)), ("b_at", ptr_to(i32)), ("c_at", ptr_to(i32)), ("d_at", ptr_to(i32)),
    ("a_registers", i64), ("b_registers", i64), ("c_registers", i64), ("d_registers", i64),
    ("packed_a", u64), ("packed_b", u64), ("result", u64), ("index", u64),  # offsets into the scratch memory; raw matrices at 0
    ("e_at", ptr_to(i32)), ("indices", ptr),  # of a sparse A: places of the metadata [row], and its IndexTable; else null
    # block scaling: scale factors of a row of A or column of B (else 0); places of their registers [row], [column], the bytes
    # that the selectors add, the bytes of each factor if both selectors are 0, and room for them
    ("scales", i64), ("scale_a_at", ptr_to(i32)), ("scale_b_at", ptr_to(i32)),
    ("select_a", ptr_to(i32)), ("select_b", ptr_to(i32)),
    ("scale_a_map", ptr_to(i32)), ("scale_b_map", ptr_to(i32)), ("scale_a", u64), ("scale_b", u64),
], functions=("pack_a", "pack_b", "dot", "lines_a", "lines_b", "lines_c", "registers_d"))  # fmt: skip


def widens(form: Form) -> bool:
    """Whether products of a form can be combined. Metadata of .tf32 may select halves of elements, which needs a separate B for
    each row.
    """
    halves = form.sparse and str(form.atype) == "tf32"
    return form.effects.together is Together.WARP and not halves and fragment(form, "d").copies == 1


def chains(form: Form) -> bool:
    """Whether D of one product may be C of the next, in one wide product."""
    return form.ctype == form.dtype and not (form.sparse or form.block_scale)


def call_move(function: Value, at: Value, regs: Value, own: Value, lines: Value, pitch: Any) -> None:
    """Macro: a function of lines.py."""
    Builder.current().call_pointer(ptr(function), void, [at, regs, own, ptr(lines), i64(pitch)])


@native
def wide(table: ptr_to(WideTable), scratch: ptr, regs: ptr, own: ptr) -> None:
    """Compute the products of a table. regs, own: the two bases of places."""
    m = table.m
    n = table.n
    rows = table.rows
    columns = table.columns
    steps = table.steps
    depth = steps * table.k
    width = columns * n
    line = table.a_bytes * steps
    for step in range(steps):
        for row in range(rows):
            call_move(table.lines_a, table.a_at + (step * rows + row) * table.a_registers, regs, own,
                      scratch + (row * m * line + step * table.a_bytes), line)  # fmt: skip
    call_pack(table.pack_a, scratch, steps * table.ka, rows * m, depth, scratch + table.packed_a)
    line = table.b_bytes * steps
    for step in range(steps):
        for column in range(columns):
            call_move(table.lines_b, table.b_at + (step * columns + column) * table.b_registers, regs, own,
                      scratch + (column * n * line + step * table.b_bytes), line)  # fmt: skip
    call_pack(table.pack_b, scratch, depth, width, depth, scratch + table.packed_b)
    line = width * table.c_bytes
    for row in range(rows):
        for column in range(columns):
            call_move(table.lines_c, table.c_at + (row * columns + column) * table.c_registers, regs, own,
                      scratch + (row * m * line + column * n * table.c_bytes), line)  # fmt: skip
    result = scratch + table.result
    packed = [scratch + table.packed_a, scratch + table.packed_b]
    index = scratch + table.index
    scale_a = scratch + table.scale_a
    scale_b = scratch + table.scale_b
    scales = table.scales
    if scales != 0:
        for row in range(rows):
            source = place_of(table.scale_a_at[row], regs, own) + i64(table.select_a[row])
            for i in range(m * scales):
                scale_a[row * m * scales + i] = source[table.scale_a_map[i]]
        for column in range(columns):
            source = place_of(table.scale_b_at[column], regs, own) + i64(table.select_b[column])
            for s in range(scales):
                for i in range(n):
                    scale_b[s * width + column * n + i] = source[table.scale_b_map[s * n + i]]
    outer = [scratch, width, result, width, rows * m, width, depth, table.flags]
    if u64(table.indices) != 0:
        for row in range(rows):
            metadata = cast_ptr(u32, place_of(table.e_at[row], regs, own))
            dense_indices(cast_ptr(IndexTable, table.indices), metadata, cast_ptr(i32, index) + row * m * table.ka)
        if scales != 0:
            call_dot(table.dot, *packed, *outer, index, scale_a, scale_b)
        else:
            call_dot(table.dot, *packed, *outer, index)
    elif scales != 0:
        call_dot(table.dot, *packed, *outer, scale_a, scale_b)
    else:
        call_dot(table.dot, *packed, *outer)
    line = width * table.d_bytes
    for row in range(rows):
        for column in range(columns):
            call_move(table.registers_d, table.d_at + (row * columns + column) * table.d_registers, regs, own,
                      result + (row * m * line + column * n * table.d_bytes), line)  # fmt: skip


# tables ---------------------------------------------------------------------------------------------------------------
@dataclass(eq=False)
class Wide:
    """A wide product, ready for `wide` with the address of `table`. scratch: bytes of scratch memory for a call."""

    twin: Twin
    table: NDArray[Any]
    scratch: int
    keep: list[Any]


def swaps(form: Form, rows: int, columns: int) -> bool:
    """Whether the transposed product, whose lines run along m, is cheaper."""
    height, width = rows * form.m, columns * form.n
    return commutes(form) and _cost(width, height) < _cost(height, width)


def _cost(height: int, width: int) -> int:
    """Cost of a product in lines of `width`: 64 columns cost less than three times 16, and each line has to be packed too."""
    wide, rest = divmod(width, 64)
    return height * (5 * wide + 2 * -(-rest // 16) + 1)


def line_bytes(form: Form, name: str) -> int:
    """Bytes of the elements along k of operand a or b of one product."""
    return (form.k // 2 if form.sparse and name == "a" else form.k) * max(8, element_of(form, name).bits) // 8


def wide_product(form: Form, device: str, rows: int, columns: int, steps: int, at: dict[str, Any], selector: int = 0) -> Wide:
    """The wide product of a form.

    form, device: the instruction and the device.
    rows, columns, steps: number of products; a sparse or scaled product has one step.
    at: places of the registers as in a WideTable: a, b, c, d, and metadata e, scale_a, scale_b, select_a and select_b as the
        form has them.
    selector: of the metadata.

    Raises UnsupportedError if the device lacks the instruction.
    """
    swap = swaps(form, rows, columns)
    twin = twin_for(key_of(form, swap), device)
    first, second = ("b", "a") if swap else ("a", "b")
    places = {"a": at[first], "b": at[second]}
    for name in "cd":
        grid = np.asarray(at[name]).reshape(rows, columns, -1)
        places[name] = grid.transpose(1, 0, 2) if swap else grid
    m, n = (form.n, form.m) if swap else (form.m, form.n)
    if swap:
        rows, columns = columns, rows
    if steps > 1 and not chains(form):
        raise InternalError(f"a chain of {form}")
    if form.sparse:
        places["e"] = at["e"]
    if form.block_scale:
        places |= {f"scale_{x}": at[f"scale_{x}"] for x in "ab"}
    height, width, depth = rows * m, columns * n, steps * form.k
    c_bytes, d_bytes = (fragment(form, x).bits // 8 for x in "cd")
    table = np.zeros(1, WideTable.numpy_dtype())
    keep: list[Any] = [table]
    numbers = {
        "pack_a": twin.pack_a, "pack_b": twin.pack_b, "dot": twin.dot,
        "lines_a": address(lines_function(form, first, swap)), "lines_b": address(lines_function(form, second, swap)),
        "lines_c": address(lines_function(form, "c", swap)), "registers_d": address(registers_function(form, swap)),
        "m": m, "n": n, "k": form.k, "ka": form.k // 2 if form.sparse else form.k,
        "rows": rows, "columns": columns, "steps": steps,
        "a_bytes": line_bytes(form, first), "b_bytes": line_bytes(form, second), "c_bytes": c_bytes, "d_bytes": d_bytes,
    } | {f"{x}_registers": fragment(form, y).registers for x, y in zip("abcd", (first, second, "c", "d"))}  # fmt: skip
    for name, number in numbers.items():
        table[name] = number
    for name, values in places.items():
        array = np.ascontiguousarray(values, np.int64).astype(np.uint32)
        keep.append(array)
        table[f"{name}_at"] = array.ctypes.data
    raw = max(height * numbers["a_bytes"] * steps, width * numbers["b_bytes"] * steps, height * width * c_bytes)
    rooms = {
        "": raw, "packed_a": twin.a_bytes(height, depth), "packed_b": twin.b_bytes(width, depth),
        "result": 0 if c_bytes == d_bytes else height * width * d_bytes, "index": height * depth * 2 if form.sparse else 0,
    }  # fmt: skip
    if form.sparse:
        table["indices"] = index_table(keep, form, selector)
    if form.block_scale:
        rooms |= {"scale_a": height * form.scale_vec, "scale_b": width * form.scale_vec}
        table["scales"] = form.scale_vec
        tables = scale_maps(form) | {f"select_{x}": at[f"select_{x}"] for x in "ab"}
        for name, values in tables.items():
            array = np.ascontiguousarray(values, np.int32)
            keep.append(array)
            table[name] = array.ctypes.data
    offsets, scratch = arranged(rooms)
    for name, offset in offsets.items():
        table[name] = offset
    return Wide(twin, table, scratch, keep)
