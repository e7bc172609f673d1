"""Several tcgen05.mma in one launch against the products one after another, a launch for each: all of tensor memory compared."""

from dataclasses import replace

import numpy as np
import pytest

from tests.support.tensor_chains import TYPES, chain
from tests.support.tensor_kernels import run


@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize(("pair", "m"), [(False, 64), (False, 128), (True, 128), (True, 256)])
@pytest.mark.parametrize("kind", TYPES)
def test_a_chain_is_its_links(kind: str, pair: bool, m: int, number: int) -> None:
    product, before, steps = chain(np.random.default_rng([number, m, pair, len(kind)]), kind, pair, m)
    want = before
    for said in steps:
        want = run(replace(product, instead=said), want)
    whole = "\n  ".join(steps)
    for seed in range(3):
        assert np.array_equal(run(replace(product, instead=whole), before, seed=seed), want), whole
