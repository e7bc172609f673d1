"""Kernels of programs that serve models: norms, activations, positions, attention over a cache, routing of experts."""

from __future__ import annotations

from collections.abc import Iterator

from evidence.projects import kit
from evidence.projects.kit import Inputs, Output, case


# lightllm ----------------------------------------------------------------------------------------------------------------
@case("lightllm", "RMS norm, SiLU times")
def lightllm_norm(make: Inputs) -> Iterator[Output]:
    kit.bare("lightllm.models", "lightllm.models.llama")
    from lightllm.models.llama.triton_kernel.rmsnorm import rmsnorm_forward  # type: ignore
    from lightllm.models.llama.triton_kernel.silu_and_mul import silu_and_mul_fwd  # type: ignore

    x, weight = make.normal(5, 384, dtype="float16"), make.normal(384, dtype="float16")
    yield "norm", rmsnorm_forward(x.cuda(), weight.cuda(), 1e-5), kit.rms_norm(x, weight, 1e-5), 1e-3
    out = x[:, :192].cuda()
    silu_and_mul_fwd(x.cuda(), out)
    yield "silu", out, kit.silu(x[:, :192]) * x[:, 192:], 1e-3


@case("lightllm", "rotary positions")
def lightllm_rotary(make: Inputs) -> Iterator[Output]:
    kit.bare("lightllm.models", "lightllm.models.llama")
    from lightllm.models.llama.triton_kernel.rotary_emb import rotary_emb_fwd  # type: ignore

    q, k, angle = make.normal(19, 6, 64, dtype="float16"), make.normal(19, 2, 64, dtype="float16"), make.uniform(19, 32, high=6.0)
    cos, sin = angle.cos().half(), angle.sin().half()
    for name, x in (("q", q), ("k", k)):
        rows = [q.cuda(), k.cuda()]
        rotary_emb_fwd(*rows, cos.cuda(), sin.cuda())
        a, b, c, s = x[..., :32].double(), x[..., 32:].double(), cos[:, None].double(), sin[:, None].double()
        yield name, rows[name == "k"], make.torch.cat([a * c - b * s, a * s + b * c], -1), 2e-3


@case("lightllm", "attention of a prompt and of one token, keys in pages")
def lightllm_attention(make: Inputs) -> Iterator[Output]:
    kit.bare("lightllm.models", "lightllm.models.llama")
    from lightllm.models.llama.triton_kernel.context_flashattention_nopad import context_attention_fwd  # type: ignore
    from lightllm.models.llama.triton_kernel.gqa_decode_flashattention_nopad import gqa_decode_attention_fwd  # type: ignore

    torch = make.torch
    lengths, cached, heads, kv, width = [70, 33], [10, 0], 4, 2, 64
    pages = make.permutation(sum(lengths)).int()
    k, v = make.normal(sum(lengths), kv, width, dtype="float16"), make.normal(sum(lengths), kv, width, dtype="float16")
    table = torch.zeros(3, 80, dtype=torch.int32)
    table[2, :70], table[0, :33] = pages[:70], pages[70:]
    rows = [n - c for n, c in zip(lengths, cached, strict=True)]
    q = make.normal(sum(rows), heads, width, dtype="float16")
    request, starts = torch.tensor([2, 0], dtype=torch.int32), torch.tensor([0, rows[0]], dtype=torch.int32)
    out = torch.zeros_like(q).cuda()
    used = [
        x.cuda() for x in (request, starts, torch.tensor(lengths, dtype=torch.int32), torch.tensor(cached, dtype=torch.int32))
    ]
    context_attention_fwd(q.cuda(), k.cuda(), v.cuda(), out, *used, max(lengths), table.cuda())
    heads_first = [[x[at.long()].transpose(0, 1) for x in (k, v)] for at in (pages[:70], pages[70:])]
    parts = zip(q.split(rows), heads_first, strict=True)
    wanted = [kit.attention(part.transpose(0, 1), *memory, causal=True).transpose(0, 1) for part, memory in parts]
    yield "prompt", out, torch.cat(wanted), 2e-3
    q = q[:2].contiguous()
    out = torch.zeros_like(q).cuda()
    gqa_decode_attention_fwd(q.cuda(), k.cuda(), v.cuda(), out, table.cuda(), used[0], used[2])
    wanted = [kit.attention(row[:, None], *memory)[:, 0] for row, memory in zip(q, heads_first, strict=True)]
    yield "token", out, torch.stack(wanted), 2e-3


@case("lightllm", "softmax and the largest experts")
def lightllm_experts(make: Inputs) -> Iterator[Output]:
    from lightllm.common.fused_moe.softmax_topk import softmax_topk  # type: ignore

    gates = make.normal(9, 24)
    values, indices = softmax_topk(gates.cuda(), 4, renorm=True)
    best = gates.double().softmax(-1).topk(4)
    yield "weights", values, best.values / best.values.sum(-1, keepdim=True), 1e-6
    yield "experts", indices, best.indices, 0.0


# flashinfer --------------------------------------------------------------------------------------------------------------
def flashinfer() -> None:
    import torch

    kit.bare("flashinfer", "flashinfer.triton")
    chip = torch.cuda.get_device_capability()
    kit.stand_in("flashinfer.utils", get_compute_capability=lambda device: chip, GPUArchitectureError=RuntimeError)


@case("flashinfer", "RMS norm with a residual, SiLU times")
def flashinfer_norm(make: Inputs) -> Iterator[Output]:
    flashinfer()
    from flashinfer.triton.activation import silu_and_mul  # type: ignore
    from flashinfer.triton.norm import rms_norm, rms_norm_add_residual  # type: ignore

    x, r, weight = (make.normal(*shape, dtype="bfloat16") for shape in ((5, 384), (5, 384), (384,)))
    out = make.torch.empty_like(x).cuda()
    rms_norm(x.cuda(), weight.cuda(), out, 1e-5)
    yield "norm", out, kit.rms_norm(x, weight, 1e-5), 8e-3
    y, s = x.cuda(), r.cuda()
    rms_norm_add_residual(y, s, weight.cuda(), 1e-5)
    yield "residual", s, x.double() + r.double(), 8e-3
    yield "norm of the sum", y, kit.rms_norm(x.double() + r.double(), weight, 1e-5), 1.6e-2
    yield "silu", silu_and_mul(x.cuda()), kit.silu(x[:, :192]) * x[:, 192:], 8e-3


@case("flashinfer", "attention states merged")
def flashinfer_merge(make: Inputs) -> Iterator[Output]:
    flashinfer()
    from flashinfer.triton.cascade import merge_state, merge_states  # type: ignore

    v, s = make.normal(7, 3, 4, 64), make.normal(7, 3, 4)
    merged, total = merge_states(v.cuda(), s.cuda())
    weights = (s.double() * 0.6931471805599453).softmax(1)[..., None]
    yield "values", merged, (v.double() * weights).sum(1), 1e-5
    yield "sums", total, (s.double() * 0.6931471805599453).logsumexp(1) / 0.6931471805599453, 1e-5
    parts = [x.contiguous().cuda() for x in (v[:, 0], s[:, 0], v[:, 1], s[:, 1])]
    weights = (s[:, :2].double() * 0.6931471805599453).softmax(1)[..., None]
    yield "two", merge_state(*parts)[0], (v[:, :2].double() * weights).sum(1), 1e-5


@case("flashinfer", "GEMM of few blocks, f16 and FP8")
def flashinfer_gemm(make: Inputs) -> Iterator[Output]:
    flashinfer()
    from flashinfer.triton.sm_constraint_gemm import gemm_persistent  # type: ignore

    a, b, c = make.normal(200, 96), make.normal(72, 96), make.normal(200, 72, dtype="float16")
    half, other = a.half(), b.half()
    got = gemm_persistent(half.cuda(), other.cuda().T, c.cuda(), alpha=0.5, beta=2.0, num_sms=3)
    yield "f16", got, 0.5 * half.double() @ other.double().T + 2 * c.double(), 2e-3
    half, other = a.to(make.torch.float8_e4m3fn), b.to(make.torch.float8_e4m3fn)
    got = gemm_persistent(half.cuda(), other.cuda().T, num_sms=3)
    yield "FP8", got, half.double() @ other.double().T, 8e-3


# AutoAWQ -----------------------------------------------------------------------------------------------------------------
@case("autoawq", "weights of 4 bits: unpacked, and multiplied")
def awq(make: Inputs) -> Iterator[Output]:
    kit.bare("awq", "awq.modules", "awq.modules.triton")
    from awq.modules.triton.gemm import awq_dequantize_triton, awq_gemm_triton  # type: ignore

    torch = make.torch
    weights, zeros = make.integers(0, 16, 128, 64), make.integers(0, 16, 2, 64)
    scales, x = make.uniform(2, 64, low=0.01, high=0.1, dtype="float16"), make.normal(5, 128, dtype="float16")
    order = torch.tensor([0, 4, 1, 5, 2, 6, 3, 7])  # the place of each column in its word
    words = [(w.view(-1, 8, 8) << (4 * order)).sum(-1) for w in (weights, zeros)]
    packed = [(w - ((w >> 31) << 32)).int() for w in words]
    exact = (weights.double() - zeros.double().repeat_interleave(64, 0)) * scales.double().repeat_interleave(64, 0)
    yield "weights", awq_dequantize_triton(packed[0].cuda(), scales.cuda(), packed[1].cuda()), exact, 1e-3
    got = awq_gemm_triton(x.cuda(), packed[0].cuda(), scales.cuda(), packed[1].cuda(), 2)
    yield "product", got, x.double() @ exact, 3e-3


# conch -------------------------------------------------------------------------------------------------------------------
@case("conch-triton-kernels", "Gemma's RMS norm, GELU times, FP8, boxes")
def conch(make: Inputs) -> Iterator[Output]:
    from conch.ops.activation.gelu_tanh_and_mul import gelu_tanh_and_mul  # type: ignore
    from conch.ops.normalization.gemma_rms_norm import gemma_rms_norm  # type: ignore
    from conch.ops.vision.nms import nms  # type: ignore

    torch = make.torch
    x, weight = make.normal(5, 256), make.normal(256)
    yield "norm", gemma_rms_norm(x.cuda(), weight.cuda(), 1e-6), kit.rms_norm(x, 1 + weight.double(), 1e-6), 2e-3
    gelu = torch.nn.functional.gelu(x[:, :128].double(), approximate="tanh") * x[:, 128:].double()
    yield "gelu", gelu_tanh_and_mul(x.cuda()), gelu, 2e-3
    corner, size, scores = make.uniform(60, 2, high=50), make.uniform(60, 2, low=5, high=20), make.uniform(60)
    boxes = torch.cat([corner, corner + size], 1)
    kept, left = [], scores.sort(descending=True).indices.tolist()
    while left:
        first, *left = left
        kept.append(first)
        low, high = torch.maximum(boxes[first, :2], boxes[left, :2]), torch.minimum(boxes[first, 2:], boxes[left, 2:])
        inner = (high - low).clamp_min(0).prod(-1)
        area = size.prod(-1)
        left = [b for b, share in zip(left, inner / (area[first] + area[left] - inner), strict=True) if share <= 0.3]
    yield "boxes", nms(boxes.cuda(), scores.cuda(), 0.3), torch.tensor(kept), 0.0
