"""What CUDA's driver and an NVIDIA H200 made of tensor maps: encodings, refusals, loads and stores. README.md says more."""

import lzma
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mmulator.matrix.layouts.tensormap import Encoded
from mmulator.matrix.layouts.tensormap.modes import FILLS, INTERLEAVES, PROMOTIONS, SWIZZLES
from mmulator.matrix.layouts.tensormap.types import BY_DRIVER
from tests.data.bulk_vectors import KINDS, data
from tests.support.places import DATA

Bytes = NDArray[np.uint8]
WINDOW, WORK, KIND = 49152, 65536, 262144  # bytes: of shared memory, of memory that is written, of memory of a kind of data
SHARED = 1024  # address of the window
# Kinds of data by type; of the others f32.
_DATA = {
    "f16": "f16", "bf16": "bf16", "f64": "f64", "u32": "i32", "s32": "i32", "u64": "i64", "s64": "i64", "u8": "raw", "u16": "raw",
}  # fmt: skip
_BY_SWIZZLE = {s.driver: s.name for s in SWIZZLES.values()}


@dataclass(frozen=True)
class Encoding:
    """crc: of the 128 bytes; None where the driver refused."""

    fields: Encoded
    crc: int | None


@dataclass(frozen=True)
class Copied:
    """shared: offset of the box in the window. offset: of the tensor in its memory. digest: of the window (store: of the
    memory) afterwards, as sixteen digits of its SHA-256; None where the chip found an illegal instruction."""

    store: bool
    fields: Encoded
    coordinates: tuple[int, ...]
    offsets: tuple[int, ...]
    shared: int
    offset: int
    digest: str | None

    @property
    def kind(self) -> str:
        return _DATA.get(self.fields.type.name, "f32")


def _lines(name: str) -> list[str]:
    return lzma.decompress((DATA / name).read_bytes()).decode().split("\n")


def _map(words: list[str]) -> Encoded:
    kind, (type_, rank, address, interleave, swizzle, promotion, fill, *rest) = words[0], [int(w) for w in words[1:]]
    values = iter(rest)

    def take(count: int) -> tuple[int, ...]:
        return tuple(next(values) for _ in range(max(count, 0)))

    common = Encoded(
        BY_DRIVER[type_], take(rank), take(rank - 1), take(rank), address=address, im2col=kind == "i",
        interleave=list(INTERLEAVES)[interleave], swizzle=_BY_SWIZZLE[swizzle], l2_promotion=list(PROMOTIONS)[promotion],
        oob_fill=list(FILLS)[fill],
    )  # fmt: skip
    if kind == "t":
        return replace(common, box=take(rank))
    lower, upper = take(rank - 2), take(rank - 2)
    return replace(common, lower=lower, upper=upper, channels=next(values), pixels=next(values))


def encodings() -> Iterator[Encoding]:
    for line in _lines("tensormap_encodings.xz"):
        *words, crc = line.split()
        yield Encoding(_map(words), None if crc == "-" else int(crc, 16))


def copies() -> Iterator[Copied]:
    for line in _lines("tensormap_copies.xz"):
        what, coordinates, offsets, rest = (part.split() for part in line.split("/"))
        shared, offset, digest = rest
        yield Copied(
            what[0] == "store", _map(what[1:]), tuple(map(int, coordinates)), tuple(map(int, offsets)), int(shared), int(offset),
            None if digest == "-" else digest,
        )  # fmt: skip


def reductions() -> Iterator[tuple[str, int, Copied]]:
    """Operation, how many times, and the copy."""
    for line in _lines("tensormap_reductions.xz"):
        what, coordinates, _, rest = (part.split() for part in line.split("/"))
        shared, offset, digest = rest
        at = tuple(map(int, coordinates))
        copied = Copied(True, _map(what[2:]), at, (), int(shared), int(offset), None if digest == "-" else digest)
        yield what[0], int(what[1]), copied


# data -----------------------------------------------------------------------------------------------------------------
def loaded_from(kind: str) -> Bytes:
    """Memory that is read, with what lies behind it."""
    first = KINDS.index(kind)
    return np.concatenate([data(100 + n, KIND, name) for n, name in enumerate(KINDS)][first:])


def before_a_load() -> Bytes:
    return data(7, WINDOW, "raw").copy()


def stored_from(kind: str) -> Bytes:
    return data(300 + KINDS.index(kind), WINDOW, kind)


def before_a_store(kind: str) -> Bytes:
    return data(200 + KINDS.index(kind), WORK, kind).copy()
