"""Kernels of quantized products and attention, and products whose rounding is the same for every batch."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from evidence.projects import kit
from evidence.projects.kit import Inputs, Output, case


def tiles(x: Any, rows: int, columns: int) -> Any:
    """A matrix in tiles; axes: tile's row, row, tile's column, column."""
    return x.double().view(x.shape[0] // rows, rows, x.shape[1] // columns, columns)


def quantized(x: Any, rows: int, columns: int) -> tuple[Any, Any]:
    """FP8 values of a matrix and a scale for each tile, in double precision."""
    import torch

    parts = tiles(x, rows, columns)
    scales = parts.abs().amax((1, 3)) / 448
    return (parts / scales[:, None, :, None]).float().to(torch.float8_e4m3fn).view(x.shape), scales


def wide(values: Any, scales: Any, rows: int, columns: int) -> Any:
    """The numbers that FP8 values and scales stand for, in double precision."""
    return (tiles(values.cpu(), rows, columns) * scales.cpu().double()[:, None, :, None]).view(values.shape)


@case("deepseek-v3", "FP8 by blocks: activations, weights, a product")
def deepseek(make: Inputs) -> Iterator[Output]:
    import kernel  # type: ignore

    torch = make.torch
    torch.set_default_dtype(torch.bfloat16)
    try:
        x, w = make.normal(20, 256, dtype="bfloat16"), make.normal(128, 256)
        values, scales = kernel.act_quant(x.cuda())
        yield "scales", scales, tiles(x, 1, 128).abs().amax((1, 3)) / 448, 1e-6
        yield "values", wide(values, scales, 1, 128), x.double(), 0.04
        powers = kernel.act_quant(x.cuda(), scale_fmt="ue8m0")[1]
        yield "powers of two", powers, 2 ** (tiles(x, 1, 128).abs().amax((1, 3)) / 448).log2().ceil(), 0.0
        other, other_scales = quantized(w, 128, 128)
        given, exact = (other.cuda(), other_scales.float().cuda()), wide(other, other_scales, 128, 128)
        yield "weights", kernel.weight_dequant(*given), exact, 4e-3
        yield "product", kernel.fp8_gemm(values, scales, *given), wide(values, scales, 1, 128) @ exact.T, 5e-3
    finally:
        torch.set_default_dtype(torch.float32)


@case("torchao", "FP8 by blocks: activations, weights, a product")
def torchao(make: Inputs) -> Iterator[Output]:
    from torchao.kernel import blockwise_quantization as kernel  # type: ignore

    x, w = make.normal(32, 256, dtype="bfloat16"), make.normal(128, 256)
    values, scales = kernel.fp8_blockwise_act_quant(x.cuda())
    yield "scales", scales, tiles(x, 1, 128).abs().amax((1, 3)) / 448, 1e-6
    yield "values", wide(values, scales, 1, 128), x.double(), 0.04
    other, other_scales = kernel.fp8_blockwise_weight_quant(w.cuda())
    yield "weights", wide(other, other_scales, 128, 128), w, 0.04
    exact = wide(other, other_scales, 128, 128)
    yield "weights, wide", kernel.fp8_blockwise_weight_dequant(other, other_scales), exact, 4e-3
    got = kernel.blockwise_fp8_gemm(values, scales, other, other_scales)
    yield "product", got, wide(values, scales, 1, 128) @ exact.T, 5e-3


@case("torchao", "FP8 for training: a product of few rows")
def torchao_rows(make: Inputs) -> Iterator[Output]:
    from torchao.prototype.blockwise_fp8_training import kernels  # type: ignore

    a, b = make.normal(3, 256), make.normal(128, 256)
    values, scales = kernels.triton_fp8_blockwise_act_quant_lhs(a.bfloat16().cuda())
    other, other_scales = quantized(b, 128, 128)
    given = other_scales.float().cuda().T
    got = kernels.triton_fp8_gemm_1x128_128x128(values, other.cuda().T, scales, given)
    yield "product", got, wide(values, scales, 1, 128) @ wide(other, other_scales, 128, 128).T, 5e-3


@case("gemlite", "products with weights of 4 bits, and with 8 bits on both sides")
def gemlite(make: Inputs) -> Iterator[Output]:
    from gemlite import DType, GemLiteLinear  # type: ignore
    from gemlite.helper import A8W8_int8_dynamic  # type: ignore

    torch = make.torch
    weights, zeros = make.integers(0, 16, 128, 256), make.integers(0, 16, 256, 1)
    scales = make.uniform(256, 1, low=0.01, high=0.1, dtype="float16")
    exact = ((weights.view(256, 128).double() - zeros) * scales.double()).view(128, 256)
    layer = GemLiteLinear(4, group_size=128, in_features=256, out_features=128, input_dtype=DType.FP16, output_dtype=DType.FP16)
    layer.pack(weights.to(torch.uint8).cuda(), scales.cuda(), zeros.half().cuda(), None)
    for kind, rows in (("GEMV", 1), ("GEMV_REVSPLITK", 1), ("GEMV_SPLITK", 1), ("GEMM_SPLITK", 5), ("GEMM", 40)):
        x = make.normal(rows, 256, dtype="float16", scale=0.1)
        yield kind, layer.forward_manual(x.cuda(), matmul_type=kind), x.double() @ exact.T, 3e-3
    dense, x = make.normal(128, 256, dtype="float16"), make.normal(20, 256, dtype="float16")
    layer = A8W8_int8_dynamic(device="cuda:0", dtype=torch.float16).from_weights(dense.cuda())
    yield "8 bits", layer.forward_manual(x.cuda(), matmul_type="GEMM"), x.double() @ dense.double().T, 1.5e-2


@case("gemlite", "a row times weights of 8 bits, without tuning")
def gemlite_default(make: Inputs) -> Iterator[Output]:
    from gemlite import set_autotune  # type: ignore
    from gemlite.helper import A16W8_INT8  # type: ignore

    set_autotune(False)
    dense, x = make.normal(64, 768, dtype="float16"), make.normal(1, 768, dtype="float16")
    layer = A16W8_INT8(device="cuda:0", dtype=make.torch.float16).from_weights(dense.cuda())
    yield "product", layer(x.cuda()), x.double() @ dense.double().T, 1.5e-2


# SageAttention, SpargeAttn -----------------------------------------------------------------------------------------------
@case("sageattention", "attention with keys of 8 bits: blocks, causal, lengths, threads")
def sage(make: Inputs) -> Iterator[Output]:
    kit.bare("sageattention", "sageattention.triton")
    from sageattention.triton import attn_qk_int8_per_block as plain  # type: ignore
    from sageattention.triton import attn_qk_int8_per_block_causal as causal
    from sageattention.triton import attn_qk_int8_per_block_causal_varlen as several
    from sageattention.triton import quant_per_block, quant_per_block_varlen, quant_per_thread

    torch = make.torch
    q, k, v = (make.normal(1, n, 200, 64, dtype="float16") for n in (4, 2, 2))
    mean = k.mean(-2, keepdim=True)
    qi, qs, ki, ks = quant_per_block.per_block_int8(q.cuda(), k.cuda(), km=mean.cuda())
    yield "q", qi.double() * qs.double().repeat_interleave(128, -1)[..., :200, None], q.double() * 64**-0.5 * 1.44269504, 6e-3
    yield "k", ki.double() * ks.double().repeat_interleave(64, -1)[..., :200, None], (k - mean).double(), 6e-3
    yield "out", plain.forward(qi, ki, v.cuda(), qs, ks)[0], kit.attention(q, k, v), 3e-2
    yield "causal", causal.forward(qi, ki, v.cuda(), qs, ks)[0], kit.attention(q, k, v, causal=True), 3e-2
    lengths = [120, 80]
    starts = torch.tensor([0, 120, 200], dtype=torch.int32).cuda()
    q, k, v = (x[0].transpose(0, 1).contiguous() for x in (q, k, v))
    given = quant_per_block_varlen.per_block_int8(q.cuda(), k.cuda(), starts, starts, 120, 120)
    qi, qs, ki, ks, qn, kn = given
    out = several.forward(qi, ki, v.cuda(), starts, starts, 120, qs, ks, qn, kn)
    parts = zip(*([y.transpose(0, 1) for y in x.split(lengths)] for x in (q, k, v)), strict=True)
    yield "lengths", out, torch.cat([kit.attention(*part, causal=True).transpose(0, 1) for part in parts]), 3e-2
    q, k = make.normal(1, 2, 150, 64, dtype="float16"), make.normal(1, 2, 150, 64, dtype="float16")
    qi, qs, ki, ks = quant_per_thread.per_thread_int8(q.cuda(), k.cuda(), BLKQ=128, WARPQ=32, BLKK=64, WARPK=64)
    row = torch.arange(150)
    yield "q by threads", qi.double() * qs.double()[..., row // 32 * 8 + row % 8].unsqueeze(-1), q, 6e-3
    yield "k by threads", ki.double() * ks.double()[..., row // 64 * 4 + row % 8 // 2].unsqueeze(-1), k, 6e-3


@case("spargeattn", "attention that leaves out blocks of keys")
def sparge(make: Inputs) -> Iterator[Output]:
    kit.bare("spas_sage_attn")
    stand = "spas_sage_attn.triton_kernel_example"
    spec = importlib.util.spec_from_file_location(stand, example())
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    from spas_sage_attn.utils import get_block_map_meansim  # type: ignore

    torch = make.torch
    q, k, v = make.normal(1, 2, 256, 64, dtype="float16"), *(make.normal(1, 2, 256, 64, dtype="float16") for _ in range(2))
    smooth = k.cuda() - k.cuda().mean(-2, keepdim=True)  # as the device rounds: the choice of blocks depends on it
    for causal in (False, True):
        blocks = get_block_map_meansim(q.cuda(), smooth, is_causal=causal, simthreshd1=-1.0, cdfthreshd=0.6)
        out = module.spas_sage_attn_meansim(q.cuda(), k.cuda(), v.cuda(), is_causal=causal, simthreshd1=-1.0, cdfthreshd=0.6)
        keep = blocks.cpu().bool().repeat_interleave(128, -2).repeat_interleave(64, -1)
        if causal:
            keep = keep & torch.ones(256, 256, dtype=torch.bool).tril()
        seen = keep.any(-1, keepdim=True)  # a row of queries may be left without keys: then the kernel's result is any
        scores = (q.double() @ smooth.cpu().double().transpose(-1, -2) / 8).masked_fill(~keep, -torch.inf)
        yield "causal" if causal else "all", out * seen.cuda(), (scores.softmax(-1).nan_to_num() @ v.double()) * seen, 3e-2


def example() -> Path:
    """The file of SpargeAttn's kernel in Triton, which is not in its package."""
    return next(found for path in sys.path if (found := Path(path, "Triton_SpargeAttn/triton_kernel_example.py")).exists())


@case("batch-invariant-ops", "torch's products, log softmax and mean, replaced")
def invariant(make: Inputs) -> Iterator[Output]:
    kit.bare("batch_invariant_ops")
    from batch_invariant_ops import batch_invariant_ops as ops  # type: ignore

    torch = make.torch
    a, b, bias = (make.normal(*s, dtype="bfloat16") for s in ((70, 96), (96, 50), (50,)))
    x = make.normal(9, 333)
    with ops.set_batch_invariant_mode():
        left, right = a.cuda(), b.cuda()
        whole, rows = torch.mm(left, right), torch.mm(left[:3], right)
        yield "product", whole, a.double() @ b.double(), 5e-3
        yield "rows alone", rows, whole[:3], 0.0
        yield "product and bias", torch.addmm(bias.cuda(), left, right), a.double() @ b.double() + bias.double(), 5e-3
        yield "log softmax", torch.log_softmax(x.cuda(), -1), x.double().log_softmax(-1), 1e-6
        yield "mean", torch.mean(x.cuda(), 1), x.double().mean(1), 1e-5
