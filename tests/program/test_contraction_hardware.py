"""Kernels whose bits depend on what ptxas fuses and computes beforehand, against an NVIDIA H100: every bit."""

from functools import cache

import numpy as np
import pytest

from mmulator.host.module import Module
from tests.data import contraction_vectors as vectors


@cache
def module() -> Module:
    return Module.load(vectors.HEAD + "".join(vectors.kernel(name, body) for name, body in vectors.bodies().items()))


@pytest.mark.parametrize("name", vectors.bodies())
def test_kernel_has_the_bits_of_an_h100(name: str) -> None:
    expected = vectors.results()[name]
    source = vectors.operands_of(name)
    out = np.zeros((len(source), vectors.OUTPUTS), np.uint32)
    module()[name].launch(1, len(source), [source.copy(), out, *vectors.SCALARS], device="sm_90")
    wrong = np.argwhere(out[:, : expected.shape[1]] != expected)
    if wrong.size:
        thread, n = (int(x) for x in wrong[0])
        operands = ", ".join(f"%f{i} = {int(x):#x}" for i, x in enumerate(source[thread]))
        pytest.fail(
            f"%o{n} is {int(out[thread, n]):#x}, not {int(expected[thread, n]):#x}, for {operands}; {len(wrong)} differ\n"
            + vectors.bodies()[name]
        )
