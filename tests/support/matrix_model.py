"""The exact model for whole matrices: one NumPy expression for each step of `numerics/dot.py`, in 64-bit integers.

tests/numerics compare it with `dot`, element by element. It is fast enough to check many cases, and is the oracle of the
compiled twin.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmulator.isa.types import F16, F32, ElementType
from mmulator.matrix.numerics.dot import NAN, SOFTWARE_PAIRS, dot
from mmulator.matrix.numerics.formats import batch_shape, container, decode, element_type, integers
from mmulator.matrix.numerics.profiles import GROUP, DotKey, Profile, profile_for

Array = NDArray[Any]
_NO_TERM = -100000  # exponent of a zero: below every floor
_CELLS = 1 << 22  # products held at once


def model_matmul(
    key: DotKey,
    device: str,
    A: Array,
    B: Array,
    C: Array | None,
    *,
    imm_scale_a: int = 1,
    imm_scale_b: int = 1,
    indices: Array | None = None,
    scale_a: Array | None = None,
    scale_b: Array | None = None,
) -> Array:
    """D = A B + C, with the operands of `twin.matrices.twin_matmul`, unchecked."""
    p = profile_for(key, device)
    A, B = np.asarray(A), np.asarray(B)
    m, n = A.shape[-2], B.shape[-1]
    batch = batch_shape({"A": A.shape[:-2], "B": B.shape[:-2], "C": () if C is None else C.shape[:-2]})
    ctype = element_type(key.ctype)
    if C is None:
        C = np.zeros((m, n), container(ctype))
    D = np.broadcast_to(C, (*batch, m, n))
    products, blocks = key.products, key.scale_blocks
    for i in range(B.shape[-2] // key.k):
        a = A[..., i * products : (i + 1) * products]
        b = B[..., i * key.k : (i + 1) * key.k, :]
        sa = None if scale_a is None else scale_a[..., i * blocks : (i + 1) * blocks]
        sb = None if scale_b is None else scale_b[..., i * blocks : (i + 1) * blocks, :]
        index = None if indices is None else indices[..., i * products : (i + 1) * products] - i * key.k
        rows = max(1, _CELLS // max(1, products * n * int(np.prod(batch))))
        parts = [
            _instruction(
                key, p, device, ctype, a[..., r : r + rows, :], b, D[..., r : r + rows, :], imm_scale_a * imm_scale_b,
                None if index is None else index[..., r : r + rows, :],
                None if sa is None else sa[..., r : r + rows, :], sb,
            )
            for r in range(0, m, rows)
        ]  # fmt: skip
        D, ctype = np.concatenate(parts, axis=-2), element_type(key.dtype)
    return D


def _instruction(
    key: DotKey, p: Profile, device: str, ctype: ElementType, a: Array, b: Array, c: Array, sign: int,
    index: Array | None, scale_a: Array | None, scale_b: Array | None,
) -> Array:  # fmt: skip
    if p.method in ("integer", "bits"):
        return _integers(key, a, b, c, index)
    if p.method == "fma":
        return _chain(key, device, a, b, c)
    if p.method == "software":
        return _software(key, ctype, a, b, c)
    if p.narrow_d:
        wide = replace(key, dtype="f32")
        c = c if ctype is F32 else _widened(c)
        d = _instruction(wide, replace(p, narrow_d=False), device, F32, a, b, c, sign, index, scale_a, scale_b)
        with np.errstate(over="ignore"):
            half = d.view(np.float32).astype(np.float16)
        return np.where(np.isnan(half), NAN["f16"], half.view(np.uint16)).astype(np.uint16)
    terms = _products(key, a, b, index, sign, F16.emin if p.method == "halves" else None)
    result = element_type(key.dtype)
    if p.method == "groups":
        assert scale_a is not None and scale_b is not None
        return _grouped(key, p, terms, _Terms.of(F32, c), scale_a, scale_b)
    if scale_a is not None and scale_b is not None:
        terms = terms.scaled(*_scales(key, scale_a[..., :, None, :1], scale_b[..., None, :1, :]))
    if p.method == "halves":
        k = np.arange(key.products)
        zero = _Terms.of(result, np.zeros_like(c))
        d1 = _fused(p, terms.part(k[k % 4 < 2]), zero, key.dtype)
        d2 = _fused(p, terms.part(k[k % 4 >= 2]), _Terms.of(result, d1), key.dtype)
        return _add(d2, c, key.dtype)
    if p.widen_c and ctype is F16:
        c, ctype = _widened(c), F32
    for start in range(0, key.products, p.chunk):
        part = terms.part(np.arange(start, min(start + p.chunk, key.products)))
        c, ctype = _fused(p, part, _Terms.of(ctype, c), key.dtype), result
    return c


def _widened(c: Array) -> Array:
    return np.ascontiguousarray(c).view(np.float16).astype(np.float32).view(np.uint32)


class _Terms:
    """Arrays of terms like `dot.Term`. `special` is NaN, an infinity or 0; None if there are no special values at all."""

    def __init__(self, significand: Array, exponent: Array, fraction: int, special: Array | None) -> None:
        self.significand, self.exponent, self.fraction, self.special = significand, exponent, fraction, special

    @classmethod
    def of(cls, t: ElementType, raw: Array) -> _Terms:
        f = decode(t, raw)
        sign = 1 - 2 * f.sign
        special = None
        if f.nan.any() or f.inf.any():
            special = np.where(f.nan, np.nan, np.where(f.inf, sign * np.inf, 0.0))
        significand = np.where(f.nan | f.inf, 0, sign * f.significand)
        return cls(significand, f.exponent, t.mantissa, special)

    def normalised(self, emin: int) -> _Terms:
        bits = np.frexp(np.abs(self.significand).astype(float))[1]
        shift = np.clip(self.fraction + 1 - bits, 0, np.maximum(self.exponent - emin, 0))
        return _Terms(self.significand << shift, self.exponent - shift, self.fraction, self.special)

    def part(self, k: Array) -> _Terms:
        special = None if self.special is None else self.special[..., k, :]
        return _Terms(self.significand[..., k, :], self.exponent[..., k, :], self.fraction, special)

    def scaled(self, significand: Array, exponent: Array, fraction: int, special: Array) -> _Terms:
        times = np.broadcast_to(self.special if self.special is not None else 0.0, self.significand.shape) + special
        return _Terms(self.significand * significand, self.exponent + exponent, self.fraction + fraction, times)


def _products(key: DotKey, a: Array, b: Array, index: Array | None, sign: int, emin: int | None) -> _Terms:
    """All products [..., M, products, N]. emin: least exponent of the type to which operands are converted first, if any."""
    x, y = _Terms.of(element_type(key.atype), a), _Terms.of(element_type(key.btype), b)
    if emin is not None:
        x, y = x.normalised(emin), y.normalised(emin)

    def pick(array: Array) -> Array:
        return array[..., None, :, :] if index is None else _gather(array, index)

    ys, xs = pick(y.significand), x.significand[..., :, :, None]
    special = None
    if x.special is not None or y.special is not None:
        # a special value stands for itself, a finite one for its sign: the product is special by IEEE rules
        left = (np.sign(x.significand) + (x.special if x.special is not None else 0.0))[..., :, :, None]
        right = pick(np.sign(y.significand) + (y.special if y.special is not None else 0.0))
        with np.errstate(invalid="ignore"):
            times = left * right * sign
        special = np.where(np.isfinite(times), 0.0, times)
    return _Terms(xs * ys * sign, x.exponent[..., :, :, None] + pick(y.exponent), x.fraction + y.fraction, special)


def _gather(array: Array, index: Array) -> Array:
    """B [..., K, N] at index [..., M, P]: [..., M, P, N]."""
    batch = np.broadcast_shapes(array.shape[:-2], index.shape[:-2])
    array = np.broadcast_to(array, (*batch, *array.shape[-2:]))
    index = np.broadcast_to(index, (*batch, *index.shape[-2:]))
    flat = index.reshape(*batch, -1, 1).astype(np.int64)
    return np.take_along_axis(array, flat, axis=-2).reshape(*index.shape, array.shape[-1])


def _shifted(significand: Array, shift: Array) -> Array:
    """significand * 2**shift, truncated toward zero."""
    magnitude = np.abs(significand)
    magnitude = np.where(shift >= 0, magnitude << np.clip(shift, 0, 62), magnitude >> np.clip(-shift, 0, 63))
    result: Array = np.sign(significand) * magnitude
    return result


def _special_sum(*parts: Array | None) -> Array | None:
    found = [x for x in parts if x is not None]
    if not found:
        return None
    with np.errstate(invalid="ignore"):
        total: Array = sum(found[1:], found[0])
    return total


def _fused(p: Profile, terms: _Terms, c: _Terms, dtype: str) -> Array:
    emax = np.where(terms.significand != 0, terms.exponent, _NO_TERM).max(axis=-2)
    emax = np.maximum(np.maximum(emax, np.where(c.significand != 0, c.exponent, _NO_TERM)), p.floor)
    quantum = emax - p.fraction
    total = _shifted(terms.significand, terms.exponent - terms.fraction - quantum[..., None, :]).sum(axis=-2)
    total = total + _shifted(c.significand, c.exponent - c.fraction - quantum)
    with np.errstate(invalid="ignore"):
        special = None if terms.special is None else terms.special.sum(axis=-2)
    return _with_special(_rounded(total, quantum, p, dtype), _special_sum(special, c.special), dtype)


def _rounded(total: Array, quantum: Array, p: Profile, dtype: str) -> Array:
    """`dot.rounded` for arrays. |total| < 2**53."""
    t, keep = (F16, F16.mantissa) if dtype == "f16" else (F32, p.keep)
    sign, magnitude = (total < 0).astype(np.int64), np.abs(total)
    leading = np.maximum(np.frexp(magnitude.astype(np.float64))[1] - 1 + quantum, t.emin)
    shift = quantum - (leading - keep)
    right = np.clip(-shift, 0, 62)
    scaled = np.where(shift >= 0, magnitude << np.clip(shift, 0, 62), magnitude >> right)
    if dtype == "f16":
        rest = magnitude & ((np.int64(1) << right) - 1)
        half = (np.int64(1) << right) >> 1
        scaled = scaled + ((right > 0) & ((rest > half) | ((rest == half) & (scaled & 1 == 1))))
    infinite = ((1 << t.exponent) - 1) << t.mantissa
    bits = np.minimum((scaled + ((leading - t.emin) << keep)) << (t.mantissa - keep), infinite)
    bits = np.where(scaled == 0, 0, bits | sign << (t.bits - 1))
    return bits.astype(f"u{t.bits // 8}")


def _with_special(bits: Array, special: Array | None, dtype: str) -> Array:
    if special is None:
        return bits
    infinite = 0x7C00 if dtype == "f16" else 0x7F800000
    signed = infinite | (special < 0).astype(np.int64) << (15 if dtype == "f16" else 31)
    bits = np.where(np.isinf(special), signed, bits)
    return np.where(np.isnan(special), NAN[dtype], bits).astype("u2" if dtype == "f16" else "u4")


def _add(x: Array, y: Array, dtype: str) -> Array:
    """`dot.add` for arrays. NumPy's f16 sum goes through f32, which at 24 >= 2 * 11 + 2 bits rounds as one step would."""
    number, raw = (np.float16, np.uint16) if dtype == "f16" else (np.float32, np.uint32)
    with np.errstate(all="ignore"):
        total = np.ascontiguousarray(x).view(number) + np.ascontiguousarray(y).view(number)
    return np.where(np.isnan(total), NAN[dtype], total.view(raw)).astype(raw)


def _scales(key: DotKey, scale_a: Array, scale_b: Array) -> tuple[Array, Array, int, Array]:
    t = element_type(key.stype or "ue8m0")
    x, y = _Terms.of(t, scale_a), _Terms.of(t, scale_b)
    none = np.zeros(())
    special = (none if x.special is None else x.special) + (none if y.special is None else y.special)
    return x.significand * y.significand, x.exponent + y.exponent, 2 * t.mantissa, special


def _grouped(key: DotKey, p: Profile, terms: _Terms, c: _Terms, scale_a: Array, scale_b: Array) -> Array:
    """`dot.grouped` for arrays."""
    groups = key.products // GROUP
    block = np.arange(groups) * key.scale_blocks // groups
    significand, exponent, fraction, special = _scales(key, scale_a[..., :, block, None], scale_b[..., None, block, :])
    exact = terms.significand << terms.exponent
    *batch, m, _, n = exact.shape
    exact = exact.reshape(*batch, m, groups, GROUP, n)
    used = (exact != 0).any(axis=-2) & (significand != 0)
    exponent = np.broadcast_to(exponent, used.shape)
    total = np.where(used, exact.sum(axis=-2) * significand, 0)
    emax = np.where(used, exponent, _NO_TERM).max(axis=-2)
    emax = np.maximum(np.maximum(emax, np.where(c.significand != 0, c.exponent, _NO_TERM)), p.floor)
    quantum = emax - p.fraction
    whole = _shifted(total, exponent - terms.fraction - fraction - quantum[..., None, :]).sum(axis=-2)
    whole = whole + _shifted(c.significand, c.exponent - c.fraction - quantum)
    nan = np.broadcast_to(special, used.shape).sum(axis=-2)
    return _with_special(_rounded(whole, quantum, p, "f32"), _special_sum(nan, c.special), "f32")


def _integers(key: DotKey, a: Array, b: Array, c: Array, index: Array | None) -> Array:
    x, y = (integers(element_type(n), r) for n, r in ((key.atype, a), (key.btype, b)))
    if index is not None:
        exact = (x[..., :, :, None] * _gather(y, index)).sum(axis=-2)
    elif key.bit_op == "xor":
        exact = np.matmul(x, 1 - y) + np.matmul(1 - x, y)
    else:
        exact = np.matmul(x, y)
    total = exact + c.view(np.int32)
    if key.satfinite:
        total = np.clip(total, -(1 << 31), (1 << 31) - 1)
    wrapped: Array = total.astype(np.uint64).astype(np.uint32)
    return wrapped


def _software(key: DotKey, ctype: ElementType, a: Array, b: Array, c: Array) -> Array:
    """`dot.software` for arrays. An f64 sum of an exact product and an f32 number, rounded to f32, rounds as one step would: no
    f32 number lies half a last place of f64 from the middle of two f32 numbers.
    """
    x, y = (np.ascontiguousarray(r).view(np.float16).astype(np.float64) for r in (a, b))
    with np.errstate(all="ignore"):
        p = x[..., :, :, None] * y[..., None, :, :]
        total = np.ascontiguousarray(c if ctype is F32 else _widened(c)).view(np.float32)
        if key.dtype == "f32":
            chain = np.zeros_like(total)
            for k in range(4):
                chain = (p[..., k, :] + chain).astype(np.float32)
            total = total + chain
            return np.where(np.isnan(total), NAN["f32"], total.view(np.uint32)).astype(np.uint32)
        for i, j in SOFTWARE_PAIRS:
            total = total + (p[..., j, :] + p[..., i, :].astype(np.float32)).astype(np.float32)
        half = total.astype(np.float16)
    return np.where(np.isnan(half), NAN["f16"], half.view(np.uint16)).astype(np.uint16)


def _chain(key: DotKey, device: str, a: Array, b: Array, c: Array) -> Array:
    """The chain of f64 FMAs, element by element, because NumPy has no fused multiply-add."""
    a, b = np.broadcast_to(a, (*c.shape[:-2], *a.shape[-2:])), np.broadcast_to(b, (*c.shape[:-2], *b.shape[-2:]))
    d = np.empty(c.shape, np.uint64)
    for where in np.ndindex(c.shape):
        *batch, i, j = where
        row, column = a[(*batch, i)].tolist(), b[(*batch, slice(None), j)].tolist()
        d[where] = dot(key, device, row, column, int(c[where]))
    return d
