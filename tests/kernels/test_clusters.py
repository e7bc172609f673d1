"""Kernels in clusters, as nvcc compiled them, against what an NVIDIA H200 computed."""

import pytest

from mmulator.host.module import Module
from tests.kernels.cluster_cases import PTX, Case, cases, digests, recorded

CASES = list(cases())


def left(case: Case, seed: int = 0) -> list[str]:
    arguments = case.arguments()
    Module.load(PTX)[case.entry].launch(
        case.grid, case.block, arguments, case.shared, cluster=case.cluster, cooperative=case.cooperative, seed=seed, timeout=600
    )
    return digests(arguments)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_kernel_has_the_bits_of_an_h200(case: Case) -> None:
    assert left(case) == recorded()[case.name]


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("name", ["histogram_4", "ring_6", "atomics_3", "leavers_8", "pool_7", "grid_clusters_2"])
def test_the_schedule_does_not_change_a_correct_kernel(name: str, seed: int) -> None:
    assert left(next(c for c in CASES if c.name == name), seed) == recorded()[name]
