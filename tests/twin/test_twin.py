"""The compiled twin against the exact model, bit for bit: every kind of plan, adversarial operands, the calling interface."""

import ctypes
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mmulator.matrix.numerics import DotKey
from mmulator.matrix.numerics.formats import element_type
from mmulator.matrix.twin.matrices import twin_matmul
from mmulator.matrix.twin.twin import twin_for
from tests.support.matrix_model import model_matmul
from tests.support.numerics_cases import DISTRIBUTIONS, elements, operands

F32, F16, S32 = ("f32", "f32"), ("f16", "f16"), ("s32", "s32")
NVF4 = {"kind": "mxf4nvf4", "scale_vec": "4X", "stype": "ue4m3"}
MXF4 = {"kind": "mxf4", "scale_vec": "2X", "stype": "ue8m0"}
MXF8 = {"kind": "mxf8f6f4", "scale_vec": "1X", "stype": "ue8m0"}

# One key of every way the twin works (family, A, B, (C, D), k, device, options).
CASES: list[tuple[str, str, str, tuple[str, str], int, str, dict[str, Any]]] = [
    ("wgmma", "f16", "f16", F32, 16, "sm_90", {}),
    ("wgmma", "f16", "f16", F16, 16, "sm_90", {}),
    ("wgmma", "bf16", "bf16", F32, 16, "sm_90", {}),
    ("wgmma", "tf32", "tf32", F32, 8, "sm_90", {}),
    ("wgmma", "e4m3", "e5m2", F32, 32, "sm_90", {}),
    ("wgmma", "e5m2", "e5m2", F16, 32, "sm_90", {}),
    ("wgmma", "f16", "f16", F32, 32, "sm_90", {"sparse": True}),
    ("wgmma", "bf16", "bf16", F32, 32, "sm_90", {"sparse": True}),
    ("wgmma", "e5m2", "e4m3", F32, 64, "sm_90", {"sparse": True}),
    ("mma", "f16", "f16", F32, 8, "sm_90", {}),
    ("mma", "f16", "f16", F32, 16, "sm_80", {}),
    ("mma", "f16", "f16", F16, 16, "sm_80", {}),
    ("mma", "bf16", "bf16", F32, 32, "sm_80", {"sparse": True}),
    ("mma", "tf32", "tf32", F32, 4, "sm_90", {}),
    ("mma", "tf32", "tf32", F32, 8, "sm_80", {}),
    ("mma", "tf32", "tf32", F32, 16, "sm_90", {"sparse": True}),
    ("wmma", "tf32", "tf32", F32, 8, "sm_90", {}),
    ("wmma", "f16", "f16", F32, 16, "sm_70", {}),
    ("wmma", "f16", "f16", ("f16", "f32"), 16, "sm_90", {}),
    ("wmma", "f16", "f16", ("f32", "f16"), 16, "sm_90", {}),
    ("mma", "e4m3", "e4m3", F32, 32, "sm_90", {}),
    ("mma", "e5m2", "e5m2", F16, 16, "sm_90", {}),
    ("mma", "e4m3", "e5m2", F32, 64, "sm_90", {"sparse": True}),
    ("mma", "e5m2", "e4m3", F32, 16, "sm_90", {}),
    ("mma", "f16", "f16", F32, 4, "sm_90", {}),
    ("mma", "f16", "f16", F16, 4, "sm_80", {}),
    ("mma", "f16", "f16", ("f16", "f32"), 4, "sm_90", {}),
    ("mma", "e4m3", "e4m3", F32, 32, "sm_89", {}),
    ("mma", "e5m2", "e5m2", F32, 32, "sm_120", {}),
    ("mma", "e3m2", "e2m3", F32, 32, "sm_120", {"kind": "f8f6f4"}),
    ("mma", "e4m3", "e2m1", F32, 32, "sm_120", MXF8),
    ("mma", "e5m2", "e5m2", F32, 64, "sm_120", {**MXF8, "sparse": True}),
    ("mma", "e2m1", "e2m1", F32, 64, "sm_120", NVF4),
    ("mma", "e2m1", "e2m1", F32, 128, "sm_120", {**MXF4, "sparse": True}),
    ("tcgen05", "f16", "f16", F32, 16, "sm_100", {}),
    ("tcgen05", "f16", "f16", F16, 32, "sm_103", {"sparse": True}),
    ("tcgen05", "bf16", "bf16", F32, 32, "sm_100", {"sparse": True}),
    ("tcgen05", "tf32", "tf32", F32, 16, "sm_100", {"sparse": True}),
    ("tcgen05", "e2m3", "e5m2", F32, 32, "sm_100", {"kind": "f8f6f4"}),
    ("tcgen05", "e5m2", "e4m3", F16, 32, "sm_100", {}),
    ("tcgen05", "e2m1", "e4m3", F16, 64, "sm_100", {"sparse": True}),
    ("tcgen05", "e3m2", "e2m1", F32, 64, "sm_100", {"sparse": True}),
    ("tcgen05", "u8", "s8", S32, 32, "sm_100", {"satfinite": True}),
    ("tcgen05", "s8", "u8", S32, 64, "sm_100", {"satfinite": True, "sparse": True}),
    ("tcgen05", "e5m2", "e3m2", F32, 32, "sm_100", MXF8),
    ("tcgen05", "e2m3", "e4m3", F32, 64, "sm_103", {**MXF8, "sparse": True}),
    ("tcgen05", "e2m1", "e2m1", F32, 64, "sm_100", MXF4),
    ("tcgen05", "e2m1", "e2m1", F32, 128, "sm_100", {**NVF4, "sparse": True}),
    ("tcgen05", "e2m1", "e2m1", F32, 64, "sm_100", {**NVF4, "stype": "ue8m0"}),
    ("tcgen05", "e2m1", "e2m1", F32, 96, "sm_103", NVF4),
    ("tcgen05", "e2m1", "e2m1", F32, 128, "sm_103", {**MXF4, "sparse": True}),
    ("mma", "s8", "u8", S32, 32, "sm_90", {}),
    ("mma", "u8", "u8", S32, 32, "sm_90", {"satfinite": True}),
    ("mma", "s8", "s8", S32, 64, "sm_90", {"sparse": True}),
    ("mma", "s4", "u4", S32, 64, "sm_90", {"satfinite": True}),
    ("mma", "b1", "b1", S32, 256, "sm_90", {"bit_op": "xor"}),
    ("mma", "b1", "b1", S32, 128, "sm_80", {"bit_op": "and"}),
    ("mma", "f64", "f64", ("f64", "f64"), 4, "sm_90", {}),
    ("mma", "f64", "f64", ("f64", "f64"), 8, "sm_90", {"rounding": "rp"}),
    ("mma", "f64", "f64", ("f64", "f64"), 4, "sm_90", {"rounding": "rz"}),
]
FUSED = "f16", "bf16", "tf32", "e4m3", "e5m2"
KEYS = [(DotKey(f, a, b, c, d, k, **o), device) for f, a, b, (c, d), k, device, o in CASES]


def name_of(x: Any) -> str:
    return x if isinstance(x, str) else f"{x.family}-{x.kind or x.dtype}-{x.ctype}-{x.atype}-{x.btype}{'-sp' * x.sparse}"


def differences(key: DotKey, device: str, m: int, n: int, k: int, seed: int, names: tuple[str, str, str] | None = None) -> int:
    (A, B, C), options = operands(key, m, n, k, seed, names)
    model = model_matmul(key, device, A, B, C, **options)
    twin = twin_matmul(key, device, A, B, C, threads=1, **options)
    assert twin.dtype == model.dtype and twin.shape == model.shape
    return int((twin != model).sum())


@pytest.mark.parametrize(("key", "device"), KEYS, ids=name_of)
def test_twin_is_the_model(key: DotKey, device: str) -> None:
    small = key.atype == "f64"  # the model of f64 goes element by element
    for seed, name in enumerate(DISTRIBUTIONS):
        shape = (5, 24, 2 * key.k) if small else (19, 88, 3 * key.k)
        assert differences(key, device, *shape, seed, (name, name, name)) == 0, name
    for seed in range(2 if small else 8):
        rng = np.random.default_rng(seed)
        m, n = (3, 72) if small else (int(rng.integers(1, 40)), 8 * int(rng.integers(1, 20)))
        assert differences(key, device, m, n, key.k * int(rng.integers(1, 5)), 100 + seed) == 0


EXPONENT = {"f32": (23, 256), "f16": (10, 32), "f64": (52, 2048)}


@pytest.mark.parametrize(("key", "device"), [c for c in KEYS if c[0].ctype in EXPONENT], ids=name_of)
def test_every_exponent_of_c(key: DotKey, device: str) -> None:
    """Beside products of one size: each exponent of C, both signs, mantissas full, empty and between."""
    low, fields = EXPONENT[key.ctype]
    m, n = min(fields, 256), 16
    # a product of its own for each exponent: the fast path gives up where one of its elements does not fit
    field = (np.arange(m, dtype=np.uint64) * np.uint64(fields // m))[:, None]
    variant = np.arange(n, dtype=np.uint64)[None, :]
    sign, mantissa = variant & np.uint64(1), np.where(variant < 8, 0x129E0EC >> 2, (1 << low) - 1).astype(np.uint64)
    C = sign * np.uint64(fields // 2 << low + 1) | field << np.uint64(low) | mantissa & np.uint64((1 << low) - 1)
    wrong = 0
    for seed, names in enumerate([("normal", "normal"), ("tiny", "normal"), ("huge", "huge"), ("wide", "tiny")]):
        (A, B, D), options = operands(key, 1, n, key.k, seed, (*names, "normal"))
        given_c = C.astype(D.dtype)[:, None, :]
        model = model_matmul(key, device, A, B, given_c, **options)
        wrong += int((twin_matmul(key, device, A, B, given_c, threads=1, **options) != model).sum())
    assert not wrong


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(KEYS), st.integers(1, 20), st.integers(1, 9), st.integers(1, 3), st.integers(0, 1 << 32))
def test_twin_is_the_model_on_any_shape(case: tuple[DotKey, str], m: int, n8: int, steps: int, seed: int) -> None:
    key, device = case
    assert differences(key, device, min(m, 4) if key.atype == "f64" else m, 8 * n8, key.k * steps, seed) == 0


F16KEY = DotKey("wgmma", "f16", "f16", "f32", "f32", 16)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 0xFFFF), min_size=16, max_size=16),
    st.lists(st.integers(0, 0xFFFF), min_size=16, max_size=16),
    st.integers(0, 0xFFFFFFFF),
)
def test_any_bits_of_one_f16_dot_product(a: list[int], b: list[int], c: int) -> None:
    A, B, C = np.array([a], np.uint16), np.array([b], np.uint16).T.copy(), np.array([[c]], np.uint32)
    assert twin_matmul(F16KEY, "sm_90", A, B, C) == model_matmul(F16KEY, "sm_90", A, B, C)


@pytest.mark.parametrize(("key", "device"), [c for c in KEYS if c[0].atype in FUSED and c[0].ctype == "f32"], ids=name_of)
def test_rows_and_columns_of_orders_of_their_own(key: DotKey, device: str) -> None:
    """From the least to the largest exponent, elements up to 40 below, C up to 40 from their products: what is far below a last
    bit, products below f32's normal numbers, sums beyond the fast path."""
    for seed in range(4):
        rng = np.random.default_rng(seed)
        (A, B, C), options = operands(key, 24, 40, key.k, seed, ("powers", "powers", "normal"))
        A, up = with_exponents(A, key.atype, rng, rng.integers(0, 256, (24, 1)))
        B, across = with_exponents(B, key.btype, rng, rng.integers(0, 256, (1, 40)))
        field = np.clip(up + across + 127 + rng.integers(-40, 41, C.shape), 0, 254)
        C = C & np.uint32(0x807FFFFF) | (field << 23).astype(np.uint32)
        model = model_matmul(key, device, A, B, C, **options)
        assert (twin_matmul(key, device, A, B, C, threads=1, **options) == model).all()


def with_exponents(raw: Any, kind: str, rng: np.random.Generator, wanted: Any) -> tuple[Any, Any]:
    """Elements with any significands and the wanted fields, or up to 40 less; and the wanted exponents."""
    t = element_type(kind)
    low = t.mantissa + (13 if kind == "tf32" else 0)
    most = (1 << t.exponent) - 2  # neither Inf nor NaN
    wanted = wanted * (most + 1) >> 8
    field = np.clip(wanted - rng.integers(0, 41, raw.shape), 0, most)
    kept = rng.integers(0, 1 << t.mantissa, raw.shape) << low - t.mantissa
    sign = raw >> (low + t.exponent) << (low + t.exponent)
    return (sign | (field << low | kept).astype(raw.dtype)), wanted - t.bias


@pytest.mark.parametrize(("key", "device", "one"), [
    (DotKey("mma", "e4m3", "e4m3", "f32", "f32", 32), "sm_120", 0x3E), (F16KEY, "sm_90", 0x3FFF),
])  # fmt: skip
def test_sums_of_one_sign_reach_their_last_bit(key: DotKey, device: str, one: int) -> None:
    """All products near 4: from so many of them on, units in the last place fill 32 bits."""
    signs = np.arange(24)[:, None] % 2 << (7 if one < 256 else 15)
    for count in range(key.k + 1):
        A = np.where(np.arange(key.k) < count, one | signs, 0).astype(np.uint8 if one < 256 else np.uint16)
        B = np.full((key.k, 72), one, A.dtype)
        for c in (0, 0x40400001, 0xC0400001):
            C = np.full((24, 72), c, np.uint32)
            assert (twin_matmul(key, device, A, B, C, threads=1) == model_matmul(key, device, A, B, C)).all()


def test_long_sums_pass_through_memory_unchanged() -> None:
    """k beyond one pass of the kernel, several threads, blocks of columns and rows that are not full."""
    for key in (F16KEY, DotKey("wgmma", "f16", "f16", "f16", "f16", 16), DotKey("wgmma", "s8", "s8", "s32", "s32", 32)):
        (A, B, C), options = operands(key, 130, 200, 640, 5, ("normal", "normal", "normal"))
        model = model_matmul(key, "sm_90", A, B, C, **options)
        for threads in (1, 2, 3):
            twin = twin_matmul(key, "sm_90", A, B, C, threads=threads, **options)
            np.testing.assert_array_equal(twin, model)


# keys whose long products are packed in parts of k, and such that must not be
LONG = [
    F16KEY,
    DotKey("wgmma", "f16", "f16", "f16", "f16", 16),
    DotKey("mma", "bf16", "bf16", "f32", "f32", 8),
    DotKey("mma", "e4m3", "e4m3", "f32", "f32", 32),
    DotKey("mma", "u8", "u8", "s32", "s32", 32, satfinite=True),
    DotKey("wmma", "f16", "f16", "f16", "f32", 16),
    DotKey("wmma", "f16", "f16", "f32", "f16", 16),
    DotKey("wgmma", "f16", "f16", "f32", "f32", 32, sparse=True),
]


@pytest.mark.parametrize("key", LONG, ids=name_of)
@pytest.mark.parametrize("scale", [1, -1])
@pytest.mark.parametrize("zero_c", [False, True])
def test_a_long_product_in_parts_of_k(key: DotKey, scale: int, zero_c: bool) -> None:
    if scale < 0 and (key.family != "wgmma" or key.sparse):
        pytest.skip("only dense wgmma has signs")
    m, n, k = 20, 72, 640  # large enough for the way of large ones, and not whole parts, rows or columns
    assert m * n * k >= 1 << 19
    (A, B, C), options = operands(key, m, n, k, 7, ("normal", "special", "normal"))
    if scale < 0:
        options = {**options, "imm_scale_a": -1}
    given_c = None if zero_c else C
    model = model_matmul(key, "sm_90", A, B, given_c, **options)
    for threads in (1, 2):
        np.testing.assert_array_equal(twin_matmul(key, "sm_90", A, B, given_c, threads=threads, **options), model)


def test_leading_dimensions_are_a_batch() -> None:
    rng = np.random.default_rng(0)
    A, B = elements("f16", "normal", (2, 3, 16, 16), rng), elements("f16", "normal", (3, 16, 8), rng)
    C = elements("f32", "normal", (16, 8), rng)
    np.testing.assert_array_equal(twin_matmul(F16KEY, "sm_90", A, B, C), model_matmul(F16KEY, "sm_90", A, B, C))


# The native interface -----------------------------------------------------------------------------------------------
P, I = ctypes.c_void_p, ctypes.c_int64


def pack(address: int, raw: Any, ld: int, lines: int, k: int, size: int) -> Any:
    out = np.full(size + 256, 0xA5, np.uint8)
    at = -(-out.ctypes.data // 64) * 64
    ctypes.CFUNCTYPE(None, P, I, I, I, P)(address)(raw.ctypes.data, ld, lines, k, at)
    start = at - out.ctypes.data
    assert (out[start + size :] == 0xA5).all(), "wrote beyond the size that was announced"
    return out[start : start + size]


@pytest.mark.parametrize(("key", "device"), [c for c in KEYS if not c[0].sparse and not c[0].scale_blocks], ids=name_of)
def test_both_orders_of_b_and_strided_c_in_place(key: DotKey, device: str) -> None:
    twin = twin_for(key, device)
    m, n, k = 10, 40, 2 * key.k
    (A, B, C), _ = operands(key, m, n, k, 3, ("normal", "special", "normal"))
    pad = 7
    wide_a = np.concatenate([A, np.zeros((m, pad), A.dtype)], axis=1)
    wide_b = np.concatenate([B, np.zeros((k, pad), B.dtype)], axis=1)
    across = np.ascontiguousarray(np.concatenate([B.T, np.zeros((n, pad), B.dtype)], axis=1))
    a = pack(twin.pack_a, wide_a, k + pad, m, k, twin.a_bytes(m, k))
    rows = pack(twin.pack_b_rows, wide_b, n + pad, n, k, twin.b_bytes(n, k))
    columns = pack(twin.pack_b, across, k + pad, n, k, twin.b_bytes(n, k))
    np.testing.assert_array_equal(rows, columns)
    if C.dtype.itemsize == np.dtype({"f16": "u2", "f64": "u8"}.get(key.dtype, "u4")).itemsize:
        D = np.full((m, n + pad), 0x5A, C.dtype)
        D[:, :n] = C
        dot = ctypes.CFUNCTYPE(None, P, P, P, I, P, I, I, I, I, I)(twin.dot)
        dot(a.ctypes.data, rows.ctypes.data, D.ctypes.data, n + pad, D.ctypes.data, n + pad, m, n, k, 0)
        np.testing.assert_array_equal(D[:, :n], model_matmul(key, device, A, B, C))
        assert (D[:, n:] == 0x5A).all()


def test_a_disabled_c_is_not_read_and_signs_turn() -> None:
    (A, B, _), _ = operands(F16KEY, 20, 72, 48, 1, ("normal", "normal", "normal"))
    nan = np.full((20, 72), 0x7FFFFFFF, np.uint32)
    twin = twin_for(F16KEY, "sm_90")
    a = pack(twin.pack_a, A, 48, 20, 48, twin.a_bytes(20, 48))
    b = pack(twin.pack_b_rows, B, 72, 72, 48, twin.b_bytes(72, 48))
    dot = ctypes.CFUNCTYPE(None, P, P, P, I, P, I, I, I, I, I)(twin.dot)
    for signs in ((1, 1), (-1, 1), (1, -1), (-1, -1)):
        D = np.zeros((20, 72), np.uint32)
        flags = twin.flags(zero_c=True, negate_a=signs[0] < 0, negate_b=signs[1] < 0)
        dot(a.ctypes.data, b.ctypes.data, nan.ctypes.data, 72, D.ctypes.data, 72, 20, 72, 48, flags)
        expected = model_matmul(F16KEY, "sm_90", A, B, None, imm_scale_a=signs[0], imm_scale_b=signs[1])
        np.testing.assert_array_equal(D, expected)


FUSED_KEYS = [c for c in KEYS if c[0].atype in FUSED]


def test_every_dense_wgmma_can_be_done_in_steps() -> None:
    """Elsewhere a list of packed operands is used where there is a function for it."""
    assert all(twin_for(*c).steps for c in FUSED_KEYS if c[0].family == "wgmma" and not (c[0].sparse or c[0].scale_blocks))


@pytest.mark.parametrize(("key", "device"), [c for c in FUSED_KEYS if twin_for(*c).steps], ids=name_of)
@pytest.mark.parametrize(("m", "n", "count", "names"), [
    (64, 72, 4, ("normal", "normal", "normal")), (20, 136, 5, ("special", "normal", "special")), (1, 8, 1, ("normal",) * 3),
])  # fmt: skip
def test_steps_that_are_packed_by_themselves(
    key: DotKey, device: str, m: int, n: int, count: int, names: tuple[str, str, str]
) -> None:
    """Instructions along k as one product of a list of packed operands, in no order in memory: as one packed whole."""
    twin, k = twin_for(key, device), key.k
    (A, B, C), _ = operands(key, m, n, count * k, 7, names)
    for signs in ((1, 1), (1, -1)):
        packed = {}
        for step in reversed(range(count)):
            columns = np.ascontiguousarray(A[:, step * k : (step + 1) * k])
            rows = np.ascontiguousarray(B[step * k : (step + 1) * k])
            a = pack(twin.pack_a, columns, k, m, k, twin.a_bytes(m, k))
            packed[step] = a, pack(twin.pack_b_rows, rows, n, n, k, twin.b_bytes(n, k))
        lists = [(P * count)(*(packed[step][side].ctypes.data for step in range(count))) for side in (0, 1)]
        D = np.zeros((m, n), {"f16": "u2"}.get(key.dtype, "u4"))
        flags = twin.flags(negate_b=signs[1] < 0)
        steps = ctypes.CFUNCTYPE(None, I, P, P, P, I, P, I, I, I, I)(twin.dot_steps)
        steps(count, *lists, C.ctypes.data, n, D.ctypes.data, n, m, n, flags)
        expected = model_matmul(key, device, A, B, C, **({"imm_scale_b": -1} if signs[1] < 0 else {}))
        np.testing.assert_array_equal(D, expected)
        assert key.ctype != key.dtype or (D != C).any()


def test_the_rounding_mode_is_restored() -> None:
    (A, B, C), _ = operands(F16KEY, 16, 64, 16, 0, ("normal", "special", "normal"))
    twin_matmul(F16KEY, "sm_90", A, B, C, threads=1)
    assert np.float32(1) + np.float32(2.0**-24) * np.float32(1.5) == np.float32(1 + 2.0**-23)
