"""Kernels of vLLM and LMDeploy, which serve models."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from evidence.projects import kit
from evidence.projects.kit import Inputs, Output, case


class _Cuda:
    """A stand-in for the questions of vLLM's kernels about the platform."""

    def __getattr__(self, name: str) -> Any:
        import torch

        if name == "fp8_dtype":
            return lambda: torch.float8_e4m3fn
        if name == "has_device_capability":
            return lambda wanted: True
        return lambda: name in ("is_cuda", "is_cuda_alike")


def vllm() -> None:
    import triton
    import triton.language as tl

    kit.bare("vllm", "vllm.utils", "vllm.v1", "vllm.v1.attention", "vllm.v1.attention.ops")
    kit.stand_in("vllm.platforms", current_platform=_Cuda())
    kit.stand_in("vllm.triton_utils", triton=triton, tl=tl)


@case("vllm", "attention of prompts: grouped heads, sinks, a window")
def vllm_prompt(make: Inputs) -> Iterator[Output]:
    vllm()
    from vllm.v1.attention.ops.triton_prefill_attention import context_attention_fwd  # type: ignore

    torch = make.torch
    lengths, heads, kv, width = [70, 33], 4, 2, 64
    q, k, v = (make.normal(103, n, width, dtype="bfloat16") for n in (heads, kv, kv))
    sinks = make.normal(heads, dtype="bfloat16")
    starts, sizes = (torch.tensor(x, dtype=torch.int32).cuda() for x in ([0, 70], lengths))
    out = torch.zeros_like(q).cuda()
    context_attention_fwd(q.cuda(), k.cuda(), v.cuda(), out, starts, sizes, 70)

    def parts() -> Iterator[tuple[Any, ...]]:
        yield from zip(*([x.transpose(0, 1) for x in y.split(lengths)] for y in (q, k, v)), strict=True)

    wanted = torch.cat([kit.attention(*part, causal=True).transpose(0, 1) for part in parts()])
    yield "causal", out, wanted, 1e-2
    out = torch.zeros_like(q).cuda()
    context_attention_fwd(q.cuda(), k.cuda(), v.cuda(), out, starts, sizes, 70, sinks=sinks.cuda(), sliding_window_q=16)
    rows = []
    for a, b, c in parts():
        b, c = (x.double().repeat_interleave(2, 0) for x in (b, c))
        scores = a.double() @ b.transpose(-1, -2) * width**-0.5
        distance = torch.arange(scores.shape[-1])[:, None] - torch.arange(scores.shape[-1])[None]
        scores = scores.masked_fill((distance < 0) | (distance > 16), -torch.inf)
        with_sink = torch.cat([scores, sinks.double()[:, None, None].expand(-1, scores.shape[1], 1)], -1)
        rows.append((with_sink.softmax(-1)[..., :-1] @ c).transpose(0, 1))
    yield "sinks and a window", out, torch.cat(rows), 1e-2


@case("vllm", "attention states merged; one token over pages")
def vllm_token(make: Inputs) -> Iterator[Output]:
    vllm()
    from vllm.v1.attention.ops.triton_decode_attention import decode_attention_fwd  # type: ignore
    from vllm.v1.attention.ops.triton_merge_attn_states import merge_attn_states  # type: ignore

    torch = make.torch
    a, b, la, lb = (make.normal(7, 4, 48), make.normal(7, 4, 48), make.normal(4, 7), make.normal(4, 7))
    out, total = torch.empty_like(a).cuda(), torch.empty_like(la).cuda()
    merge_attn_states(out, a.cuda(), la.cuda(), b.cuda(), lb.cuda(), total)
    weights = torch.stack([la, lb]).double().softmax(0).transpose(1, 2)[..., None]
    yield "merged", out, a.double() * weights[0] + b.double() * weights[1], 1e-6
    yield "sums", total, torch.stack([la, lb]).double().logsumexp(0), 1e-6
    lengths, heads, kv, width, page, splits = [70, 33], 8, 2, 64, 16, 2
    pages = make.permutation(10).int().view(2, 5)
    k, v = (make.normal(160, kv, width, dtype="float16") for _ in range(2))
    q = make.normal(2, heads, width, dtype="float16")
    out, sums = torch.zeros_like(q).cuda(), torch.zeros(2, heads).cuda()
    logits = torch.empty(2, heads, splits, width + 1).cuda()
    sizes = torch.tensor(lengths, dtype=torch.int32).cuda()
    given = [x.view(10, page, kv, width).cuda() for x in (k, v)]
    decode_attention_fwd(q.cuda(), *given, out, sums, pages.cuda(), sizes, logits, splits, width**-0.5, page)
    at = [(pages[n].long()[:, None] * page + torch.arange(page)).view(-1)[:size] for n, size in enumerate(lengths)]
    wanted = [kit.attention(row[:, None], k[p].transpose(0, 1), v[p].transpose(0, 1))[:, 0] for row, p in zip(q, at, strict=True)]
    yield "token", out, torch.stack(wanted), 3e-3


def lmdeploy() -> None:
    import logging

    kit.bare("lmdeploy", "lmdeploy.pytorch", "lmdeploy.pytorch.kernels", "lmdeploy.pytorch.kernels.cuda")
    kit.stand_in("lmdeploy.utils", get_logger=logging.getLogger)


@case("lmdeploy", "RMS norm with a residual, SiLU times, rotary positions")
def lmdeploy_norm(make: Inputs) -> Iterator[Output]:
    lmdeploy()
    from lmdeploy.pytorch.kernels.cuda.activation import silu_and_mul  # type: ignore
    from lmdeploy.pytorch.kernels.cuda.apply_rotary_pos_emb import apply_rotary_pos_emb  # type: ignore
    from lmdeploy.pytorch.kernels.cuda.rms_norm import rms_norm  # type: ignore

    torch = make.torch
    x, r, weight = make.normal(5, 384, dtype="float16"), make.normal(5, 384, dtype="float16"), make.normal(384, dtype="float16")
    out, total = rms_norm(x.cuda(), weight.cuda(), 1e-6, residual=r.cuda())
    both = (x.float() + r.float()).half()
    yield "residual", total, both, 0.0
    yield "norm", out, kit.rms_norm(both, weight, 1e-6), 4e-3
    yield "silu", silu_and_mul(x.cuda()), kit.silu(x[:, :192]) * x[:, 192:], 3e-3
    q, k, angle = make.normal(19, 6, 64, dtype="float16"), make.normal(19, 2, 64, dtype="float16"), make.uniform(19, 32, high=6.0)
    cos, sin = (torch.cat([x, x], -1).half() for x in (angle.cos(), angle.sin()))
    got = apply_rotary_pos_emb(q.cuda(), k.cuda(), cos.cuda(), sin.cuda())
    for name, y, x in zip("qk", got, (q, k), strict=True):
        turned = torch.cat([-x[..., 32:], x[..., :32]], -1).double()
        yield name, y, x.double() * cos[:, None].double() + turned * sin[:, None].double(), 3e-3


@case("lmdeploy", "8 bits: integers and FP8, quantized and multiplied")
def lmdeploy_quantized(make: Inputs) -> Iterator[Output]:
    lmdeploy()
    kit.stand_in("lmdeploy.pytorch.kernels.default")
    kit.stand_in("lmdeploy.pytorch.kernels.default.w8a8_kernels", per_channel_quant=None)
    from lmdeploy.pytorch.kernels.cuda.blocked_gemm_fp8 import blocked_gemm_fp8, quant_fp8  # type: ignore
    from lmdeploy.pytorch.kernels.cuda.w8a8_triton_kernels import matmul_kernel_dynamic_quant, per_token_quant_int8  # type: ignore

    torch = make.torch
    x, w = make.normal(20, 256, dtype="float16"), make.normal(128, 256, dtype="float16")
    values, scales = per_token_quant_int8(x.cuda(), 1e-7)
    largest = x.double().abs().amax(-1, keepdim=True)
    yield "scales", scales, largest / 127, 1e-6
    yield "integers", values.float(), (x.double() / (largest / 127)).round(), 8.1e-3
    whole, each = make.integers(-127, 128, 128, 256, dtype="int8"), make.uniform(128, 1, low=0.01, high=0.1)
    got = matmul_kernel_dynamic_quant(values, whole.cuda(), scales, each.cuda())
    yield "product", got, (values.cpu().double() * scales.cpu().double()) @ (whole.double() * each.double()).T, 2e-3
    small, small_scales = quant_fp8(x.cuda(), 128)
    other, other_scales = w.double().view(128, 2, 128), w.double().view(128, 2, 128).abs().amax((0, 2)) / 448
    other = (other / other_scales[:, None]).float().to(torch.float8_e4m3fn)
    exact = small.cpu().double().view(20, 2, 128) * small_scales.cpu().double().view(20, 2, 1)
    yield "FP8", exact.view(20, 256), x.double(), 0.04
    wide = (other.double() * other_scales[:, None]).view(128, 256)
    given = (small, small_scales, other.view(128, 256).cuda().T, other_scales.float().view(1, 2).cuda().T)
    yield "FP8 product", blocked_gemm_fp8(*given, out_dtype=torch.float16), exact.view(20, 256) @ wide.T, 3e-3
