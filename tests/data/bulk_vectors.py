"""Bulk copies, bulk reductions and tensormap.replace as an H200 did them: `bulk_h200.npz`.

What was in memory before is made from seeds (`memory`); of what was there afterwards the difference is kept.
"""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

GLOBAL_BYTES, SHARED_BYTES = 65536, 49152
KINDS = ("raw", "f16", "bf16", "f32", "f64", "i32", "i64")
_FLOATS = {"f16": (5, 10, 2), "bf16": (8, 7, 2), "f32": (8, 23, 4), "f64": (11, 52, 8)}  # bits of exponent, mantissa; bytes


@cache
def _file() -> dict[str, np.ndarray]:
    with np.load(Path(__file__).with_name("bulk_h200.npz")) as stored:
        return dict(stored)


# memory before --------------------------------------------------------------------------------------------------------
def _random(seed: int, count: int) -> np.ndarray:
    """64-bit words: splitmix64 at the positions from 1 on of a stream."""
    with np.errstate(over="ignore"):
        start = np.uint64(seed * 0xD1B54A32D192ED03 & (1 << 64) - 1)
        z = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + start
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def _integers(seed: int, size: int, count: int) -> np.ndarray:
    """Any number, edges, and small ones."""
    h, most = _random(seed, count), (1 << 8 * size) - 1
    edges = np.array([0, 1, 2, most, most - 1, most >> 1, (most >> 1) + 1, 3], np.uint64)
    kind = h >> np.uint64(61)
    small = np.where(kind < 5, edges[(h >> np.uint64(4)).astype(np.int64) & 7], h & np.uint64(7))
    return np.where(kind < 3, h & np.uint64(most), small)


def _floats(seed: int, kind: str, count: int) -> np.ndarray:
    """Any bits, edges, numbers near 1, subnormals, huge ones, and ties."""
    exponent, m, size = _FLOATS[kind]
    h, other = _random(seed, count), _random(seed + 50000, count)
    fraction, top, sign = (1 << m) - 1, (1 << exponent) - 1, 1 << exponent + m
    bias, quiet = top >> 1, 1 << m - 1
    one, infinity = bias << m, top << m
    low = (bias - m - 1) << m if bias > m else 1
    edges = np.array([
        0, sign, one, sign | one, infinity, sign | infinity, infinity | quiet, sign | infinity | quiet, infinity | 1,
        sign | infinity | 5, infinity | fraction, sign | infinity | fraction, 1, sign | 1, fraction, sign | fraction, 1 << m,
        sign | 1 << m, (top - 1) << m | fraction, sign | (top - 1) << m | fraction, (top - 1) << m, one | 1, one | fraction, low,
        (bias - 1 - (m if bias > m else 0)) << m | 1, infinity | quiet | 3, infinity | quiet >> 1, 2, 3 << m, 1 << m | 1,
        sign | one | 1, (bias + 1) << m,
    ], np.uint64)  # fmt: skip

    def at(number: np.ndarray) -> np.ndarray:
        return number << np.uint64(m)

    which = (h >> np.uint64(60)).astype(np.int64)
    minus, mantissa = (h >> np.uint64(59) & np.uint64(1)) * np.uint64(sign), other & np.uint64(fraction)
    bit = h >> np.uint64(50) & np.uint64(1)
    near = minus | at((h >> np.uint64(50) & np.uint64(7)) + np.uint64(bias - 4)) | mantissa
    tiny, huge = minus | at(bit) | mantissa, minus | at(np.uint64(top - 1) - bit) | mantissa
    tie = minus | at((h >> np.uint64(50) & np.uint64(15)) + np.uint64(bias - 8))
    tie |= np.where(other & np.uint64(1) > 0, np.uint64(0), np.uint64(fraction))
    any_bits = other & np.uint64((1 << 8 * size) - 1)
    chosen = [any_bits, edges[(h >> np.uint64(8)).astype(np.int64) & 31], near, tiny, huge]
    return np.select([which < 4, which < 6, which < 11, which < 13, which == 13], chosen, tie)


@cache
def data(seed: int, size: int, kind: str) -> np.ndarray:
    """`size` bytes of a kind of elements. Not to be written."""
    if kind == "raw":
        return _random(seed, size // 8).view(np.uint8)
    width = _FLOATS[kind][2] if kind in _FLOATS else int(kind[1:]) // 8
    values = _floats(seed, kind, size // width) if kind in _FLOATS else _integers(seed, width, size // width)
    return values.astype(f"u{width}").view(np.uint8)


def memory(kind: str, shared: bool) -> np.ndarray:
    """What was there: bytes of a kind of elements. Not to be written."""
    return data((300 if shared else 200) + KINDS.index(kind), SHARED_BYTES if shared else GLOBAL_BYTES, kind)


# what an H200 did -----------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Copy:
    """form: g2s, s2g (copies between global and shared memory), red_g (a reduction `times` times). source, target: offsets
    in what `memory` has. first, difference: bytes from there on that changed, XORed."""

    form: str
    op: str
    type: str
    kind: str
    size: int
    source: int
    target: int
    times: int
    first: int
    difference: np.ndarray

    @property
    def to_shared(self) -> bool:
        return self.form == "g2s"

    def expected(self) -> np.ndarray:
        after = memory(self.kind, self.to_shared).copy()
        after[self.first : self.first + len(self.difference)] ^= self.difference
        return after


def copies() -> list[Copy]:
    found, at = [], 0
    for *fields, first, count in json.loads(bytes(_file()["copies"])):
        found.append(Copy(*fields, first, _file()["copied"][at : at + count]))
        at += count
    return found


@dataclass(frozen=True)
class Replaced:
    """tensormap.replace of a map. number: the ordinal, or the value where it is an immediate. before, after: 32 words."""

    field: str
    number: int | None
    value: int
    base: str
    space: str
    before: np.ndarray
    after: np.ndarray


def replaced() -> list[Replaced]:
    found = []
    for field, number, value, base, space, changed in json.loads(bytes(_file()["replaced"])):
        before = _file()[f"base_{base}"].view(np.uint32)
        after = before.copy()
        for n, word in changed:
            after[n] = word
        found.append(Replaced(field, number, int(value, 16), base, space, before, after))
    return found
