"""Tensor maps: 128 bytes both ways, what is refused, what people see."""

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import mmulator as mm
from mmulator.errors import OperandError
from mmulator.matrix.layouts.tensormap import Encoded, fields, modes, rules, types
from mmulator.matrix.layouts.tensormap.fields import StoredField
from tests.support.torch_stub import Tensor

TYPES = [t for t in types.TYPES if t.elements == 1]


def random_map(seed: int) -> Encoded:
    """A legal map, every field of it drawn."""
    draw = random.Random(seed)
    while True:
        found = _drawn(draw)
        if not list(rules.refusals(found)):
            return found


def _drawn(draw: random.Random) -> Encoded:
    """A map that is often legal."""
    kind = draw.choice(types.TYPES)
    im2col = draw.random() < 0.4
    small = kind.elements > 1
    interleave = "none" if small else draw.choice(["none", "none", "16B", "32B"])
    rank = draw.randint(3 if im2col or interleave != "none" else 1, 5)
    unit = 32 if interleave == "32B" or kind.padded else 16
    swizzles = ["none", "128B", "128B_atom_32B", "128B_atom_64B"] if kind.padded else list(modes.SWIZZLES)
    inner = 128 if kind.padded else 16 * 8 // kind.bits * draw.choice([1, 1, 2, 4, 8, 16])
    sizes = tuple(draw.choice([1, 5, 100, 1 << 20, 1 << 32]) for _ in range(rank))
    found = Encoded(
        kind, (128 * draw.randint(1, 1 << 25) if small else sizes[0], *sizes[1:]),
        tuple(unit * draw.choice([0, 1, 77, (1 << 40) // unit - 1]) for _ in range(rank - 1)),
        tuple(draw.randint(1, 8) for _ in range(rank)), interleave=interleave, swizzle=draw.choice(swizzles),
        l2_promotion=draw.choice(list(modes.PROMOTIONS)), oob_fill=draw.choice(["zero", "nan"] if kind.is_float else ["zero"]),
        address=unit * draw.randint(0, (1 << 57) // unit - 1),
    )  # fmt: skip
    if not im2col:
        return replace(found, box=(inner, *(draw.choice([1, 2, 9, 256]) for _ in range(rank - 1))))
    low, high = rules.CORNERS[rank]
    lower = tuple(draw.randint(low, 0) for _ in range(rank - 2))
    upper = tuple(draw.randint(max(low, corner), high) for corner in lower)
    return replace(found, im2col=True, lower=lower, upper=upper, channels=inner, pixels=draw.randint(1, 1024))


@pytest.mark.parametrize("part", range(8))
def test_what_is_encoded_is_decoded(part: int) -> None:
    for seed in range(part, 1600, 8):
        m = random_map(seed)
        data = m.encode()
        assert len(data) == 128
        again = Encoded.decode(data)
        assert replace(again, box_bytes=None, alignment=None) == m
        assert (again.box_bytes, again.alignment) == (m.described_bytes, m.mode.alignment)
        assert again.encode() == data


def test_any_bytes_are_a_map_or_refused() -> None:
    taken = 0
    for seed in range(3000):
        data = bytearray(np.random.default_rng(seed).bytes(128))
        if seed % 3:  # most of them with a rank, a type and an interleave
            word = int.from_bytes(data[8:12], "little") & ~0x1FF0 | (seed % 5) << 4 | seed % 11 << 7 | seed % 2 << 11
            data[8:12] = word.to_bytes(4, "little")
        try:
            m = Encoded.decode(bytes(data))
        except OperandError as error:
            assert error.rule
            continue
        taken += 1
        assert replace(m, box_bytes=None) == replace(Encoded.decode(m.encode()), box_bytes=None)
        assert repr(mm.TensorMap(m))
        assert isinstance(list(rules.refusals(m)), list)
    assert taken > 1000


def _fields() -> list[tuple[str, StoredField]]:
    every: list[tuple[str, StoredField]] = []
    for name, value in vars(fields).items():
        values = value.values() if isinstance(value, dict) else [value]
        for one in values:
            every += [(name, f) for f in (one if isinstance(one, tuple) else (one,)) if isinstance(f, StoredField)]
    return every


def test_a_field_is_read_as_it_was_written_and_others_stay() -> None:
    for name, field in _fields():
        if field is fields.REPLACE["global_stride"][4]:  # no field, but what an H200 writes for that ordinal
            continue
        bits = field.bits
        low = -(1 << bits - 1) if field.signed else 0
        for stored in {low, low + 1, low + (1 << bits) - 1, low + (1 << bits - 1), low + 0x5555555555555555 % (1 << bits)}:
            for around in (0, 0xFFFFFFFF):
                words = [around] * fields.WORDS
                value = (stored + field.less) * field.unit
                field.put(words, value)
                assert field.get(words) == value, name
                mine = [0] * fields.WORDS
                for part in field.parts:
                    mine[part.word] |= part.mask << part.shift
                assert all(word & ~own == around & ~own for word, own in zip(words, mine)), name


def test_fields_of_a_map_do_not_overlap() -> None:
    for rank, im2col in [(r, False) for r in range(1, 6)] + [(r, True) for r in (3, 4, 5)]:
        corners = (*fields.LOWER[rank], *fields.UPPER[rank]) if im2col else fields.BOX_DIM[1:]
        together = [
            fields.GLOBAL_ADDRESS, fields.IM2COL, fields.RANK, fields.ELEMENT_TYPE, fields.INTERLEAVE, fields.SWIZZLE,
            fields.FILL_NAN, fields.L2_PROMOTION, fields.ATOMICITY, fields.OUT_OF_BOUNDS_MODE, *fields.GLOBAL_STRIDE,
            *fields.GLOBAL_DIM, *fields.ELEMENT_STRIDE, fields.BOX_DIM[0], *corners, fields.BOX_BYTES, fields.SHARED_ALIGNMENT,
            *([fields.PIXELS] if im2col else []),
        ]  # fmt: skip
        seen = [0] * fields.WORDS
        for field in together:
            for part in field.parts:
                assert not seen[part.word] & part.mask << part.shift, (rank, im2col, field)
                seen[part.word] |= part.mask << part.shift


def test_types_have_three_numbers_each() -> None:
    for numbers in (types.BY_NUMBER, types.BY_DRIVER):
        assert sorted(numbers) == list(range(16))
    assert len(types.BY_CODE) == 16
    assert all(types.tensor_type(f".{t.name}") is types.tensor_type(t.name) is t for t in types.TYPES)
    assert types.tensor_type(".b6p2x16").name == "b6x16_p32"


# of people ------------------------------------------------------------------------------------------------------------
def test_sizes_and_boxes_are_in_the_order_of_the_array() -> None:
    x = np.zeros((3, 5, 64), np.float32)
    m = mm.TensorMap.tiled(x, (2, 4, 32), element_strides=(1, 2, 1), swizzle="128B", oob_fill="nan", l2_promotion="256B")
    assert m.fields.sizes == (64, 5, 3)
    assert m.fields.strides == (256, 1280)
    assert m.fields.box == (32, 4, 2)
    assert (m.shape, m.strides, m.box, m.element_strides) == ((3, 5, 64), (1280, 256, 4), (2, 4, 32), (1, 2, 1))
    assert (m.type, m.swizzle, m.oob_fill, m.l2_promotion, m.interleave) == ("f32", "128B", "nan", "256B", "none")
    assert m.box_bytes == 2 * 2 * 32 * 4
    assert m.alignment == 1024
    assert m.array is x
    short = mm.TensorMap.tiled(x, (2, 4, 8), swizzle="64B")
    assert (short.box_bytes, short.shared_bytes) == (2 * 4 * 32, 2 * 4 * 64)
    again = mm.TensorMap.decode(m.encode(0x1230))
    assert (again.address, again.array) == (0x1230, None)
    assert (again.shape, again.box) == (m.shape, m.box)


def test_im2col_is_in_the_order_of_the_array() -> None:
    x = np.zeros((2, 6, 7, 8, 16), np.float16)
    m = mm.TensorMap.im2col(x, (-1, -2, -3), (1, 2, 3), 16, 100, element_strides=(1, 1, 2, 3, 1))
    assert m.fields.lower == (-3, -2, -1)
    assert m.fields.upper == (3, 2, 1)
    assert (m.mode, m.lower, m.upper, m.box) == ("im2col", (-1, -2, -3), (1, 2, 3), (100, 16))
    assert m.box_bytes == 100 * 16 * 2


def test_the_last_dimension_of_an_interleaved_array_is_a_slice() -> None:
    x = np.zeros((2, 3, 6, 5, 8), np.float16)  # N, C/8, H, W, 8
    m = mm.TensorMap.tiled(x, (2, 1, 3, 8), interleave="16B", swizzle="64B")
    assert (m.shape, m.strides, m.box) == ((2, 3, 6, 5), (1440, 480, 80, 16), (2, 1, 3, 8))
    assert m.box_bytes == 2 * 3 * 8 * 16
    assert replace(m.fields, box=(8, 3, 99, 2)).transaction_bytes == m.box_bytes  # one slice of channels, whatever is said


@pytest.mark.full
def test_arrays_of_other_libraries_keep_their_memory() -> None:
    torch = pytest.importorskip("torch")
    t = torch.zeros(16, 128, dtype=torch.bfloat16)
    m = mm.TensorMap.tiled(t[:, 32:96], (16, 64), swizzle="128B")
    assert (m.type, m.shape, m.strides) == ("bf16", (16, 64), (256, 2))
    assert m.array is not None
    m.array[3, 5] = 7
    assert t[3, 37] == 7
    a = np.zeros((8, 64), np.uint8)
    four = mm.TensorMap.tiled(a, (8, 128), type="b4x16_p64", swizzle="128B")
    assert (four.shape, four.box_bytes) == ((8, 128), 512)
    assert mm.TensorMap.tiled(np.zeros((8, 96), np.uint8), (8, 128), type=".b6x16_p32").shape == (8, 128)


X = np.zeros((8, 64), np.float16)
SMALL = np.zeros((4, 8, 64), np.uint8)
SPARSE = Tensor.of(np.zeros((8, 8), np.float32), layout="torch.sparse_coo")
SLICES = np.zeros((2, 4, 6, 8), np.float16)
WRONG: list[tuple[str, Any]] = [
    ("box[1] is 128 elements of f16, 256 bytes: with swizzle 128B", lambda: mm.TensorMap.tiled(X, (8, 128), swizzle="128B")),
    ("box[0] is 257: it must be 1 to 256", lambda: mm.TensorMap.tiled(X, (257, 8))),
    ("box[1] is 4 elements of f16, 8 bytes: a row of the box must be a multiple of 16", lambda: mm.TensorMap.tiled(X, (8, 4))),
    ("box is (8,): 2 integers are needed", lambda: mm.TensorMap.tiled(X, (8,))),
    ("box is 8: 2 integers are needed", lambda: mm.TensorMap.tiled(X, 8)),  # type: ignore[arg-type]
    ("box[1] is 8.5: an integer", lambda: mm.TensorMap.tiled(X, (8, 8.5))),  # type: ignore[arg-type]
    ("element_strides[0] is 9", lambda: mm.TensorMap.tiled(X, (8, 8), element_strides=(9, 1))),
    ("strides[0] is 130 bytes", lambda: mm.TensorMap.tiled(np.zeros((8, 65), np.float16)[:, :64], (8, 8))),
    ("elements of the last dimension are 128 bytes apart", lambda: mm.TensorMap.tiled(X.T, (8, 8))),
    ("swizzle is '48B': no such mode", lambda: mm.TensorMap.tiled(X, (8, 8), swizzle="48B")),
    ("interleave is '8B'", lambda: mm.TensorMap.tiled(X, (8, 8), interleave="8B")),
    ("array has 2 dimensions: interleave 16B takes 3", lambda: mm.TensorMap.tiled(SLICES[0], (8, 8), interleave="16B")),
    ("its last dimension is a slice of 32 bytes", lambda: mm.TensorMap.tiled(SMALL, (1, 1), interleave="32B")),
    ("box has 262144 bytes: a box has at most 232448", lambda: mm.TensorMap.tiled(SMALL, (64, 64, 64))),
    ("pixels is 1024: a column of 262144 bytes", lambda: mm.TensorMap.im2col(SMALL, (0,), (0,), 256, 1024)),
    ("oob_fill is nan: elements of type u8 have none", lambda: mm.TensorMap.tiled(SMALL, (1, 1, 16), oob_fill="nan")),
    ("type is 'f15': tensor maps have no such", lambda: mm.TensorMap.tiled(X, (8, 8), type="f15")),
    ("type is f32, of 4 bytes: array has elements of float16", lambda: mm.TensorMap.tiled(X, (8, 8), type="f32")),
    ("array has elements of complex64", lambda: mm.TensorMap.tiled(np.zeros((8, 8), np.complex64), (8, 8))),
    ("array has no dimensions", lambda: mm.TensorMap.tiled(np.array(1.0), ())),
    ("array is None: an array is needed", lambda: mm.TensorMap.tiled(None, ())),
    ("array has 6 dimensions", lambda: mm.TensorMap.tiled(np.zeros((1,) * 5 + (16,), np.uint8), (1,) * 5 + (16,))),
    ("shape[0] is 0", lambda: mm.TensorMap.tiled(np.zeros((0, 64), np.uint8), (1, 16))),
    ("address is 0x8: it must be a multiple of 16", lambda: mm.TensorMap.tiled(X, (8, 8)).encode(8)),
    ("array has 2 dimensions: im2col takes 3 to 5", lambda: mm.TensorMap.im2col(X, (), (), 8, 8)),
    ("lower is (): 1 integers are needed", lambda: mm.TensorMap.im2col(SMALL, (), (0,), 16, 8)),
    ("lower[0] is -40000: corners of a tensor of rank 3", lambda: mm.TensorMap.im2col(SMALL, (-40000,), (0,), 16, 8)),
    ("nothing is left of 8 elements", lambda: mm.TensorMap.im2col(SMALL, (4,), (-4,), 16, 8)),
    ("channels is 512", lambda: mm.TensorMap.im2col(SMALL, (0,), (0,), 512, 8)),
    ("pixels is 1025", lambda: mm.TensorMap.im2col(SMALL, (0,), (0,), 16, 1025)),
    ("a tensor map has 128 bytes, and these are 64", lambda: mm.TensorMap.decode(bytes(64))),
    ("the map's rank is 8", lambda: mm.TensorMap.decode(b"\xff" * 128)),
    ("interleave is []: no such mode", lambda: mm.TensorMap.tiled(X, (8, 8), interleave=[])),  # type: ignore[arg-type]
    ("array is big-endian", lambda: mm.TensorMap.tiled(X.astype(">f2"), (8, 8))),
    ("the tensor's layout is torch.sparse_coo", lambda: mm.TensorMap.tiled(SPARSE, (8, 8))),
    ("strides[0] is -128 bytes", lambda: mm.TensorMap.tiled(X[::-1], (8, 8))),
    ("128 bytes are needed", lambda: mm.TensorMap.decode("00")),
]  # fmt: skip


@pytest.mark.parametrize(("text", "make"), WRONG, ids=[text for text, _ in WRONG])
def test_what_is_refused_is_named_with_its_rule(text: str, make: Any) -> None:
    with pytest.raises(OperandError) as caught:
        make()
    assert text in caught.value.message
    assert caught.value.rule or caught.value.hint


def test_people_see_what_a_map_says() -> None:
    m = mm.TensorMap.tiled(X, (8, 64), swizzle="128B")
    assert repr(m) == "TensorMap.tiled(f16 [8 x 64], box [8 x 64], swizzle 128B)"
    assert repr(mm.TensorMap.decode(m.encode(4096))) == "TensorMap.tiled(f16 [8 x 64], box [8 x 64], swizzle 128B, at 0x1000)"
    im2col = mm.TensorMap.im2col(SMALL, (-1,), (-1,), 16, 8, l2_promotion="64B", element_strides=(1, 2, 1))
    assert repr(im2col) == (
        "TensorMap.im2col(u8 [4 x 8 x 64], lower (-1,), upper (-1,), 16 channels, 8 pixels, element strides (1, 2, 1), "
        "L2 promotion 64B)"
    )
    html = im2col._repr_html_()
    assert "<td>pixels</td><td>8</td>" in html
    assert m == mm.TensorMap.tiled(X.copy(), (8, 64), swizzle="128B")


@pytest.mark.parametrize(("lower", "upper", "reasons"), [(0, 0, 0), (-1, 0, 1), (0, 1, 1), (1, -1, 0), (-1, 1, 1)])
def test_a_box_is_written_inside_the_tensor(lower: int, upper: int, reasons: int) -> None:
    """im2col: no corner of the bounding box is beyond the tensor's."""
    maps = (random_map(seed) for seed in range(1000))
    found = next(m for m in maps if m.lower and not m.type.padded and not m.swizzle.endswith("flip_8B"))
    for n in range(len(found.lower)):
        low, high = [0] * len(found.lower), [0] * len(found.upper)
        low[n], high[n] = lower, upper
        assert len(list(rules.cannot_be_written(replace(found, lower=tuple(low), upper=tuple(high))))) == reasons
