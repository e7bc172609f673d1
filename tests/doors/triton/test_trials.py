"""The trials of an autotuner: a kernel that reads what they wrote gets a warning, and no other."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from torch import Tensor

from mmulator.doors.triton import adapt


@triton.jit
def step(p, g, n, B: tl.constexpr) -> None:  # type: ignore[no-untyped-def]
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(p + i, tl.load(p + i, i < n) - tl.load(g + i, i < n), i < n)


@triton.jit
def doubled(p, g, n, B: tl.constexpr) -> None:  # type: ignore[no-untyped-def]
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(p + i, tl.load(g + i, i < n) * 2, i < n)


@triton.jit
def positive(p, g, n, B: tl.constexpr) -> None:  # type: ignore[no-untyped-def]
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(p + i, tl.maximum(tl.load(p + i, i < n), 0), i < n)


@triton.jit
def counted(p, g, n, B: tl.constexpr) -> None:  # type: ignore[no-untyped-def]
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(g + i, tl.load(p + i, i < n) * 3, i < n)
    tl.store(p + i, tl.load(p + i, i < n) + 1, i < n)


@triton.jit
def total(p, g, n, B: tl.constexpr) -> None:  # type: ignore[no-untyped-def]
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.atomic_add(p, tl.sum(tl.load(g + i, i < n, 0), 0))


RESTORE, RESET = ["restore_value=['p']"], ["reset_to_zero=['p']"]


@pytest.mark.parametrize("n", [1000, 40000])  # all blocks of the second are measured in part
@pytest.mark.parametrize(
    ("kernel", "more", "mends"),
    [
        (step, {}, RESTORE), (step, {"restore_value": ["p"]}, []), (doubled, {}, []), (positive, {}, []), (counted, {}, RESTORE),
        (counted, {"restore_value": ["p"]}, []), (total, {}, RESET), (total, {"reset_to_zero": ["p"]}, []),
        (step, {"prune_configs_by": {"early_config_prune": lambda configs, *_, **__: configs[:1]}}, []),
    ],
)  # fmt: skip
def test_a_kernel_that_reads_what_its_trials_wrote(kernel: Any, more: dict[str, Any], mends: list[str], n: int) -> None:
    """`positive` reads it, too, and has the right result."""
    adapt.adapt()  # as `exec` does before a program runs; else the first call is not looked at
    p: Tensor = torch.rand(n) - 0.5
    tuned = triton.autotune([triton.Config({"B": b}) for b in (32, 64)], key=["n"], **more)(kernel)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):  # the second time the best configuration is known
            tuned[lambda meta: (triton.cdiv(n, meta["B"]),)](p, torch.rand(n), n)
    said = [w for w in caught if "autotune" in str(w.message)]
    head = f"autotune-in-place: {kernel.__name__} reads what its own trials wrote (argument 0, p): 2 trials changed it; give "
    assert [str(w.message) for w in said] == [head + mend for mend in mends]
    assert all(w.filename == __file__ for w in said)
