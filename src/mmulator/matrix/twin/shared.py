# mypy: disable-error-code="valid-type, index, call-overload, misc"
"""Native code for matrices in shared memory that a descriptor selects, generated with the functions of
matrix/layouts/descriptors.py.

The rules of descriptors, canonical layouts and swizzles are not repeated here: `fields`, `canonical` and `Swizzle.place` are
called with native values instead of integers. `canonical` is linear in each direction, so one step of it gives all steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mmulator.base.codegen.lang import Native, native
from mmulator.base.codegen.ops import load, minimum, store
from mmulator.base.codegen.types import i64, ptr, ptr_to, u8, u16, u32, u64
from mmulator.matrix.layouts.descriptors import canonical, fields
from mmulator.matrix.layouts.swizzle import SWIZZLES, Swizzle
from mmulator.matrix.twin.doors import Door

UNIT = 16  # bytes that lie together in every canonical layout
ROWS = 8  # lines of an atom
SWIZZLED = 128  # a swizzle moves bytes inside of a multiple of so many


def operand_function(door: Door, fields: Callable[[Any], Any] = fields, swizzles: Mapping[str, Swizzle] = SWIZZLES) -> Native:
    """A function that copies a matrix of shared memory to plain rows: `lines` rows of `line_bytes` bytes, 16 bytes at a time.

    K-major: a line is a row (m or n) along k. MN-major: a line is one k along m or n. Returns 0 if the door refuses.

    door.place(context, address, number): a pointer to UNIT bytes.
    fields: gives the fields of a descriptor.
    swizzles: the modes that a descriptor may name.
    """
    modes = tuple(swizzles.values())
    has_span, has_begin = door.span is not None, door.begin is not None

    def operand(c: ptr_to(door.context), desc: u64, lines: i64, line_bytes: i64, mn_major: u32, number: u32, out: ptr) -> u32:
        start, leading, stride, base, code = fields(desc)
        width = u64(UNIT)
        row = u64(0)  # bytes, before swizzling, from one line to the next of eight, from eight to the next, from atom to atom
        rows = u64(0)
        atom = u64(0)
        high = u64(ROWS)  # lines of an atom
        unit = u64(UNIT)
        for mode in modes:
            for major in (False, True):
                if (code == mode.code) & ((mn_major != 0) == major):
                    width = u64(mode.width)
                    if mode.lines != ROWS:
                        high = u64(mode.lines)
                        unit = u64(mode.unit)
                    row = u64(canonical(1, 0, mode.width, leading, stride, major, mode.lines))
                    rows = u64(canonical(mode.lines, 0, mode.width, leading, stride, major, mode.lines))
                    atom = u64(canonical(0, mode.width, mode.width, leading, stride, major, mode.lines))
        swizzle = Swizzle("", 0, width, unit)
        atoms = (u64(line_bytes) + width - 1) // width
        target = ptr(out)
        if has_span:
            last = start + width - 1 + (high - 1) * row + (u64(lines) - 1) // high * rows + (atoms - 1) * atom
            host = door.span(c, start & ~u64(SWIZZLED - 1), last | (SWIZZLED - 1))
            if u64(host) != 0:
                for line in range(u64(lines)):
                    first = start + line % high * row + line // high * rows
                    for part in range(atoms):
                        for at in range(u64(0), minimum(width, u64(line_bytes) - part * width), UNIT):
                            x = swizzle.place(first + at, base)
                            door.seen(c, x, number)
                            store(load(u8.vec(UNIT), host + x), target)
                            target = target + UNIT
                        first = first + atom
                return u32(1)
        begin = u64(0)
        if has_begin:
            begin = door.begin(c)
        for line in range(begin, u64(lines)):
            first = start + line % high * row + line // high * rows
            for part in range(atoms):
                for at in range(u64(0), minimum(width, u64(line_bytes) - part * width), UNIT):
                    x = swizzle.place(first + at, base)
                    one = door.place(c, x, number)
                    if u64(one) == 0:
                        return u32(0)
                    store(load(u8.vec(UNIT), one), target)
                    target = target + UNIT
                first = first + atom
        return u32(1)

    return Native(operand, f"operand_of_{door.name}")


@native
def transpose16(source: ptr_to(u16), rows: i64, columns: i64, out: ptr_to(u16)) -> None:
    """Transpose a matrix of 16-bit elements, given as `rows` contiguous lines."""
    for r in range(rows):
        for c in range(columns):
            out[c * rows + r] = source[r * columns + c]


@native
def unpack_bits(source: ptr, count: i64, out: ptr) -> None:
    """Unpack b1 elements: one byte for each bit."""
    for i in range(count):
        out[i] = (source[i // 8] >> u8(i % 8)) & 1
