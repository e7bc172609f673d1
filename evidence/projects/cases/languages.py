"""Kernels in other languages of Python: Gluon, TileLang, CuTe DSL; and the library of kernels that comes with Triton."""

from __future__ import annotations

import importlib.util
import os
import site
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from evidence.projects import kit
from evidence.projects.kit import Inputs, Output, case


# Gluon's tutorials, whose files have names that cannot be imported ---------------------------------------------------------
def tutorial(name: str) -> Any:
    """A tutorial, as a module."""
    if name not in sys.modules:
        from triton._C.libtriton import nvidia  # type: ignore

        nvidia.cublas.CublasLt = lambda workspace: None  # two tutorials take it, to compare times
        folder = next(Path(path) for path in sys.path if Path(path, f"{name}.py").exists())
        spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
        assert spec and spec.loader
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


@case("gluon-tutorials", "copies with layouts, by cp.async, by tensor maps; sums; warps with roles")
def gluon_copies(make: Inputs) -> Iterator[Output]:
    torch = make.torch
    x = make.normal(500)
    out = torch.empty_like(x).cuda()
    tutorial("01-intro").memcpy(x.cuda(), out, 64)
    yield "copy", out, x, 0.0
    y = make.normal(70, 90)
    out = torch.empty_like(y).cuda()
    tutorial("02-layouts").memcpy_2d_inout(y.cuda(), out)
    yield "copy of a matrix", out, y, 0.0
    turned = torch.empty(90, 70).cuda().T
    tutorial("02-layouts").memcpy_2d_inout(y.cuda(), turned)
    yield "transposed", turned, y, 0.0
    out = torch.empty_like(x).cuda()
    tutorial("03-async-copy").memcpy_1d_cpasync(x.cuda(), out, 128)
    yield "cp.async", out, x, 0.0
    a, b = make.normal(100, 200), make.normal(100, 200)
    for name, add in (
        ("cp.async, two buffers", tutorial("03-async-copy").elementwise_add_pipelined),
        ("tensor maps, two buffers", tutorial("04-tma").elementwise_add_tma),
        ("warps with roles", tutorial("08-warp-specialization").elementwise_add_warp_specialized),
    ):
        out = torch.empty_like(a).cuda()
        add(a.cuda(), b.cuda(), out)
        yield name, out, a + b, 0.0
    out = torch.empty_like(x).cuda()
    tutorial("04-tma").memcpy_1d_tma(x.cuda(), out, 64)
    yield "tensor maps", out, x, 0.0


@case("gluon-tutorials", "products by wgmma: one tile, blocks, a pipeline, persistent blocks")
def gluon_products(make: Inputs) -> Iterator[Output]:
    torch = make.torch
    wgmma, persistent = tutorial("05-wgmma"), tutorial("07-persistence")
    a, b, c = make.normal(64, 32, dtype="float16"), make.normal(32, 32, dtype="float16"), make.normal(64, 32)
    for registers in (False, True):
        out = torch.empty_like(c).cuda()
        wgmma.small_mma(a.cuda(), b.cuda(), c.cuda(), out, 16, registers)
        yield f"tile, A in {'registers' if registers else 'shared memory'}", out, a.double() @ b.double() + c.double(), 1e-5
    a, b = make.normal(208, 304, dtype="float16"), make.normal(304, 416, dtype="float16")
    exact = a.double() @ b.double()
    scheduler = persistent.PersistentTileScheduler
    kernels = {
        "blocks": lambda out: wgmma.blocked_matmul(a.cuda(), b.cuda(), out, 64, 64, 64, False, 4),
        "B transposed": lambda out: wgmma.blocked_matmul(a.cuda(), b.cuda().T.contiguous(), out, 64, 64, 64, True, 4),
        "pipeline": lambda out: wgmma.blocked_matmul_pipelined(a.cuda(), b.cuda(), out, 64, 64, 64, 4),
        "persistent": lambda out: persistent.persistent_matmul(a.cuda(), b.cuda(), out, 64, 64, 64, 3, 4, scheduler),
        "persistent pipeline": lambda out: persistent.persistent_matmul_pipelined(
            a.cuda(), b.cuda(), out, 64, 64, 64, 3, 4, scheduler
        ),
    }
    for name, kernel in kernels.items():
        out = torch.empty(208, 416, dtype=torch.float16).cuda()
        kernel(out)
        yield name, out, exact, 2e-3


@case("triton-kernels", "the largest experts, sums of rows, SwiGLU, a product")
def kernels(make: Inputs) -> Iterator[Output]:
    from triton_kernels.matmul_ogs import matmul_ogs  # type: ignore
    from triton_kernels.reduce import reduce  # type: ignore
    from triton_kernels.swiglu import PrecisionConfig, swiglu  # type: ignore
    from triton_kernels.topk import topk  # type: ignore

    x = make.normal(37, 96)
    got = topk(x.cuda(), 4)
    chosen = got.indx.cpu().long()
    yield "experts", chosen.sort(-1).values, x.topk(4).indices.sort(-1).values, 0.0
    yield "weights", got.vals, x.double().gather(1, chosen).softmax(-1), 1e-6
    y, mask = make.normal(5, 40, 64), make.uniform(5, 40, 64) < 0.7
    yield "sums", reduce(y.cuda(), 0, mask=mask.cuda())[0], (y.double() * mask).sum(0), 1e-5
    gate, linear = (part.double() for part in (y[0, :, ::2], y[0, :, 1::2]))
    wanted = gate * (1.5 * gate).sigmoid() * (linear + 1)
    yield "SwiGLU", swiglu(y[0].cuda(), 1.5, PrecisionConfig(limit=None)), wanted, 1e-5
    a, b, bias = make.normal(70, 96, dtype="bfloat16"), make.normal(96, 80, dtype="bfloat16"), make.normal(80)
    yield "product", matmul_ogs(a.cuda(), b.cuda(), bias.cuda()), a.double() @ b.double() + bias.double(), 5e-3


# TileLang, CuTe DSL ------------------------------------------------------------------------------------------------------
@case("tilelang", "a product on tensor cores, in a pipeline")
def tilelang(make: Inputs) -> Iterator[Output]:
    import tilelang  # type: ignore
    import tilelang.language as T  # type: ignore

    tilelang.disable_cache()

    @tilelang.jit(out_idx=[-1])
    def product(m: int, n: int, k: int) -> Any:
        @T.prim_func
        def main(A: T.Tensor((m, k), "float16"), B: T.Tensor((k, n), "float16"), C: T.Tensor((m, n), "float32")):  # type: ignore
            with T.Kernel(T.ceildiv(n, 64), T.ceildiv(m, 64), threads=128) as (bx, by):
                left, right = T.alloc_shared((64, 32), "float16"), T.alloc_shared((32, 64), "float16")
                total = T.alloc_fragment((64, 64), "float32")
                T.clear(total)
                for at in T.Pipelined(T.ceildiv(k, 32), num_stages=2):
                    T.copy(A[by * 64, at * 32], left)
                    T.copy(B[at * 32, bx * 64], right)
                    T.gemm(left, right, total)
                T.copy(total, C[by * 64, bx * 64])

        return main

    a, b = make.normal(100, 96, dtype="float16"), make.normal(96, 128, dtype="float16")
    yield "product", product(100, 128, 96)(a.cuda(), b.cuda()), a.double() @ b.double(), 1e-5


@case("quack", "RMS norm, layer norm and softmax with gradients, cross entropy, the largest")
def quack(make: Inputs) -> Iterator[Output]:
    os.environ["QUACK_CACHE_ENABLED"] = "0"  # a kernel that it loads from its cache has no PTX
    site.addsitedir(next(path for path in sys.path if Path(path, "quack").is_dir()))
    from quack.cross_entropy import cross_entropy  # type: ignore
    from quack.rmsnorm import rmsnorm  # type: ignore
    from quack.softmax import softmax  # type: ignore
    from quack.topk import topk  # type: ignore

    torch = make.torch
    x, g, weight = make.normal(9, 256, dtype="bfloat16"), make.normal(9, 256, dtype="bfloat16"), make.normal(256)
    given, exact = kit.leaf(x, weight), [y.double().requires_grad_() for y in (x, weight)]
    out, wanted = rmsnorm(*given), kit.rms_norm(*exact, 1e-6)
    yield "norm", out, wanted, 5e-3
    yield from kit.gradients_beside(("dx", "dw"), out, given, wanted, exact, g, 1e-2)
    (a,), b = kit.leaf(x.float()), x.double().requires_grad_()
    out, wanted = softmax(a), b.softmax(-1)
    yield "softmax", out, wanted, 1e-5
    yield from kit.gradients_beside(("d softmax",), out, (a,), wanted, (b,), g.float(), 1e-5)
    target = make.integers(0, 256, 9)
    (a,), b = kit.leaf(x.float()), x.double().requires_grad_()
    out, wanted = cross_entropy(a, target.cuda()), torch.nn.functional.cross_entropy(b, target)
    yield "loss", out, wanted, 1e-5
    yield from kit.gradients_beside(("d loss",), out, (a,), wanted, (b,), torch.ones(()), 1e-5)
    values, indices = topk(x.float().cuda(), 8)[:2]
    best = x.double().topk(8)
    yield "the largest", values, best.values, 1e-4
    yield "their places", x.double().gather(1, indices.cpu().long()), best.values, 1e-4
