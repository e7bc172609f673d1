# mypy: disable-error-code="valid-type, index"
"""Native code for matrices in shared memory that a descriptor names: made with the functions of layouts/descriptors.py.

Nothing about descriptors, canonical layouts or swizzles is said here: `fields`, `canonical` and `Swizzle.place` are called
with native values instead of integers.
"""

from __future__ import annotations

from mmulator.codegen.lang import Native, native
from mmulator.codegen.ops import load, store
from mmulator.codegen.types import i64, ptr, ptr_to, u8, u16, u32, u64
from mmulator.layouts.descriptors import canonical, fields
from mmulator.layouts.swizzle import SWIZZLES
from mmulator.twin.doors import Door

UNIT = 16  # bytes that lie together in every canonical layout


def operand_function(door: Door) -> Native:
    """A matrix of shared memory as plain rows: `lines` rows of `line_bytes` bytes, 16 bytes at a time.

    K-major: a line is a row (m or n) along k. MN-major: a line is one k along m or n. 0 if the door refuses.
    door.place(context, address, number): of UNIT bytes.
    """
    modes = tuple(SWIZZLES.values())

    def operand(
        c: ptr_to(door.context), desc: u64, lines: i64, line_bytes: i64, mn_major: u32, number: u32, out: ptr
    ) -> u32:
        start, leading, stride, base, code = fields(desc)
        target = ptr(out)
        for mode in modes:
            for major in (False, True):
                if (code == mode.code) & ((mn_major != 0) == major):
                    for line in range(u64(lines)):
                        for at in range(u64(0), u64(line_bytes), UNIT):
                            x = mode.place(start + canonical(line, at, mode.width, leading, stride, major), base)
                            host = door.place(c, x, number)
                            if u64(host) == 0:
                                return u32(0)
                            store(load(u8.vec(UNIT), host), target)
                            target = target + UNIT
        return u32(1)

    return Native(operand, f"operand_of_{door.name}")


@native
def transpose16(source: ptr_to(u16), rows: i64, columns: i64, out: ptr_to(u16)) -> None:
    for r in range(rows):
        for c in range(columns):
            out[c * rows + r] = source[r * columns + c]


@native
def unpack_bits(source: ptr, count: i64, out: ptr) -> None:
    """b1: one byte for each bit."""
    for i in range(count):
        out[i] = (source[i // 8] >> u8(i % 8)) & 1
