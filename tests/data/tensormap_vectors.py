"""What CUDA's driver and an NVIDIA H200 made of tensor maps: encodings, refusals, loads and stores. README.md says more."""

import lzma
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from mmulator.layouts.tensormap import Encoded
from mmulator.layouts.tensormap.modes import FILLS, INTERLEAVES, PROMOTIONS, SWIZZLES
from mmulator.layouts.tensormap.types import BY_DRIVER
from tests.support.places import ROOT

Bytes = NDArray[np.uint8]
WINDOW, WORK, KIND = 49152, 65536, 262144  # bytes: of shared memory, of memory that is written, of memory of a kind of data
SHARED = 1024  # address of the window
KINDS = ("raw", "f16", "bf16", "f32", "f64", "i32", "i64")
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
    return lzma.decompress((ROOT / "tests" / "data" / name).read_bytes()).decode().split("\n")


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
def _words(seed: int, count: int) -> NDArray[np.uint64]:
    """64-bit words: splitmix64 at positions 1 to count of the stream `seed`."""
    with np.errstate(over="ignore"):
        z = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = z + np.uint64(seed * 0xD1B54A32D192ED03 & (1 << 64) - 1)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@cache
def data(seed: int, size: int, kind: str) -> Bytes:
    """`size` bytes: of floats NaNs, infinities, subnormals, ties, near exponents and huge ones among random bits."""
    if kind == "raw":
        return _words(seed, size // 8).view(np.uint8)
    u = np.uint64
    if kind in ("i32", "i64"):
        width = 4 if kind == "i32" else 8
        h, most = _words(seed, size // width), (1 << 8 * width) - 1
        edges = np.array([0, 1, 2, most, most - 1, most >> 1, (most >> 1) + 1, 3], u)
        select = h >> u(61)
        values = np.where(select < 3, h & u(most), np.where(select < 5, edges[(h >> u(4)).astype(np.int64) & 7], h & u(7)))
        return values.astype(np.uint32 if width == 4 else u).view(np.uint8)
    exponent, mantissa, width = {"f16": (5, 10, 2), "bf16": (8, 7, 2), "f32": (8, 23, 4), "f64": (11, 52, 8)}[kind]
    h, h2 = _words(seed, size // width), _words(seed + 50000, size // width)
    m, e = (1 << mantissa) - 1, (1 << exponent) - 1
    bias, s, q, inf = e >> 1, 1 << exponent + mantissa, 1 << mantissa - 1, e << mantissa
    one = bias << mantissa
    edges = np.array([
        0, s, one, s | one, inf, s | inf, inf | q, s | inf | q, inf | 1, s | inf | 5, inf | m, s | inf | m, 1, s | 1, m, s | m,
        1 << mantissa, s | 1 << mantissa, e - 1 << mantissa | m, s | e - 1 << mantissa | m, e - 1 << mantissa, one | 1, one | m,
        bias - mantissa - 1 << mantissa if bias > mantissa else 1,
        bias - 1 - (mantissa if bias > mantissa else 0) << mantissa | 1,
        inf | q | 3, inf | q >> 1, 2, 3 << mantissa, 1 << mantissa | 1, s | one | 1, bias + 1 << mantissa,
    ], u)  # fmt: skip
    select = (h >> u(60)).astype(np.int64)
    sign, low = (h >> u(59) & u(1)) * u(s), h2 & u(m)
    near = sign | ((h >> u(50) & u(7)) + u(bias - 4)) << u(mantissa) | low
    tiny = sign | (h >> u(50) & u(1)) << u(mantissa) | low
    huge = sign | (u(e - 1) - (h >> u(50) & u(1))) << u(mantissa) | low
    tie = sign | ((h >> u(50) & u(15)) + u(bias - 8)) << u(mantissa) | np.where(h2 & u(1) > 0, u(0), u(m))
    values = np.select(
        [select < 4, select < 6, select < 11, select < 13, select == 13],
        [h2 & u((1 << 8 * width) - 1), edges[(h >> u(8)).astype(np.int64) & 31], near, tiny, huge], tie,
    )  # fmt: skip
    return values.astype({2: np.uint16, 4: np.uint32, 8: u}[width]).view(np.uint8)


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
