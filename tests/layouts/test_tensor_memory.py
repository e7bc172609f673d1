"""Tensor memory: what CuTe and Triton say about its layouts, restated as data; every cell once; native values."""

from itertools import product

import numpy as np
import pytest

from mmulator.base.codegen.lang import native
from mmulator.base.codegen.types import ptr_to, u32, u64
from mmulator.matrix.layouts import tensor_memory as tm
from mmulator.matrix.layouts.descriptors import MatrixDescriptor, canonical, fields, fields5
from mmulator.matrix.layouts.swizzle import SWIZZLES, SWIZZLES5
from tests.twin.test_moves import call

NUMS = (1, 2, 4, 8, 16, 32, 64, 128)
FORMS = [(shape, num) for shape in tm.MOVES for num in NUMS if tm.registers_of(shape, num) <= 128]


def offset(i: int, shape: tuple[int, ...], stride: tuple[int, ...]) -> int:
    """A mode of a CuTe layout at i."""
    out = 0
    for size, step in zip(shape, stride):
        out += i % size * step
        i //= size
    return out


# registers ------------------------------------------------------------------------------------------------------------
# CuTe, copy_traits_sm100.hpp: (thread mode, value mode) of a load of N repetitions, in bits; a lane has BITS * N.
BITS = {"16x256b": 256, "16x128b": 128, "16x64b": 64, "32x32b": 32}


def cute(shape: str, n: int) -> tuple[tuple[tuple[int, ...], tuple[int, ...]], tuple[tuple[int, ...], tuple[int, ...]]]:
    row = BITS[shape] * n
    return {
        "16x256b": (((4, 8), (64, row)), ((64, 2, n), (1, 8 * row, 256))),
        "16x128b": (((4, 8), (32, row)), ((32, 2, n), (1, 8 * row, 128))),
        "16x64b": (((2, 2, 8), (8 * row, 32, row)), ((32, n), (1, 64))),
        "32x32b": (((32,), (row,)), ((32 * n,), (1,))),
    }[shape]


@pytest.mark.parametrize(("shape", "num"), [f for f in FORMS if f[0] in BITS])
def test_registers_lie_where_cute_has_them(shape: str, num: int) -> None:
    thread, value = cute(shape, num)
    row = BITS[shape] * num
    for t, r in product(range(32), range(tm.registers_of(shape, num))):
        bit = offset(t, *thread) + offset(32 * r, *value)
        assert tm.moved(shape, t, r) == (bit // row, bit % row // 32)


# Triton, Dialect.cpp: (row, column) of each bit of the thread and of the register, of one repetition.
TRITON = {
    "32x32b": ([(1, 0), (2, 0), (4, 0), (8, 0), (16, 0)], []),
    "16x64b": ([(8, 0), (0, 1), (1, 0), (2, 0), (4, 0)], []),
    "16x128b": ([(0, 1), (0, 2), (1, 0), (2, 0), (4, 0)], [(8, 0)]),
    "16x256b": ([(0, 2), (0, 4), (1, 0), (2, 0), (4, 0)], [(0, 1), (8, 0)]),
}


@pytest.mark.parametrize("shape", TRITON)
def test_registers_lie_where_triton_has_them(shape: str) -> None:
    threads, registers = TRITON[shape]
    for t, r in product(range(32), range(tm.registers_of(shape, 1))):
        bases = [b for i, b in enumerate(threads) if t >> i & 1] + [b for i, b in enumerate(registers) if r >> i & 1]
        assert tm.moved(shape, t, r) == (sum(b[0] for b in bases), sum(b[1] for b in bases))


@pytest.mark.parametrize(("shape", "num"), FORMS)
def test_every_cell_belongs_to_one_register(shape: str, num: int) -> None:
    registers, columns = tm.registers_of(shape, num), tm.columns_of(shape, num)
    for split in (columns, columns + 24) if shape == "16x32bx2" else (0,):
        cells = {tm.moved(shape, t, r, split) for t in range(32) for r in range(registers)}
        halves = (0, split) if split else (0,)
        lanes = 32 if shape == "32x32b" else 16
        assert cells == {(lane, half + c) for lane in range(lanes) for half in halves for c in range(columns)}
        assert len(cells) == 32 * registers
    for t, r in product(range(32), range(registers)):  # the second half begins where immHalfSplitoff says, packed or not
        (lane, column), (same, packed) = tm.moved(shape, t, r, 40), tm.moved(shape, t, r, 40, 2)
        half = 40 * (t // 16) if shape == "16x32bx2" else 0
        assert (same, packed) == (lane, 2 * (column - half) + half)
    assert tm.columns_of(shape, num, packed=True) == 2 * columns and tm.registers_of(shape, num, packed=True) == registers


def test_one_repetition_of_256_bits_is_the_accumulator_of_mma() -> None:
    """Matrix fragments of mma.m16n8: rows g and g + 8, columns 2 t and 2 t + 1."""
    for t, r in product(range(32), range(4)):
        assert tm.moved("16x256b", t, r) == (t // 4 + 8 * (r // 2), 2 * (t % 4) + r % 2)


# accumulators ---------------------------------------------------------------------------------------------------------
# CuTe, mma_traits_sm100_frag.hpp: modes of m and n; lane + 128 * column.
def atoms(n: int) -> dict[str, tuple[tuple[tuple[int, ...], tuple[int, ...]], tuple[tuple[int, ...], tuple[int, ...]]]]:
    return {
        "D": (((128,), (1,)), ((n,), (128,))),
        "F": (((16, 4), (1, 32)), ((n,), (128,))),
        "B": (((64,), (1,)), ((n // 2, 2), (128, 64))),
        "G": (((32,), (1,)), ((n // 4, 4), (128, 32))),
    }


ALIKE = {"A": "D", "C": "F", "E": "B"}
# (M, pair, ws, sparse): ID. Data Path Layout Organization (PTX ISA 9.1), the table.
IDS = {
    (32, False, True, False): "G", (32, False, True, True): "G", (64, False, True, False): "E", (64, False, True, True): "E",
    (64, False, False, False): "F", (64, False, False, True): "F", (128, False, False, False): "D",
    (128, False, False, True): "D", (128, False, True, False): "D", (128, False, True, True): "D",
    (128, True, False, False): "B", (128, True, False, True): "C", (256, True, False, False): "A",
    (256, True, False, True): "A",
}  # fmt: skip


def test_layouts_have_the_specifications_letters() -> None:
    for (m, pair, ws, sparse), letter in IDS.items():
        assert tm.layout_id(m, pair, ws, sparse) == letter
        assert tm.PARTS[letter] * (1 + pair) == m


@pytest.mark.parametrize("layout", tm.PARTS)
@pytest.mark.parametrize("n", [16, 64, 128, 256])
def test_accumulators_lie_where_cute_has_them(layout: str, n: int) -> None:
    rows, columns = atoms(n)[ALIKE.get(layout, layout)]
    seen = set()
    for m, column in product(range(tm.PARTS[layout]), range(n)):
        at = offset(m, *rows) + offset(column, *columns)
        assert tm.place(layout, m, column, n) == (at % 128, at // 128)
        seen.add(at)
    assert len(seen) == tm.PARTS[layout] * n
    by_pieces = {
        (p.row + r, p.first + c): (p.lane + r, p.column + c)
        for p in tm.pieces(layout, n) for r in range(p.rows) for c in range(p.columns)
    }  # fmt: skip
    assert by_pieces == {
        (m, c): tm.place(layout, m, c, n) for m in range(tm.PARTS[layout]) for c in range(n)
    }  # fmt: skip
    assert len(tm.pieces(layout, n)) == {"A": 1, "D": 1, "F": 4, "C": 4, "B": 2, "E": 2, "G": 4}[layout]


@pytest.mark.parametrize("layout", tm.PARTS)
@pytest.mark.parametrize("bits", [4, 8, 16, 32])
def test_a_has_the_lanes_of_its_rows_of_d(layout: str, bits: int) -> None:
    k = 256 // bits
    seen = set()
    for m, i, copy in product(range(tm.PARTS[layout]), range(k), range(tm.copies(layout))):
        lane, column, low = tm.a_place(layout, bits, m, i, copy)
        seen.add((lane, 32 * column + low))
        n = 64 // tm.copies(layout) * copy
        assert lane == tm.place(layout, m, n, 64)[0] and column * 32 + low == bits * i
    assert len(seen) == tm.PARTS[layout] * k * tm.copies(layout)


# scale factors and metadata -------------------------------------------------------------------------------------------
def test_scale_factors_lie_where_cute_has_them() -> None:
    """tmem_sf_frg: ((32, lines / 32), 4 copies, factors):((1, 512), 32, 128), in bytes."""
    for i, s, copy in product(range(256), range(4), range(4)):
        at = offset(i, (32, 8), (1, 512)) + 32 * copy + 128 * s
        lane, column, byte = tm.scale_place(i, s)
        assert (lane + 32 * copy, 4 * column + byte) == (at % 128, at // 128)
    for n in (64, 128, 256):  # ((32, n / 64), 2, 2 copies):((1, 512), 64, 32)
        for i, copy in product(range(n), range(2)):
            at = offset(i, (32, n // 64, 2), (1, 512, 64)) + 32 * copy
            first, _, quarters = next(p for p in tm.scale_parts("B", "b", n) if p[0] <= i < p[0] + p[1])
            lane, column, _ = tm.scale_place(i - first, 0)
            assert (lane + 32 * quarters[copy], 4 * column) == (at % 128, at // 128)
    assert tm.scale_parts("B", "a", 64) == ((0, 64, (0, 1, 2, 3)),)


@pytest.mark.parametrize("lines", [16, 128, 192, 256])
def test_scale_factors_of_k_96_go_on_further_on(lines: int) -> None:
    """tmem_sf_frg of whole blocks of 128 lines, ((32, 4 blocks), 4, (4, 2)):((1, 512), 32, (128, 512 * 4 blocks)), in bytes."""
    blocks = -(-lines // 128)
    for i, s in product(range(lines), range(8)):
        at = offset(i, (32, 4 * blocks), (1, 512)) + offset(s, (4, 2), (128, 2048 * blocks))
        lane, column, byte = tm.scale_place(i, s, lines)
        assert (lane, 4 * column + byte) == (at % 128, at // 128)
        assert column < tm.scale_span(lines, 0, 6)
    assert tm.scale_span(lines, 0, 4) == -(-lines // 32) == tm.scale_span(lines, 1, 3)


# CuTe, tmem_e_frg and tmem_e_frg_ws, M = 128: modes of m and k; lane + 128 * unit; bits of a unit; bits of an element of A.
METADATA = {
    16: (32, ((8, 2, 8), (1, 2048, 16)), ((16, 2), (128, 8)), 1),
    32: (16, ((8, 2, 8), (1, 1024, 16)), ((8, 2), (128, 8)), 2),
    8: (64, ((128,), (1,)), ((64,), (128,)), 1),
}


@pytest.mark.parametrize("bits", METADATA)
def test_metadata_lies_where_cute_has_it(bits: int) -> None:
    k, rows, along, unit = METADATA[bits]
    for m, i in product(range(128), range(0, k, 2)):  # of two neighbours along k one is stored
        at = offset(m, *rows) + offset(i, *along)
        lane, column, low = tm.metadata_place(bits, m, i // 2)
        assert (lane, 32 * column + low) == (at % 128, unit * (at // 128))


@pytest.mark.parametrize("layout", tm.PARTS)
@pytest.mark.parametrize("bits", [4, 8, 16, 32])
def test_every_bit_of_the_metadata_belongs_to_one_index(layout: str, bits: int) -> None:
    stored = {4: 64, 8: 32, 16: 16, 32: 8}[bits]
    each, size = (2, 2) if bits == 4 else (1, 4 if bits == 32 else 2)
    seen = []
    for m, j, copy in product(range(tm.PARTS[layout]), range(0, stored, each), range(tm.copies(layout))):
        lane, column, low = tm.metadata_place(bits, m, j, layout, copy)
        assert low % size == 0 and low + size <= 32 and column < (1 if bits > 8 else 2)
        assert tm.metadata_place(bits, m, j + each - 1, layout, copy) == (lane, column, low)
        seen.append((lane, column, low))
    lanes = {lane for lane, _, _ in seen}
    own = {q * 32 + i for q in range(4) for i in range(16)} if layout in "FC" else set(range(128))
    assert lanes == own and len(set(seen)) == len(seen) == len(own) * (1 if bits > 8 else 2) * 32 // size


# shared memory --------------------------------------------------------------------------------------------------------
# Canonical Layouts (PTX ISA 9.1), in units of 16 bytes: (line, chunk) modes by swizzle; L and S are the two offsets.
def stated(mode: str, mn_major: bool, leading: int, stride: int) -> tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]:
    """((line shape, stride), (chunk shape, stride))."""
    wide, lines = {"none": (1, 8), "32B": (2, 8), "64B": (4, 8), "128B": (8, 8), "128B_atom_32B": (8, 4)}[mode]
    if mode == "none":
        far, near = (leading, stride) if mn_major else (stride, leading)
        return ((lines, 4), (1, far)), ((4,), (near,))
    return ((lines, 4), (wide, stride)), ((wide, 4), (1, leading))


@pytest.mark.parametrize("mode", SWIZZLES5.values(), ids=lambda m: m.name)
@pytest.mark.parametrize("mn_major", [False, True])
def test_canonical_layouts_are_those_of_the_specification(mode, mn_major: bool) -> None:  # type: ignore[no-untyped-def]
    line, chunk = stated(mode.name, mn_major, 1000, 77)
    for i, c in product(range(16), range(4 if mode.width == 16 else 2 * mode.width // 16)):
        found = canonical(i, 16 * c, mode.width, 16000, 16 * 77, mn_major, mode.lines)
        assert found == 16 * (offset(i, *line) + offset(c, *chunk))


def test_the_swizzle_with_atoms_of_32_bytes_is_cutes() -> None:
    """Swizzle<2,5,2>: bits 5 and 6 are XORed with bits 7 and 8."""
    mode, at = SWIZZLES5["128B_atom_32B"], np.arange(4096)
    assert np.array_equal(mode(at), at ^ ((at >> 2) & (3 << 5)))
    assert (mode.lines, mode.repeat, mode.mask) == (4, 512, 3)


CODES5 = {"none": 0, "128B_atom_32B": 1, "128B": 2, "64B": 4, "32B": 6}  # Table 40


def test_descriptors_of_both_generations_say_the_same() -> None:
    for name, code in CODES5.items():
        word = 0x1234 | 0x0555 << 16 | 0x2AAA << 32 | 1 << 46 | 5 << 49 | code << 61
        found = fields5(word)
        assert found == [0x12340, 0x5550, 0x2AAA0, 5, SWIZZLES5[name].code]
        if name in SWIZZLES:
            assert fields(MatrixDescriptor(*found[:4], name).encode()) == found
    assert [fields5(code << 61)[4] for code in (3, 5, 7)] == [-1, -1, -1]


# native values --------------------------------------------------------------------------------------------------------
@native
def native_places(words: ptr_to(u64), count: u32, out: ptr_to(u64)) -> u32:  # type: ignore[valid-type]
    for n in range(count):
        at = out + n * 24
        start, leading, stride, base, code = fields5(words[n])
        at[0] = start + leading + stride + base
        at[1] = u64(code == -1)
        at[2] = code
        t = u32(words[n] & 31)
        r = u32((words[n] >> 5) & 15)
        for i, shape in enumerate(tm.MOVES):
            lane, column = tm.moved(shape, t, r, u32(40))
            at[3 + i] = u64(lane << 16 | column)
        for i, layout in enumerate(tm.PARTS):
            lane, column = tm.place(layout, t, r, u32(64))
            at[8 + i] = u64(lane << 16 | column)
        lane, column, low = tm.metadata_place(16, t, r)
        at[15] = u64(lane << 16 | column << 8 | low)
        lane, column, low = tm.metadata_place(4, t, r, "G", u32(1))
        at[16] = u64(lane << 16 | column << 8 | low)
        lane, column, low = tm.a_place("E", 8, t, r, u32(1))
        at[17] = u64(lane << 16 | column << 8 | low)
        at[18] = SWIZZLES5["128B_atom_32B"].place(words[n], base)
    return count


def test_native_code_computes_what_python_does() -> None:
    words = np.random.default_rng(5).integers(0, 1 << 64, 2000, np.uint64)
    out = np.zeros((len(words), 24), np.uint64)
    call(native_places, words.ctypes.data, len(words), out.ctypes.data)
    for word, row in zip(words.tolist(), out.tolist()):
        *parts, base, code = fields5(word)
        t, r = word & 31, word >> 5 & 15
        assert row[:3] == [sum(parts) + base, code == -1, code & (1 << 64) - 1]
        at = [tm.moved(shape, t, r, 40) for shape in tm.MOVES] + [tm.place(layout, t, r, 64) for layout in tm.PARTS]
        assert row[3:15] == [lane << 16 | column for lane, column in at]
        rest = (tm.metadata_place(16, t, r), tm.metadata_place(4, t, r, "G", 1), tm.a_place("E", 8, t, r, 1))
        assert row[15:18] == [lane << 16 | column << 8 | low for lane, column, low in rest]
        swizzled = word ^ ((((word >> 7) - base) * 32) & 96)
        assert row[18] == swizzled
