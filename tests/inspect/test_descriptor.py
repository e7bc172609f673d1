"""`mmulator descriptor` and its library: answers equal what `execute` reads; the specification's worked examples."""

import json
import re
import shlex
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import tensor_layouts
from hypothesis import given
from hypothesis import strategies as st
from tensor_layouts.layout_utils import tile_to_shape as reference_tile_to_shape

from mmulator import Instruction
from mmulator.cli.app import run
from mmulator.errors import MmulatorError, OperandError
from mmulator.inspect import (
    CuteLayout,
    DescriptorAnswer,
    WarpAccess,
    address_accesses,
    bank_conflicts,
    describe_descriptor,
    descriptor_fields,
    descriptor_from_cute,
    make_tile,
)
from mmulator.isa.names.mnemonic import parse_mnemonic
from mmulator.matrix.inspect.descriptors.from_cute import tile_of_layout
from mmulator.matrix.inspect.descriptors.tile import canonical, tile_of
from mmulator.matrix.inspect.tcgen05.descriptor import instruction_fields, instruction_word
from mmulator.matrix.inspect.views.chunks import tile_cells, tile_text
from mmulator.matrix.instruction.wgmma import shared_matrix
from mmulator.matrix.layouts import SWIZZLES, MatrixDescriptor, operand_addresses
from mmulator.matrix.layouts.cute_layout import atom, tile_to_shape
from mmulator.matrix.layouts.descriptors import SharedDescriptor
from mmulator.matrix.layouts.swizzle import SWIZZLES5
from tests.support.places import ROOT

F16 = "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16"
TYPES = {"f16": 16, "bf16": 16, "tf32": 8, "e4m3": 32, "e5m2": 32, "s8": 32, "u8": 32, "b1": 256}


def name(element: str, n: int, sparse: bool = False) -> str:
    k = TYPES[element] * (2 if sparse else 1)
    d = "s32" if element in ("s8", "u8", "b1") else "f32"
    tail = ".and.popc" if element == "b1" else ""
    return f"wgmma.mma_async{'.sp' * sparse}.sync.aligned.m64n{n}k{k}.{d}.{element}.{element}{tail}"


# Every operand shape: element sizes, both operands, both majors, narrow and wide N, dense and sparse.
OPERANDS = [
    (name(element, n, sparse), operand, mn_major)
    for element, n, sparse, operand, mn_major in product(TYPES, (8, 24, 96, 256), (False, True), "ab", (False, True))
    if (n == 8 or operand == "b") and not (element == "b1" and sparse) and (TYPES[element] == 16 or not mn_major)
]


# fields -----------------------------------------------------------------------------------------------------------------
@given(st.integers(0, (1 << 64) - 1))
def test_fields_hold_the_whole_word(word: int) -> None:
    found = descriptor_fields(word, MatrixDescriptor)
    rebuilt = found.reserved
    for f in found.fields:
        high, low = map(int, f.bits.split("-"))
        assert 0 <= f.raw < 1 << (high - low + 1)
        rebuilt |= f.raw << low
    assert rebuilt == word
    assert found.descriptor.encode() == word & ~found.reserved
    assert bool(found.findings) == bool(found.reserved)


def test_reserved_bits_are_named() -> None:
    (finding,) = descriptor_fields(1 << 46 | 1 << 14, MatrixDescriptor).findings
    assert finding.text == "bits 14, 46 are set: they belong to no field"
    assert "tcgen05" in finding.hint
    with pytest.raises(OperandError, match="no 64-bit word"):
        descriptor_fields(1 << 64)


# answers against execute ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("mode", SWIZZLES)
def test_answers_are_what_execute_reads(mode: str) -> None:
    """Every byte of an image is filled at random, so an address that is off by any amount shows."""
    image = np.random.default_rng(1).integers(0, 256, 1 << 18, np.uint8)
    for text, operand, mn_major in OPERANDS:
        tile = make_tile(text, operand, mn_major=mn_major)
        for d in (tile.packed(mode, 4096), MatrixDescriptor(1024 + 176, 2080, 4112, 5, mode)):
            answer = describe_descriptor(d, text, operand, mn_major=mn_major)
            read = shared_matrix(image, 0, d.encode(), tile.mn, tile.k, tile.element, mn_major)
            size = max(1, tile.element.bits // 8)
            held = np.zeros(read.shape, np.uint32)
            for byte in range(size):
                held |= image[answer.addresses + byte].astype(np.uint32) << np.uint32(8 * byte)
            if tile.element.bits < 8:
                held = held >> (np.arange(tile.k) % 8).astype(np.uint32) & 1
            assert np.array_equal(read.astype(np.uint32), held)
            for row, col in ((0, 0), (tile.shape[0] - 1, tile.shape[1] - 1), (tile.shape[0] // 3, tile.shape[1] // 2)):
                address = answer.address(row, col)
                assert address == answer.addresses[tile.matrix(row, col)]
                assert (row, col) in answer.element(address)
                assert (row, col) in answer.element(address + size - 1)


@pytest.mark.parametrize("mode", SWIZZLES)
@pytest.mark.parametrize(("trans_a", "trans_b"), [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_matrices_put_where_the_answer_says_multiply(mode: str, trans_a: int, trans_b: int) -> None:
    i = Instruction.parse(F16)
    generator = np.random.default_rng(2)
    a, b = (generator.standard_normal(shape, np.float32).astype(np.float16) for shape in ((64, 16), (16, 128)))
    image = np.zeros(1 << 17, np.uint8)
    words = []
    for operand, matrix, trans, start in (("a", a, trans_a, 0), ("b", b, trans_b, 1 << 16)):
        d = make_tile(F16, operand, mn_major=bool(trans)).packed(mode, start)
        answer = describe_descriptor(d, F16, operand, mn_major=bool(trans))
        assert answer.ok
        assert not answer.findings
        for (row, col), value in np.ndenumerate(matrix):
            at = answer.address(row, col)
            image[at : at + 2] = np.frombuffer(value.tobytes(), np.uint8)
        words.append(answer.word)
    d = i.execute(
        a_desc=words[0], b_desc=words[1], shared=image, scale_d=0, imm_trans_a=trans_a, imm_trans_b=trans_b
    )  # fmt: skip
    assert np.array_equal(i.layout("d").to_matrix(d), i.compute(a, b))


# the specification's worked examples ------------------------------------------------------------------------------------
FIGURES = [
    # figure, instruction with its type, exact layout, encodings of LBO and SBO, swizzle, MN-major
    (166, name("tf32", 16), "Swizzle<0,4,3> o ((8,2),(4,4)):((4,32),(1,64))", 16, 8, "none", False),
    (167, name("tf32", 16), "Swizzle<1,4,3> o ((8,2),(4,4)):((8,64),(1,4))", 1, 16, "32B", False),
    (168, name("bf16", 16), "Swizzle<0,4,3> o ((8,1,2),(8,2)):((1,8,64),(8,128))", 16, 8, "none", True),
    (169, name("bf16", 32), "Swizzle<1,4,3> o ((8,2,2),(8,2)):((1,8,128),(16,256))", 16, 32, "32B", True),
    (170, name("bf16", 64), "Swizzle<2,4,3> o ((8,4,2),(8,2)):((1,8,256),(32,512))", 32, 64, "64B", True),
]


@pytest.mark.parametrize(("figure", "text", "layout", "leading", "stride", "mode", "mn_major"), FIGURES)
def test_figures_166_to_170(figure: int, text: str, layout: str, leading: int, stride: int, mode: str, mn_major: bool) -> None:
    """Canonical Layouts (PTX ISA 9.1), Examples."""
    found = descriptor_from_cute(layout, make_tile(text, "b", mn_major=False))
    d = found.descriptor
    assert (found.tile.mn_major, d.swizzle, d.base_offset) == (mn_major, mode, 0)
    assert (d.encode() >> 16 & 0x3FFF, d.encode() >> 32 & 0x3FFF) == (leading, stride), figure
    answer = describe_descriptor(d, text, "b", mn_major=mn_major)
    assert answer.ok
    # The same text comes back; of figures 166 and 167, whose k is 16, the half that one instruction reads.
    expected = layout.replace("Swizzle", "Sw").replace(" o ", f" o smem_ptr[{found.tile.element.bits}b](0x0) o ", 1)
    if figure in (166, 167):
        expected = expected.replace("(4,4)", "(4,2)")
    assert answer.cute == expected
    assert len(found.tiles) == (2 if figure in (166, 167) else 1)


def test_figure_166_as_one_matrix() -> None:
    layout = FIGURES[0][2]
    found = descriptor_from_cute(layout, tile_of_layout(layout, "b", "tf32"))
    assert str(canonical(found.tile, found.descriptor)) == "Sw<0,4,3> o smem_ptr[32b](0x0) o ((8,2),(4,4)):((4,32),(1,64))"


def test_figure_167_as_it_is_printed_runs_into_itself() -> None:
    """Its rows are 8 elements apart and 16 long; an instruction reads 8 of them, which is why the encodings are right."""
    layout = CuteLayout.parse(FIGURES[1][2])
    offsets = layout.offsets(np.arange(16)[:, None], np.arange(16)[None, :])
    assert offsets[0, 8] == offsets[1, 0]
    whole = tile_of_layout(FIGURES[1][2], "b", "tf32")
    d = descriptor_from_cute(FIGURES[1][2], whole).descriptor
    answer = describe_descriptor(d, None, "b", type="tf32", mn=16, k=16)
    assert not answer.ok
    assert any(f.text.startswith("rows overlap: B[k=8, n=0] and B[k=0, n=1] both lie at 0x20") for f in answer.findings)


@pytest.mark.parametrize(
    ("mode", "mn_major", "chunks"),
    [
        ("128B", True, (8, 8)), ("128B", False, (8, 8)), ("64B", True, (4, 8)), ("64B", False, (8, 4)),
        ("32B", True, (2, 8)), ("32B", False, (8, 2)), ("none", True, (1, 8)), ("none", False, (8, 1)),
    ],
)  # fmt: skip
def test_table_38(mode: str, mn_major: bool, chunks: tuple[int, int]) -> None:
    """Swizzle atom layouts in units of 128 bits; `128B MN major swizzle atom ... 32x8 for tf32`."""
    for element, bits in (("f16", 16), ("tf32", 32)):
        tile = make_tile(None, "a", mn_major=mn_major, type=element, mn=64, k=64)
        t = 128 // bits
        mn, k = chunks
        assert tile.atom(SWIZZLES[mode]) == ((mn * t, k) if mn_major else (mn, k * t))
    assert make_tile(None, "a", mn_major=True, type="tf32").atom(SWIZZLES["128B"]) == (32, 8)


# words for offsets ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("mode", "mn_major", "leading", "stride"),
    [
        ("none", False, ("k", 8, 1), ("n", 8, 15)), ("128B", False, ("k", 64, 0), ("n", 8, 15)),
        ("none", True, ("k", 8, 1), ("n", 8, 15)), ("128B", True, ("n", 64, 1), ("k", 8, 1)),
        ("32B", True, ("n", 16, 7), ("k", 8, 1)),
    ],
)  # fmt: skip
def test_offsets_in_words_are_what_addresses_do(
    mode: str, mn_major: bool, leading: tuple[str, int, int], stride: tuple[str, int, int]
) -> None:
    d = make_tile(F16, "b", mn_major=mn_major).packed(mode)
    answer = describe_descriptor(d, F16, "b", mn_major=mn_major)
    for o, expected in zip(answer.offsets, (leading, stride)):
        assert (o.along, o.every, o.steps) == expected
        # moving the offset by 4096 moves exactly the elements from the first step on
        field = o.field
        values = {f: getattr(d, f) for f in ("start_address", "leading_byte_offset", "stride_byte_offset", "swizzle")}
        moved = answer.tile.addresses(MatrixDescriptor(**{**values, field: values[field] + 4096})) - answer.addresses
        at = np.arange(answer.tile.k if o.along == "k" else answer.tile.mn) // o.every * 4096
        assert np.array_equal(moved, np.broadcast_to(at[None, :] if o.along == "k" else at[:, None], moved.shape))
    assert ("not used in K-major" in answer.offsets[0].text) == (not mn_major and mode != "none")


# checks -----------------------------------------------------------------------------------------------------------------
def findings(d: MatrixDescriptor, text: str = F16, operand: str = "b", **more: object) -> list[tuple[str, str]]:
    return [(f.level, f.text) for f in describe_descriptor(d, text, operand, **more).findings]  # type: ignore[arg-type]


def test_packed_layouts_have_nothing_wrong() -> None:
    for (text, operand, mn_major), mode in product(OPERANDS, SWIZZLES):
        d = make_tile(text, operand, mn_major=mn_major).packed(mode, 2048)
        answer = describe_descriptor(d, text, operand, mn_major=mn_major)
        assert answer.ok, (text, operand, mode, answer.findings)
        wide = mode == "32B" and not mn_major and ".sp" in text and operand == "b"
        assert [f.level for f in answer.findings] == ["warning"] * wide


def test_sparse_b_reads_the_leading_offset_that_is_not_used() -> None:
    text = name("f16", 8, sparse=True)
    ((level, says),) = findings(make_tile(text, "b", mn_major=False).packed("32B"), text)
    assert level == "warning"
    assert "hardware reads LBO (256) for the bytes beyond" in says


@pytest.mark.parametrize(
    ("d", "more", "says"),
    [
        (MatrixDescriptor(0, 16, 0, 0, "128B"), {}, "rows overlap: B[k=0, n=0] and B[k=0, n=8] both lie at 0x0 (LBO 16, SBO 0)"),
        (MatrixDescriptor(0, 0, 128), {}, "rows overlap: B[k=0, n=0] and B[k=8, n=0] both lie at 0x0"),
        (MatrixDescriptor(0, 16, 512, 0, "128B"), {}, "rows overlap"),
        (MatrixDescriptor(0, 16, 1024, 0, "128B"), {"shared": 16384 - 16}, "bytes 0x0 to 0x3fff are read, outside the 16368"),
        (MatrixDescriptor(0, 16, 1 << 14, 0, "128B"), {}, "outside shared memory (228 KiB): hardware traps"),
        (MatrixDescriptor(1024, 16, 1024, 0, "128B"), {"shared": 65536, "shared_base": 2048}, "outside the 65536 bytes"),
        (MatrixDescriptor(128, 16, 1024, 0, "128B"), {"base": 128},
         "base offset is 0, but the 128B pattern starts at 0x80: (0x80 >> 7) & 7 = 1"),
        (MatrixDescriptor(0, 16, 1024, 3, "128B"), {"base": 0}, "base offset is 3, but the 128B pattern starts at 0x0"),
        (MatrixDescriptor(64, 16, 1024, 0, "128B"), {"base": 64}, "the 128B pattern cannot start at 0x40"),
        (MatrixDescriptor(0, 16, 1024, 0, "128B"), {"base": 1024}, "start address 0x0 is below the base 0x400"),
        (MatrixDescriptor(112, 16, 1024, 0, "128B"), {}, "straddles atoms: its rows end after 16 more bytes. B[k=8, n=0]"),
        (MatrixDescriptor(128, 16, 2048, 0, "128B"), {}, "straddles atoms: SBO 2048 is not 1024"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(d: MatrixDescriptor, more: dict[str, int], says: str) -> None:
    found = findings(d, **more)
    assert any(level == "error" and says in text for level, text in found), found
    assert not describe_descriptor(d, F16, "b", **more).ok  # type: ignore[arg-type]


def test_a_start_inside_an_atom_of_an_mn_major_matrix() -> None:
    """8 n further on: 64 elements no longer fit the 128 bytes of an atom, 32 do. 1 k further on: SBO must be packed."""
    for text, start, stride, says in (
        (name("f16", 64), 16, 1024, "straddles atoms: its rows end after 112 more bytes. B[k=0, n=56]"),
        (name("f16", 24), 16, 1024, "8 n further on in the atom"), (name("f16", 64), 128, 1024, "1 k further on in the atom"),
        (name("f16", 64), 128, 2048, "straddles atoms: SBO 2048 is not 1024, so the next 8 k lie elsewhere. B[k=7, n=0]"),
    ):  # fmt: skip
        ((level, found),) = findings(MatrixDescriptor(start, 16384, stride, 0, "128B"), text, mn_major=True)
        assert says in found
        assert level == ("error" if "straddles" in says else "note")


@pytest.mark.parametrize(
    ("d", "more", "level", "says"),
    [
        (MatrixDescriptor(32, 16, 1024, 0, "128B"), {}, "note", "16 k further on in the atom"),
        (MatrixDescriptor(256, 16, 1024, 0, "128B"), {}, "note", "2 n further on in the atom"),
        (MatrixDescriptor(0, 16, 1040, 0, "64B"), {}, "note", "SBO 1040 is no multiple of 512"),
        (MatrixDescriptor(0, 128, 256, 2), {}, "warning", "base offset 2 without swizzling"),
        (1 << 52 | MatrixDescriptor(0, 16, 1024, 0, "128B").encode(), {}, "warning", "bits 52 are set"),
    ],
)  # fmt: skip
def test_what_is_odd_is_said_and_no_error(d: MatrixDescriptor, more: dict[str, int], level: str, says: str) -> None:
    found = findings(d, **more)
    assert [(lv, says in text) for lv, text in found] == [(level, True)]


def test_every_finding_names_a_section() -> None:
    for d, more in ((MatrixDescriptor(128, 16, 512, 3, "128B"), {"base": 0, "shared": 64}), (MatrixDescriptor(0, 0, 0, 1), {})):
        for f in describe_descriptor(d, F16, "b", **more).findings:  # type: ignore[arg-type]
            assert f.rule.endswith("(PTX ISA 9.1)")
            assert f.hint


def test_an_advance_along_k_is_the_whole_matrix_shifted() -> None:
    """Start address + 32 bytes in a 64-wide f16 tile under 128-byte swizzle: no error, and the right elements."""
    whole = make_tile(None, "b", mn_major=False, type="f16", mn=128, k=64)
    packed = whole.packed("128B", 1024)
    for step in range(4):
        d = MatrixDescriptor(1024 + 32 * step, 16, packed.stride_byte_offset, 0, "128B")
        answer = describe_descriptor(d, F16, "b")
        assert answer.ok
        assert np.array_equal(answer.addresses, whole.addresses(packed)[:, 16 * step : 16 * step + 16])


# CuTe -------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("mode", SWIZZLES)
def test_a_layout_of_every_descriptor_gives_it_back(mode: str) -> None:
    """All operands, packed and spread: layout string, read again, derived, equal in every address."""
    spread = (1, 3)
    for (text, operand, mn_major), factor in product(OPERANDS, spread):
        tile = make_tile(text, operand, mn_major=mn_major)
        d = tile.packed(mode, 1024)
        d = MatrixDescriptor(1024, d.leading_byte_offset * factor, d.stride_byte_offset * factor, 0, mode)
        answer = describe_descriptor(d, text, operand, mn_major=mn_major)
        layout = canonical(tile, d)
        assert str(layout) == answer.cute
        assert str(CuteLayout.parse(str(layout))) == str(layout)
        found = descriptor_from_cute(str(layout), make_tile(text, operand, mn_major=False), base=1024)
        assert found.tile.mn_major == mn_major
        assert np.array_equal(tile.addresses(found.descriptor), tile.addresses(d))
        # and by CuTe's own rules: the offset of every coordinate, swizzled as a byte address
        m, k = np.arange(tile.mn)[:, None], np.arange(tile.k)[None, :]
        address = 1024 + layout.offsets(m, k) * tile.element.bits // 8
        assert np.array_equal(layout.swizzle(address), tile.addresses(d))  # type: ignore[misc]


@pytest.mark.parametrize(("major", "kind"), list(product(("K", "MN"), ("INTER", "SW32", "SW64", "SW128"))))
@pytest.mark.parametrize("element", ["half_t", "tfloat32_t", "int8_t"])
def test_atoms_of_cutlass(major: str, kind: str, element: str) -> None:
    """Each tile of a two-stage buffer, with either order of the atoms; MN-major exists for 16 bits."""
    type_name = {"half_t": "f16", "tfloat32_t": "tf32", "int8_t": "s8"}[element]
    text = name(type_name, 64)
    bits = {"half_t": 16, "tfloat32_t": 32, "int8_t": 8}[element]
    extent = 2 * 1024 // bits
    for order in ("", ", Step<_2,_1,_3>{}"):
        layout = (
            f"tile_to_shape(GMMA::Layout_{major}_{kind}_Atom<cutlass::{element}>{{}}, Shape<_128,Int<{extent}>,_2>{{}}{order})"
        )
        if major == "MN" and bits != 16:
            with pytest.raises(OperandError, match="are read K-major only"):
                descriptor_from_cute(layout, make_tile(text, "b", mn_major=False))
            continue
        if major == "MN" and extent % 8:
            continue
        found = descriptor_from_cute(layout, make_tile(text, "b", mn_major=False))
        tile = found.tile
        assert found.compared == 128 * extent * 2
        assert tile.mn_major == (major == "MN")
        assert found.descriptor.mode.width == {"INTER": 16, "SW32": 32, "SW64": 64, "SW128": 128}[kind]
        # an independent evaluation of the same layout, element by element
        shape, stride = (x for x in (found.layout.shape, found.layout.stride))
        reference = tensor_layouts.Layout(shape, stride)
        swizzle = tensor_layouts.Swizzle(found.descriptor.mode.mask.bit_length(), 4, 3)
        for t in found.tiles[::7]:
            address = tile.addresses(t.descriptor)
            for m, k in ((0, 0), (tile.mn - 1, tile.k - 1), (9, 5), (17, tile.k // 2)):
                assert address[m, k] == swizzle(reference(t.mn + m, t.k + k, t.stage) * bits // 8)


def test_layouts_evaluate_as_cute_does() -> None:
    """Against the package tensor-layouts."""
    for shape, stride in (
        (((8, 2), (4, 4)), ((4, 32), (1, 64))), (((8, 1, 2), (8, 2)), ((1, 8, 64), (8, 128))),
        ((6, ((2, 3), 4)), (24, ((1, 2), 6))), ((5, 7), (0, 3)),
    ):  # fmt: skip
        ours = CuteLayout.parse(f"{shape}:{stride}".replace(" ", ""))
        theirs = tensor_layouts.Layout(shape, stride)
        for m, k in product(range(ours.sizes[0]), range(ours.sizes[1])):
            assert int(ours.offsets(m, k)) == theirs(m, k)
    for bits, shape in ((16, (128, 64)), (8, (64, 256)), (32, (16, 96))):
        ours = tile_to_shape(atom("K", "SW128", bits), shape)
        theirs = reference_tile_to_shape(tensor_layouts.Layout((8, 1024 // bits), (1024 // bits, 1)), shape)
        m, k = np.arange(shape[0]), np.arange(shape[1])
        expected = [[theirs(int(i), int(j)) for j in k] for i in m]
        assert np.array_equal(ours.offsets(m[:, None], k[None, :]), expected)


def test_a_composed_layout_swizzles_offsets() -> None:
    """`Sw<3,3,3> o 0 o ..` counts elements from the layout's start: a base of 128 bytes needs base offset 1."""
    text = "Sw<3,3,3> o _0 o (_64,_64):(_64,_1)"
    found = descriptor_from_cute(text, make_tile(F16, "a", mn_major=False), base=0x480)
    assert (found.descriptor.base_offset, found.descriptor.swizzle) == (1, "128B")
    assert [t.descriptor.start_address for t in found.tiles] == [0x480, 0x4A0, 0x4C0, 0x4E0]
    assert str(canonical(found.tile, found.descriptor)) == "Sw<3,3,3> o 0 o ((8,8),(8,2)):((64,512),(1,8))"
    later = describe_descriptor(found.tiles[1].descriptor, F16, "a")
    assert later.cute is None
    with pytest.raises(OperandError, match="base offset 1 moves the swizzle pattern"):
        canonical(later.tile, later.descriptor)
    same = descriptor_from_cute("Sw<3,4,3> o smem_ptr[16b](unset) o (64,64):(64,1)", make_tile(F16, "a", mn_major=False))
    bits = descriptor_from_cute("Layout_K_SW128_Atom_Bits", tile_of_layout("Layout_K_SW128_Atom_Bits", "a", "f16"))
    in_bytes = descriptor_from_cute("Sw<3,4,3> o (64,128):(128,1)", make_tile(F16, "a", mn_major=False), units="bytes")
    assert same.descriptor == in_bytes.descriptor
    assert bits.descriptor.stride_byte_offset == 1024


@pytest.mark.parametrize(
    ("layout", "base", "d"),
    [  # a swizzle that never sees a bit set; one that is cancelled by the base; an overlap that only a shifted pattern has
        ("Sw<1,4,3> o smem_ptr o ((8,2),(4,2)):((4,64),(1,128))", 0, MatrixDescriptor(0, 512, 256)),
        ("Sw<2,4,3> o smem_ptr o ((8,2),(4,2)):((8,128),(1,4))", 0, MatrixDescriptor(0, 16, 512, 0, "32B")),
        ("Sw<1,2,3> o 0 o ((8,2),(4,2)):((8,64),(1,12))", 256, MatrixDescriptor(272, 0, 256, 1, "32B")),
    ],
)  # fmt: skip
def test_another_mode_may_have_the_same_addresses(layout: str, base: int, d: MatrixDescriptor) -> None:
    found = descriptor_from_cute(layout, make_tile(name("tf32", 16), "b", mn_major=False), base=base)
    assert f"these bytes as mode {d.swizzle} does" in found.remark
    read = CuteLayout.parse(layout)
    offsets = read.offsets(np.arange(16)[:, None], np.arange(8)[None, :])
    assert read.swizzle is not None
    address = read.swizzle(base + 4 * offsets) if read.on_address else base + 4 * read.swizzle(offsets)
    assert np.array_equal(found.tile.addresses(found.descriptor), address)
    assert found.descriptor.swizzle == d.swizzle


@pytest.mark.parametrize(
    ("layout", "text", "says"),
    [
        ("(64,64):(64,1)", F16, r"mode 0 \(64:64\): m 1 lies 128 bytes from m 0, rows of the core matrix are 16 bytes apart"),
        ("Sw<3,4,3> o (64,64):(72,1)", F16, r"mode 0 \(64:72\): m 1 lies 144 bytes from m 0, rows of the 128B atom"),
        ("Sw<3,4,3> o ((8,4,2),64):((64,512,4096),1)", F16, r"mode 0.2 \(2:4096\): m 32 lies 8192 bytes from m 0, one step"),
        ("Sw<2,4,3> o ((8,8),(8,8)):((32,512),(1,16))", F16, r"mode 1.1 \(8:16\): k 8 of a tile is 32 bytes from k 0, within"),
        ("(64,64):(128,2)", F16, r"neither mode has 16 contiguous bytes \(8 elements of f16\): mode 0 \(64:128\), mode 1"),
        ("Sw<3,5,3> o smem_ptr o (64,64):(64,1)", F16, "moves chunks of 32 bytes, wgmma's move 16"),
        ("Sw<2,4,4> o smem_ptr o (64,64):(64,1)", F16, "takes its bits 4 higher up"),
        ("Sw<4,4,4> o smem_ptr o (64,64):(64,1)", F16, "no swizzling mode of wgmma"),
        ("Sw<3,4,3> o (8,64):(64,1)", F16, "mode 0 has 8 elements of m, the instruction reads 64"),
        ("Sw<3,4,3> o (64,8):(64,1)", F16, "mode 1 has 8 elements of k, the instruction reads 16"),
        ("Sw<3,4,3> o smem_ptr[32b] o (64,64):(64,1)", F16, "counts elements of 32 bits, the operand has 16"),
        ("(64,128):(1,64)", name("e4m3", 64), "m is contiguous .* are read K-major only"),
        ("64:1", F16, "it has 1 mode"),
        ("((8,8),(8,8)):((8,200000),(1,64))", F16, "stride_byte_offset is 400000: it must be a multiple of 16"),
    ],
)  # fmt: skip
def test_why_a_layout_has_no_descriptor(layout: str, text: str, says: str) -> None:
    with pytest.raises(OperandError, match=says) as caught:
        found = descriptor_from_cute(layout, make_tile(text, "a", mn_major=False))
        raise AssertionError(found.descriptor)
    assert caught.value.hint
    assert caught.value.rule or "elements of" in caught.value.message


@pytest.mark.parametrize(
    ("layout", "column", "says"),
    [
        ("(8,8)", 5, "':' and the strides are expected"), ("(8,(8,2)):(8,1)", 10, "nested differently"),
        ("Sw<3,4> o 8:1", 9, "three numbers"), ("Sw<3,4,2> o 8:1", 11, "no swizzle"), ("(8,8):(8,1) x", 13, "follows"),
        ("Layout_K_SW128_Atom", 19, "needs an element type"), ("Layout_K_SW128_Atom<int>", 21, "no element type 'int'"),
        ("(8,0):(1,8)", 6, "extents are 1 or more"), ("(8;8):(1,8)", 3, "has no place"), ("", 0, "expected"),
        ("Sw<3,4,3> 8:1", 11, "'o' is expected"), ("Sw<3,4,3> o smem_ptr[16b](0x0) 8:1", 32, "'o' is expected"),
        ("smem_ptr[16b](0x0) 8:1", 20, "'o' is expected"), ("Sw<3,3,3> o 64 8:1", 16, "':' and the strides"),
        ("tile_to_shape((8,8):(8,1), (8,8))", 15, "named atom"), ("(8,E<0>):(1,1)", 4, "a whole number is expected"),
    ],
)  # fmt: skip
def test_texts_that_are_no_layout(layout: str, column: int, says: str) -> None:
    with pytest.raises(OperandError, match="cannot read the CuTe layout") as caught:
        CuteLayout.parse(layout)
    assert says in caught.value.message
    assert (caught.value.span.column if caught.value.span else 0) == column


def test_an_offset_stands_between_swizzle_and_layout() -> None:
    text = "Sw<3,3,3> o 192 o (8,64):(64,1)"
    layout, row, column = CuteLayout.parse(text), np.arange(8)[:, None], np.arange(64)[None, :]
    assert str(layout) == text and not layout.on_address and layout.offset == 192
    assert np.array_equal(layout.offsets(row, column), 192 + 64 * row + column)


def test_an_atom_does_not_fill_a_smaller_shape() -> None:
    with pytest.raises(OperandError, match=r"\(64,32\) is no multiple of the atom's \(8,64\)"):
        CuteLayout.parse("tile_to_shape(Layout_K_SW128_Atom<half_t>, (64,32))")


# bank conflicts ---------------------------------------------------------------------------------------------------------
def brute_wavefronts(addresses: tuple[int, ...], size: int) -> int:
    """Greedy simulation: a wavefront serves one word of every bank, to all lanes that want it."""
    lanes, total = 32 if size <= 4 else 128 // size, 0
    for first in range(0, len(addresses), lanes):
        wanted = {a // 4 + i for a in addresses[first : first + lanes] for i in range(max(1, size // 4))}
        while wanted:
            busy: dict[int, int] = {}
            for word in sorted(wanted):
                busy.setdefault(word % 32, word)
            wanted -= set(busy.values())
            total += 1
    return total


@given(
    st.sampled_from([1, 2, 4, 8, 16]).flatmap(
        lambda size: st.tuples(st.lists(st.integers(0, 255).map(lambda x: x * size), min_size=1, max_size=32), st.just(size))
    )
)
def test_wavefronts_are_those_of_a_simulation(access: tuple[list[int], int]) -> None:
    addresses, size = tuple(access[0]), access[1]
    found = bank_conflicts("x", [WarpAccess("x", addresses, size)])
    assert found.wavefronts == brute_wavefronts(addresses, size)
    assert (found.ways == 1) == (found.wavefronts == found.least)


def tile_answer(mode: str, **more: object) -> DescriptorAnswer:
    values: dict[str, object] = {"type": "f16", "mn": 64, "k": 64, "mn_major": False, **more}
    tile = make_tile(None, "a", **values)  # type: ignore[arg-type]
    return describe_descriptor(tile.packed(mode), None, "a", **values)  # type: ignore[arg-type]


def test_known_bank_conflicts() -> None:
    rows_of_128 = [128 * r for r in range(8)]
    assert bank_conflicts("ldmatrix", [WarpAccess("x", tuple(rows_of_128), 16)]).ways == 8
    padded = [144 * r for r in range(8)]
    assert bank_conflicts("ldmatrix", [WarpAccess("x", tuple(padded), 16)]).ways == 1
    for mode in SWIZZLES:  # eight rows of 16 bytes are what every mode is made for
        for mn_major in (False, True):
            assert tile_answer(mode, mn_major=mn_major).conflicts("ldmatrix").ways == 1
    # 4 bytes a lane down a column: eight chunks of a 128-byte pattern, then the same banks again
    assert [tile_answer(m).conflicts("mn:4").ways for m in ("128B", "64B", "32B", "none")] == [4, 4, 4, 4]
    for mode in SWIZZLES:  # along a row, except where rows are interleaved
        assert tile_answer(mode).conflicts("k:16").ways == (8 if mode == "none" else {"32B": 4, "64B": 2, "128B": 1}[mode])
    # lanes that share a word do not conflict
    assert bank_conflicts("x", address_accesses([0] * 32, 4)[1]).ways == 1
    assert bank_conflicts("x", address_accesses([128 * i for i in range(32)], 4)[1]).ways == 32
    assert bank_conflicts("x", address_accesses([8 * i for i in range(32)], 8)[1]).wavefronts == 2


@pytest.mark.parametrize("kind", ["ldmatrix", "k:4", "k:8", "k:16", "mn:2", "mn:4", "mn:16"])
@pytest.mark.parametrize("mn_major", [False, True])
def test_accesses_cover_the_tile_once(kind: str, mn_major: bool) -> None:
    answer = tile_answer("64B", mn_major=mn_major)
    found = answer.conflicts(kind)
    touched = [a + i for access in found.accesses for a in access.addresses for i in range(access.bytes)]
    assert sorted(touched) == sorted(a + i for a in answer.addresses.reshape(-1).tolist() for i in (0, 1))
    second = found.accesses[1]
    place = answer.element(second.addresses[0])[0]
    assert answer.conflicts(kind, place).accesses == (second,)


def test_accesses_that_do_not_exist() -> None:
    answer = tile_answer("128B")
    for kind in ("k:3", "k:1", "row:4", "ldmatrix:8", "k"):
        with pytest.raises(OperandError, match="no access"):
            answer.conflicts(kind)
    with pytest.raises(OperandError, match=r"begins at element \(1, 1\)"):
        answer.conflicts("ldmatrix", (1, 1))
    with pytest.raises(OperandError, match="0x6 is no multiple of 4 bytes"):
        bank_conflicts("x", address_accesses([6], 4)[1])
    with pytest.raises(OperandError, match="there is no access"):
        bank_conflicts("x", [])


# pictures ---------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("mode", SWIZZLES)
def test_pictures_show_the_addresses(mode: str) -> None:
    for operand, mn_major in product("ab", (False, True)):
        d = make_tile(F16, operand, mn_major=mn_major).packed(mode, 2048)
        answer = describe_descriptor(d, F16, operand, mn_major=mn_major)
        t = answer.tile
        read = {c.address: (c.mn, c.k) for c in tile_cells(answer) if c.read}
        assert len(read) == t.mn * t.k // t.per_chunk
        assert all(answer.addresses[place] == address for address, place in read.items())
        picture = answer.svg("light")
        tips = re.findall(r"<title>(0x[0-9a-f]+): [AB]\[(\w)=(\d+), (\w)=(\d+)\]</title>", picture)
        assert tips
        for address, one, i, _, j in tips:
            place = (int(j), int(i)) if one == "k" else (int(i), int(j))
            if int(address, 16) in read:
                assert answer.addresses[place] == int(address, 16)
        shown = tile_text(answer, 1000)
        assert re.sub(r"\x1b\[\d+m", "", tile_text(answer, 1000, colour=True)) == shown
        for line in shown.splitlines():
            assert len(line) <= 80
            found = re.match(r" *(0x[0-9a-f]+)((?: +[\d,.-]+){8})$", line)
            for slot, label in enumerate(found[2].split() if found else ()):
                if "," in label:
                    assert answer.address(*map(int, label.split(","))) == int(found[1], 16) + 16 * slot  # type: ignore[index]
        assert sum(shown.count(f"{i},{j}") > 0 for i, j in [t.matrix(0, 0)]) == 1


def test_the_picture_of_the_documentation_is_current() -> None:
    path = ROOT / "docs/images/descriptor-128b.svg"
    assert path.read_text() == tile_answer("128B").svg("auto"), "see `A picture` in docs/explanation/descriptors.md"


def test_notebooks_get_the_picture() -> None:
    answer = tile_answer("128B")
    assert answer._repr_svg_().startswith("<svg")
    assert answer.svg("dark") != answer.svg("light")
    assert answer._repr_html_().startswith("<svg")
    wrong = describe_descriptor(MatrixDescriptor(0, 0, 0), F16, "b")
    assert "rows overlap" in wrong._repr_html_()
    found = descriptor_from_cute("Layout_K_SW128_Atom<half_t>", tile_of_layout("Layout_K_SW128_Atom<half_t>", "a", "f16"))
    assert "0x4000004000010000" in found._repr_html_()
    assert "4-way" in answer.conflicts("mn:4")._repr_html_()
    assert "bits 14 are set" in descriptor_fields(1 << 14)._repr_html_()
    with pytest.raises(OperandError, match="no theme"):
        answer.svg("sepia")


# command line -----------------------------------------------------------------------------------------------------------
def command(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = run(["descriptor", *words])
    out = capsys.readouterr()
    return code, out.out, out.err


def test_json_is_the_library_answer(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--for", F16, "--swizzle", "128B", "--base", "0x400", "--json")
    code, out, _ = command(capsys, "encode", *words, "--element", "3,7", "--address", "0x402")
    data = json.loads(out)
    answer = describe_descriptor(make_tile(F16, "b", mn_major=False).packed("128B", 0x400), F16, "b")
    assert code == 0
    assert data["ok"]
    assert int(data["word"], 16) == answer.word
    assert data["elements"] == [{"element": [3, 7], "address": answer.address(3, 7)}]
    assert data["addresses"] == [{"address": 0x402, "elements": [list(e) for e in answer.element(0x402)]}]
    assert data["cute"] == answer.cute
    assert data["leading_byte_offset"] == 16
    assert data["base_offset"] == next(f["raw"] for f in data["fields"] if f["name"] == "base_offset")
    assert data["base_offset_meaning"] == answer.base_offset_text()
    # one shape, whichever command gives it
    code, out, _ = command(capsys, "decode", hex(answer.word), "--for", F16, "--json")
    decoded = json.loads(out)
    assert decoded == data | {"elements": [], "addresses": []}
    code, out, _ = command(capsys, "check", *words, "--access", "mn:4")
    checked = json.loads(out)
    assert checked.pop("accesses")[0]["ways"] == answer.conflicts("mn:4").ways
    assert checked == {name: value for name, value in decoded.items() if name != "accesses"}
    _, out, _ = command(capsys, "from-cute", answer.cute or "", "--for", F16, "--json")
    derived = json.loads(out)
    assert derived.pop("from_cute")["tiles"][0]["word"] == data["word"]
    assert derived == {name: value for name, value in decoded.items() if name != "from_cute"}


def test_text_fits_80_columns(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for words in (
        ("decode", "0xffffffffffffffff"), ("encode", "--for", F16, "--swizzle", "64B", "--major", "mn"),
        ("encode", "--type", "tf32", "--operand", "a"), ("decode", "0x100000", "--for", F16), ("check", "0xffffffffffffffff"),
        ("check", "--type", "f16", "--access", "mn:4", "--access", "k:16"), ("check", "0x100000", "--for", F16),
        ("from-cute", "tile_to_shape(Layout_K_SW128_Atom<half_t>, (128,64))", "--for", F16),
        *((name, "--help") for name in ("encode", "decode", "check", "from-cute")),
    ):  # fmt: skip
        _, out, _ = command(capsys, *words)
        assert out
        assert [line for line in out.splitlines() if len(line) > 80] == []


def test_files(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    svg, png, table = tmp_path / "t.svg", tmp_path / "t.png", tmp_path / "addresses.txt"
    code, _, _ = command(capsys, "encode", "--type", "f16", "--swizzle", "128B", "--svg", str(svg), "--png", str(png))
    assert code == 0
    assert svg.read_text().startswith("<svg")
    assert png.read_bytes().startswith(b"\x89PNG")
    table.write_text("# one warp\n" + "\n".join(hex(128 * i) for i in range(32)))
    code, out, _ = command(capsys, "check", "--access", f"@{table}:4")
    assert code == 0
    assert "32-way bank conflicts; 1 access, 32 wavefronts, 1 without" in " ".join(out.split())
    code, _, err = command(capsys, "encode", "--type", "f16", "--svg", str(tmp_path / "no" / "t.svg"))
    assert code == 1
    assert "cannot write" in err


def test_cute_and_back(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = command(capsys, "encode", "--for", F16, "--swizzle", "32B", "--major", "mn", "--cute")
    assert (code, out.strip()) == (0, "Sw<1,4,3> o smem_ptr[16b](0x0) o ((8,2,8),(8,2)):((1,8,128),(16,1024))")
    code, again, _ = command(capsys, "from-cute", out.strip(), "--for", F16, "--cute")
    assert (code, again) == (0, out)


POINTED = "Sw<3,4,3> o smem_ptr[16b]({}) o (64,64):(64,1)"


def test_the_pointer_of_a_layout_is_the_start_address(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = command(capsys, "from-cute", POINTED.format("0x2400"), "--type", "bf16")
    assert out.startswith("0x4000004000010240\n") and "the first element at 0x2400" in " ".join(out.split())
    for pointer in ("0x0", "unset"):
        assert command(capsys, "from-cute", POINTED.format(pointer), "--type", "bf16")[1].startswith("0x4000004000010000\n")
    based = command(capsys, "from-cute", POINTED.format("0x0"), "--type", "bf16", "--base", "0x2400")[1]
    assert based.startswith("0x4000004000010240\n")
    # within the pattern: addresses follow from absolute ones, so base offset 0 is right, and it is said
    _, out, _ = command(capsys, "from-cute", POINTED.format("0x480"), "--type", "bf16")
    assert out.startswith("0x4000004000010048\n") and "starts at 0x400: (0x400 >> 7) & 7 = 0" in " ".join(out.split())
    assert "128 bytes into the 128B pattern" in " ".join(out.split())
    for pointer, base, message in (
        ("0x7f0000002400", (), "is no address of shared memory"), ("0x2400", ("--base", "0x800"), "begins at 0x2400 (smem_ptr)"),
    ):  # fmt: skip
        code, _, err = command(capsys, "from-cute", POINTED.format(pointer), "--type", "bf16", *base)
        assert code == 1 and message in err


@pytest.mark.parametrize("mode", SWIZZLES)
@pytest.mark.parametrize("start", ["0x0", "0x2400", "0x450"])
def test_start_addresses_go_to_cute_and_back(capsys: pytest.CaptureFixture[str], mode: str, start: str) -> None:
    words = ("encode", "--for", F16, "--swizzle", mode, "--base", "0x0", "--start-address", start, "--base-offset", "0")
    _, out, _ = command(capsys, *words, "--json")
    want = json.loads(out)
    _, out, _ = command(capsys, "from-cute", want["cute"], "--for", F16, "--json")
    assert json.loads(out)["word"] == want["word"] and start in want["cute"]


def test_an_instruction_needs_no_quotes(capsys: pytest.CaptureFixture[str]) -> None:
    for first in (("decode", "0x4000004000010040"), ("encode",), ("check", "0x4000004000010040"), ("from-cute", ATOM)):
        _, want, _ = command(capsys, *first, "--for", "wgmma m64n128 f16")
        assert "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16" in want
        assert command(capsys, *first, "--for", "wgmma", "m64n128", "f16")[1] == want
        assert command(capsys, *first, "wgmma", "m64n128", "f16")[1] == want
        assert command(capsys, *first, "wgmma", "m64n128", "--for", F16)[0] == 2


ATOM = "tile_to_shape(Layout_K_SW128_Atom<half_t>, (128,64))"
FORMER = [  # a command line from before there were four commands, and that of now
    ("0x4000004000010040", "decode 0x4000004000010040"),
    ("0x4000004000010040 --type f16 --element 3,40", "decode 0x4000004000010040 --type f16 --element 3,40"),
    ("0x4000004000010040 wgmma m64n128 f16", "decode 0x4000004000010040 wgmma m64n128 f16"),
    ("--for 'wgmma m64n128 f16' 0x4000004000010040", "decode --for 'wgmma m64n128 f16' 0x4000004000010040"),
    ("0x4000004000010040 --lbo=32", "encode 0x4000004000010040 --lbo=32"),
    ("wgmma m64n128 f16 --swizzle 128B --cute", "encode wgmma m64n128 f16 --swizzle 128B --cute"),
    ("--type bf16 --mn 128 --swizzle 64B", "encode --type bf16 --mn 128 --swizzle 64B"),
    ("--type f16 --swizzle 128B --access ldmatrix", "check --type f16 --swizzle 128B --access ldmatrix"),
    (f"--for wgmma m64n8 f16 --from-cute '{ATOM}'", f"from-cute '{ATOM}' --for 'wgmma m64n8 f16'"),
    (f"--type f16 '--from-cute={ATOM}'", f"from-cute '{ATOM}' --type f16"),
]


@pytest.mark.parametrize(("former", "now"), FORMER)
def test_the_former_spelling_says_the_present_one(capsys: pytest.CaptureFixture[str], former: str, now: str) -> None:
    code, out, err = command(capsys, *shlex.split(former))
    assert (code, out) == (2, "")
    assert err.endswith(f"hint: mmulator descriptor {now}\n")
    code, out, err = command(capsys, *shlex.split(now))
    assert (code, err) == (0, "") and out
    code, out, _ = command(capsys, *shlex.split(former), "--json")
    assert code == 2 and now in json.loads(out)["errors"][0]["hint"]


def test_a_mistake_in_a_command_is_no_former_spelling(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = command(capsys, "decod", "0x40")
    assert code == 2 and "did you mean decode" in err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("encode",), "no descriptor is given"), (("check",), "no descriptor is given"), (("decode", "12ab"), "WORD is '12ab'"),
        (("encode", "--lbo", "8"), "leading_byte_offset is 8: it must be a multiple of 16"),
        (("encode", "--element", "1,2"), "which matrix does it describe?"),
        (("check", "1", "--access", "ldmatrix"), "which matrix does it describe?"),
        (("encode", "--type", "f16", "--element", "1"), "ROW,COL is needed"),
        (("encode", "--type", "f16", "--element", "64,0"), "element (64, 0) is outside B [k=64, n=64] of f16"),
        (("encode", "--type", "f32"), "wgmma reads no elements of type 'f32'"),
        (("check", "--type", "f16", "--k", "12"), "core matrices"),
        (("encode", "--for", "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"), "takes no matrix descriptor"),
        (("encode", "--for", name("e4m3", 64), "--major", "mn"), "reads B K-major only"),
        (("decode", "1", "--type", "f16", "--major", "x"), "--major is 'x'"),
        (("encode", "--for", F16, "--operand", "d"), "operand 'd' has no matrix descriptor"),
        (("from-cute", "8:", "--type", "f16"), "cannot read the CuTe"),
        (("encode", "--swizzle", "96B"), "no swizzling mode '96B'"),
        (("check", "--access", "@nowhere.txt"), "cannot read nowhere.txt"),
        (("from-cute", "(64,64):(64,1)", "--type", "f16", "--units", "x"), "no units 'x'"),
    ],
)  # fmt: skip
def test_errors_of_the_command(capsys: pytest.CaptureFixture[str], words: tuple[str, ...], says: str) -> None:
    code, out, err = command(capsys, *words)
    assert (code, out) == (1, "")
    assert says in err
    code, out, err = command(capsys, *words, "--json")
    assert code == 1
    assert says in json.loads(out)["errors"][0]["message"] + str(json.loads(out)["errors"][0]["hint"])


@pytest.mark.parametrize(
    "words",
    [
        ("encode", "--for", F16, "--type", "f16"), ("decode", "1", "--for", F16, "--mn", "64"),
        ("check", "1", "--for", F16, "--k", "0"), ("encode", "--cute", "--json"),
        ("from-cute", "8:1", "--for", F16, "--type", "f16"), ("check", "1", "--type", "f16", "--at", "1,1"),
        ("decode", "1", "--mn", "64"), ("decode", "1", "--operand", "a"),
        ("decode", "1", "--base", "0"), ("check", "1", "--shared", "1024"), ("check", "1", "--type", "f16", "--shared-base", "0"),
    ],
)  # fmt: skip
def test_options_without_effect_are_refused(capsys: pytest.CaptureFixture[str], words: tuple[str, ...]) -> None:
    code, out, err = command(capsys, *words)
    named = [word for word in words if word.startswith("--") and (word != "--type" or "--for" in words)]
    assert code == 2 and bool(out) == ("--json" in words)
    assert all(name in out + err for name in named), err


def test_numbers_and_files_of_the_command_make_sense(capsys: pytest.CaptureFixture[str]) -> None:
    assert command(capsys, "encode", "--type", "f16", "--lines", "-1")[0] == 2
    assert "name a file" in command(capsys, "encode", "--type", "f16", "--svg", "-")[2]
    assert command(capsys, "encode", "--type", "f16", "--mn", "0")[0] == 1


def test_exit_code_is_that_of_the_checks(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("encode", "check"):
        code, out, _ = command(capsys, name, "--for", F16, "--swizzle", "128B", "--sbo", "0")
        assert code == 1
        assert "rows overlap" in out
        code, out, _ = command(capsys, name, "--for", F16, "--swizzle", "128B")
        assert code == 0
        assert ("nothing is wrong" in out) == (name == "check")
    for element in ("tf32", "e4m3", "s8"):  # as --for refuses it
        code, out, _ = command(capsys, "check", "--type", element, "--major", "mn")
        assert (code, "no wgmma reads this matrix" in out) == (1, True), element


def test_only_matrix_descriptors_are_asked_for() -> None:
    with pytest.raises(MmulatorError, match="takes no matrix descriptor"):
        tile_of(parse_mnemonic("wgmma.commit_group.sync.aligned"), "a")


# tcgen05 ----------------------------------------------------------------------------------------------------------------
def test_descriptors_of_tcgen05_are_found_by_their_constant() -> None:
    for name, code in (("none", 0), ("128B_atom_32B", 1), ("128B", 2), ("64B", 4), ("32B", 6)):
        d = SharedDescriptor(0x400, 16, 1024, 0, name)
        assert d.encode() == 0x40 | 1 << 16 | 64 << 32 | 1 << 46 | code << 61
        fields = descriptor_fields(d.encode())
        assert fields.descriptor == d and not fields.findings and fields.reserved == 0
    for code in (3, 5, 7):
        with pytest.raises(OperandError, match=rf"bits 61-63 are {code}: no swizzling mode"):
            descriptor_fields(1 << 46 | code << 61)
    word = SharedDescriptor(0x400, 16, 1024, 0, "128B").encode()
    wrong = {1 << 14: "bits 14 are set", 1 << 52: "bit 52 is set", 1 << 47: "bits 46-48 are 0b011", 1 << 60: "bits 60 are set"}
    for bit, text in wrong.items():
        (finding,) = describe_descriptor(word | bit, "tcgen05 m128n64 f16").findings
        assert finding.level == "error" and finding.text.startswith(text)
    (finding,) = describe_descriptor(MatrixDescriptor.decode(0x4000004000010040).encode(), "tcgen05 m128n64 f16").findings
    assert finding.text == "bits 46-48 are 0b000: they must be 0b001"


@pytest.mark.parametrize("mn_major", [False, True])
@pytest.mark.parametrize("operand", ["a", "b"])
@pytest.mark.parametrize("words", ["m128n64 bf16", "m256n128 f16", "m64n64 f16 sp", "m128n64 tf32", "m128n64 e5m2", "m64n32 s8"])
def test_packed_tiles_of_tcgen05_hold_every_element_once(words: str, operand: str, mn_major: bool) -> None:
    tile = make_tile(f"tcgen05 {words}", operand, mn_major=mn_major)
    for mode in SWIZZLES5:
        found = describe_descriptor(tile.packed(mode), tile.instruction, operand, mn_major=mn_major)
        wide = mn_major and tile.element.bits == 32
        assert found.ok == (wide == (mode == "128B_atom_32B")), (mode, found.findings)
        assert found.descriptor == SharedDescriptor.decode(found.word)
        assert len(np.unique(found.addresses)) == found.addresses.size
        assert found.addresses.size == (128 if "256" in words and operand == "a" else tile.mn) * tile.k
        if mode in SWIZZLES and not wide and (not mn_major or tile.element.bits == 16):
            same = MatrixDescriptor(0, found.descriptor.leading_byte_offset, found.descriptor.stride_byte_offset, 0, mode)
            assert np.array_equal(operand_addresses(same, tile.mn, tile.k, tile.element.bits, mn_major), found.addresses)
        layout = CuteLayout.parse(str(found.cute))
        if found.ok and (tile.mn // tile.atom(tile.generation.modes[mode])[0] or not mn_major):
            assert descriptor_from_cute(str(layout), tile).descriptor.swizzle == mode


def test_narrow_elements_of_tcgen05_lie_16_in_16_bytes() -> None:
    for words, bits in (("e2m1", 4), ("mxf8f6f4 e3m2", 6), ("e2m3", 6)):
        found = describe_descriptor(SharedDescriptor(0, 2048, 128), f"tcgen05 m128n64 {words}", "a")
        assert found.ok and found.addresses[0, :17].tolist() == [i * bits // 8 for i in range(16)] + [2048]
        inside = describe_descriptor(SharedDescriptor(96, 0, 1024, 0, "128B"), f"tcgen05 m128n64 {words}", "a")
        assert inside.ok and "96 k further on in the atom" in str(inside), inside
        with pytest.raises(OperandError, match="cannot be transposed"):
            make_tile(f"tcgen05 m128n64 {words}", "a", mn_major=True)
    dense = describe_descriptor(SharedDescriptor(0, 2048, 128), "tcgen05 m128n64 mxf4", "a")
    assert dense.ok and dense.addresses[0, 31:33].tolist() == [15, 2048]


def test_instruction_descriptors() -> None:
    word = instruction_word("tcgen05 m128n64 bf16", {"transpose_b": 1})
    found = instruction_fields(word, "tcgen05.mma.cta_group::1.kind::f16")
    assert found.ok and found.descriptor and found.descriptor.transpose_b and found.word == 0x08110490
    assert found.instruction == "tcgen05.mma.cta_group::1.kind::f16 m128n64k16 f32.bf16.bf16"
    assert sum(f.raw << int(f.bits.split("-")[0]) for f in found.fields) == word
    for said, text in (("m64n64 bf16", "m is 128 in the descriptor, and 64 is said"), ("m128n64 f16", "atype is bf16 in")):
        assert instruction_fields(word, f"tcgen05 {said}").findings[0].text.startswith(text)
    bad = instruction_fields(word | 1 << 23, "tcgen05 bf16")
    assert not bad.ok and bad.descriptor is None and "bit 23 is 1" in bad.findings[0].text
    for selector in range(4):
        levels = instruction_fields(instruction_word("tcgen05 m64n64 f16 sp", {"selector": selector}), "tcgen05 f16 sp").findings
        assert [f.level for f in levels] == ["warning"] * (selector > 1)
    given = (("wgmma m64n64 f16", {}), ("tcgen05 f16", {"foo": 1}), ("tcgen05 f16", {"n": 12}), ("tcgen05 f16", {"m": 32}))
    for text, wrong in given:
        with pytest.raises(OperandError):
            instruction_word(text, wrong)
