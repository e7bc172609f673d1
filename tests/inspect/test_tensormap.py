"""Tensor maps taken apart, drawn and checked: answers as data and what people see of them."""

import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import mmulator as mm
from mmulator.errors import InvalidInstructionError, OperandError
from mmulator.inspect import check_copy, describe_descriptor, parse_copy, tensor_box, tensor_map_fields
from mmulator.matrix.inspect.descriptors.checks import Diagnostic
from mmulator.matrix.inspect.tensormaps.box import CHUNK, TensorBox
from mmulator.matrix.inspect.tensormaps.checks import check_bytes, check_map, check_reader
from mmulator.matrix.inspect.views.chunks import box_text
from mmulator.matrix.layouts.tensormap import modes
from tests.support.places import ROOT

PADDED_64 = np.zeros((64, 64), np.float16)[:, :60]
PADDED = np.zeros((20, 64), np.float16)[:, :60]
LOAD = "cp.async.bulk.tensor.{}d.shared::cluster.global{}.mbarrier::complete_tx::bytes"
STORE = "cp.async.bulk.tensor.{}d.global.shared::cta{}.bulk_group"


def texts(found: tuple[Diagnostic, ...], level: str = "") -> list[str]:
    return [f.text for f in found if not level or f.level == level]


def test_fields_are_where_they_are_said_to_be() -> None:
    m = mm.TensorMap.tiled(PADDED, (16, 64), swizzle="128B", oob_fill="nan", l2_promotion="256B", element_strides=(2, 1))
    found = tensor_map_fields(m.encode(0x7F0000001230))
    assert found.ok
    assert found.map == replace(m, fields=found.map.fields)
    words = [int.from_bytes(found.data[n : n + 4], "little") for n in range(0, 128, 4)]
    for f in found.fields:
        read, low = 0, 0
        for part in re.findall(r"0x(..)(?: bits? ((?:\d+(?:-\d+)?(?:, (?!0x))?)+))?", f.where):
            for bits in (part[1] or "0-31").split(", "):
                first, _, last = bits.partition("-")
                width = int(last or first) - int(first) + 1
                read |= (words[int(part[0], 16) // 4] >> int(first) & (1 << width) - 1) << low
                low += width
        assert read == f.raw, f
    data = found.to_dict()
    assert (data["shape"], data["box"], data["swizzle"], data["box_bytes"]) == ([20, 60], [16, 64], "128B", 1024)
    assert "(cuuint64_t[]){60, 20}" in found.driver_call()
    assert "CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B" in found.driver_call()
    assert "NAN_REQUEST_ZERO_FMA" in found._repr_html_() + found.driver_call()


def test_every_unit_is_in_one_chunk() -> None:
    x = np.zeros((3, 5, 6, 40), np.float32)
    for swizzle in modes.SWIZZLES:
        row = (modes.SWIZZLES[swizzle].width or 128) // 4
        box = tensor_box(mm.TensorMap.tiled(x, (2, 2, 3, row), swizzle=swizzle), (2, 4, -1, 8), shared=128)
        assert sum(c.units for c in box.chunks) == box.placed.shared.size == 12 * row
        assert sum(c.inside for c in box.chunks) == box.placed.inside.sum() == box.placed.shared.size - box.filled
        assert len({c.address for c in box.chunks}) == len(box.chunks)
        for c in box.chunks:
            assert c.at in box.element(c.address) or c.filled or c.inside < c.units
            if not c.filled and c.inside == c.units:
                assert box.address(*c.at) == (c.address,)


def test_interleaved_boxes_name_slices() -> None:
    x = np.zeros((2, 4, 6, 5, 16), np.float16)
    tiled = tensor_box(mm.TensorMap.tiled(x, (2, 1, 3, 8), interleave="32B", swizzle="32B"), (0, 1, 4, 2))
    assert sum(c.units for c in tiled.chunks) == tiled.placed.shared.size == 2 * 3 * 8 * 16
    assert tiled.address(0, 1, 4, 3) == tuple(range(32, 64, 2))
    assert tiled.element(32 + 17) == ((0, 1, 4, 3),)
    assert "n,slice,h,w" in tiled.svg()
    images = tensor_box(mm.TensorMap.im2col(x, (-1, -1), (0, 0), 16, 9, interleave="32B", swizzle="32B"), None, (1, 1))
    assert images.coordinates == (0, 0, -1, -1)
    assert images.element(0) == ((0, 0, 0, 0),)
    assert ET.fromstring(images.svg()) is not None


def test_elements_of_a_chunk_of_small_types_are_sixteen() -> None:
    a = np.zeros((4, 128), np.uint8)
    box = tensor_box(mm.TensorMap.tiled(a, (4, 128), type="b4x16_p64"), (0, 128))
    assert box.address(1, 149) == (128 + CHUNK,)
    assert box.element(128 + CHUNK + 7) == ((1, 144),)
    assert box.element(128 + CHUNK + 8) == ()  # padding
    assert "8 are written" in box.svg()


def test_the_text_names_what_lies_where() -> None:
    box = tensor_box(mm.TensorMap.tiled(PADDED, (16, 64), swizzle="128B", oob_fill="nan"), (8, 0), shared=1024)
    lines = box_text(box, 32).split("\n")
    assert lines[2].split() == ["0x480", "9,8", "9,0", "9,24", "9,16", "9,40", "9,32", "9,56*", "9,48"]
    assert lines[-1].split() == ["0xb80", *["NaN"] * 8]
    assert all(len(line) <= 80 for line in lines)
    assert box_text(box, 1).endswith("... 15 more lines")
    assert "\x1b[" in box_text(box, 1, colour=True)
    deep = tensor_box(mm.TensorMap.tiled(np.zeros((2, 200, 200, 200, 16), np.uint16), (1, 1, 2, 4, 16)), (1, 150, 150, 150, 0))
    assert all(len(line) <= 80 for line in box_text(deep).split("\n"))
    assert "1,150,150,153,8" in box_text(deep)
    store = tensor_box(mm.TensorMap.tiled(PADDED, (16, 64)), (8, 0), store=True)
    assert " - " in box_text(store, 32)
    assert "*" not in box_text(store, 32)  # the whole granule is written


@pytest.mark.parametrize("theme", ["auto", "light", "dark"])
def test_the_picture_is_a_drawing_with_every_chunk_of_its_lines(theme: str) -> None:
    boxes: list[TensorBox] = [
        tensor_box(mm.TensorMap.tiled(PADDED, (16, 64), swizzle="128B"), (8, 0)),
        tensor_box(mm.TensorMap.im2col(np.zeros((2, 4, 6, 6, 32), np.float16), (-1,) * 3, (-1,) * 3, 32, 20), None, (1, 0, 0)),
        tensor_box(mm.TensorMap.tiled(np.zeros(4096, np.uint8), (256,)), (4000,)),
        tensor_box(mm.TensorMap.tiled(np.zeros((64, 64), np.float16), (1, 64)), (5, 3, 99, 7, 0), mode="tile::gather4"),
    ]
    for box in boxes:
        root = ET.fromstring(box.svg(theme))
        said = " ".join(root.itertext())
        for chunk in box.chunks:
            if chunk.row < 16 and chunk.number < 8:
                assert f"{chunk.address:#x}: element {chunk.name}" in said
        assert f"mm-{theme}" in root.attrib["class"]
    assert boxes[0]._repr_html_().startswith("<div><svg")


def test_the_picture_of_the_documentation_is_current() -> None:
    m = mm.TensorMap.decode(replace(mm.TensorMap.tiled(PADDED_64, (16, 64), swizzle="128B").fields, address=0).encode())
    drawn = tensor_box(m, (56, 0)).svg("auto")
    assert (ROOT / "docs/images/tensor-box-128b.svg").read_text() == drawn, "see `Where a box lands` in tensor-maps.md"


# checks ---------------------------------------------------------------------------------------------------------------
def test_a_good_copy_has_no_findings() -> None:
    m = mm.TensorMap.tiled(np.zeros((64, 64), np.float16), (64, 64), swizzle="128B").fields
    copy = parse_copy(LOAD.format(2, ".tile") + " [%r1], [%rd1, {0, 64}], [%r2];")
    assert (copy.rank, copy.mode, copy.coordinates, copy.known()) == (2, "tile", (0, 64), ((0, 64), ()))
    assert check_copy(m, copy, 1024, 8192) == ()
    assert check_copy(m, parse_copy(STORE.format(2, "")), 0) == ()
    assert parse_copy(LOAD.format(2, "") + " [%r1], [%rd1, {%r2, 64}], [%r2]").known() is None


COPIES: list[tuple[str, str, str, dict[str, int]]] = [
    ("tile", LOAD.format(3, ""), "the instruction is .3d, and the map has 2 dimensions", {}),
    ("tile", LOAD.format(4, ".im2col"), "which takes im2col maps; this one is tiled", {}),
    ("im2col", LOAD.format(4, ""), "which takes tiled maps; this one is im2col", {}),
    ("tile", LOAD.format(2, ""), "it must be a multiple of 128", {"destination": 64}),
    ("tile", LOAD.format(2, ""), "the box begins 128 bytes inside it", {"destination": 128}),
    ("tile", LOAD.format(2, ""), "the mbarrier expects 4096 bytes, and a copy brings 8192", {"expect": 4096}),
    ("tile", LOAD.format(2, ""), "the wait ends when others bring 8192", {"expect": 16384}),
    ("tile", LOAD.format(2, ""), "shared memory has 4096", {"shared": 4096}),
    ("tile", LOAD.format(2, ".tile::gather4"), "copies four boxes of one row", {}),
    ("tile", LOAD.format(2, "") + " [%r1], [%rd1, {4, 0}], [%r2]", "a box begins at a multiple of 16 bytes", {}),
    ("im2col", LOAD.format(4, ".im2col") + " [%r1], [%rd1, {0, 7, 0, 0}], [%r2], {0, 0}", "in the bounding box, -1 to 6", {}),
    ("tile", STORE.format(2, "") + " [%rd1, {0, -1}], [%r1]", "coordinate 1 is -1: a box that is written begins inside", {}),
    ("im2col", STORE.format(4, ".im2col_no_offs"), "the bounding box leaves the tensor", {}),
    ("tile", "cp.reduce.async.bulk.tensor.2d.global.shared::cta.and.bulk_group", ".and knows no elements of type f16", {}),
    ("atoms", LOAD.format(2, ""), "swizzle 128B_atom_32B takes sm_100 or later", {}),
    ("flip", STORE.format(2, ""), "is for loads alone", {}),
    ("slices", LOAD.format(2, ".tile::gather4"), "interleave 16B: .tile::gather4 takes none", {}),
]


@pytest.mark.parametrize(("which", "instruction", "text", "more"), COPIES, ids=[text for _, _, text, _ in COPIES])
def test_what_does_not_fit_is_named(which: str, instruction: str, text: str, more: dict[str, int]) -> None:
    x, images = np.zeros((64, 64), np.float16), np.zeros((2, 8, 8, 64), np.float16)
    maps = {
        "tile": mm.TensorMap.tiled(x, (64, 64), swizzle="128B"),
        "im2col": mm.TensorMap.im2col(images, (-1, -1), (-1, -1), 64, 64),
        "atoms": mm.TensorMap.tiled(x, (64, 64), swizzle="128B_atom_32B"),
        "flip": mm.TensorMap.tiled(x, (64, 64), swizzle="128B_atom_32B_flip_8B"),
        "slices": mm.TensorMap.tiled(np.zeros((2, 4, 4, 8), np.float16), (1, 4, 8), interleave="16B"),
    }
    found = check_copy(maps[which].fields, parse_copy(instruction), **more)
    assert any(text in f.text for f in found), texts(found)
    assert all(f.rule for f in found)


@pytest.mark.parametrize(
    ("said", "more"),
    [
        ("coordinates is 'ab': integers are needed", {"coordinates": "ab"}),
        ("coordinates is (1.5, 0): integers are needed", {"coordinates": (1.5, 0)}),
        ("offsets is 3: integers are needed", {"offsets": 3}),
        ("shared is ['x']: integers are needed", {"shared": "x"}),
        ("shared is -1: addresses", {"shared": -1}),
        ("mode is im2col, and the map is tiled", {"mode": "im2col"}),
        ("mode is ['tile']: no such mode", {"mode": ["tile"]}),
        ("map is None: a tensor map is needed", {"map": None}),
    ],
)
def test_a_box_of_nonsense_is_refused(said: str, more: dict[str, Any]) -> None:
    with pytest.raises(OperandError) as caught:
        tensor_box(**({"map": mm.TensorMap.tiled(np.zeros((64, 64), np.float16), (8, 8))} | more))
    assert said in caught.value.message


def test_what_is_no_tensor_copy_is_refused() -> None:
    for text in ("cp.async.bulk.commit_group", "ld.global.u32", "nonsense", LOAD.format(6, "")):
        with pytest.raises(InvalidInstructionError):
            parse_copy(text)
    with pytest.raises(OperandError, match=r"3 coordinates: \.2d\.tile takes 2"):
        parse_copy(LOAD.format(2, "") + " [%r1], [%rd1, {0, 1, 2}], [%r2]")


def test_bytes_that_were_changed_are_seen() -> None:
    m = mm.TensorMap.tiled(np.zeros((64, 64), np.float16), (64, 64), swizzle="128B")
    data = bytearray(m.encode(0))
    assert check_bytes(bytes(data), mm.TensorMap.decode(data).fields) == ()
    data[0x60] = 4
    data[0x40] = 16
    found = texts(tensor_map_fields(bytes(data)).findings)
    assert any("0x60 bit 2" in text for text in found)
    assert any("8208 as bytes of a box, and its other fields make 8192" in text for text in found)
    data[0x34] = 0xFF  # the row of the box stays, the element strides do not
    assert tensor_map_fields(bytes(data)).ok


def test_what_surprises_is_noted() -> None:
    odd = mm.TensorMap.tiled(np.zeros((8, 32), np.uint8)[:, :20], (8, 32)).fields
    assert any("up to 12 behind it" in t for t in texts(check_map(odd), "note"))
    overlap = mm.TensorMap.tiled(np.lib.stride_tricks.as_strided(np.zeros(512, np.uint8), (8, 64), (16, 1)), (8, 64)).fields
    assert any("elements overlap" in t for t in texts(check_map(overlap), "note"))
    assert not tensor_map_fields(replace(mm.TensorMap(odd), fields=replace(odd, box=(20, 8))).fields.encode()).ok


# what wgmma reads -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("swizzle", ["32B", "64B", "128B"])
@pytest.mark.parametrize("operand", ["a", "b"])
def test_wgmma_finds_what_a_copy_left(swizzle: str, operand: str) -> None:
    row = modes.SWIZZLES[swizzle].width // 2
    m = mm.TensorMap.tiled(np.zeros((256, 512), np.float16), (64, row), swizzle=swizzle)
    box = tensor_box(m, (0, 0), shared=0x2000)
    for advance in range(0, row, 16):
        d = mm.MatrixDescriptor(0x2000 + 2 * advance, 16, 8 * 2 * row, 0, swizzle)
        assert check_reader(box, describe_descriptor(d, "wgmma m64n64 f16", operand).placed) == ()
    for wrong, text in (
        (mm.MatrixDescriptor(0x2000, 16, 8 * 2 * row, 0, "none"), "the map swizzles"),
        (mm.MatrixDescriptor(0x2000, 16, 4 * 2 * row, 0, swizzle), "elements are others"),
        (mm.MatrixDescriptor(0x0400, 16, 8 * 2 * row, 0, swizzle), "where this box has none"),
    ):
        found = texts(check_reader(box, describe_descriptor(wrong, "wgmma m64n64 f16", operand).placed), "error")
        assert any(text in t for t in found), found
    other = describe_descriptor(mm.MatrixDescriptor(0x2000, 16, 1024, 0, swizzle), "wgmma m64n64 e4m3").placed
    assert "wgmma reads .e4m3" in texts(check_reader(box, other))[0]
