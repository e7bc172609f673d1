"""Kernels of Triton compiled in two ways: what is graded "same bits" has them, and other orders of a sum are not merged."""

from typing import Any

import numpy as np
import pytest
import triton
import triton.language as tl

import mmulator as mm
from mmulator.doors.triton import offline
from mmulator.observation.same.comparison import ALGEBRA, SAME


@triton.jit
def matmul(a, b, c, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, N: tl.constexpr, how: tl.constexpr) -> None:  # type: ignore[no-untyped-def]
    m, n, k = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN), tl.arange(0, BK)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        x = tl.load(a + m[:, None] * K + (start + k)[None, :])
        y = tl.load(b + (start + k)[:, None] * N + n[None, :])
        total = tl.dot(x, y, total, input_precision=how)
    tl.store(c + m[:, None] * N + n[None, :], total)


@triton.jit
def dots(x, y, n, B: tl.constexpr) -> None:  # type: ignore[no-untyped-def]
    p, k = tl.program_id(0), tl.arange(0, B)
    tl.store(y + p, tl.sum(tl.load(x + p * 2 * n + k) * tl.load(x + (p * 2 + 1) * n + k), 0))


@triton.jit
def sums(x, y, n, B: tl.constexpr) -> None:  # type: ignore[no-untyped-def]
    k = tl.arange(0, B)
    tl.store(y + tl.program_id(0) * n + k, tl.cumsum(tl.load(x + tl.program_id(0) * n + k), 0))


def graded(device: str, made: list[Any], grids: list[Any], args: list[Any], output: int) -> str:
    """The grade of two compiled kernels; those with the same bits store the same for other inputs."""
    kernels = [mm.Module.load(one.ptx)[one.name] for one in made]
    launches: list[dict[str, Any]] = [
        {"grid": grid, "block": 32 * one.metadata.num_warps, "args": [*args, 0, 0][: len(k.function.params)],
         "shared": one.metadata.shared} for one, k, grid in zip(made, kernels, grids)
    ]  # fmt: skip
    found = mm.same(*kernels, **launches[0], device=device, launch_b=launches[1])
    assert found.elements == args[output].size and not found.rests_on, str(found)
    left = []
    for k, launch in zip(kernels, launches):
        args[output][...] = 0
        k.launch(**launch, device=device)
        left.append(args[output].tobytes())
    assert found.grade != SAME or left[0] == left[1]
    return found.grade


WGMMA, MMA = ("sm_90", "fp16", np.float16), ("sm_80", "fp32", np.float32)
TILES = {
    "blocks of wgmma": (*WGMMA, (64, 16, 16, 4, "ieee"), (64, 32, 32, 4, "ieee"), SAME),
    "tiles of mma": (*MMA, (16, 16, 8, 1, "tf32"), (32, 16, 16, 2, "tf32"), SAME),
    "tf32 and ieee": (*MMA, (16, 16, 16, 1, "tf32"), (16, 16, 16, 1, "ieee"), ALGEBRA),
}


@pytest.mark.parametrize("name", TILES)
def test_products(name: str) -> None:
    device, word, dtype, *ways, grade = TILES[name]
    shape = {"M": 128 if device == "sm_90" else 32, "N": 32, "K": 32}
    rng, made = np.random.default_rng(0), []
    for bm, bn, bk, warps, how in ways:
        constants = {"BM": bm, "BN": bn, "BK": bk, "N": shape["N"], "how": how}
        made.append(offline.compile(matmul, f"*{word}:16, *{word}:16, *fp32:16, i32:16", constants, device, num_warps=warps))
    a, b = (rng.standard_normal(s).astype(dtype) for s in ((shape["M"], shape["K"]), (shape["K"], shape["N"])))
    args = [a, b, np.zeros((shape["M"], shape["N"]), np.float32), shape["K"]]
    grids = [(shape["M"] // bm, shape["N"] // bn) for bm, bn, *_ in ways]
    assert graded(device, made, grids, args, 2) == grade


@pytest.mark.parametrize(
    ("kernel", "one", "two", "grade"),
    [
        (dots, {"num_warps": 1}, {"num_warps": 2}, ALGEBRA),
        (dots, {"enable_fp_fusion": True}, {"enable_fp_fusion": False}, ALGEBRA),
        (dots, {"num_stages": 1}, {"num_stages": 4}, SAME),
        (sums, {"num_warps": 1}, {"num_warps": 2}, ALGEBRA),  # selects by predicates that no input decides
    ],
)
def test_reductions(kernel: Any, one: dict[str, Any], two: dict[str, Any], grade: str) -> None:
    made = [offline.compile(kernel, "*fp32:16, *fp32:16, i32:16", {"B": 64}, "sm_90", **{"num_warps": 1} | o) for o in (one, two)]
    x = np.random.default_rng(0).standard_normal((4, 64)).astype(np.float32)
    y = np.zeros(2 * 64 if kernel is sums else 2, np.float32)
    assert graded("sm_90", made, [2, 2], [x, y, 64], 1) == grade
