"""Configurations of an autotuner that have one result: told as text and as lines of JSON; equal results have equal bits."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from mmulator.doors.triton import adapt
from mmulator.host import driver
from mmulator.observation.same.comparison import ALGEBRA, DIFFERENT, SAME, UNDECIDED
from tests.support.schemas import checked


@triton.jit
def rows(x, y, n, B: tl.constexpr) -> None:  # type: ignore[no-untyped-def]
    p = tl.program_id(0)
    total = tl.zeros((B,), tl.float32)
    for k in range(0, n, B):
        total += tl.load(x + p * n + k + tl.arange(0, B))
    tl.store(y + p, tl.sum(total, 0))


@triton.jit
def first(x, y, n, B: tl.constexpr) -> None:  # type: ignore[no-untyped-def]
    tl.store(y + tl.program_id(0), tl.load(x + B))


@triton.jit
def added(x, y, n, B: tl.constexpr) -> None:  # type: ignore[no-untyped-def]
    tl.atomic_add(y + tl.program_id(0) + tl.arange(0, B) * 0, tl.load(x + tl.arange(0, B)))


def told(kernel: Any, wanted: str, *configs: tuple[int, int]) -> None:
    adapt.adapt()
    driver.use(driver.Driver(driver.Settings(same_configs=wanted)))
    tuned = triton.autotune([triton.Config({"B": b}, num_warps=w) for b, w in configs], key=["n"])(kernel)
    x = torch.randn(2, 128, generator=torch.Generator().manual_seed(0))
    y = torch.zeros(2)
    for _ in range(2):  # the second time nothing is tried, and nothing is told
        tuned[(2,)](x, y, 128)


def test_configurations_with_one_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told(rows, str(tmp_path / "a.jsonl"), (64, 1), (64, 2), (64, 4), (32, 1))
    (line,) = (tmp_path / "a.jsonl").read_text().splitlines()
    data = json.loads(line)
    assert checked(data) == "same-configs" and data["kernel"] == "rows"
    assert [c["config"] for c in data["configs"]] == [{"B": b, "num_warps": w} for b, w in ((64, 1), (64, 2), (64, 4), (32, 1))]
    assert data["configs"][0]["grade"] == SAME and data["results"] == max(c["result"] for c in data["configs"])
    for other in data["configs"][1:]:
        assert other["grade"] == (SAME if other["result"] == 1 else ALGEBRA), other
    assert data["configs"][1]["result"] == data["configs"][2]["result"]  # two elements of each lane, then one: the same tree
    assert not capsys.readouterr().err


@pytest.mark.filterwarnings("ignore:autotune-in-place")
@pytest.mark.parametrize(("kernel", "grade"), [(first, DIFFERENT), (added, UNDECIDED)])
def test_what_is_not_the_same_is_said(kernel: Any, grade: str, capsys: pytest.CaptureFixture[str]) -> None:
    told(kernel, "-", (1, 1), (2, 1))
    head, one, two = capsys.readouterr().err.splitlines()
    assert head == f"mmulator: {kernel.__name__} has 2 results of 2 configurations"
    assert one == "  result 1: B=1: same bits" and two.startswith(f"  result 2: B=2: {grade}")
    assert grade != UNDECIDED or "the order in which it adds" in two
