"""`mm.judge(mutate=)`: the judge changes a right kernel, and says which changes its reference lets pass."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mmulator as mm
from tests.support.nvcc import compiled
from tests.support.schemas import checked

TWICE = """.version 8.0
.target sm_90
.address_size 64
.visible .entry twice(.param .u64 x, .param .u64 y, .param .u32 count)
{
  .reg .b64 p, q; .reg .b32 t, n; .reg .f32 v; .reg .pred off;
  ld.param.u64 p, [x]; ld.param.u64 q, [y]; ld.param.u32 n, [count];
  mov.u32 t, %tid.x;
  setp.ge.u32 off, t, n;
  @off ret;
  mad.wide.u32 p, t, 4, p; mad.wide.u32 q, t, 4, q;
  ld.global.f32 v, [p];
  mul.f32 v, v, 0f40000000;
  st.global.f32 [q], v;
  ret;
}
"""


def judged(threads: int, **more: Any) -> Any:
    def arguments(seed: int) -> dict[str, Any]:
        x = np.random.default_rng(seed).standard_normal(100, np.float32)
        return {"x": x, "y": np.zeros(100, np.float32), "count": 100}

    return mm.judge(
        TWICE, arguments, grid=1, block=threads, reference=lambda x, **_: {"y": 2 * x}, limits=mm.Limits(seconds=300), **more
    )


def test_a_reference_that_sees_no_bound_is_told() -> None:
    verdict = judged(100, mutate=1000.0)
    assert verdict.ok and verdict.weak and checked(json.loads(json.dumps(verdict.as_dict()))) == "judge"
    states = {row["change"]: row["state"] for row in verdict.mutants["mutants"]}
    assert states == {
        "ge becomes gt": "survived", "the branch of off is not taken": "survived", "2 becomes 4": "noticed",
        "st.global.f32 stores 0": "noticed",
    }  # fmt: skip
    assert "mutants: 2 survived, 2 noticed" in str(verdict) and "and count = 99 in place of 100: y[99] is " in str(verdict)


def test_one_that_does_is_strict_and_who_does_not_ask_has_no_mutants() -> None:
    verdict = judged(128, mutate=1000.0)
    assert verdict.ok and not verdict.weak and verdict.mutants["counts"] == {"noticed": 4} and not verdict.mutants["more"]
    assert judged(128).mutants == {}


SOURCES = {
    "k.cu": """extern "C" __global__ void k(float* y, const float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        y[i] = 2 * x[i];
}
""",
    "k.py": """import triton, triton.language as tl
@triton.jit
def k(y, x, n, B: tl.constexpr):
    at = tl.arange(0, B)
    v = tl.load(x + at, mask=at < n)
    tl.store(y + at, 2 * v, mask=at < n)
""",
}


def test_triton_is_changed_in_its_ptx(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    sources(tmp_path, "k.py", B=128)


@compiled
def test_cuda_is_changed_in_its_ptx(tmp_path: Path) -> None:
    sources(tmp_path, "k.cu")


def sources(tmp_path: Path, name: str, **triton: int) -> None:
    """All changes are noticed, named by lines of the source, and the kernel has a certificate."""
    (path := tmp_path / name).write_text(SOURCES[name])

    def arguments(seed: int) -> dict[str, Any]:
        x = np.random.default_rng(seed).standard_normal(100, np.float32)
        return {"y": np.zeros(100, np.float32), "x": x, "n": 100, **triton}

    verdict = mm.judge(
        path, arguments, entry="k", grid=1, block=None if triton else 128, reference=lambda x, **_: {"y": 2 * x},
        mutate=1000.0, certify=True, limits=mm.Limits(seconds=300),
    )  # fmt: skip
    rows = verdict.mutants["mutants"]
    assert verdict.ok and "certificate: certified" in verdict.message and not verdict.mutants["more"]
    assert len(rows) >= 3 and {row["state"] for row in rows} == {"noticed"} and all(f"({name}:" in row["place"] for row in rows)
