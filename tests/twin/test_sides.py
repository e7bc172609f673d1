"""Batches of products, which are computed beside each other, against the exact model: each kind of plan, adversarial operands."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from mmulator.errors import UnsupportedError
from mmulator.isa.form import Form
from mmulator.isa.matrix import matrix_forms
from mmulator.matrix.instruction import execution
from mmulator.matrix.layouts import fragment
from mmulator.matrix.numerics.profiles import dot_key, profile_for
from mmulator.matrix.twin import batches
from mmulator.matrix.twin.fused import core_function
from mmulator.matrix.twin.plan import plan_for
from mmulator.matrix.twin.sides import dot_function, stands_beside
from mmulator.matrix.twin.wide import widens
from tests.support.matrix_model import model_matmul
from tests.support.numerics_cases import DISTRIBUTIONS, elements
from tests.twin.test_products import kind_of

DEVICES = ("sm_90", "sm_80", "sm_70", "sm_89", "sm_120")
NARROW = ("e2m1", "e2m3", "e3m2")  # of these one pair of types stands for all


def cases() -> Iterator[Any]:
    """A form for each way that products stand beside each other; slow is what only has other shapes or a second device."""
    seen, kinds = set(), set()
    for form in matrix_forms():
        if form.family not in ("mma", "wmma") or not form.atype or not widens(form) or form.sparse or form.block_scale:
            continue
        for device in DEVICES:
            try:
                execution.check_device(form, device)
                profile = profile_for(key := dot_key(form), device)
            except UnsupportedError:
                continue
            if profile.method not in ("fused", "halves") or not stands_beside(plan := plan_for(key, profile)):
                continue
            mixed = form.atype != form.btype
            if {str(form.atype), str(form.btype)} & {*NARROW} and (str(form.atype), str(form.btype)) != ("e3m2", "e2m3"):
                continue
            if (what := (plan, max(form.m, form.n), mixed and device)) not in seen:
                seen.add(what)
                yield pytest.param(form, device, id=f"{device}-{form}", marks=pytest.mark.full if kind_of(form) in kinds else ())
                kinds.add(kind_of(form))


CASES = list(cases())


def registers(form: Form, name: str, matrix: Any) -> Any:
    return fragment(form, name).to_registers(matrix)


def check(form: Form, device: str, a: Any, b: Any, c: Any) -> None:
    given = {x: registers(form, x, matrix) for x, matrix in zip("abc", (a, b, c))}
    found = execution.execute(form, device, given)
    wanted = registers(form, "d", model_matmul(dot_key(form), device, a, b, c))
    assert not (wrong := np.argwhere((found != wanted).any(axis=(1, 2)))).size, f"products {wrong.ravel().tolist()}"


@pytest.mark.parametrize(("form", "device"), CASES)
def test_products_beside_each_other_have_the_bits_of_the_model(form: Form, device: str) -> None:
    rng = np.random.default_rng(form.m * form.k)
    shapes = ((form.m, form.k), (form.k, form.n), (form.m, form.n))
    types = tuple(str(t) for t in (form.atype, form.btype, form.ctype))
    # all of a kind, and others beside each; not a multiple of what stands together
    kinds: list[tuple[str, ...]] = [(kind,) * 3 for kind in DISTRIBUTIONS for _ in range(4)]
    kinds += [(kind,) * 3 for kind in DISTRIBUTIONS] + [tuple(rng.choice(DISTRIBUTIONS, 3)) for _ in range(22)]
    matrices = [[elements(t, kind, shape, rng) for t, kind, shape in zip(types, each, shapes)] for each in kinds]
    a, b, c = (np.stack(column) for column in zip(*matrices))
    check(form, device, a, b, c)
    check(form, device, a, b[:1], c)
    check(form, device, a[:1], b, c[:1])


@pytest.mark.parametrize(("form", "device"), CASES)
def test_every_exponent_of_c_beside_others(form: Form, device: str) -> None:
    """Products of one size, and another exponent of C in each; the neighbours of some are near zero."""
    rng = np.random.default_rng(form.k)
    size = 16 if str(form.ctype) == "f16" else 32
    low, fields = (10, 32) if size == 16 else (23, 256)
    a, b = (elements(str(t), "normal", (fields, *shape), rng)
            for t, shape in ((form.atype, (form.m, form.k)), (form.btype, (form.k, form.n))))  # fmt: skip
    a[::5] = 0
    b[2::5] = elements(str(form.btype), "tiny", (len(b[2::5]), form.k, form.n), rng)
    c = rng.integers(0, 1 << 32, (fields, form.m, form.n), np.uint32) & np.uint32(1 << size - 1 | (1 << low) - 1)
    c |= np.arange(fields, dtype=np.uint32)[:, None, None] << np.uint32(low)
    check(form, device, a, b, c.astype(f"<u{size // 8}"))


def test_sums_that_leave_32_bits() -> None:
    """Significands near 2 in every place, in one product of four."""
    for text, device in (("f16", "sm_90"), ("e4m3", "sm_120")):
        form = next(f for f in matrix_forms() if f.family == "mma" and str(f.atype) == str(f.btype) == text and not f.sparse
                    and str(f.dtype) == "f32" and f.m == 16 and f.k == (16 if text == "f16" else 32))  # fmt: skip
        rng = np.random.default_rng(1)
        a, b, c = (elements(t, "normal", (18, *shape), rng)
                   for t, shape in ((text, (16, form.k)), (text, (form.k, 8)), ("f32", (16, 8))))  # fmt: skip
        full = 0x3FFF if text == "f16" else 0x3F
        a[6], b[6] = full, full
        c[6] = np.float32(1.9999).view(np.uint32)
        a[9], b[9] = full, full | (0x8000 if text == "f16" else 0x80)
        c[9] = np.float32(-1.9999).view(np.uint32)
        check(form, device, a, b, c)


def test_few_products_need_no_code_of_their_own() -> None:
    form = next(f for f in matrix_forms() if str(f) == "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
    few, many = (batches.batch_of(form, "sm_90", "", count) for count in (False, True))
    assert few.table["sides"] == 1 and many.table["sides"] == many.table["together"] == 4


def test_what_batches_call_takes_what_the_core_of_a_dot_product_does() -> None:
    key = dot_key(next(f for f in matrix_forms() if str(f) == "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"))
    plan = plan_for(key, profile_for(key, "sm_90"))
    assert dot_function(plan, 4, "dot").params == core_function(plan, "dot").params
