# mypy: disable-error-code="valid-type, operator"
"""Moves between arrays: images of memory and registers [..., lanes, registers], many in one native call.

The native code is that of kernels (shared.py, moves.py), compiled for images instead of windows of memory.
"""

import ctypes
import math
from functools import cache, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmulator.base.codegen.lang import Native, native
from mmulator.base.codegen.loading import address
from mmulator.base.codegen.ops import null
from mmulator.base.codegen.types import Struct, i64, ptr, ptr_to, u8, u32, u64
from mmulator.base.codegen.values import Value
from mmulator.isa.effects import MemoryEffect
from mmulator.isa.form import Form
from mmulator.matrix.layouts import fragment
from mmulator.matrix.twin.doors import Door
from mmulator.matrix.twin.moves import (
    ROWS,
    WmmaTable,
    matrices,
    registers_of,
    registers_to_rows,
    rows_to_registers,
    symbol,
    wmma_load_function,
    wmma_store_function,
    wmma_table,
)
from mmulator.matrix.twin.shared import UNIT, operand_function

Array = NDArray[Any]
Bytes = NDArray[np.uint8]
_ImageWords = ctypes.c_uint64 * 3


# An image of memory in an array: its first byte, the address of that, and how many there are.
Image = Struct("Image", [("host", ptr), ("start", u64), ("size", u64)])


@native(inline=True)
def place_in_image(image: ptr_to(Image), lane: u32, address: u64, bytes: u32, access: u32, number: u32) -> ptr:
    at = address - image.start
    if at < image.size and at + u64(bytes) <= image.size:
        return image.host + at
    return null(u8)


@native(inline=True)
def unit_in_image(image: ptr_to(Image), address: u64, number: u32) -> ptr:
    return place_in_image(image, u32(0), address, u32(UNIT), u32(0), number)


@cache
def _compiled(function: Native) -> Any:
    types = [ctypes.c_void_p if ty.kind == "ptr" else getattr(ctypes, f"c_{'' if ty.signed else 'u'}int{ty.bits}")
             for _, ty in function.params]  # fmt: skip
    return ctypes.CFUNCTYPE(ctypes.c_uint32, *types)(address(function))


def _plain(memory: Bytes) -> tuple[Bytes, Any, int]:
    """(contiguous images, an Image of the first at address 0, number of images)."""
    memory = np.ascontiguousarray(memory)
    size = memory.shape[-1]
    return memory, _ImageWords(memory.ctypes.data, 0, size), math.prod(memory.shape[:-1])


def _by_register(registers: Array) -> Array:
    """Registers in the order of native code; the function is its own inverse."""
    return np.ascontiguousarray(np.swapaxes(registers, -1, -2))


def _load(form: Form, memory: Bytes, native: Any, *more: int) -> Array:
    """Registers that a native function loads from images. more: its arguments between the number of images and the registers."""
    memory, image, count = _plain(memory)
    f = fragment(form, "r")
    out = np.empty((*memory.shape[:-1], f.registers, f.lanes), f"<u{f.register_bits // 8}")
    native(image, count, *more, out.ctypes.data, out.nbytes // max(1, count))
    return _by_register(out)


def _store(memory: Bytes, registers: Array, native: Any, *more: int) -> None:
    """Store registers into images, in place. native, more: as for `_load`."""
    plain, image, count = _plain(memory)
    given = _by_register(np.broadcast_to(registers, (*memory.shape[:-1], *registers.shape[-2:])))
    native(image, count, *more, given.ctypes.data, given.nbytes // max(1, count))
    if plain is not memory:
        memory[...] = plain


# operands of wgmma ---------------------------------------------------------------------------------------------------
@cache
def _operands() -> Native:
    one = operand_function(Door("image", Image, unit_in_image))

    def operands_of_images(
        image: ptr_to(Image), count: i64, desc: u64, lines: i64, line_bytes: i64, mn_major: u32, out: ptr
    ) -> u32:
        target = ptr(out)
        for _ in range(count):
            if one(image, desc, lines, line_bytes, mn_major, u32(0), target) == 0:
                return u32(0)
            image.host = image.host + image.size
            target = target + lines * line_bytes
        return u32(1)

    return Native(operands_of_images)


def operand(memory: Bytes, base: int, descriptor: int, lines: int, line_bytes: int, mn_major: bool) -> Bytes | None:
    """The lines [..., lines, line_bytes] that a descriptor selects from images of shared memory; None if they are not inside.

    memory: the images [..., bytes].
    base: shared address of an image's first byte.
    descriptor: the matrix descriptor.
    lines, line_bytes: number of lines, and their bytes, a multiple of 16.
    mn_major: whether M or N is contiguous.
    """
    memory, image, count = _plain(memory)
    image[1] = base & (1 << 64) - 1
    out = np.empty((*memory.shape[:-1], lines, line_bytes), np.uint8)
    done = _compiled(_operands())(image, count, descriptor, lines, line_bytes, mn_major, out.ctypes.data)
    return out if done else None


# ldmatrix, stmatrix, movmatrix ------------------------------------------------------------------------------------------
def _eight(host: Value, starts: Value) -> list[Value]:
    """Macro: pointers to ROWS."""
    return [host + starts[number] for number in ROWS]


@cache
def _rows(form: Form) -> Native:
    storing, blocks = form.effects.memory is MemoryEffect.WRITE, matrices(form)

    def rows_of_images(image: ptr_to(Image), count: i64, starts: ptr_to(u64), registers: ptr, size: i64) -> u32:
        at = ptr(registers)
        for _ in range(count):
            for block in range(i64(blocks)):
                own = registers_of(form, block, at)
                rows = starts + len(ROWS) * block
                if storing:
                    registers_to_rows(form, own, _eight(image.host, rows))
                else:
                    rows_to_registers(form, _eight(image.host, rows), own)
            image.host = image.host + image.size
            at = at + size
        return u32(1)

    return Native(rows_of_images, f"{symbol(form)}_of_images")


def load_rows(form: Form, memory: Bytes, starts: NDArray[np.int64]) -> Array:
    """Registers of ldmatrix. starts [lanes]: offset of each row, inside the images."""
    return _load(form, memory, _compiled(_rows(form)), starts.ctypes.data)


def store_rows(form: Form, memory: Bytes, starts: NDArray[np.int64], registers: Array) -> None:
    """Memory after stmatrix, changed in place."""
    _store(memory, registers, _compiled(_rows(form)), starts.ctypes.data)


@cache
def _each(one: Native) -> Native:
    def move_of_registers(a: ptr, d: ptr, count: i64, size: i64) -> u32:
        for t in range(count):
            one(a + t * size, d + t * size)
        return u32(1)

    return Native(move_of_registers, f"{one.name}_of_registers")


def between_registers(one: Native, registers: Array) -> Array:
    """Registers of movmatrix and similar moves. one: the native move of a warp."""
    given = _by_register(registers)
    out = np.empty_like(given)
    count = math.prod(given.shape[:-2])
    _compiled(_each(one))(given.ctypes.data, out.ctypes.data, count, out.nbytes // max(1, count))
    return _by_register(out)


# wmma.load and wmma.store -------------------------------------------------------------------------------------------
@cache
def _fragments(one: Native) -> Native:
    def fragments_of_images(
        image: ptr_to(Image), count: i64, table: ptr_to(WmmaTable), p: u64, stride: i64, registers: ptr, size: i64
    ) -> u32:
        at = ptr(registers)
        for _ in range(count):
            if one(image, table, p, stride, at, u32(0)) == 0:
                return u32(0)
            image.host = image.host + image.size
            at = at + size
        return u32(1)

    return Native(fragments_of_images, f"{one.name}s")


@lru_cache(maxsize=256)
def _wmma(form: Form) -> tuple[Any, int, list[Any]]:
    keep: list[Any] = []
    f, table = fragment(form, "r"), wmma_table(keep, form)
    function = wmma_store_function if form.op.startswith("store") else wmma_load_function
    return _compiled(_fragments(function(Door("image", Image, place_in_image), f.bits, f.per_register))), table.ctypes.data, keep


def wmma_load(form: Form, memory: Bytes, p: int, stride: int) -> Array:
    """Registers of wmma.load from images.

    form: the instruction.
    memory: the images.
    p: offset in bytes.
    stride: distance of lines, in elements.
    """
    native, table, _ = _wmma(form)
    return _load(form, memory, native, table, p, stride)


def wmma_store(form: Form, memory: Bytes, p: int, stride: int, registers: Array) -> None:
    """Store registers by wmma.store into images.

    form: the instruction.
    memory: the images.
    p: offset in bytes.
    stride: distance of lines, in elements.
    registers: the registers.
    """
    native, table, _ = _wmma(form)
    _store(memory, registers, native, table, p, stride)
