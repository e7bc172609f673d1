"""Copies of tensors: every byte as an NVIDIA H200 moves it, every form, the edges of windows, and faults by name."""

import hashlib
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

import mmulator as mm
from mmulator.errors import ExecutionFault
from mmulator.host.module import Module
from mmulator.matrix.layouts.tensormap import Encoded, places
from mmulator.matrix.layouts.tensormap.types import BY_NAME
from mmulator.runtime.native.hooks.events import Access, Proxy
from tests.data import tensormap_vectors as vectors
from tests.support import tensor_bytes as model
from tests.support import tensor_copies as copies
from tests.support.ptx_text import stored
from tests.support.tracing import Event, traced

COPIES, REDUCTIONS = list(vectors.copies()), list(vectors.reductions())


# an H200's ------------------------------------------------------------------------------------------------------------
def done(copied: vectors.Copied, op: str, times: int, seed: int) -> str | None:
    """The digest of the bytes afterwards; None if there was a fault about the map or the place."""
    try:
        after = copies.store(copied, op, seed, times) if copied.store else copies.load(copied, seed)
    except ExecutionFault as error:
        assert "tensor" in error.message
        return None
    return hashlib.sha256(after.tobytes()).hexdigest()[:16]


PARTS = 3


@pytest.mark.parametrize(("store", "part"), [*((False, part) for part in range(PARTS)), (True, None)])
def test_every_byte_is_an_h200s(store: bool, part: int | None) -> None:
    """All types, swizzles, interleaves, ranks, fills, element strides, places; what the chip finds illegal is a fault. Seeds
    decide which rows are copied when."""
    asked = [(seed, c) for seed, c in enumerate(COPIES) if c.store == store and part in (seed % PARTS, None)]
    different = [(seed, c) for seed, c in asked if done(c, "", 1, seed) != c.digest]
    assert not different, (len(different), different[:2])
    assert len(asked) > (200 if store else 4800 // PARTS)


def test_every_reduction_is_an_h200s() -> None:
    """All operations with all types, of which those with a meaning are bit for bit, and the others faults."""
    different = [(op, c) for seed, (op, times, c) in enumerate(REDUCTIONS) if done(c, op, times, seed) != c.digest]
    assert not different, (len(different), different[:2])
    said = Counter(c.digest is None for _, _, c in REDUCTIONS)
    assert min(said.values()) > 100


# what no chip was asked -----------------------------------------------------------------------------------------------
def encoded(**changes: object) -> Encoded:
    """40 rows of 64 f16, a box of 16 of them by 8."""
    m = Encoded(BY_NAME["f16"], (64, 40), (128,), (1, 1), box=(16, 8))
    return replace(m, **changes)  # type: ignore[arg-type]


IMAGES = Encoded(BY_NAME["f16"], (32, 9, 7, 3), (64, 576, 4032), (1, 1, 1, 1), im2col=True, lower=(-1, 0), upper=(-1, 0),
                 channels=16, pixels=20, swizzle="32B")  # fmt: skip


def moves_as_the_model(
    fields: Encoded, where: tuple[int, ...], mode: str, space: str = "cluster", box: int = 1024, bytes: int | None = None,
    halo: tuple[int, ...] = (), device: str | None = "sm_100",
) -> None:  # fmt: skip
    """A load of a box moves the bytes that the model moves. box: its place in the shared memory."""
    kind = "f16" if fields.type.name == "f16" else "raw"
    memory, window = vectors.data(5, 16384, kind).copy(), vectors.data(6, 12288, "raw").copy()
    want = window.copy()
    place = places(fields, where, halo, shared=1024 + box, mode=mode)
    model.load(fields, place, memory[256:], want, 1024)
    kernel = copies.load_kernel(fields.rank, mode, space)
    expected = fields.transaction_bytes if bytes is None else bytes
    copies.launch(kernel, fields, window, memory, 256, box, where, halo, bytes=expected, device=device)
    assert (window == want).all()


@pytest.mark.parametrize("fields", [
    encoded(box=(64, 1), swizzle="128B"), encoded(box=(64, 1), swizzle="128B_atom_32B"), encoded(box=(16, 1)),
    encoded(box=(64, 1), swizzle="128B_atom_32B_flip_8B"), encoded(box=(64, 1), swizzle="128B_atom_64B", oob_fill="nan"),
], ids=lambda m: m.swizzle)  # fmt: skip
@pytest.mark.parametrize("where", [(0, 3, 1, 39, 7), (32, -1, 40, 0, 12), (-8, 5, 5, 5, 5)])
def test_rows_of_a_matrix_are_gathered(fields: Encoded, where: tuple[int, ...]) -> None:
    moves_as_the_model(replace(fields, box_bytes=None), where, "tile::gather4", "cta", bytes=fields.box[0] * 4 * 2)


@pytest.mark.parametrize("where", [(0, 3, 1, 39, 7), (32, 40, 50, 0, 12)])
def test_rows_of_a_matrix_are_scattered(where: tuple[int, ...]) -> None:
    fields = encoded(box=(32, 1), swizzle="64B")
    memory, window = vectors.data(5, 16384, "f16").copy(), vectors.data(6, 8192, "raw").copy()
    want = memory.copy()
    place = places(fields, where, shared=1024 + 512, mode="tile::scatter4", store=True)
    model.store(place, want[256:], window, 1024)
    copies.launch(copies.store_kernel(2, "tile::scatter4", ""), fields, window, memory, 256, 512, where, device="sm_100")
    assert (memory == want).all()


@pytest.mark.parametrize("mode", ["im2col::w", "im2col::w::128"])
@pytest.mark.parametrize("halo", [0, 2])
@pytest.mark.parametrize("where", [(0, -1, 0, 0), (16, 4, 6, 2), (0, 0, -3, 1)])
def test_columns_along_w(mode: str, halo: int, where: tuple[int, ...]) -> None:
    size = places(IMAGES, where, (halo, 1), shared=2048, mode=mode).memory.size
    moves_as_the_model(IMAGES, where, mode, bytes=2 * size, halo=(halo, 1))


@pytest.mark.parametrize(("kind", "size"), [("b4x16", 8), ("b4x16_p64", 8), ("b6x16_p32", 12)])
def test_small_elements(kind: str, size: int) -> None:
    """Sixteen of them come together, with padding where the type has it."""
    fields = Encoded(BY_NAME[kind], (128, 6), (size * 8 + 32,), (1, 1), box=(128, 4), swizzle="none")
    moves_as_the_model(fields, (0, 4), "tile", "cta", box=128)


@pytest.mark.parametrize("swizzle", ["none", "64B"])
def test_a_box_that_is_wider_than_its_tensor(swizzle: str) -> None:
    """The box lies outside by as much on the left as on the right."""
    fields = Encoded(BY_NAME["f16"], (16, 40), (32,), (1, 1), box=(32, 8), swizzle=swizzle)
    moves_as_the_model(fields, (-8, 3), "tile", device=None)


# several blocks -------------------------------------------------------------------------------------------------------
MULTICAST = stored("multicast")


@pytest.mark.parametrize("mask", [0b0001, 0b1010, 0b1111, 0b0100])
@pytest.mark.parametrize("seed", range(3))
def test_a_multicast_reaches_the_blocks_of_its_mask(mask: int, seed: int) -> None:
    """The bytes at the same place of each, whose own mbarrier hears of them."""
    x, out = np.arange(40 * 64, dtype=np.float16).reshape(40, 64), np.zeros((4, 128), np.uint16)
    Module.load(MULTICAST)["k"].launch(4, 32, [mm.TensorMap.tiled(x, (8, 16)), out, mask], cluster=4, seed=seed)
    for rank in range(4):
        want = x[2:10, 16:32].reshape(-1).view(np.uint16) if mask >> rank & 1 else np.full(128, 0xFFFF, np.uint16)
        assert (out[rank] == want).all(), rank


# edges and faults -----------------------------------------------------------------------------------------------------
def faults(fields: Encoded, at: tuple[int, ...], op: str | None = None, box: int = 0, size: int = 8192, rank: int = 2,
           mode: str = "tile", offset: int = 0) -> str:  # fmt: skip
    """The message of a copy that fails, of a tensor in an array of 8192 bytes."""
    kernel = copies.load_kernel(rank, mode) if op is None else copies.store_kernel(rank, mode, op)
    with pytest.raises(ExecutionFault) as caught:
        copies.launch(kernel, fields, np.zeros(size, np.uint8), np.zeros(8192, np.uint8), offset, box, at)
    assert caught.value.rule
    assert caught.value.hint
    return caught.value.message


def test_a_tensor_that_reaches_outside_its_array() -> None:
    """Only what a box touches must be there."""
    larger = encoded(sizes=(64, 100))
    copies.launch(copies.load_kernel(2, "tile"), larger, np.zeros(8192, np.uint8), np.zeros(8192, np.uint8), 0, 0, (0, 56))
    message = faults(larger, (0, 57))
    assert "touches 928 bytes from 0x1200001c80, byte 7296 of argument 2 (tensor), which has 8192" in message
    assert "f16 at byte 0 of argument 2 (tensor), which has 8192, sizes (64, 100), strides (128) bytes, box (16, 8)" in message
    assert "out of bounds" in faults(larger, (0, 57), "")
    assert "out of bounds" in faults(encoded(strides=(1 << 40 - 1,), sizes=(64, 1 << 32)), (0, (1 << 31) - 1))


@pytest.mark.parametrize("op", [None, "", "add"])
def test_a_box_beyond_the_shared_memory(op: str | None) -> None:
    last = copies.load_kernel(2, "tile")
    copies.launch(last, encoded(), np.zeros(8192, np.uint8), np.zeros(8192, np.uint8), 0, 8192 - 256, (0, 0))
    message = faults(encoded(), (0, 0), op, box=8192 - 128)
    assert "out of bounds: cp." in message
    assert "with 256 bytes at 0x2380, byte 8064 of shared memory, of which the block has 8256" in message


# the door -------------------------------------------------------------------------------------------------------------
TOLD = [
    encoded(), encoded(box=(24, 5), swizzle="64B"), encoded(box=(64, 3), swizzle="128B", element_strides=(1, 3)),
    encoded(sizes=(64, 9, 5), strides=(1024, 9216), element_strides=(2, 1, 1), box=(8, 3, 2), interleave="16B", swizzle="32B"),
]  # fmt: skip


@pytest.mark.parametrize("op", [None, "", "add"])
@pytest.mark.parametrize("fields", TOLD, ids=range(len(TOLD)))
def test_observers_hear_of_every_byte(fields: Encoded, op: str | None) -> None:
    """Of those that are copied, and of no others, when they are."""
    at = (8, 36) if fields.rank == 2 else (60, 7, 2)
    kernel = copies.load_kernel(fields.rank, "tile") if op is None else copies.store_kernel(fields.rank, "tile", op)
    found: list[Event] = []
    copies.launch(
        kernel, fields, np.zeros(16384, np.uint8), np.zeros(1 << 16, np.uint8), 0, 1024, at, seed=5,
        run=lambda k, *args, **options: found.extend(traced(k, *args, **options)),
    )  # fmt: skip
    mine = [e for e in found if e.instruction is not None and "tensor" in e.instruction.mnemonic and e.proxy is Proxy.ASYNC]
    told = {(a, bool(e.access & Access.WRITE)) for e in mine for a in e.touched}
    tensor, shared = ({(a, written) for a, written in told if (a >> 32 == 1) == here} for here in (False, True))
    where = places(fields, at, shared=2048, store=op is not None)
    moved = {(copies.TENSOR + int(a), op is not None) for a in model.moved(where)}
    assert tensor == moved
    units = where.shared if op is None else where.shared[where.inside]
    row = {((1 << 32) + int(a) + n, op is None) for a in units.reshape(-1) for n in range(fields.type.memory)}
    assert shared == row if op is None or where.inside.all() else row <= shared
    assert any(e.access & Access.ATOMIC for e in mine) == (op == "add")
