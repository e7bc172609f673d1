"""Packing in 16-bit lanes is packing in lanes of 32: each element of a type, in each place, of whole blocks and of parts."""

import ctypes
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest

from mmulator.base.codegen.engine import Library
from mmulator.isa.form import Form
from mmulator.isa.match import match
from mmulator.matrix.numerics.profiles import dot_key, profile_for
from mmulator.matrix.twin import pack
from mmulator.matrix.twin.plan import B_HEADER, LANE, Plan, plan_for
from tests.support.natives import library_text

P, I = ctypes.c_void_p, ctypes.c_int64
NAMES = ("pack_a", "pack_b", "pack_b_rows")
FORMS = {
    "f16": ("sm_90", "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16"),
    "bf16": ("sm_90", "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16"),
    "bf16 in eights": ("sm_80", "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"),
    "f16 in eights": ("sm_80", "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"),
    "e4m3": ("sm_90", "wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e5m2"),
    "e5m2": ("sm_90", "wgmma.mma_async.sync.aligned.m64n128k32.f32.e5m2.e4m3"),
    "e2m3": ("sm_120", "mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e2m3.e3m2.f32"),
    "e2m1": ("sm_120", "mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e2m1.e2m1.f32"),
    "sparse": ("sm_90", "wgmma.mma_async.sp.sync.aligned.m64n128k32.f32.f16.f16"),
}


def plan_of(name: str) -> Plan:
    device, text = FORMS[name]
    opcode, *modifiers = text.split(".")
    form = match(opcode, tuple(modifiers))
    assert isinstance(form, Form)
    key = dot_key(form)
    return plan_for(key, profile_for(key, device))


@cache
def functions(name: str, short: bool) -> tuple[list[Callable[..., None]], Library]:
    plan = plan_of(name)
    with pytest.MonkeyPatch.context() as patch:
        if short:
            assert pack.Short.serves(plan, plan.a) and pack.Short.serves(plan, plan.b)
        else:
            patch.setattr(pack.Short, "serves", staticmethod(lambda plan, t: False))
        text = library_text([
            pack.pack_a_function(plan, NAMES[0]), pack.pack_b_function(plan, NAMES[1], rows=False),
            pack.pack_b_function(plan, NAMES[2], rows=True),
        ])  # fmt: skip
    library = Library(text)
    return [library.function(n, None, P, I, I, I, P) for n in NAMES], library


def values_and_rest(plan: Plan, packed: np.ndarray, which: int, lines: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    """What is packed as numbers, and everything else."""
    if which == 0:
        chunks = packed.reshape(-1, plan.a_chunk)
        bytes_ = plan.length * LANE
        return chunks[:, :bytes_].copy().view(np.float32), chunks[:, bytes_:]
    values, rest = [], []
    at = 0
    for columns in [64] * (lines // 64) + [16] * -(-(lines % 64) // 16):
        size = plan.b_block(columns, k)
        block, headers = np.split(packed[at : at + size], [size - k // plan.k * B_HEADER])
        rows = block.reshape(k, plan.b_row(columns))
        values.append(rows[:, : columns * LANE].copy().view(np.float32).ravel())
        # of a header only what is said in it: the largest exponent, and whether there is an Inf or NaN
        rest += [rows[:, columns * LANE :].ravel(), headers.reshape(-1, B_HEADER)[:, :8].ravel()]
        at += size
    return np.concatenate(values), np.concatenate(rest)


@pytest.mark.skipif(not pack.rounds_halves(), reason="the CPU has no conversion of f16")
@pytest.mark.parametrize("which", range(3), ids=NAMES)
@pytest.mark.parametrize("name", FORMS)
def test_codes_of_short_elements(name: str, which: int) -> None:
    plan = plan_of(name)
    t = (plan.a, plan.b, plan.b)[which]
    ty = np.uint16 if t.bits == 16 else np.uint8
    k = 2 * plan.k
    width = k // 2 if plan.sparse and which == 0 else k
    rng = np.random.default_rng(which)
    every = np.arange(1 << t.bits)
    whole = (len(every) // width // 64 + 1) * 64
    sizes = [(whole, np.resize(every, whole * width))]
    sizes += [(n, rng.integers(0, 1 << t.bits, n * width)) for n in (1, 8, 16, 23, 64, 72, 127)]
    sizes += [(64, np.full(64 * width, x)) for x in (0, 1 << t.bits - 1, 1, (1 << t.mantissa) - 1, (1 << t.bits - 1) - 1)]
    middle = (1 << t.exponent - 1) - 1 << t.mantissa
    for spread in (1, 2, 32):  # exponents near each other, as those of real operands are
        near = rng.integers(0, spread << t.mantissa, 64 * width) + middle
        sizes.append((64, near & (1 << t.bits - 1) - 1 | rng.integers(0, 2, 64 * width) << t.bits - 1))
    for lines, elements in sizes:
        raw = elements.astype(ty)
        size = plan.a_bytes(lines, k) if which == 0 else plan.b_bytes(lines, k)
        found = []
        for short in (True, False):
            out = np.zeros(size, np.uint8)
            functions(name, short)[0][which](raw.ctypes.data, lines if which == 2 else width, lines, k, out.ctypes.data)
            found.append(values_and_rest(plan, out, which, lines, k))
        (values, rest), (wanted, others) = found
        np.testing.assert_array_equal(values, wanted)  # NaN is NaN, and its bits are not looked at
        assert (np.signbit(values) == np.signbit(wanted))[~np.isnan(wanted)].all()
        np.testing.assert_array_equal(rest, others)
