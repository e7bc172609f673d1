"""Register fragments, swizzles and matrix descriptors: laws over whole domains, the specification's examples."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmulator.errors import OperandError
from mmulator.isa.form import Form
from mmulator.isa.matrix import matrix_forms
from mmulator.isa.names.mnemonic import parse_mnemonic
from mmulator.matrix.layouts import SWIZZLES, Fragment, MatrixDescriptor, fragment, operand_addresses
from mmulator.matrix.layouts.instruction_descriptor import KINDS, Variant

FRAGMENTS: dict[Fragment, tuple[Form, str]] = {
    fragment(form, o.name): (form, o.name)
    for form in matrix_forms()
    for signature in form.signatures
    for o in signature
    if o.kind in ("registers", "register") and o.name in "abcdr"
}


def test_every_operand_has_a_fragment_with_its_number_of_registers() -> None:
    for form in matrix_forms():
        for signature in form.signatures:
            for o in signature:
                if o.kind == "registers":
                    assert fragment(form, o.name).registers == o.count, (form, o.name)
                    assert fragment(form, o.name).lanes == form.lanes


def test_fragments_hold_every_element_equally_often() -> None:
    for f, (form, name) in FRAGMENTS.items():
        positions, times = np.unique(f.flat, return_counts=True)
        assert np.array_equal(positions, np.arange(f.copies * f.rows * f.columns)), (form, name)
        assert len(set(times)) == 1
        assert times[0] == 1 or form.family == "wmma", (form, name)


def test_locate_inverts_element_over_whole_fragments() -> None:
    for f in FRAGMENTS:
        copy, row, col = f.maps
        lane, register, index = f.locate(row, col, copy)
        back = f.element(lane, register, index)
        assert np.array_equal(back[0], row)
        assert np.array_equal(back[1], col)


def test_registers_and_matrices_convert_both_ways() -> None:
    generator = np.random.default_rng(7)
    for f in FRAGMENTS:
        size = (3, *f.matrix_shape)
        bits = (
            generator.integers(0, 1 << f.width, size, np.uint64, endpoint=False)
            if f.width < 64
            else (generator.integers(0, 1 << 63, size, np.uint64))
        )
        registers = f.to_registers(bits)
        assert registers.shape == (3, f.lanes, f.registers)
        assert np.array_equal(f.to_matrix(registers), bits)
        one = f.holders(f.rows - 1, f.columns - 1)[0]
        word = int(registers[(0, *one[:2])] if f.copies == 1 else f.to_registers(bits)[(0, *one[:2])])
        assert word >> (one[2] * f.bits + f.shift) & ((1 << f.width) - 1) == int(bits[0, ..., f.rows - 1, f.columns - 1].flat[0])


def _lane(form: str, name: str, lane: int) -> list[tuple[int, int]]:
    f = fragment(parse_mnemonic(form), name)
    _, row, col = f.maps
    return list(zip(row[lane].reshape(-1).tolist(), col[lane].reshape(-1).tolist()))


def test_fragments_of_the_specification() -> None:
    """Matrix Fragments for mma.m16n8k16, m16n8k8 with .tf32, m8n8k4, m16n8k32, m16n8k16 with .f64 (PTX ISA 9.1)."""
    g, t = 5, 2
    lane = 4 * g + t
    half = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
    pairs = [(g, 0), (g + 8, 0), (g, 8), (g + 8, 8)]
    assert _lane(half, "a", lane) == [(r, c + 2 * t + e) for r, c in pairs for e in (0, 1)]
    assert _lane(half, "b", lane) == [(k + 2 * t + e, g) for k in (0, 8) for e in (0, 1)]
    assert _lane(half, "c", lane) == [(g + r, 2 * t + e) for r in (0, 8) for e in (0, 1)]
    tf32 = "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"
    assert _lane(tf32, "a", lane) == [(g, t), (g + 8, t), (g, t + 4), (g + 8, t + 4)]
    assert _lane(tf32, "b", lane) == [(t, g), (t + 4, g)]
    s8 = "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32"
    rows = [(g, 0), (g + 8, 0), (g, 16), (g + 8, 16)]
    assert _lane(s8, "a", lane) == [(r, c + 4 * t + e) for r, c in rows for e in range(4)]
    f64 = "mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64"
    assert _lane(f64, "a", lane) == [(g + 8 * (i % 2), t + 4 * (i // 2)) for i in range(8)]
    assert _lane(f64, "b", lane) == [(t + 4 * i, g) for i in range(4)]
    wgmma = "wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16"
    assert _lane(wgmma, "d", 96 + lane)[:2] == [(48 + g, 2 * t), (48 + g, 2 * t + 1)]


def test_quad_pairs_of_m8n8k4() -> None:
    """Matrix Fragments for mma.m8n8k4 with .f16 floating point type (PTX ISA 9.1)."""
    for low, high in ((0, 4), (16, 4)):
        shift = high if low else 0
        lane = low + 4 + 3  # second quad pair, third thread
        form = "mma.sync.aligned.m8n8k4.{}.{}.{}.f16.f16.{}"
        row_a = form.format("row", "row", "f16", "f16")
        col_a = form.format("col", "col", "f32", "f32")
        assert _lane(row_a, "a", lane) == [(3 + shift, i) for i in range(4)]
        assert _lane(col_a, "a", lane) == [(i + shift, 3) for i in range(4)]
        assert _lane(row_a, "b", lane) == [(3, i + shift) for i in range(4)]
        assert _lane(col_a, "b", lane) == [(i, 3 + shift) for i in range(4)]
        assert _lane(row_a, "c", lane) == [(3 + shift, i) for i in range(8)]
        assert _lane(col_a, "c", lane) == [((3 & 1) + (i & 2) + shift, (i & 4) + (3 & 2) + (i & 1)) for i in range(8)]
    f = fragment(parse_mnemonic(row_a), "c")
    assert f.maps[0][:, 0, 0].tolist() == [lane % 16 // 4 for lane in range(32)]


def test_narrow_floats_sit_in_bytes() -> None:
    """.e2m1 in the middle four bits, .e3m2 in the low six (Multiply-and-Accumulate Instruction: mma, PTX ISA 9.1)."""
    form = "mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e2m1.e3m2.f32"
    ones = fragment(parse_mnemonic(form), "a").to_registers(np.full((16, 32), 0xF, np.uint8))
    assert set(ones.reshape(-1).tolist()) == {0x3C3C3C3C}
    ones = fragment(parse_mnemonic(form), "b").to_registers(np.full((32, 8), 0x3F, np.uint8))
    assert set(ones.reshape(-1).tolist()) == {0x3F3F3F3F}


def test_outside_a_fragment() -> None:
    f = fragment(parse_mnemonic("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"), "a")
    for wrong in (
        lambda: f.locate(16, 0),
        lambda: f.element(32, 0),
        lambda: f.element(0, 4),
        lambda: f.element(0, 0, 2),
    ):
        with pytest.raises(OperandError, match=r"outside 0\.\."):
            wrong()
    for one, other in (((0, 1), (0, 1, 2)), ((0, 1, 2), (0, 1))):
        with pytest.raises(OperandError, match="do not broadcast"):
            f.locate(np.array(one), np.array(other))
        with pytest.raises(OperandError, match="do not broadcast"):
            f.element(np.array(one), np.array(other))
    with pytest.raises(OperandError, match="16x16 is needed"):
        f.to_registers(np.zeros((16, 8), np.uint16))
    with pytest.raises(OperandError, match="32, 4"):
        f.to_matrix(np.zeros((32, 2), np.uint32))
    with pytest.raises(OperandError, match="no register fragment"):
        fragment(parse_mnemonic("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16"), "b")


# Swizzles and descriptors --------------------------------------------------------------------------------------------
@pytest.mark.parametrize("mode", SWIZZLES.values(), ids=str)
def test_a_swizzle_permutes_its_pattern_and_nothing_else(mode) -> None:  # type: ignore[no-untyped-def]
    address = np.arange(4 * 1024)
    for base_offset in range(8):
        out = mode(address, base_offset)
        assert np.array_equal(np.sort(out), address)
        assert np.array_equal(out % 16, address % 16)
        assert np.array_equal(out // 128, address // 128)
        assert np.array_equal(mode(out, base_offset), address)
    assert np.array_equal(mode(address + mode.repeat), mode(address) + mode.repeat)


@given(
    st.integers(0, (1 << 14) - 1), st.integers(0, (1 << 14) - 1), st.integers(0, (1 << 14) - 1), st.integers(0, 7),
    st.sampled_from(list(SWIZZLES)),
)  # fmt: skip
def test_descriptors_encode_and_decode(start: int, leading: int, stride: int, base_offset: int, mode: str) -> None:
    d = MatrixDescriptor(16 * start, 16 * leading, 16 * stride, base_offset, mode)
    word = d.encode()
    assert MatrixDescriptor.decode(word) == d
    assert MatrixDescriptor.unused_bits(word) == 0
    assert word & 0x3FFF == start
    assert word >> 16 & 0x3FFF == leading
    assert word >> 32 & 0x3FFF == stride


def test_descriptor_examples_of_the_specification() -> None:
    """Canonical Layouts (PTX ISA 9.1): tf32 K-major without swizzle, bf16 MN-major with 64B swizzle."""
    d = MatrixDescriptor(0, 64 * 4, 32 * 4)
    assert (d.encode() >> 16 & 0x3FFF, d.encode() >> 32 & 0x3FFF) == (16, 8)
    element = operand_addresses(d, 16, 16, 32) // 4
    row, col = np.arange(16)[:, None], np.arange(16)[None, :]
    assert np.array_equal(element, row % 8 * 4 + row // 8 * 32 + col % 4 + col // 4 * 64)
    d = MatrixDescriptor(0, 256 * 2, 512 * 2, 0, "64B")
    # ((8,4,2),(8,2)):((1,8,256),(32,512)), before swizzling
    mn, k = np.arange(64)[:, None], np.arange(16)[None, :]
    canonical = mn % 8 + mn // 8 % 4 * 8 + mn // 32 * 256 + k % 8 * 32 + k // 8 * 512
    assert np.array_equal(operand_addresses(d, 64, 16, 16, mn_major=True), d.mode(canonical * 2))


@pytest.mark.parametrize("mode", SWIZZLES)
@pytest.mark.parametrize("bits", [8, 16, 32])
def test_addresses_do_not_collide_in_a_dense_layout(mode: str, bits: int) -> None:
    rows, k = 64, 32 * 8 // bits
    width = SWIZZLES[mode].width
    d = MatrixDescriptor(1024, 16 * rows, 8 * width, 0, mode)
    if mode == "none":
        d = MatrixDescriptor(1024, 8 * 16 * rows // 8, 128, 0, mode)
    address = operand_addresses(d, rows, k, bits)
    assert len(np.unique(address)) == rows * k
    assert np.all(address >= 1024)
    # 16-byte chunks stay together
    chunk = address.reshape(rows, -1, 128 // bits)
    assert np.all(np.diff(chunk, axis=-1) == bits // 8)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"start_address": 8}, "multiple of 16"),
        ({"leading_byte_offset": 1 << 18}, "multiple of 16 bytes from 0 to 262128"),
        ({"stride_byte_offset": -16}, "multiple of 16"),
        ({"base_offset": 8}, "0 to 7"),
        ({"swizzle": "96B"}, "no swizzling mode '96B'"),
        ({"swizzle": ["128B"]}, "no swizzling mode"),
        ({"start_address": 16.0}, "start_address is 16.0: an integer is needed"),
        ({"base_offset": None}, "base_offset is None: an integer is needed"),
    ],
)
def test_descriptors_refuse_what_they_cannot_hold(values: dict[str, object], says: str) -> None:
    with pytest.raises(OperandError, match=says):
        MatrixDescriptor(**values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("0x10", r"descriptor '0x10': an integer of 64 bits"),
        (1.0, r"descriptor 1\.0: an integer of 64 bits"),
        (None, "descriptor None: an integer of 64 bits"),
        (-1, "descriptor -0x1: .* from 0 to"),
        (1 << 64, "descriptor 0x10000000000000000: .* from 0 to"),
    ],
)
def test_words_that_are_no_descriptor(word: Any, says: str) -> None:
    for function in (MatrixDescriptor.decode, MatrixDescriptor.unused_bits):
        with pytest.raises(OperandError, match=says):
            function(word)


def test_variants_of_tcgen05_survive_their_numbers() -> None:
    yes = (False, True)
    every = [Variant(*fields) for fields in itertools.product(KINDS, yes, yes, yes, range(5))]
    assert [Variant.of_number(one.number) for one in every] == every
