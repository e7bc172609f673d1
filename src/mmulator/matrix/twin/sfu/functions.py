"""CUDA's functions of f32 (exp, tanh, erf, log and what is made of them), and Welford's sums, as compiled functions of arrays.

Each takes the steps of CUDA's library: its coefficients, fused multiply-adds and approximate instructions.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from mmulator.base.codegen.lang import Native
from mmulator.base.codegen.loading import address
from mmulator.base.codegen.ops import absolute, bitcast, copysign, fma, iota, load, select, shuffle, stack, store
from mmulator.base.codegen.types import f32, f64, i32, i64, ptr_to, u32
from mmulator.base.codegen.values import Value, constant
from mmulator.matrix.numerics.sfu.tables import DEFAULT_DEVICE, Tables, load_tables
from mmulator.matrix.twin.sfu import vector
from mmulator.matrix.twin.sfu.arrays import ArrayFunction
from mmulator.matrix.twin.sfu.native import over_array
from mmulator.matrix.twin.sfu.short import lanes, to

_LANES = 16  # of a vector of Welford's sums


def _words(text: str) -> tuple[float, ...]:
    return tuple(struct.unpack(">f", bytes.fromhex(word))[0] for word in text.split())


_PER_STEP, _LOG2_E, _REST = _words("3bbb989d 3fb8aa3b 32a57060")  # log2(e) / 252; the sum of the others is log2(e)
_TWICE, _ONE_FROM, _NEAR = _words("4038aa3b 41102cb4 3f19999a")
_TANH = _words("3c80f082 bd563cae 3e085941 beaaa9ed")
_ERF_FAR = _words("38eb4c3a baae005b 3c09919f bd24d99a 3e235519 3f69b4f9 3f210a14")
_ERF_NEAR = _words("38b1e96a ba574d20 3baad5ea bcdc1be7 3de718af bec093ac 3e0375d3")
(_FAR,) = _words("3f8060fe")
_LOG = _words("be055027 3e1039f6 bdf8cdcc 3e0f2955 be2ad8b9 3e4ced0b be7fff22 3eaaaa78 bf000000")
_LN2, _HALF_ROOT, _CUBIC, _GELU = _words("3f317218 3f3504f3 3d372713 3f4c422a")


def _unit(function: Callable[[Value, Tables], Value], x: Value) -> Value:
    """An approximate instruction, .ftz, of f32 lanes."""
    return bitcast(x.ty, function(bitcast(lanes(u32, x), x), load_tables(DEFAULT_DEVICE)))


def _polynomial(x: Value, coefficients: Sequence[Any]) -> Value:
    total = coefficients[0]
    for one in coefficients[1:]:
        total = fma(x, total, one)
    return total


def exp(x: Value) -> Value:
    part = fma(x, _PER_STEP, 0.5)
    part = select(part > 0.0, select(part < 1.0, part, 1.0), 0.0)
    step = to(i32, to(f64, part) * 252.0)  # powers of 2 that are told apart, from 2**-126 on
    rest = fma(x, _REST, fma(x, _LOG2_E, to(f32, 126 - step)))
    return _unit(vector.ex2, rest) * bitcast(x.ty, to(u32, step + 1) << 23)


def tanh(x: Value) -> Value:
    size, square = absolute(x), x * x
    far = fma(_unit(vector.rcp, _unit(vector.ex2, size * _TWICE) + 1.0), -2.0, 1.0)
    near = fma(fma(_polynomial(square, _TANH), square, 0.0), x, x)
    return select(size >= _NEAR, copysign(select(size >= _ONE_FROM, 1.0, far), x), near)


def erf(x: Value) -> Value:
    size = absolute(x)
    far = size >= _FAR
    base, at = select(far, -size, x), select(far, size, x * x)
    made = fma(_polynomial(at, [select(far, constant(x.b, x.ty, a), n) for a, n in zip(_ERF_FAR, _ERF_NEAR)]), base, base)
    return select(far, copysign(1.0 - _unit(vector.ex2, made), x), made)


def log(x: Value) -> Value:
    low = x < 2.0**-126
    x = select(low, x * 2.0**23, x)
    bits = bitcast(lanes(u32, x), x)
    power = (bits - 0x3F2AAAAB) & 0xFF800000
    rest = bitcast(x.ty, bits - power) - 1.0
    of_power = fma(to(f32, bitcast(lanes(i32, x), power)), 2.0**-23, select(low, bitcast(x.ty, bits & 0) - 23.0, 0.0))
    made = fma(of_power, _LN2, fma(_polynomial(rest, _LOG) * rest, rest, rest))
    infinity = float("inf")
    return select(x == 0.0, -infinity, select(bits < 0x7F800000, made, fma(x, infinity, infinity)))


def gelu(x: Value) -> Value:
    return x * 0.5 * (erf(x * _HALF_ROOT) + 1.0)


def gelu_by_tanh(x: Value) -> Value:
    return x * 0.5 * (tanh(fma(x * x * x, _CUBIC, x) * _GELU) + 1.0)


def sigmoid(x: Value) -> Value:
    return constant(x.b, x.ty, 1.0) / (exp(-x) + 1.0)


def silu(x: Value) -> Value:
    return x / (exp(-x) + 1.0)


def product(x: Value, y: Value, z: Value) -> Value:
    """x y + z, rounded once."""
    return fma(x, y, z)


@cache
def function(of: Callable[..., Value]) -> ArrayFunction:
    """`f(x, ..., out=None)` of f32 arrays of one shape, by one of the functions above."""
    def value(*bits: Value) -> Value:
        return bitcast(bits[0].ty, of(*(bitcast(lanes(f32, x), x) for x in bits)))

    return ArrayFunction(over_array(f"cuda_{of.__name__}", u32, of.__code__.co_argcount, value))


# Welford's sums: (mean, squares of what differs from it, count) of lanes.
_Sums = Sequence[Value]


def _added(kind: str, x: Value, inverse: Value, mean: Value, squares: Value) -> tuple[Value, Value]:
    """One more number. inverse: one over the count with it, or the count itself, which divides."""
    if kind == "squares":
        return mean, fma(x, x, squares)
    part = x - mean
    made = mean + part / inverse if kind == "moments" else fma(part, inverse, mean)
    return made, fma(part, x - made, squares)


def _merged(kind: str, own: _Sums, other: _Sums) -> list[Value]:
    (mean, squares, count), (other_mean, other_squares, other_count) = own, other
    both = squares + other_squares
    if kind == "squares":
        return [mean, both, count]
    total = count + other_count
    if kind == "layer":
        inverse, part = constant(total.b, total.ty, 1.0) / total, mean - other_mean
        share = count * inverse
        made = fma(other_mean, other_count * inverse, mean * share), fma(part * part * other_count, share, both)
        return [*(select(total > 0.0, one, 0.0) for one in made), total]
    part, share = other_mean - mean, other_count / total
    made = fma(part, share, mean), fma(part * part * count, share, both)
    none, last = count == 0.0, other_count == 0.0
    return [*(select(none, theirs, select(last, ours, one)) for ours, theirs, one in zip(own, other, made)), total]


@cache
def moments(kind: str, threads: int) -> Any:
    """`f(x, more, rest)`: mean and sum of squares of each row, f32 [2, rows], as the threads of a block add them up.

    x: f32 [rows, steps, threads], what each thread reads in turn; zeros where it reads no more.
    more: the threads that read in the last `rest` steps.
    kind: "layer" (differences from the mean, times an inverse), "moments" (the same, divided), "squares" (squares alone).
    threads: of a block, a multiple of 32. A warp adds lanes up from far to near, and then the warps are added up likewise.
    """
    wide, word, warps = f32.vec(_LANES), i64.vec(_LANES), threads // 32

    def folded(at: int, sums: list[Value]) -> list[Value]:
        while at:
            down = [min(n + at, _LANES - 1) for n in range(_LANES)]
            sums, at = _merged(kind, sums, [shuffle(v, None, down) for v in sums]), at // 2
        return sums

    def run(
        x: ptr_to(f32), counts: ptr_to(f32), dst: ptr_to(f32), rows: i64, steps: i64, more: i64, rest: i64  # type: ignore[valid-type]
    ) -> None:  # fmt: skip
        own, sums = stack(f32, 3 * threads), stack(f32, 3 * _LANES)
        for row in range(rows):
            for group in range(0, threads, _LANES):
                mean, squares = wide(0.0), wide(0.0)
                some = iota(word) + group < more
                for step in range(steps):
                    value = load(wide, x, (row * steps + step) * threads + group, 4)
                    made = _added(kind, value, wide(counts[step]), mean, squares)
                    used = some | (step < steps - rest)  # type: ignore[operator]
                    mean = select(used, made[0], mean)
                    squares = select(used, made[1], squares)
                store(mean, own, group, 4)
                store(squares, own, threads + group, 4)
                count = to(f32, select(some, steps, steps - rest))  # type: ignore[operator]
                store(count, own, 2 * threads + group, 4)
            for part in range(3):
                store(wide(0.0), sums, part * _LANES, 4)
            for warp in range(warps):
                low = [load(wide, own, n * threads + warp * 32, 4) for n in range(3)]
                high = [load(wide, own, n * threads + warp * 32 + _LANES, 4) for n in range(3)]
                warp_sums = folded(8, _merged(kind, low, high))
                for part, one in enumerate(warp_sums):
                    sums[part * _LANES + warp] = one[0]
            last = folded(warps // 2, [load(wide, sums, n * _LANES, 4) for n in range(3)])
            dst[row] = last[0][0]
            dst[rows + row] = last[1][0]

    native = Native(run, f"moments_{kind}_{threads}")
    call = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3, *[ctypes.c_int64] * 4)(address(native))

    def of(x: Any, more: int, rest: int) -> Any:
        rows, steps = x.shape[:2]
        counts, made = np.arange(1, steps + 1, dtype=np.float32), np.empty((2, rows), np.float32)
        counts = counts if kind == "moments" else np.float32(1) / counts
        call(x.ctypes.data, counts.ctypes.data, made.ctypes.data, rows, steps, more, rest)
        return made

    return of
