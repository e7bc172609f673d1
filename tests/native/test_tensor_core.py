"""tcgen05: products in tensor memory against the numerics twin, all cells of tensor memory compared; moves; what goes wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mmulator.layouts.instruction_descriptor import KINDS, SCALED, InstructionDescriptor
from tests.support.tensor_cases import draw, make
from tests.support.tensor_kernels import run

FACTORS = {"mxf8f6f4": (1,), "mxf4": (2,), "mxf4nvf4": (2, 4)}


def vector(rng: Any, d: InstructionDescriptor) -> int:
    if d.kind not in SCALED:
        return 0
    sizes = [n for n in FACTORS[d.kind] if (d.stype == "ue8m0" or n == 4) and d.scale_a_id % n == d.scale_b_id % n == 0]
    return int(rng.choice(sizes))


@pytest.mark.parametrize("number", range(6))
@pytest.mark.parametrize("kind", KINDS)
def test_random_products(kind: str, number: int) -> None:
    """Shapes, types, swizzles, pairs, .ws, .sp: all of tensor memory is as it must be, whatever the seed."""
    rng = np.random.default_rng([number, KINDS.index(kind)])
    d = draw(rng, kind=kind)
    in_cells = not d.ws and not d.transpose_a and bool(rng.integers(4) == 0)
    case = make(rng, d, vector(rng, d), in_cells)
    assert np.array_equal(run(case.product, case.before, seed=number), case.behind), (case.product.text, d)
