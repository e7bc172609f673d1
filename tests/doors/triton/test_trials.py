"""The trials of an autotuner: a kernel that reads what they wrote gets a warning or a finding, and no other."""

import warnings
from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from torch import Tensor

from mmulator.base.findings import Finding
from mmulator.base.versions import number
from mmulator.doors.triton import adapt
from mmulator.doors.triton.trials import Trial, _other
from mmulator.host.driver import current, use
from mmulator.sanitizer.sarif import results


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


# what is said where one configuration is left, which Triton measured before 3.8
ONE = [] if (number(triton.__version__) or (0, 0)) >= (3, 8) else ["restore_value=['p']"]
RESTORE, RESET = ["restore_value=['p']"], ["reset_to_zero=['p']"]


@pytest.mark.parametrize("n", [1000, 40000])  # all blocks of the second are measured in part
@pytest.mark.parametrize(
    ("kernel", "more", "mends"),
    [
        (step, {}, RESTORE), (step, {"restore_value": ["p"]}, []), (doubled, {}, []), (positive, {}, []), (counted, {}, RESTORE),
        (counted, {"restore_value": ["p"]}, []), (total, {}, RESET), (total, {"reset_to_zero": ["p"]}, []),
        (step, {"prune_configs_by": {"early_config_prune": lambda configs, *_, **__: configs[:1]}}, ONE),
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
    trials = "1 trial" if mends is ONE else "2 trials"
    head = f"autotune-in-place: {kernel.__name__} reads what its own trials wrote (argument 0, p): {trials} changed it; give "
    assert [str(w.message) for w in said] == [head + mend for mend in mends]
    assert all(w.filename == __file__ for w in said)


def test_under_the_sanitizer_it_is_a_finding() -> None:
    """So SARIF and the last line have it, and no filter of Python's warnings hides it."""
    adapt.adapt()
    before, p, told = current(), torch.rand(1000), list[Finding]()
    driver = use(sanitize=True)
    driver.readers[:] = [lambda kernel, findings, error, launches: told.extend(findings)]
    try:
        tuned = triton.autotune([triton.Config({"B": b}) for b in (32, 64)], key=["n"])(step)
        tuned[lambda meta: (triton.cdiv(1000, meta["B"]),)](p, torch.rand(1000), 1000)
    finally:
        use(before)
    (result,) = results(told)
    assert result["ruleId"] == "autotune-in-place" and told[0].severity == "warning"
    assert "step reads what its own trials wrote (argument 0, p): 2 trials changed it; give restore" in told[0].message
    assert told[0].instruction.startswith("ld.global") and told[0].source.startswith("test_trials.py:")


def test_values_that_share_bytes_are_other_values() -> None:
    """A trial changed one byte of 0.75 = 0x3f400000, 0.5 = 0x3f000000 and 0: it is the same in the last two."""
    before, after, last = ({"p": np.array([x, 7], np.float32).view(np.uint8)} for x in (0.75, 0.5, 0))
    same, other = (Trial(None, (1, 1, 1), b, a, 1) for b, a in ((before, after), (after, last)))
    assert _other(same, other, "p") and not _other(same, same, "p") and same.changed("p").tolist() == [True] * 8
