"""CUDA's random numbers in NumPy, as torch's kernels draw them: Philox4x32-10, and the conversions of cuRAND and torch.

A generator is a seed and a place (`offset`, in draws of 32 bits of each thread). A kernel of torch starts a number of threads;
each has a sequence of its own, takes four draws at a time, and gives them to elements that are one grid apart. So the
numbers depend on how many threads the chip's grid has. All functions return NumPy arrays with an element a number.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmulator.matrix.numerics.sfu.tables import Quadratic, tables_for

BLOCK = 256  # threads of a block
U32, U64, F32, F64 = np.uint32, np.uint64, np.float32, np.float64
Words = NDArray[Any]
_LOW = U64(0xFFFFFFFF)
_MULTIPLIERS, _WEYL = (U64(0xD2511F53), U64(0xCD9E8D57)), (0x9E3779B9, 0xBB67AE85)


def philox(seed: int, place: int, sequence: Words) -> tuple[Words, Words, Words, Words]:
    """Four words of 32 bits, in uint64, of each sequence: those at `place`, counted in fours."""
    k0, k1 = seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF
    c2, c3 = sequence & _LOW, sequence >> U64(32)
    c0, c1 = np.full_like(c2, place & 0xFFFFFFFF), np.full_like(c2, place >> 32 & 0xFFFFFFFF)
    for _ in range(10):
        a, b = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c1, c2, c3 = (b >> U64(32)) ^ c1 ^ U64(k0), b & _LOW, (a >> U64(32)) ^ c3 ^ U64(k1), a & _LOW
        k0, k1 = (k0 + _WEYL[0]) & 0xFFFFFFFF, (k1 + _WEYL[1]) & 0xFFFFFFFF
    return c0, c1, c2, c3


def threads(count: int, resident: int) -> int:
    """Threads of the grid that torch takes for `count` elements. resident: threads that the chip holds."""
    return BLOCK * max(min(resident // BLOCK, -(-count // BLOCK)), 1)


def spread(count: int, seed: int, place: int, resident: int, draw: Callable[..., tuple[Words, ...]]) -> Words:
    """Random numbers of `count` elements.

    seed, place: of the generator.
    resident: threads that the chip holds.
    draw: makes a thread's numbers of four words.
    """
    width = threads(count, resident)
    sequence = np.arange(width, dtype=U64)
    pieces: list[Words] = []
    have = 0
    while have < count:
        left = min(width, count - have)
        made = draw(*philox(seed, place // 4 + len(pieces), sequence[:left] if left < width else sequence))
        if left < width:  # the last round: the first number of the first threads is all
            pieces.append(made[0])
            break
        pieces.append(np.concatenate(made))
        have += len(pieces[-1])
    return np.concatenate(pieces)[:count]


# arithmetic of the device ---------------------------------------------------------------------------------------------
def fma(a: Any, b: Any, c: Any) -> Words:
    """a * b + c of float32, rounded once: the sum is rounded to odd in float64 before."""
    product = np.asarray(a, F64) * np.asarray(b, F64)
    addend = np.broadcast_to(np.asarray(c, F64), product.shape)
    total = product + addend
    part = total - product
    rest = (product - (total - part)) + (addend - part)
    bits = total.view(np.int64) - ((rest != 0) & ((rest < 0) == (total > 0)))
    return (bits | (rest != 0)).view(F64).astype(F32)


@cache
def _rows(device: str, unit: str) -> tuple[Quadratic, Words]:
    table: Quadratic = getattr(tables_for(device)[0], unit)
    return table, np.array(table.rows, np.int64)


@cache
def _squares(shift: int) -> Words:
    """Squares of 17-bit arguments as the special-function unit computes them, shifted."""
    x = np.arange(1 << 17, dtype=np.int64) << shift
    return np.sum([np.where(x >> i & 1, x << i >> 18, 0) for i in range(18)], axis=0) >> 1


def _quadratic(device: str, unit: str, fraction: Words) -> Words:
    """The datapath of the special-function unit (`sfu_unit.py`), at fractions of 23 bits."""
    table, rows = _rows(device, unit)
    c0, c1, c2 = rows[fraction >> 17].T
    x = fraction & 0x1FFFF
    total = (c0 << table.c0_shift[0]) + c1 * x + c2 * _squares(table.square_shift)[x] + table.constant
    return total >> table.out_shift[0]


def _truncated(negative: Words, number: Words, scale: int) -> Words:
    """number * 2**-scale as float32, toward zero."""
    exact = number.astype(F64)  # below 2**53
    bits = exact.view(np.int64) & ~((1 << 29) - 1)
    return np.where(negative, -1.0, 1.0).astype(F32) * np.ldexp(bits.view(F64), -scale).astype(F32)


def sin_cos(angle: Words, device: str) -> tuple[Words, Words]:
    """sin.approx and cos.approx of float32 angles from 0 to 2 pi."""
    exact = angle.astype(F64) * np.array(0x3E22F983, U32).view(F32).astype(F64)
    bits = exact.view(np.int64) & ~((1 << 29) - 1)  # the product in 24 bits, toward zero: in turns
    fixed = np.floor(np.ldexp(bits.view(F64), 25)).astype(np.int64)
    quadrant, fraction = fixed >> 23 & 3, fixed & 0x7FFFFF

    def sine(quadrant: Words) -> Words:
        y = _quadratic(device, "sin", np.where(quadrant & 1, fraction ^ 0x7FFFFF, fraction))
        return _truncated(quadrant & 2 != 0, y, 37)

    return sine(quadrant), sine(quadrant + 1 & 3)


def lg2(x: Words, device: str) -> Words:
    """lg2.approx of normal float32 numbers from 0 to 1."""
    bits = x.view(U32).astype(np.int64)
    total = ((bits >> 23) - 127 << 36) + _quadratic(device, "lg2", bits & 0x7FFFFF)
    found = np.where(total < 0, _truncated(total < 0, ~total, 36), _truncated(total < 0, total, 36))
    return np.where(bits == 0x3F800000, F32(0), found).astype(F32)


_LOG = (0xBE055027, 0x3E1039F6, 0xBDF8CDCC, 0x3E0F2955, 0xBE2AD8B9, 0x3E4CED0B, 0xBE7FFF22, 0x3EAAAA78, 0xBF000000)


def log(x: Words) -> Words:
    """logf of normal float32 numbers: its polynomial."""
    bits = x.view(np.int32)
    exponent = (bits - np.int32(0x3F2AAAAB)) & np.int32(-0x800000)
    m = (bits - exponent).view(F32) - F32(1)
    coefficients = np.array(_LOG, U32).view(F32)
    total = np.full_like(m, coefficients[0])
    for c in coefficients[1:]:
        total = fma(total, m, c)
    total = fma(m * total, m, m)
    return fma(exponent.astype(F32) * F32(2.0**-23), np.array(0x3F317218, U32).view(F32), total)


# numbers --------------------------------------------------------------------------------------------------------------
def words32(*words: Words) -> tuple[Words, ...]:
    return words


def words64(a: Words, b: Words, c: Words, d: Words) -> tuple[Words, ...]:
    return (a << U64(32)) | b, (c << U64(32)) | d


def uniform32(*words: Words) -> tuple[Words, ...]:
    """float32 above 0, up to 1."""
    return tuple(w.astype(F32) * F32(2.0**-32) + F32(2.0**-33) for w in words)


def uniform64(a: Words, b: Words, c: Words, d: Words) -> tuple[Words, ...]:
    """float64 above 0, up to 1."""
    return tuple((low ^ (high << U64(21))).astype(F64) * 2.0**-53 + 2.0**-54 for low, high in ((a, b), (c, d)))


_TWO_PI = F32(2.3283064e-10) * F32(6.2831855)  # over 2**32


def normal32(device: str) -> Callable[..., tuple[Words, ...]]:
    """float32 of the standard normal distribution, by Box and Muller."""

    def draw(*words: Words) -> tuple[Words, ...]:
        made: list[Words] = []
        for x, y in (words[:2], words[2:]):
            (u,) = uniform32(x)
            s, c = sin_cos(fma(y.astype(F32), _TWO_PI, _TWO_PI / F32(2)), device)
            radius = np.sqrt(F32(-2) * log(u))
            made += [s * radius, c * radius]
        return tuple(made)

    return draw
