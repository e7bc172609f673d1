"""Kernels of state space models, quantization, points and clusters."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

from evidence.projects import kit
from evidence.projects.kit import Inputs, Output, case


@case("mamba", "Mamba 3 in chunks with gradients, against its own reference")
def mamba3(make: Inputs) -> Iterator[Output]:
    kit.bare("mamba_ssm", "mamba_ssm.ops", "mamba_ssm.ops.triton", "mamba_ssm.ops.triton.mamba3")
    import mamba_ssm.ops.triton.mamba3.mamba3_siso_combined as combined  # type: ignore

    folder = Path(combined.__file__).parents[4]
    spec = importlib.util.spec_from_file_location("mamba3_reference", folder / "tests/ops/triton/test_mamba3_siso.py")
    assert spec and spec.loader
    reference = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(reference)
    torch = make.torch
    heads, length, width = 2, 100, 64
    q, k = (make.normal(1, length, 1, width, dtype="bfloat16") for _ in range(2))
    v, g = (make.normal(1, length, heads, 32, dtype="bfloat16") for _ in range(2))
    dt = make.uniform(1, heads, length, low=0.01, high=0.1)
    adt = -make.uniform(1, heads, length, low=1, high=8) * dt
    trap, biases = make.normal(1, heads, length, dtype="bfloat16"), [make.normal(heads, width) for _ in range(2)]
    angles, d = make.normal(1, length, heads, width // 4), make.normal(heads)
    inputs = (q, k, v, adt, dt, trap, *biases, angles, d)
    given = kit.leaf(*inputs)
    out = combined.mamba3_siso_combined(*given, chunk_size=64)
    exact = [x.float().requires_grad_() for x in inputs]
    wanted = reference.mamba3_siso_fwd_ref(*exact, chunk_size=64)[0]
    yield "out", out, wanted, 2e-2
    got = kit.gradients(out, g.cuda(), *given)
    names = ("q", "k", "v", "adt", "dt", "trap", "q bias", "k bias", "angles", "d")
    for name, *pair in zip(names, got, kit.gradients(wanted, g, *exact), strict=True):
        yield f"d {name}", *pair, 5e-2
    del torch


@case("torch-fps", "farthest points and their neighbours")
def fps(make: Inputs) -> Iterator[Output]:
    from torch_fps._triton import fps, fps_knn  # type: ignore

    torch = make.torch
    points, mask = make.integers(-500, 500, 2, 60, 3).float() / 64, make.uniform(2, 60) < 0.9  # exact squares
    mask[:, 0] = True
    start = torch.zeros(2, dtype=torch.long)
    chosen = torch.zeros(2, 8, dtype=torch.long)
    for b in range(2):
        nearest = torch.full((60,), torch.inf, dtype=torch.double)
        at = 0
        for n in range(8):
            chosen[b, n] = at
            nearest = torch.minimum(nearest, (points[b].double() - points[b, at].double()).square().sum(-1))
            at = int(torch.where(mask[b], nearest, -1.0).argmax())
    yield "points", fps(points.cuda(), mask.cuda(), start.cuda(), 8), chosen, 0.0
    got, near = fps_knn(points.cuda(), mask.cuda(), start.cuda(), 8, 4)
    yield "points again", got, chosen, 0.0
    centres = points.double().gather(1, chosen[..., None].expand(-1, -1, 3))
    far = (centres[:, :, None] - points.double()[:, None]).square().sum(-1).masked_fill(~mask[:, None], torch.inf)
    yield "distances", far.gather(2, near.cpu()), far.topk(4, largest=False).values, 0.0


@case("flash-kmeans", "the nearest of centres")
def kmeans(make: Inputs) -> Iterator[Output]:
    from flash_kmeans.assign_euclid_triton import euclid_assign_triton  # type: ignore

    x, centres = make.normal(2, 200, 32, dtype="float16"), make.normal(2, 24, 32, dtype="float16")
    got = euclid_assign_triton(x.cuda(), centres.cuda(), x.float().square().sum(-1).cuda())
    far = (x.double()[:, :, None] - centres.double()[:, None]).square().sum(-1)
    yield "distances", far.gather(2, got.cpu().long()[..., None])[..., 0], far.amin(-1), 1e-4


@case("flashlib", "products of tall matrices, and f32 by three products of f16")
def flashlib(make: Inputs) -> Iterator[Output]:
    from flashlib.linalg.gemm.triton.fp16x3_kahan import matmul_fp16x3_kahan  # type: ignore
    from flashlib.linalg.gemm.triton.tall_skinny import triton_cov_gemm, triton_gram_gemm  # type: ignore

    x, y = make.normal(300, 24), make.normal(20, 400)
    yield "X'X", triton_cov_gemm(x.cuda()), x.double().T @ x.double(), 3e-3
    yield "XX'", triton_gram_gemm(y.cuda()), y.double() @ y.double().T, 3e-3
    a, b = make.normal(70, 100), make.normal(40, 100)
    yield "f16 three times", matmul_fp16x3_kahan(a.cuda(), b.cuda()), a.double() @ b.double().T, 1e-5


@case("fused-turboquant", "Hadamard's transform with signs, there and back")
def turboquant(make: Inputs) -> Iterator[Output]:
    from fused_turboquant.core.hadamard import randomized_hadamard  # type: ignore
    from fused_turboquant.kernels.triton_rht import triton_rht  # type: ignore

    x, signs = make.normal(9, 128), make.integers(0, 2, 128).float() * 2 - 1
    out = triton_rht(x.cuda(), signs.cuda())
    yield "there", out, randomized_hadamard(x.double(), signs.double()), 1e-6
    yield "back", triton_rht(out, signs.cuda(), inverse=True), x.double(), 1e-6


@case("flash-sinkhorn", "optimal transport with entropy")
def sinkhorn(make: Inputs) -> Iterator[Output]:
    from flash_sinkhorn import SamplesLoss  # type: ignore

    torch = make.torch
    x, y = make.normal(40, 8, scale=0.4), make.normal(50, 8, scale=0.4)
    loss = SamplesLoss("sinkhorn", backend="alternating", eps=1.0, n_iters=30, use_epsilon_scaling=False, allow_tf32=False,
                       autotune=False, potentials=True)  # fmt: skip
    f, g = loss(x.cuda(), y.cuda())
    cost = (x.double()[:, None] - y.double()[None]).square().sum(-1)
    a, b = torch.zeros(40, dtype=torch.double), torch.zeros(50, dtype=torch.double)
    for _ in range(100):
        a = -(b[None] - cost).logsumexp(1) + torch.tensor(50.0).log()
        b = -(a[:, None] - cost).logsumexp(0) + torch.tensor(40.0).log()
    sums = f.cpu().double()[:, None] + g.cpu().double()[None]  # each potential alone is known up to a constant
    yield "potentials", sums, a[:, None] + b[None], 1e-3


@case("adasplash", "sparse attention (entmax), causal")
def adasplash(make: Inputs) -> Iterator[Output]:
    from adasplash import adasplash_no_block_mask  # type: ignore

    torch = make.torch
    q, k, v = (make.normal(1, 2, 128, 32) for _ in range(3))
    got = adasplash_no_block_mask(q.cuda(), k.cuda(), v.cuda(), alpha=1.5, is_causal=True)
    scores = (q.double() @ k.double().transpose(-1, -2) * 32**-0.5).masked_fill(
        torch.ones(128, 128, dtype=torch.bool).triu(1), -torch.inf
    )
    low, high = scores.amax(-1, keepdim=True) / 2 - 1, scores.amax(-1, keepdim=True) / 2
    for _ in range(80):  # the threshold at which the weights sum to 1
        middle = (low + high) / 2
        above = (scores / 2 - middle).clamp_min(0).square().sum(-1, keepdim=True) >= 1
        low, high = torch.where(above, middle, low), torch.where(above, high, middle)
    yield "out", got, (scores / 2 - low).clamp_min(0).square() @ v.double(), 2e-3


@case("tritonbench", "int4 products")
def tritonbench(make: Inputs) -> Iterator[Output]:
    kit.bare("tritonbench", "tritonbench.operators", "tritonbench.operators.int4_gemm")
    from tritonbench.operators.int4_gemm.kernel import matmul, pack_2xint4  # type: ignore

    a, w = make.normal(40, 512, dtype="bfloat16"), make.integers(-8, 8, 512, 64)
    yield "int4", matmul(a.cuda(), pack_2xint4(w).cuda()), a.double() @ w.double(), 1e-2
