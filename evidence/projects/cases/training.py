"""Kernels of programs that train models: norms, softmax, scans, products, with their gradients."""

from __future__ import annotations

import os
from collections.abc import Iterator

from evidence.projects import kit
from evidence.projects.kit import Inputs, Output, case


# applied-ai --------------------------------------------------------------------------------------------------------------
@case("applied-ai", "RMS norm with gradients")
def applied_norm(make: Inputs) -> Iterator[Output]:
    from fused_rms_norm import fused_rms_norm_fn  # type: ignore

    x, weight, g = make.normal(12, 320), make.normal(320), make.normal(12, 320)
    a, w = kit.leaf(x, weight)
    out = fused_rms_norm_fn(a, w, 1e-6)
    yield "out", out, kit.rms_norm(x, weight, 1e-6), 1e-5
    y, u = x.double().requires_grad_(), weight.double().requires_grad_()
    wanted = kit.gradients(kit.rms_norm(y, u, 1e-6), g, y, u)
    for name, got, want in zip(("dx", "dw"), kit.gradients(out, g.cuda(), a, w), wanted, strict=True):
        yield name, got, want, 1e-5


@case("applied-ai", "softmax with its gradient")
def applied_softmax(make: Inputs) -> Iterator[Output]:
    from softmax import fused_softmax  # type: ignore

    x, g = make.normal(6, 100), make.normal(6, 100)
    (a,) = kit.leaf(x)
    out = fused_softmax(a)
    y = x.double().requires_grad_()
    yield "out", out, y.softmax(-1), 1e-6
    yield "dx", kit.gradients(out, g.cuda(), a)[0], kit.gradients(y.softmax(-1), g, y)[0], 1e-5


@case("applied-ai", "FP8 by groups, and a GEMM of split K")
def applied_fp8(make: Inputs) -> Iterator[Output]:
    os.environ["TRITON_ALLOW_NON_CONSTEXPR_GLOBALS"] = "1"  # its constants are from a time when Triton asked for no more
    from float8_groupwise_quant import float8_groupwise_quantize  # type: ignore
    from splitk_gemm_fp8 import gemm_split_k  # type: ignore

    x = make.normal(6, 256)
    out, scales = float8_groupwise_quantize(x.cuda())
    groups = x.view(6, 2, 128)
    largest = groups.abs().amax(-1)
    yield "scales", scales, largest.double() / 448, 1e-6
    yield "values", out.view(6, 2, 128).float(), (groups.double() / (largest.double()[..., None] / 448)), 0.04
    a, b = (make.normal(*s, scale=0.5).to(make.torch.float8_e4m3fn) for s in ((64, 2048), (64, 2048)))
    yield "product", gemm_split_k(a.cuda(), b.cuda().T), a.double() @ b.double().T, 4e-3


# accelerated-scan --------------------------------------------------------------------------------------------------------
@case("accelerated-scan", "a linear recurrence with gradients")
def accelerated(make: Inputs) -> Iterator[Output]:
    from accelerated_scan.scalar import scan  # type: ignore

    forget, x, g = make.uniform(2, 3, 300, low=0.5), make.normal(2, 3, 300), make.normal(2, 3, 300)

    def plain(f, x):  # type: ignore
        state, out = 0.0, []
        for t in range(f.shape[-1]):
            state = f[..., t] * state + x[..., t]
            out.append(state)
        return make.torch.stack(out, -1)

    a, b = kit.leaf(forget, x)
    out = scan(a, b)
    c, d = forget.double().requires_grad_(), x.double().requires_grad_()
    want = plain(c, d)
    yield "states", out, want, 1e-5
    yield from kit.gradients_beside(("df", "dx"), out, (a, b), want, (c, d), g, 1e-5)


# torchnorm ---------------------------------------------------------------------------------------------------------------
@case("torchnorm", "RMS norm, layer norm, with gradients")
def torchnorm(make: Inputs) -> Iterator[Output]:
    from torchnorm._triton import fused_layer_norm, fused_rms_norm  # type: ignore

    x, weight, bias, g = make.normal(6, 200), make.normal(200), make.normal(200), make.normal(6, 200)
    layer = make.torch.nn.functional.layer_norm
    for name, got, want, inputs in (
        ("RMS", lambda a, w: fused_rms_norm(a, w, 1e-6), lambda a, w: kit.rms_norm(a, w, 1e-6), (x, weight)),
        (
            "layer",
            lambda a, w, b: fused_layer_norm(a, w, b, 1e-5),
            lambda a, w, b: layer(a, (200,), w, b, 1e-5),
            (x, weight, bias),
        ),
    ):
        given, exact = kit.leaf(*inputs), [part.double().requires_grad_() for part in inputs]
        out, wanted = got(*given), want(*exact)
        yield name, out, wanted, 1e-5
        names = [f"{name}, gradient {n}" for n in range(len(given))]
        yield from kit.gradients_beside(names, out, given, wanted, exact, g, 1e-5)


# triton-muon-adamw -------------------------------------------------------------------------------------------------------
@case("triton-muon-adamw", "steps of AdamW and of Newton and Schulz")
def muon(make: Inputs) -> Iterator[Output]:
    from triton_muon_adamw.adamw.triton_adam import solve_adamw_step  # type: ignore
    from triton_muon_adamw.muon.triton_muon import newton_shultz_step  # type: ignore

    p, g, m, v = make.normal(5, 600), make.normal(5, 600), make.normal(5, 600), make.uniform(5, 600)
    given = [part.cuda() for part in (p, g, m, v)]
    solve_adamw_step(*given, 1e-2, 1 - 0.9**3, 1 - 0.99**3, 0.9, 0.99, 1e-2, 1e-7)
    p, g, m, v = (part.double() for part in (p, g, m, v))
    m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
    yield "m", given[2], m, 1e-6
    yield "v", given[3], v, 1e-6
    step = (m / (1 - 0.9**3)) / ((v / (1 - 0.99**3)).sqrt() + 1e-7)
    yield "p", given[0], p * (1 - 1e-4) - 1e-2 * step, 1e-5
    x = make.normal(70, 100, dtype="float16", scale=0.1)
    out = make.torch.empty_like(x).cuda()
    newton_shultz_step(x.cuda(), 3.4445, -4.7750, 2.0315, out)
    exact = x.double()
    a = exact @ exact.T
    yield "Newton and Schulz", out, 3.4445 * exact + (-4.7750 * a + 2.0315 * a @ a) @ exact, 1e-2


# moe-ops -----------------------------------------------------------------------------------------------------------------
@case("moe-ops", "experts: chosen, sorted, multiplied, put back")
def moe_ops(make: Inputs) -> Iterator[Output]:
    from moe_ops import fused_topk_softmax, unpermute  # type: ignore
    from moe_ops.grouped_gemm_ops import grouped_gemm  # type: ignore
    from moe_ops.permute_ops import permute_countsort  # type: ignore

    torch = make.torch
    x, gates = make.normal(24, 64, dtype="bfloat16"), make.normal(24, 8)
    w = make.normal(8, 96, 64, dtype="bfloat16", scale=0.1)
    weights, chosen = fused_topk_softmax(gates.cuda(), 2)
    best = gates.double().topk(2)
    yield "weights", weights, best.values.softmax(-1), 1e-5
    yield "experts", chosen, best.indices, 0.0
    rows, places, offsets = permute_countsort(x.cuda(), chosen, 0, 8)
    order = best.indices.view(-1).sort(stable=True).indices
    yield "offsets", offsets[-9:], torch.cat([torch.zeros(1), best.indices.view(-1).bincount(minlength=8).cumsum(0)]), 0.0
    ends = offsets[1:] if len(offsets) == 9 else offsets
    product = grouped_gemm(rows, w.cuda(), offsets if len(offsets) == 9 else ends)
    out = unpermute(product, places, best.values.softmax(-1).float().cuda(), 24, 2)
    each = torch.einsum("td,tknd->tkn", x.double(), w.double()[best.indices])
    yield "out", out, (each * best.values.softmax(-1)[..., None]).sum(1), 2e-2
    del order


# Liger -------------------------------------------------------------------------------------------------------------------
@case("liger-kernel", "RMS norm, GEGLU, cross entropy, with gradients")
def liger(make: Inputs) -> Iterator[Output]:
    from liger_kernel.ops.cross_entropy import LigerCrossEntropyFunction  # type: ignore
    from liger_kernel.ops.geglu import LigerGELUMulFunction  # type: ignore
    from liger_kernel.ops.rms_norm import LigerRMSNormFunction  # type: ignore

    functional = make.torch.nn.functional
    x, other, weight, g = make.normal(6, 200), make.normal(6, 200), make.normal(200), make.normal(6, 200)
    target = make.integers(0, 200, 6)
    for name, got, want, inputs, gradient, tolerance in (
        ("norm", lambda a, w: LigerRMSNormFunction.apply(a, w, 1e-6, 0.0, "llama", False),
         lambda a, w: kit.rms_norm(a, w, 1e-6), (x, weight), g, 1e-5),
        ("GEGLU", LigerGELUMulFunction.apply, lambda a, b: functional.gelu(a, approximate="tanh") * b, (x, other), g, 1e-5),
        ("cross entropy", lambda a: LigerCrossEntropyFunction.apply(a.clone(), target.cuda(), None)[0],
         lambda a: functional.cross_entropy(a, target), (x,), make.torch.tensor(1.0), 1e-5),
    ):  # fmt: skip
        given, exact = kit.leaf(*inputs), [part.double().requires_grad_() for part in inputs]
        out, wanted = got(*given), want(*exact)
        yield name, out, wanted, tolerance
        names = [f"{name}, gradient {n}" for n in range(len(given))]
        yield from kit.gradients_beside(names, out, given, wanted, exact, gradient, tolerance)
