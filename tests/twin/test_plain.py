"""Sums that are exact are computed as plain f32 sums: the proof holds where it should, and the bits are always the model's."""

import ctypes
from typing import Any

import numpy as np
import pytest

from mmulator.base.codegen.loading import address
from mmulator.matrix.numerics import DotKey
from mmulator.matrix.numerics.formats import container, element_type, numpy_dtype
from mmulator.matrix.numerics.profiles import profile_for
from mmulator.matrix.twin.matrices import twin_matmul
from mmulator.matrix.twin.plain import proof_function
from mmulator.matrix.twin.plan import B_HEADER, Plan, plan_for
from mmulator.matrix.twin.twin import twin_for
from tests.support.matrix_model import model_matmul
from tests.support.numerics_cases import DISTRIBUTIONS, elements
from tests.twin.test_twin import KEYS, name_of

PLAIN = [(key, device) for key, device in KEYS if profile_for(key, device).method in ("fused", "halves")
         and plan_for(key, profile_for(key, device)).plain]  # fmt: skip
P, I = ctypes.c_void_p, ctypes.c_int64


def raw(name: str, values: Any) -> Any:
    """The nearest elements of a type."""
    t = element_type(name)
    if name == "tf32":
        return values.astype(np.float32).view(np.uint32) & np.uint32(0xFFFFE000)
    with np.errstate(over="ignore"):
        return values.astype(numpy_dtype(t)).view(container(t)) & container(t).type((1 << t.bits) - 1)


def proven(key: DotKey, device: str, A: Any, B: Any, C: Any) -> bool:
    """Whether the first block of a product, of 16 columns and as many rows as A has, is a plain sum."""
    plan, twin = plan_for(key, profile_for(key, device)), twin_for(key, device)
    (m, k), n = A.shape, B.shape[1]
    assert m <= 16 and n == 16
    packed_a, packed_b = np.zeros(twin.a_bytes(m, k) + 64, np.uint8), np.zeros(twin.b_bytes(n, k) + 64, np.uint8)
    pack = ctypes.CFUNCTYPE(None, P, I, I, I, P)
    pack(twin.pack_a)(A.ctypes.data, k, m, k, packed_a.ctypes.data)
    pack(twin.pack_b_rows)(B.ctypes.data, n, n, k, packed_b.ctypes.data)
    state = C.view(np.float16 if key.ctype == "f16" else np.float32).astype(np.float32)
    steps = range(k // key.k)
    at = np.array([packed_a.ctypes.data + i * m * plan.a_instruction for i in steps], np.uint64)
    headers = np.array([packed_b.ctypes.data + k * plan.b_row(16) + i * B_HEADER for i in steps], np.uint64)
    ask = ctypes.CFUNCTYPE(ctypes.c_bool, P, P, I, P, I, ctypes.c_uint32)(address(proof_function(plan, 16)))
    return ask(at.ctypes.data, headers.ctypes.data, len(steps), state.ctypes.data, m, 1)


def is_model(key: DotKey, device: str, A: Any, B: Any, C: Any, **options: int) -> bool:
    expected = model_matmul(key, device, A, B, C, **options)
    return np.array_equal(twin_matmul(key, device, A, B, C, threads=1, **options), expected)


def kept(plan: Plan) -> int:
    return 11 if plan.d.name == "f16" else plan.keep + 1


def small(rng: np.random.Generator, shape: tuple[int, ...], most: int, scale: float, kind: int) -> Any:
    """Multiples of `scale` up to `most` of them. kind: 1 has few that are not zero, 2 powers of two, 3 one size, 4 many -0."""
    values = rng.integers(-most, most + 1, shape).astype(float)
    match kind:
        case 1:
            values *= rng.random(shape) < 0.1
        case 2:
            values = np.exp2(np.floor(np.log2(np.abs(values) + 1))) * rng.choice([-1, 1], shape)
        case 3:
            values = most * rng.choice([-1.0, 1.0], shape)
        case 4:
            values = np.where(rng.random(shape) < 0.5, -0.0, values)
        case _:
            pass
    return values * scale


@pytest.mark.parametrize(("key", "device"), PLAIN, ids=name_of)
def test_small_integers(key: DotKey, device: str) -> None:
    """Products and C of all sizes around the bound: each has the model's bits, and many are proven."""
    plan, rng = plan_for(key, profile_for(key, device)), np.random.default_rng(7)
    top = {key.atype: 2 << element_type(key.atype).mantissa, key.btype: 2 << element_type(key.btype).mantissa}
    found, cases = 0, 120
    for case in range(cases):
        m, k = int(rng.integers(1, 17)), key.k * int(rng.integers(1, 5))
        a, b = (min(2 ** int(rng.integers(0, 8)), top[t]) for t in (key.atype, key.btype))
        power = [int(rng.integers(-3, 4)) for _ in range(2)]
        A = raw(key.atype, small(rng, (m, k), a, 2.0 ** power[0], case % 5))
        B = raw(key.btype, small(rng, (k, 16), b, 2.0 ** power[1], case // 5 % 5))
        # C fills what is left, or a little more, or has bits below those of the products
        room = 2.0 ** (sum(power) + kept(plan)) - k * a * b * 2.0 ** sum(power)
        unit = 2.0 ** (sum(power) + int(rng.choice([0, 0, 0, -1, -12])))
        most = max(1, int(min(abs(room), 60000.0) / unit * rng.choice([0.01, 0.5, 1, 1.001, 2])))
        C = raw(key.ctype, small(rng, (m, 16), min(most, 1 << 30), unit, case // 25))
        scale = {"imm_scale_a": int(rng.choice([-1, 1]))} if key.family in ("wgmma", "tcgen05") else {}
        found += proven(key, device, A, B, C)
        assert is_model(key, device, A, B, C, **scale), case
    assert found >= cases // 8


@pytest.mark.parametrize(("key", "device"), [c for c in PLAIN if c[0].dtype in ("f16", c[0].ctype)], ids=name_of)
def test_the_bound(key: DotKey, device: str) -> None:
    """Ones, and a C with which the bound of the sum is just below 2**kept, and is 2**kept. Two instructions: one is not asked."""
    plan = plan_for(key, profile_for(key, device))
    A, B = raw(key.atype, np.ones((3, 2 * key.k))), raw(key.btype, np.ones((2 * key.k, 16)))
    for sign in (1, -1):
        for over in (0, 1):
            C = raw(key.ctype, np.full((3, 16), sign * (2.0 ** kept(plan) - 2 * plan.products - 1 + over)))
            assert proven(key, device, A, B, C) == (not over)
            assert is_model(key, device, A, B, C)


@pytest.mark.parametrize(("key", "device"), PLAIN, ids=name_of)
def test_anything_else(key: DotKey, device: str) -> None:
    """Infinities, NaN, subnormals, numbers of every size: never proven where one is infinite, and the model's bits."""
    rng = np.random.default_rng(3)
    ones = {x: raw(t, np.ones(s)) for x, t, s in
            (("A", key.atype, (9, 2 * key.k)), ("B", key.btype, (2 * key.k, 16)), ("C", key.ctype, (9, 16)))}  # fmt: skip
    types = {"A": key.atype, "B": key.btype, "C": key.ctype}
    for name, kind in types.items():
        for value in (np.inf, -np.inf, np.nan):
            given = {x: array.copy() for x, array in ones.items()}
            special = raw(kind, np.array([value]))[0]
            given[name][tuple(rng.integers(0, given[name].shape))] = special
            wide = special.view(np.float32 if kind == "tf32" else numpy_dtype(element_type(kind)))
            assert not proven(key, device, *given.values()) or np.isfinite(wide.astype(float))
            assert is_model(key, device, *given.values())
        for seed, distribution in enumerate(DISTRIBUTIONS):  # of one matrix; the others are ones, or integers
            given = {x: array.copy() for x, array in ones.items()}
            given[name] = elements(kind, distribution, given[name].shape, np.random.default_rng(seed))
            assert is_model(key, device, *given.values()), (name, distribution)
            for other in {*types} - {name}:
                given[other] = raw(types[other], small(rng, given[other].shape, 3, 2.0 ** -int(rng.integers(0, 12)), 0))
            assert is_model(key, device, *given.values()), (name, distribution)


@pytest.mark.parametrize(("key", "device"), PLAIN, ids=name_of)
def test_smallest_elements(key: DotKey, device: str) -> None:
    """Multiples of the least subnormal number beside larger ones: an exponent says more than the size of an element."""
    rng = np.random.default_rng(5)
    for case in range(40):
        A = elements(key.atype, "bits", (5, key.k), rng)
        least = A.dtype.type(1 << (13 if key.atype == "tf32" else 0))
        A = A & (least * A.dtype.type(rng.choice([2, 3, 6])))
        high = int(rng.integers(-2, 15))
        B = raw(key.btype, 2.0 ** rng.choice([high, high - 6 - case // 2], (key.k, 16)))
        C = raw(key.ctype, small(rng, (5, 16), 5, 2.0 ** (high - 6 - case // 2 - 24), case % 5))
        assert is_model(key, device, A, B, C), case


def test_chains_of_steps_and_blocks() -> None:
    """Products of more than a pass along k, and of several blocks of which some are proven."""
    rng = np.random.default_rng(11)
    for key, device in PLAIN[:12]:
        k = 512 // key.k * key.k + 2 * key.k
        A, B = raw(key.atype, small(rng, (37, k), 3, 0.5, 0)), raw(key.btype, small(rng, (k, 88), 2, 1, 0))
        A[20:] = elements(key.atype, "normal", A[20:].shape, rng)
        B[:, 70:] = elements(key.btype, "wide", B[:, 70:].shape, rng)
        if key.ctype == key.dtype:
            assert is_model(key, device, A, B, raw(key.ctype, small(rng, (37, 88), 100, 0.5, 0))), name_of(key)
