"""Structured sparsity: metadata registers, what is kept, and refusals."""

import itertools

import numpy as np
import pytest

import mmulator as mm
from mmulator.errors import OperandError
from mmulator.isa.form import Form
from mmulator.isa.matrix import matrix_forms
from mmulator.isa.names.mnemonic import parse_mnemonic
from mmulator.matrix.layouts import sparse
from mmulator.matrix.layouts.sparse import metadata

SPARSE = [f for f in matrix_forms() if f.sparse]
# one form for each way of placing and reading metadata
KINDS: list[Form] = list({(f.family, f.k, sparse.granularity(f), f.atype and f.atype.bits >= 16): f for f in SPARSE}.values())
F16 = parse_mnemonic("mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
F16_WIDE = parse_mnemonic("mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32")
S8 = parse_mnemonic("mma.sp.sync.aligned.m16n8k64.row.col.s32.s8.s8.s32")
S4 = parse_mnemonic("mma.sp.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32")
TF32 = parse_mnemonic("mma.sp.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32")


def selectors(form: Form) -> range:
    return range({4: 4, 8: 2, 16: 1}[form.k // sparse.granularity(form).chunk])


def test_metadata_fills_the_contributing_lanes_once() -> None:
    for form in KINDS:
        lanes = []
        for selector in selectors(form):
            lane, bit = sparse.places(form, selector)
            pairs = set(zip(lane.reshape(-1).tolist(), bit.reshape(-1).tolist()))
            assert len(pairs) == lane.size, form
            contributing = sorted({lane for lane, _ in pairs})
            assert len(contributing) * 8 == lane.size, form  # eight nibbles a register
            lanes += contributing
        assert sorted(lanes) == list(range(form.lanes)), form


def test_metadata_registers_convert_both_ways() -> None:
    generator = np.random.default_rng(3)
    for form in KINDS:
        for selector in selectors(form):
            shape = sparse.places(form, selector)[0].shape
            nibbles = generator.integers(0, 16, (2, *shape), np.uint8)
            words = sparse.to_registers(nibbles, form, selector)
            assert words.shape == (2, form.lanes)
            assert np.array_equal(sparse.from_registers(words, form, selector), nibbles)


def test_metadata_bits_of_the_specification() -> None:
    """m16n8k16: one thread of four, low half row g; m16n8k64 with 8-bit types: all threads (PTX ISA 9.1)."""
    lane, bit = sparse.places(F16, 3)
    assert (lane[5, 0], bit[5, 0]) == (4 * 5 + 3, 0)
    assert (lane[13, 2], bit[13, 2]) == (4 * 5 + 3, 16 + 8)
    lane, bit = sparse.places(F16_WIDE, 1)
    assert (lane[5, 6], bit[5, 6]) == (4 * 5 + 3, 8)
    lane, bit = sparse.places(S8, 0)
    assert (lane[13, 9], bit[13, 9]) == (4 * 5 + 3, 4)


def test_two_of_four_exhaustively() -> None:
    """Every chunk with at most two non-zeros survives compress and expand; every other one is refused."""
    for pattern in itertools.product((0, 1), repeat=4):
        a = np.zeros((16, 16), np.float16)
        a[3, 8:12] = np.array(pattern) * [1.5, 2.5, 3.5, 4.5]
        if sum(pattern) <= 2:
            s = sparse.compress(a, F16)
            assert np.array_equal(sparse.expand(s), a)
            assert not sparse.undefined(s.metadata, F16).any()
        else:
            with pytest.raises(OperandError, match="row 3, columns 8 to 11"):
                sparse.compress(a, F16)


def test_pairs_of_eight_exhaustively() -> None:
    for pattern in itertools.product((0, 1), repeat=8):
        a = np.zeros((16, 64), np.int8)
        a[0, 56:64] = np.array(pattern) * np.arange(-4, 4)
        if sum(any(a[0, 56 + 2 * p : 58 + 2 * p]) for p in range(4)) <= 2:
            assert np.array_equal(sparse.expand(sparse.compress(a, S4)), a)
        else:
            with pytest.raises(OperandError, match="pairs of elements are not zero in row 0, columns 56 to 63"):
                sparse.compress(a, S4)


def test_every_kind_keeps_what_it_can() -> None:
    generator = np.random.default_rng(5)
    for form in KINDS:
        g = sparse.granularity(form)
        groups = generator.random((4, form.m, form.k // g.chunk, g.chunk // g.group)).argsort(-1) < (g.kept // g.group)
        a = generator.integers(1, 100, (4, form.m, form.k)) * np.repeat(groups, g.group, axis=-1).reshape(4, form.m, -1)
        s = sparse.compress(a, form)
        assert s.values.shape == (4, form.m, form.k // 2)
        assert np.array_equal(sparse.expand(s), a)
        again = sparse.Compressed(s.values, sparse.from_registers(s.registers(), form), form)
        assert np.array_equal(sparse.expand(again), a)


def test_metadata_values_by_kind() -> None:
    every = np.arange(16, dtype=np.uint8)
    ordered = parse_mnemonic("mma.sp::ordered_metadata.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
    assert every[~sparse.undefined(every, ordered)].tolist() == [0b0100, 0b1000, 0b1001, 0b1100, 0b1101, 0b1110]
    assert every[sparse.undefined(every, F16)].tolist() == [0b0000, 0b0101, 0b1010, 0b1111]
    assert every[~sparse.undefined(every, TF32)].tolist() == [0b0100, 0b1110]
    assert every[sparse.mixed(every, TF32)].size == 14
    s = sparse.compress(np.zeros((16, 16)), F16)
    wrong = sparse.Compressed(s.values, np.zeros_like(s.metadata), F16)
    with pytest.raises(OperandError, match=r"0b0000 at row 0, columns 0 to 3 \(chunk 0\): it names element 0 twice"):
        sparse.expand(wrong)


def test_refusals() -> None:
    with pytest.raises(OperandError, match="selector 2"):
        sparse.places(F16_WIDE, 2)
    with pytest.raises(OperandError, match="no sparse operand"):
        sparse.compress(np.zeros((16, 16)), parse_mnemonic("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"))
    with pytest.raises(OperandError, match="16, 16"):
        sparse.compress(np.zeros((16, 6)), F16)
    with pytest.raises(OperandError, match="needs"):
        sparse.to_registers(np.zeros((16, 3), np.uint8), F16)


def test_masks_of_refused_nibbles_are_what_is_undefined() -> None:
    """Undefined nibbles, of all 16, in both places that name them; one that only the order excludes has two different indices."""
    nibbles = np.arange(16, dtype=np.uint8)
    for form in KINDS:
        undefined = sparse.undefined(np.resize(nibbles, (form.m, form.k // sparse.granularity(form).chunk)), form).ravel()[:16]
        bad, order, unlisted = metadata.refused_nibbles(form)
        assert bad == sum(1 << n for n in range(16) if undefined[n]), form
        ordered = form.ordered_metadata and sparse.granularity(form) is not sparse.granularity(TF32)
        assert order == sum(1 << n for n in range(16) if ordered and undefined[n] and n & 3 != n >> 2), form
        listed = form.op != "mma" or form.atype.name[0] != "e" or form.ordered_metadata
        assert not unlisted & bad and listed == (unlisted == 0)


@pytest.mark.parametrize("shape", [(0, 1), (1, 0), (0, 0), (0, 1, 1), (2, 0, 1)])
def test_an_empty_matrix_stays_empty(shape: tuple[int, ...]) -> None:
    """shape: of A, in instructions; every kind, through every function, and as a product."""
    for form in KINDS:
        *batch, m, k = shape
        a = np.zeros((*batch, m * form.m, k * form.k), np.uint8)
        s = sparse.compress(sparse.prune(a, form), form)
        assert s.shape == sparse.expand(s).shape == a.shape
        chunks = k * form.k // sparse.granularity(form).chunk
        assert sparse.too_dense(a, form).shape == (*batch, m * form.m, chunks)
        assert s.tiles().values.shape == (*batch, m, k, form.m, form.k // 2)
        assert s.tiles().registers().shape == (*batch, m, k, form.lanes)
    half = np.zeros((*batch, m * F16.m, k * F16.k), np.float16)
    d = mm.matmul(half, np.ones((k * F16.k, 8), np.float16), instruction=mm.Instruction(F16))
    assert d.shape == (*half.shape[:-1], 8) and not d.any()
