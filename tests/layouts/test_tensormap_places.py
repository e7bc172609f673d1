"""The model of a tensor copy: laws over whole small domains, and a slow loop that does the same otherwise."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from mmulator.errors import OperandError
from mmulator.matrix.layouts.swizzle import SWIZZLES as MATRIX_SWIZZLES
from mmulator.matrix.layouts.tensormap import OUTSIDE, Encoded, modes, places
from mmulator.matrix.layouts.tensormap.types import BY_NAME, TYPES
from tests.support.tensor_bytes import converted, fill, load, moved, store

SHARED = 1 << 17


Sizes = tuple[int, ...]


def tiled(kind: str, sizes: Sizes, box: Sizes, steps: Sizes | None = None, **more: object) -> Encoded:
    """A map of a tensor whose rows are padded to 32 bytes."""
    t = BY_NAME[kind]
    strides, pitch = [], -(-t.bytes_of(sizes[0]) // 32) * 32
    for size in sizes[1:]:
        strides.append(pitch)
        pitch *= size
    return Encoded(t, sizes, tuple(strides), steps or (1,) * len(sizes), box, **more)  # type: ignore[arg-type]


def reach(m: Encoded) -> int:
    """Bytes of the tensor."""
    return 4096 + sum((size - 1) * stride for size, stride in zip(m.sizes[1:], m.strides)) + m.type.bytes_of(m.sizes[0])


def slow_load(m: Encoded, start: tuple[int, ...], memory: bytes, at: int) -> dict[int, int]:
    """A tiled copy, one byte after the other, as the specification tells it: address in shared memory -> byte."""
    row = m.type.bytes_of(m.box[0])
    counts = [range(start[n], start[n] + m.box[n], m.element_strides[n]) for n in range(1, m.rank)]
    out: dict[int, int] = {}
    for line, outer in enumerate(itertools.product(*reversed(counts))):
        where = outer[::-1]
        outside = any(not 0 <= c < size for c, size in zip(where, m.sizes[1:]))
        offset = sum(c * stride for c, stride in zip(where, m.strides))
        for byte in range(row):
            along = m.type.bytes_of(start[0]) + byte
            beyond = outside or not 0 <= along < m.type.bytes_of(m.sizes[0])
            value = (0xF7, 0x7F)[byte % 2] if m.oob_fill == "nan" else 0
            unit, rest = divmod(byte, m.type.memory)
            pitch = m.mode.width or row // m.type.memory * m.type.shared
            address = at + line * pitch + unit * m.type.shared + rest
            chunk, inside = divmod(address, 16)
            number = address // 128
            chunk ^= {"none": 0, "32B": number & 1, "64B": number & 3, "128B": number & 7, "96B": number & 1,
                      "128B_atom_32B": (number & 3) << 1, "128B_atom_32B_flip_8B": (number & 3) << 1,
                      "128B_atom_64B": (number & 1) << 2}[m.swizzle]  # fmt: skip
            if m.swizzle.endswith("flip_8B") and number & 1:
                inside ^= 8
            out[16 * chunk + inside] = value if beyond else memory[offset + along]
    return out


def rows_of(kind: str, bytes_: int) -> int:
    return bytes_ * 8 // BY_NAME[kind].bits


_PADDED = ("none", "128B", "128B_atom_32B", "128B_atom_64B")
PAIRS = [(t.name, s) for t in TYPES for s in (_PADDED if t.padded else modes.SWIZZLES) if not t.name.startswith("tf32")]


@pytest.mark.parametrize(("kind", "swizzle"), PAIRS)
def test_a_tiled_load_is_what_the_slow_loop_says(kind: str, swizzle: str) -> None:
    rng = np.random.default_rng(3)
    t, width = BY_NAME[kind], modes.SWIZZLES[swizzle].width or 64
    row = 128 if t.padded else rows_of(kind, min(width, 64))
    step = t.elements if t.elements > 1 else 3
    for rank, at in ((1, 0), (2, 256), (2, 1024), (3, 384), (5, 128)):
        m = tiled(kind, (row + 2 * step, 5, 4, 3, 2)[:rank], (row, 7, 3, 2, 2)[:rank], (1, 1, 2, 1, 1)[:rank], swizzle=swizzle,
                  oob_fill="nan" if t.is_float else "zero")  # fmt: skip
        memory = rng.integers(0, 256, reach(m), np.uint8)
        for first in (0, step, 3 * step, -step):
            start = (first, 1, -1, 2, 0)[:rank]
            shared = np.full(SHARED, 0xEE, np.uint8)
            load(m, places(m, start, shared=at), memory, shared)
            want = slow_load(m, start, memory.tobytes(), at)
            assert {int(a): int(shared[a]) for a in want} == want
            untouched = np.ones(SHARED, bool)
            untouched[list(want)] = False
            assert (shared[untouched] == 0xEE).all()


@pytest.mark.parametrize("swizzle", modes.SWIZZLES)
def test_a_swizzle_is_its_own_inverse_and_repeats(swizzle: str) -> None:
    mode = modes.SWIZZLES[swizzle]
    address = np.arange(4096)
    there = mode(address)
    assert np.array_equal(mode(there), address)
    assert np.array_equal(mode(address + mode.alignment), there + mode.alignment)
    assert np.array_equal(there // 128, address // 128)
    if swizzle in MATRIX_SWIZZLES:  # what wgmma reads
        assert np.array_equal(MATRIX_SWIZZLES[swizzle](address), there)


def test_every_box_inside_is_a_bijection() -> None:
    """All boxes and starts of a small tensor: no byte is taken twice or put twice, and stores undo loads."""
    rng = np.random.default_rng(5)
    m0 = tiled("u8", (32, 3, 4), (16, 1, 1))
    memory = rng.integers(0, 256, reach(m0), np.uint8)
    for swizzle, box1, box2 in itertools.product(modes.SWIZZLES, (1, 2, 3), (1, 3, 4)):
        m = replace(m0, box=(16, box1, box2), swizzle=swizzle)
        for start in itertools.product((0, 16), range(4 - box1), range(5 - box2)):
            where = places(m, start, shared=512)
            assert where.inside.all()
            assert len(np.unique(where.memory)) == len(np.unique(where.shared)) == where.memory.size == m.transaction_bytes
            shared, back = np.zeros(SHARED, np.uint8), np.zeros_like(memory)
            load(m, where, memory, shared)
            out = places(m, start, shared=512, store=True)
            store(out, back, shared)
            assert np.array_equal(moved(out), moved(where))
            assert np.array_equal(back[moved(where)], memory[moved(where)])
            assert not np.delete(back, moved(where)).any()


def test_coordinates_far_away_are_outside() -> None:
    m = tiled("f32", (8, 8), (8, 8))
    for start in ((8, 0), (0, 8), (-8, 0), (0, -8), (2**31 - 8, 0), (0, -(2**31)), (2**31 - 1, 2**31 - 1)):
        where = places(m, start)
        assert (where.memory == OUTSIDE).all()
        assert where.shared.size == 64


def test_a_filter_walks_through_the_bounding_box() -> None:
    """im2col mode, examples 1 to 3 (PTX ISA 9.1): images of 9 x 14 (8 x 14) pixels of 64 channels."""
    for width, lower, upper, start, offsets, step, pixels in (
        (9, -1, -1, (0, 4, 7, 7), (0, 0), 1, 64),
        (9, 0, -2, (0, 4, 7, 7), (2, 2), 1, 64),
        (8, -1, -1, (0, 5, 7, 7), (1, 1), 2, 32),
    ):
        m = Encoded(
            BY_NAME["f16"], (64, width, 14, 64), (128, 128 * width, 128 * width * 14), (1, step, step, 1), im2col=True,
            lower=(lower, lower), upper=(upper, upper), channels=8, pixels=pixels,
        )  # fmt: skip
        where = places(m, start, offsets)
        corners: list[tuple[int, int, int]] = []
        _, w, h, n = start
        while len(corners) < pixels:
            corners.append((w, h, n))
            w += step
            if w > width - 1 + upper:
                w, h = lower, h + step
            if h > 13 + upper:
                h, n = lower, n + 1
        found = np.stack([np.broadcast_to(c, where.memory.shape)[:, 0] for c in where.coordinates[1:]], -1)
        assert found.tolist() == [[w + offsets[0], h + offsets[1], n] for w, h, n in corners]
        inside = [0 <= w + offsets[0] < width and 0 <= h + offsets[1] < 14 for w, h, _ in corners]
        assert (where.inside.all(1) == inside).all()
        want = [(w + offsets[0]) * 128 + (h + offsets[1]) * 128 * width + n * 128 * width * 14 for w, h, n in corners]
        assert np.array_equal(where.memory[inside, 0], np.array(want)[inside])


def test_four_rows_are_gathered() -> None:
    m = tiled("f16", (64, 16), (32, 1), swizzle="64B")
    where = places(m, (8, 3, 15, 16, 0), shared=0, mode="tile::gather4")
    assert where.memory.shape == (4, 32)
    assert where.memory[0].tolist() == list(range(3 * 128 + 16, 3 * 128 + 80, 2))
    assert where.inside.all(1).tolist() == [True, True, False, True]
    assert np.array_equal(np.sort(where.shared.reshape(-1)), np.arange(0, 256, 2))


@pytest.mark.parametrize("mode", ["im2col::w", "im2col::w::128"])
def test_halo_pixels_follow_a_row(mode: str) -> None:
    m = Encoded(
        BY_NAME["f16"], (128, 9, 7, 64), (256, 2304, 16128), (1, 1, 1, 1), im2col=True, lower=(0, 0), upper=(0, 0),
        channels=64, pixels=128, swizzle="128B",
    )  # fmt: skip
    where = places(m, (0, 3, 2, 7), (2, 1), mode=mode)
    assert where.memory.shape == (130 if mode == "im2col::w" else 128 + 4 * 2, 64)
    assert set(np.unique(where.coordinates[2])) == {2}


def test_a_wrong_number_of_coordinates_is_an_error() -> None:
    m = tiled("f16", (64, 16), (32, 1))
    gather4 = "tile::gather4"
    for coordinates, offsets, mode in (((0,), (), None), ((0, 0, 0), (), None), ((0, 0), (1,), None), ((0, 0), (), gather4)):
        with pytest.raises(OperandError, match="where"):
            places(m, coordinates, offsets, mode=mode)


def test_fill_and_rounding() -> None:
    m = tiled("f64", (8, 8), (8, 8), oob_fill="nan")
    assert fill(m).tobytes().hex() == "f77f" * 4
    assert fill(replace(m, oob_fill="zero")).tobytes() == bytes(8)
    bits = np.array([0x3F801001, 0x3F801000, 0xBF803000, 0x7F7FFFFF, 0x7F800000, 0xFF800000, 0x7F800001], "<u4")
    rounded = converted(BY_NAME["tf32"], bits.view(np.uint8).reshape(-1, 4)).reshape(-1).view("<u4")
    want = [0x3F802000, 0x3F800000, 0xBF804000, 0x7F800000, 0x7F800000, 0xFF800000, 0x7FFFE000]
    assert [hex(x) for x in rounded] == [hex(x) for x in want]


def test_a_store_writes_the_whole_granule() -> None:
    m = tiled("u8", (20, 2), (32, 2))
    inside = places(m, (0, 0)).inside
    assert inside.sum() == 40
    out = places(m, (0, 0), store=True)
    assert moved(out).tolist() == [*range(32), *range(32, 64)]
