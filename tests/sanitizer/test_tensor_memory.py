"""Tensor memory: products of every kind have no findings, and what a finding says."""

from __future__ import annotations

import numpy as np
import pytest

from mmulator.layouts.instruction_descriptor import KINDS
from tests.native.test_tensor_core import vector
from tests.support import breaches
from tests.support.tensor_cases import draw, make
from tests.support.tensor_kernels import run

FILES = {file.stem: file for file in breaches.files("tensor_memory")}


@pytest.mark.parametrize("kind", KINDS)
def test_products_have_no_findings(kind: str) -> None:
    rng = np.random.default_rng([0, KINDS.index(kind)])
    d = draw(rng, kind=kind)
    case = make(rng, d, vector(rng, d), not d.ws and not d.transpose_a)
    assert np.array_equal(run(case.product, case.before, seed=1, sanitize="raise"), case.behind)


@pytest.mark.parametrize(("file", "change", "said", "where"), [
    ("products", "no_wait_st", "no tcgen05.wait::st has followed tcgen05.st", "column 0, lanes 0 to 31"),
    ("products", "no_wait_ld", "no tcgen05.wait::ld has followed tcgen05.ld", "column 0, lanes 0 to 31"),
    ("products", "no_after", "with no tcgen05.fence::after_thread_sync before this one", "column 0, lanes 32 to 63"),
    ("products", "no_before", "with no tcgen05.fence::before_thread_sync", "column 0, lanes 32 to 63"),
    ("products", "other_shape_inside", "of another shape or kind", "column 16, lanes 0 to 31"),
    ("columns", "quarter", "names lane 64, and this warp has lanes 0 to 31", ""),
    ("columns", "held_last", "holds 32 columns", "columns 64 to 95"),
    ("columns", "grows", "64 columns are allocated, behind an allocation of 32", ""),
])  # fmt: skip
def test_a_finding_says_what_is_missing_and_where(file: str, change: str, said: str, where: str) -> None:
    finding, *_ = breaches.launch(FILES[file], change).findings
    assert said in finding.message and where in finding.where
