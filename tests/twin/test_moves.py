"""Native code that moves matrices, of kernels and of `Instruction`, against the pure functions of layouts/."""

import ctypes
from typing import Any

import numpy as np
import pytest

from mmulator.base.codegen import loading
from mmulator.base.codegen.lang import Native
from mmulator.isa.form import Form
from mmulator.isa.matrix import matrix_forms
from mmulator.isa.targets import DEVICES
from mmulator.isa.types import TYPES
from mmulator.matrix.instruction.execution import execute
from mmulator.matrix.instruction.wgmma import shared_matrix
from mmulator.matrix.layouts import MatrixDescriptor, element_of, fragment, operand_addresses
from mmulator.matrix.layouts.operands import memory_bits
from mmulator.matrix.layouts.swizzle import SWIZZLES
from mmulator.ptx.program.addresses import SHARED_BASE
from mmulator.runtime.native.matrix.wgmma_operands import a_fragment, accumulator_in, accumulator_out, operand_bytes
from mmulator.runtime.native.state import Cta, FaultKind, Launch, Warp, WgmmaTable

Array = np.ndarray
RNG = np.random.default_rng(7)
SHARED = RNG.integers(0, 256, 1 << 18, dtype=np.uint8)
NAMES = {1: "b1", 8: "u8", 16: "f16", 32: "tf32"}
UNUSED = MatrixDescriptor.unused_bits((1 << 64) - 1)


def call(function: Native, *arguments: Any) -> int:
    """A native function, with arrays as pointers."""
    types = [ctypes.c_void_p if ty.kind == "ptr" else ctypes.c_uint64 if ty.bits == 64 else ctypes.c_uint32
             for _, ty in function.params]  # fmt: skip
    given = [a.ctypes.data if isinstance(a, np.ndarray) else a for a in arguments]
    return int(ctypes.CFUNCTYPE(ctypes.c_uint32, *types)(loading.address(function))(*given))


def forms(*families: str) -> list[Form]:
    return [f for family in families for f in matrix_forms(family)]


# operands of wgmma --------------------------------------------------------------------------------------------------
class Block:
    """As much of a launch as an operand of wgmma needs: `size` bytes of shared memory."""

    def __init__(self, size: int) -> None:
        self.launch, self.cta, self.warp = (np.zeros(1, s.numpy_dtype()) for s in (Launch, Cta, Warp))
        self.launch["shared_bytes"] = size
        self.cta["launch"], self.cta["shared"] = self.launch.ctypes.data, SHARED.ctypes.data
        self.warp["cta"] = self.cta.ctypes.data


def descriptors(swizzle: str, base_offset: int) -> list[tuple[int, int]]:
    """(word, its first byte in SHARED) of descriptors with random offsets, and random bits outside the fields."""
    found = []
    for _ in range(4):
        start, leading, stride = (16 * int(RNG.integers(0, limit)) for limit in (256, 200, 200))
        d = MatrixDescriptor(start + SHARED_BASE, leading, stride, base_offset, swizzle)
        found.append((d.encode() | int(RNG.integers(0, 1 << 63)) & UNUSED, SHARED_BASE))
    return found


@pytest.mark.parametrize("mn_major", [False, True])
@pytest.mark.parametrize("swizzle", SWIZZLES)
def test_operands_in_shared_memory_lie_where_layouts_says(swizzle: str, mn_major: bool) -> None:
    block, wrong = Block(SHARED.size), []
    for base_offset in range(8):
        for bits, k in ((16, 16),) if mn_major else ((1, 256), (8, 32), (16, 16), (32, 8)):
            for rows in (8, 24, 64, 256):
                for word, base in descriptors(swizzle, base_offset):
                    address = operand_addresses(MatrixDescriptor.decode(word), rows, k, bits, mn_major) - base
                    wanted = SHARED[address[..., None] + np.arange(max(1, bits // 8))] if bits > 1 else None
                    lines = (k, rows) if mn_major else (rows, k)
                    out = np.zeros((lines[0], lines[1] * bits // 8), np.uint8)
                    done = call(operand_bytes, block.warp, word, lines[0], lines[1] * bits // 8, mn_major, 0, out)
                    one = shared_matrix(SHARED, base, word, rows, k, TYPES[NAMES[bits]], mn_major)
                    if wanted is None:
                        wanted = (SHARED[address] >> (np.arange(k) % 8).astype(np.uint8) & 1)[..., None]
                        plain = np.unpackbits(out, axis=-1, bitorder="little")[..., None]
                    else:
                        plain = out.reshape(*lines, bits // 8)
                    plain = np.swapaxes(plain, 0, 1) if mn_major else plain
                    same = done and (plain == wanted).all()
                    if not (same and (np.ascontiguousarray(one)[..., None].view(np.uint8) == wanted).all()):
                        wrong.append((swizzle, base_offset, bits, rows, hex(word)))
    assert not wrong and not block.cta["fault"][0]


@pytest.mark.parametrize("swizzle", SWIZZLES)
def test_an_operand_is_refused_as_soon_as_a_byte_is_missing(swizzle: str) -> None:
    d = MatrixDescriptor(SHARED_BASE + 64, 160, 496, 0, swizzle)
    end = int(operand_addresses(d, 64, 16, 16).max()) + 2 - SHARED_BASE
    out = np.zeros((64, 32), np.uint8)
    for size, kind in ((end, FaultKind.NONE), (end - 1, FaultKind.WGMMA_ADDRESS), (0, FaultKind.WGMMA_ADDRESS)):
        block = Block(size)
        assert call(operand_bytes, block.warp, d.encode(), 64, 32, 0, 3, out) == (kind == FaultKind.NONE)
        assert block.cta["fault"][0] == kind


# registers of wgmma -------------------------------------------------------------------------------------------------
def test_accumulators_lie_where_layouts_says() -> None:
    """Of every n and type: registers to a tile, and back to registers elsewhere in the frame."""
    seen = set()
    for form in forms("wgmma"):
        if not form.dtype or (form.n, form.dtype.bits) in seen:
            continue
        seen.add((form.n, form.dtype.bits))
        f, bits = fragment(form, "d"), form.dtype.bits
        given = RNG.integers(0, 1 << 32, (f.lanes, f.registers), dtype=np.uint32)
        matrix = f.to_matrix(given)
        slots = 128 * RNG.permutation(f.registers)
        site = np.zeros(1, WgmmaTable.numpy_dtype())
        site["n"], site["d_bits"], site["d_words"] = form.n, bits, f.registers
        site["d_slots"][0, : f.registers] = slots
        for warp in range(4):
            own = given[32 * warp : 32 * warp + 32]
            frame = np.zeros((f.registers, 32), np.uint32)
            frame[slots // 128] = own.T
            tile = np.zeros((16, form.n), f"<u{bits // 8}")
            call(accumulator_in, site, frame, tile)
            assert (tile == matrix[16 * warp : 16 * warp + 16]).all(), form
            back = np.zeros_like(frame)
            call(accumulator_out, site, back, tile)
            assert (back == frame).all(), form
    assert len(seen) == 32 * 2


def test_a_in_registers_lies_where_layouts_says() -> None:
    shapes = set()
    for form in forms("wgmma"):
        if not form.atype:
            continue
        f, bits = fragment(form, "a"), form.atype.bits
        if (f.columns, bits) in shapes or f.registers != 4:
            continue
        shapes.add((f.columns, bits))
        given = RNG.integers(0, 1 << 32, (f.lanes, 4), dtype=np.uint32)
        wanted = f.to_matrix(given)
        out = np.zeros((64, f.columns * bits // 8), np.uint8)
        for warp in range(4):
            registers = np.ascontiguousarray(given[32 * warp : 32 * warp + 32].T)
            call(a_fragment, registers, out.shape[1], out[16 * warp :])
        plain = np.unpackbits(out, axis=-1, bitorder="little") if bits == 1 else out.view(f"<u{bits // 8}")
        assert (plain == wanted).all(), form
    assert len({bits for _, bits in shapes}) >= 3


# moves between memory and registers ---------------------------------------------------------------------------------
def rows_of(form: Form, memory: Array, starts: Array) -> Array:
    """The matrices [..., num, rows, columns] at row starts [num, rows] as layouts has them."""
    bits = memory_bits(form)
    numbers = np.unpackbits(memory[..., starts[..., None] + np.arange(16)], axis=-1, bitorder="little")
    count = 128 // fragment(form, "r").bits
    parts = numbers[..., : count * bits].reshape(*numbers.shape[:-1], count, bits).astype(np.uint32)
    raw = (parts << np.arange(bits, dtype=np.uint32)).sum(axis=-1)
    raw = ((raw.astype(np.int64) ^ 8) - 8 if form.src_fmt == "s4" else raw).astype(f"<u{fragment(form, 'r').bits // 8}")
    raw = np.swapaxes(raw, -1, -2) if form.trans else raw
    return raw if form.num > 1 else raw[..., 0, :, :]


def starts_of(form: Form) -> tuple[Array, Array]:
    """Offsets of rows for every lane, in no order, no two overlapping; those of the matrices."""
    lanes = 16 * RNG.permutation(64)[:32]
    rows = 16 if (form.m, form.n) == (16, 16) else 8
    return lanes, lanes[: form.num * rows].reshape(form.num, rows)


@pytest.mark.parametrize("form", forms("ldmatrix", "stmatrix", "movmatrix"), ids=str)
def test_matrix_moves_are_those_of_layouts(form: Form) -> None:
    device = next(d for d in DEVICES if any(target.runs_on(d) for target in form.row.requires.targets()))
    lanes, starts = starts_of(form)
    memory = RNG.integers(0, 256, (3, 1024), dtype=np.uint8)
    f = fragment(form, "r")
    registers = RNG.integers(0, 1 << 32, (3, 32, f.registers), dtype=np.uint32)
    if form.family == "ldmatrix":
        got = execute(form, device, {"memory": memory, "p": lanes})
        assert (got == f.to_registers(rows_of(form, memory, starts))).all()
    elif form.family == "stmatrix":
        execute(form, device, {"memory": memory, "p": lanes, "r": registers})
        stored = rows_of(form, memory, starts)
        assert (f.to_registers(stored) == registers).all()
    else:
        got = execute(form, device, {"a": registers[..., 0]})
        assert (got == f.to_registers(np.swapaxes(f.to_matrix(registers), -1, -2))).all()


@pytest.mark.parametrize("extra", [0, 64])
def test_wmma_loads_and_stores_are_those_of_layouts(extra: int) -> None:
    for form in forms("wmma"):
        if form.op == "mma":
            continue
        f, element = fragment(form, "r"), element_of(form, "r")
        assert element is not None
        shape = (f.rows, f.columns) if form.layout == "row" else (f.columns, f.rows)
        stride = shape[1] + extra * 8 // element.bits * 4
        memory = RNG.integers(0, 256, (2, 64 + stride * shape[0] * element.bits // 8), dtype=np.uint8)
        given = {"memory": memory, "p": 32, "stride": stride}
        device = "sm_90"
        if form.op.startswith("store"):
            r = RNG.integers(0, 1 << 32, (2, 32, f.registers), dtype=np.uint64).astype(f"<u{f.register_bits // 8}")
            execute(form, device, given | {"r": r})
            wanted, got = f.to_matrix(r), None
        else:
            got = execute(form, device, given)
        number = np.unpackbits(memory[:, 32:], axis=-1, bitorder="little").astype(np.uint64)
        index = (np.arange(shape[0])[:, None] * stride + np.arange(shape[1])) * element.bits
        raw = (number[:, index[..., None] + np.arange(element.bits)] << np.arange(element.bits, dtype=np.uint64)).sum(axis=-1)
        raw = (raw if form.layout == "row" else np.swapaxes(raw, -1, -2)).astype(f"<u{max(8, element.bits) // 8}")
        if got is None:
            assert (raw == wanted).all(), form
        else:
            assert (got == f.to_registers(raw)).all(), form
