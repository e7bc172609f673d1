"""Kernels of sparse attention, attention sinks, sparse products and mixtures of experts."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from evidence.projects import kit
from evidence.projects.kit import Inputs, Output, case


@case("gpt-oss", "attention with sinks, a window, keys before the queries")
def sinks(make: Inputs) -> Iterator[Output]:
    kit.bare("gpt_oss", "gpt_oss.triton")
    from gpt_oss.triton.attention import attention, attention_ref  # type: ignore

    torch = make.torch
    q, k, v = make.normal(1, 40, 2, 4, 64, dtype="bfloat16"), *(make.normal(1, 128, 2, 64, dtype="bfloat16") for _ in range(2))
    sink = make.normal(8, dtype="bfloat16")
    for name, window, start in (("all", None, 0), ("window", 16, 0), ("later queries", None, 30)):
        first = torch.tensor([start], dtype=torch.int32)
        out = attention(*(x.cuda() for x in (q, k, v, sink)), 0.125, window, first.cuda())
        yield name, out, attention_ref(q, k, v, sink, 0.125, window, first), 8e-3


LENGTH, HEADS, GROUPS, BLOCK = 100, 32, 2, 16  # of the sequence, of queries, of keys, of a block of keys


def native() -> None:
    """Let the project find what its version of FLA had in another module."""
    import fla.ops.utils.index as index  # type: ignore

    kit.bare("native_sparse_attention", "native_sparse_attention.ops")
    kit.stand_in("fla.ops.common.utils", **{name: value for name, value in vars(index).items() if name.startswith("prepare_")})


def operands(make: Inputs, rows: int) -> Iterator[Any]:
    """Queries, the gradient of the output, keys and values. rows: of keys and values."""
    for length, heads in ((LENGTH, HEADS), (LENGTH, HEADS), (rows, GROUPS), (rows, GROUPS)):
        yield make.normal(1, length, heads, 32, dtype="bfloat16")


@case("native-sparse-attention", "chosen blocks with gradients")
def nsa(make: Inputs) -> Iterator[Output]:
    native()
    from native_sparse_attention.ops.parallel import parallel_nsa  # type: ignore

    torch, length, groups, block = make.torch, LENGTH, GROUPS, BLOCK
    q, g, k, v = operands(make, length)
    gate = make.uniform(1, length, HEADS, dtype="bfloat16")
    blocks = torch.full((1, length, groups, 4), length, dtype=torch.long)  # a block that is not there, and one past the row count
    keep = torch.zeros(length, groups, length, dtype=torch.bool)
    for t in range(length):
        for h in range(groups):
            chosen = make.permutation(t // block + 1)[:4].sort().values
            blocks[0, t, h, : len(chosen)] = chosen
            for n in chosen.tolist():
                keep[t, h, n * block : min((n + 1) * block, t + 1)] = True
    given = kit.leaf(q, k, v, gate)
    out = parallel_nsa(*given[:3], None, given[3], None, blocks.cuda(), 4, block, scale=0.2)
    exact = [x.double().requires_grad_() for x in (q, k, v, gate)]
    a, b, c = exact[0][0].transpose(0, 1), *(x[0].transpose(0, 1).repeat_interleave(16, 0) for x in exact[1:3])
    scores = (a @ b.transpose(-1, -2) * 0.2).masked_fill(~keep.transpose(0, 1).repeat_interleave(16, 0), -torch.inf)
    wanted = ((scores.softmax(-1).nan_to_num() @ c).transpose(0, 1) * exact[3][0][..., None])[None]
    yield "out", out, wanted, 1e-2
    yield from kit.gradients_beside(("dq", "dk", "dv", "d gate"), out, given, wanted, exact, g, 2e-2)


@case("native-sparse-attention", "compressed blocks with gradients, and their choice")
def nsa_compressed(make: Inputs) -> Iterator[Output]:
    native()
    from native_sparse_attention.ops.parallel import parallel_nsa_compression, parallel_nsa_topk  # type: ignore

    torch, length, groups, block = make.torch, LENGTH, GROUPS, BLOCK
    q, g, k, v = operands(make, LENGTH // BLOCK + 1)
    given = kit.leaf(q, k, v)
    out, sums = parallel_nsa_compression(*given, block_size=block, scale=0.2)
    exact = [x.double().requires_grad_() for x in (q, k, v)]
    a, b, c = exact[0][0].transpose(0, 1), *(x[0].transpose(0, 1).repeat_interleave(16, 0) for x in exact[1:])
    seen = torch.arange(7)[None] < (torch.arange(length)[:, None] + 1) // block
    scores = (a @ b.transpose(-1, -2) * 0.2).masked_fill(~seen, -torch.inf)
    first = block - 1  # rows before it see no whole block
    wanted = (scores[:, first:].softmax(-1) @ c).transpose(0, 1)[None]
    rows = out[:, first:]
    yield "out", rows, wanted, 1e-2
    yield "sums", sums[:, first:], scores[:, first:].logsumexp(-1).T[None], 1e-2
    yield from kit.gradients_beside(("dq", "dk", "dv"), rows, given, wanted, exact, g[:, first:], 2e-2)
    chosen = parallel_nsa_topk(q=given[0], k=given[1], lse=sums, block_counts=4, block_size=block, scale=0.2)
    last = chosen[0, :, :, 0].cpu()
    own = torch.arange(length) // block
    yield "own block", (chosen.cpu()[0] == own[:, None, None]).any(-1).float(), torch.ones(length, groups), 0.0
    yield "in reach", (last <= own[:, None]).float(), torch.ones(length, groups), 0.0


@case("native-sparse-attention-triton", "chosen blocks with gradients, one token, keys averaged")
def nsa_triton(make: Inputs) -> Iterator[Output]:
    kit.bare("native_sparse_attention", "native_sparse_attention.ops", "native_sparse_attention.ops.triton")
    from native_sparse_attention.ops.triton import topk_sparse_attention_decode as token  # type: ignore
    from native_sparse_attention.ops.triton.topk_sparse_attention import topk_sparse_attention  # type: ignore
    from native_sparse_attention.ops.triton.weighted_pool import weightedpool_compress  # type: ignore

    torch = make.torch
    lengths, groups, block = [90, 40], 2, 32
    q, g = (make.normal(130, 8, 64, dtype="bfloat16") for _ in range(2))
    k, v = (make.normal(130, groups, 64, dtype="bfloat16") for _ in range(2))
    chosen, keep = torch.full((groups, 130, 2), -1, dtype=torch.int32), torch.zeros(groups, 130, 130, dtype=torch.bool)
    for h in range(groups):
        for t in range(130):
            start = 0 if t < 90 else 90
            blocks = make.permutation((t - start) // block + 1)[:2].sort().values
            chosen[h, t, : len(blocks)] = blocks
            for n in blocks.tolist():
                keep[h, t, start + n * block : min(start + (n + 1) * block, t + 1)] = True
    starts = torch.tensor([0, *lengths], dtype=torch.int32).cumsum(0).int()
    given = kit.leaf(q, k, v)
    out = topk_sparse_attention(*given, chosen.cuda(), block, starts.cuda())
    exact = [x.double().requires_grad_() for x in (q, k, v)]
    a, b, c = exact[0].transpose(0, 1), *(x.transpose(0, 1).repeat_interleave(4, 0) for x in exact[1:])
    scores = (a @ b.transpose(-1, -2) / 8).masked_fill(~keep.repeat_interleave(4, 0), -torch.inf)
    wanted = (scores.softmax(-1).nan_to_num() @ c).transpose(0, 1)
    yield "out", out, wanted, 1e-2
    yield from kit.gradients_beside(("dq", "dk", "dv"), out, given, wanted, exact, g, 2e-2)
    q, k, v = make.normal(2, 8, 64, dtype="bfloat16"), *(make.normal(2, 100, groups, 64, dtype="bfloat16") for _ in range(2))
    sizes, at = torch.tensor([100, 70]), torch.tensor([[[0, 3], [1, 2]], [[0, 2], [0, 1]]], dtype=torch.int32)
    used = [x.cuda() for x in (q, k, v, at)]
    got = token.topk_sparse_attention_decode(*used, block, sizes.int().cuda())
    want = token.torch_topk_sparse_attention_decode(*used, block, sizes.int().cuda())
    yield "token", got, want, 1e-2
    x, weight = make.normal(130, groups, 64, dtype="bfloat16"), make.normal(groups, 32, dtype="bfloat16")
    pooled, _ = weightedpool_compress(x.cuda(), weight.cuda(), starts.cuda(), 32, 16)
    parts = [part.double().unfold(0, 32, 16) for part in x.split(lengths)]
    yield "averaged", pooled, torch.einsum("nhdk,hk->nhd", torch.cat(parts), weight.double()), 1e-2


# experts -----------------------------------------------------------------------------------------------------------------
@case("stk", "products of which one matrix has blocks that are zero")
def stk(make: Inputs) -> Iterator[Output]:
    import stk as package  # type: ignore

    torch = make.torch
    mask = torch.tensor([[1, 0, 1], [0, 1, 1]], dtype=torch.bool)
    dense = make.normal(256, 384, dtype="float16", scale=0.1)
    sparse = (dense.view(2, 128, 3, 128) * mask[:, None, :, None]).view(256, 384)
    given = package.ops.to_sparse(sparse.cuda(), 128)
    a, b = make.normal(384, 128, dtype="float16", scale=0.1), make.normal(128, 256, dtype="float16", scale=0.1)
    yield "sparse times dense", package.ops.dsd(given, a.cuda()), sparse.double() @ a.double(), 2e-3
    yield "dense times sparse", package.ops.dds(b.cuda(), given), b.double() @ sparse.double(), 2e-3
    yield "transposed", package.ops.dsd(given.t(), b.cuda().t().contiguous()), sparse.double().T @ b.double().T, 2e-3
    c, d = make.normal(256, 128, dtype="float16", scale=0.1), make.normal(128, 384, dtype="float16", scale=0.1)
    got = package.ops.to_dense(package.ops.sdd(c.cuda(), d.cuda(), given))
    whole = (c.double() @ d.double()).view(2, 128, 3, 128) * mask[:, None, :, None]
    yield "chosen blocks", got, whole.view(256, 384), 2e-3


@case("megablocks", "rows to their experts and back, with gradients of the weights")
def megablocks(make: Inputs) -> Iterator[Output]:
    kit.bare("megablocks", "megablocks.backend")
    from megablocks.backend import kernels  # type: ignore

    torch = make.torch
    x, expert, weights = make.normal(20, 96), make.integers(0, 4, 40), make.uniform(40)
    bins_of, order = expert.sort(stable=True)
    counts = torch.bincount(expert, minlength=4)
    bins, padded = counts.cumsum(0), ((counts + 7) // 8 * 8).cumsum(0)
    place = torch.arange(40) - torch.cat([torch.zeros(1, dtype=torch.long), bins])[bins_of]
    at = torch.cat([torch.zeros(1, dtype=torch.long), padded])[bins_of] + place
    used = [t.int().cuda() for t in (order, bins_of)]
    ends = [t.int().cuda() for t in (bins, padded)]
    got = kernels.padded_gather(x.cuda(), *used, None, *ends, 2)
    rows = torch.zeros(int(padded[-1]), 96).index_copy(0, at, x[order // 2])
    yield "gathered", got, rows, 0.0
    y = make.normal(*rows.shape)
    back = torch.zeros(40, 96, dtype=torch.double).index_copy(0, order, y[at].double()) * weights.double()[:, None]
    scattered = kernels.padded_scatter(y.cuda(), *used, weights.cuda(), *ends, 2)
    yield "scattered", scattered, back.view(20, 2, 96).sum(1), 1e-6
    g = make.normal(20, 96)
    got = kernels.padded_scatter_wgrad(y.cuda(), g.cuda(), *used, *ends, 2)
    yield "d weights", got, torch.zeros(40).double().index_copy(0, order, (y[at] * g[order // 2]).double().sum(-1)), 1e-5
    binned = kernels.binned_gather(x.cuda(), used[0], None, ends[0], 6, 2)
    few = torch.zeros(4, 6, 96)
    inside = place < 6
    few[bins_of[inside], place[inside]] = x[order // 2][inside]
    yield "binned", binned, few, 0.0
    kept = torch.zeros(40, 96).index_copy(0, order[inside], few[bins_of[inside], place[inside]])
    yield "binned, back", kernels.binned_scatter(few.cuda(), used[0], None, ends[0], 2), kept.view(20, 2, 96).sum(1), 1e-6


@case("scattermoe", "a layer of experts with gradients")
def scattermoe(make: Inputs) -> Iterator[Output]:
    from scattermoe.mlp import MLP  # type: ignore

    torch = make.torch
    x, g = make.normal(30, 64, dtype="float16", scale=0.5), make.normal(30, 64, dtype="float16", scale=0.5)
    logits = make.normal(30, 4)
    layer = MLP(64, 96, 4, 2, activation=torch.nn.GELU())
    for weight in layer.parameters():
        weight.data = make.normal(*weight.shape, dtype="float16", scale=0.1)
    first, second = (w.detach().double().requires_grad_() for w in (layer.experts.weight, layer.output_experts.weight))
    best = logits.softmax(-1).topk(2)
    layer = layer.cuda()
    given = (*kit.leaf(x, best.values.half()), layer.experts.weight, layer.output_experts.weight)
    out = layer(given[0], given[1], best.indices.cuda())
    exact = [x.double().requires_grad_(), best.values.double().requires_grad_(), first, second]
    hidden = torch.nn.functional.gelu(torch.einsum("ti,ehi->teh", exact[0], exact[2]))
    each = torch.einsum("teh,eih->tei", hidden, exact[3])
    wanted = (each.gather(1, best.indices[..., None].expand(-1, -1, 64)) * exact[1][..., None]).sum(1)
    yield "out", out, wanted, 4e-3
    yield from kit.gradients_beside(("dx", "d gates", "dw1", "dw2"), out, given, wanted, exact, g, 6e-3)


@case("ml-cross-entropy", "cross entropy of a product, with gradients")
def cut(make: Inputs) -> Iterator[Output]:
    from cut_cross_entropy import linear_cross_entropy  # type: ignore

    torch = make.torch
    e, c = make.normal(40, 64, dtype="bfloat16"), make.normal(200, 64, dtype="bfloat16", scale=0.3)
    target = make.integers(0, 200, 40)
    target[7] = -100
    given, exact = kit.leaf(e, c), [x.double().requires_grad_() for x in (e, c)]
    out = linear_cross_entropy(*given, target.cuda(), impl="cce", filter_eps=None)
    wanted = torch.nn.functional.cross_entropy(exact[0] @ exact[1].T, target)
    yield "loss", out, wanted, 5e-3
    yield from kit.gradients_beside(("de", "dc"), out, given, wanted, exact, torch.ones(()), 2e-2)


# sglang ------------------------------------------------------------------------------------------------------------------
class _Unset:
    """Settings of sglang, none of which is set."""

    def __getattr__(self, name: str) -> Any:
        return SimpleNamespace(get=lambda: False)


def sglang() -> None:
    kit.bare("sglang", "sglang.kernels", "sglang.kernels.ops", "sglang.kernels.jit")
    kit.stand_in("sglang.kernels.jit.utils", is_arch_support_pdl=lambda: False)
    never = lambda: False  # noqa: E731
    kit.stand_in("sglang.srt.environ", envs=_Unset())
    kit.stand_in("sglang.srt.utils", is_hip=never, is_gfx95_supported=never, is_gfx1250_supported=never,
                 get_device_core_count=lambda *_: 132)  # fmt: skip
    for name in ("quantization", "sampling", "mamba", "attention"):
        kit.bare(f"sglang.kernels.ops.{name}")


@case("sglang", "FP8 by blocks, probabilities cut to the largest, a causal convolution")
def sglang_rows(make: Inputs) -> Iterator[Output]:
    sglang()
    from sglang.kernels.ops.mamba.causal_conv1d_triton import causal_conv1d_fn, causal_conv1d_update  # type: ignore
    from sglang.kernels.ops.quantization.act_quant_triton import act_quant  # type: ignore
    from sglang.kernels.ops.sampling.renorm_triton import top_k_renorm_probs_triton, top_p_renorm_probs_triton  # type: ignore

    torch = make.torch
    x = make.normal(9, 256)
    values, scales = act_quant(x.bfloat16().cuda())
    largest = x.bfloat16().double().view(9, 2, 128).abs().amax(-1)
    yield "scales", scales, largest / 448, 1e-6
    yield "values", values.double().view(9, 2, 128), x.bfloat16().double().view(9, 2, 128) / (largest / 448)[..., None], 0.04
    shares = make.normal(6, 500, scale=2.0).softmax(-1)
    best = shares.double().topk(20)
    want = torch.zeros(6, 500, dtype=torch.double).scatter(1, best.indices, best.values / best.values.sum(-1, keepdim=True))
    yield "the largest 20", top_k_renorm_probs_triton(shares.cuda(), 20), want, 1e-6
    ordered = shares.double().sort(descending=True)
    inside = ordered.values.cumsum(-1) - ordered.values < 0.8
    want = torch.zeros(6, 500, dtype=torch.double).scatter(1, ordered.indices, ordered.values * inside)
    yield "the largest 80 %", top_p_renorm_probs_triton(shares.cuda(), 0.8), want / want.sum(-1, keepdim=True), 1e-5
    x, weight, bias, state = make.normal(64, 50), make.normal(64, 4), make.normal(64), make.normal(2, 64, 3)
    starts, lengths = torch.tensor([0, 33, 50], dtype=torch.int32), [33, 17]
    used = torch.tensor([1, 0], dtype=torch.int32)
    kept = state.cuda()
    out = causal_conv1d_fn(
        x.cuda(), weight.cuda(), bias.cuda(), kept, starts.cuda(), lengths, used.cuda(), torch.tensor([True, False]).cuda()
    )
    rows, last = [], torch.empty(2, 64, 3)
    for n, part in enumerate(x.split(lengths, 1)):
        before = state[used[n]] if n == 0 else torch.zeros(64, 3)
        whole = torch.cat([before, part], 1)
        sums = torch.einsum("ctk,ck->ct", whole.double().unfold(1, 4, 1), weight.double())
        rows.append(kit.silu(sums + bias.double()[:, None]))
        last[used[n]] = whole[:, -3:]
    yield "convolution", out, torch.cat(rows, 1), 1e-5
    yield "state", kept, last, 0.0
    step = make.normal(2, 64)
    got = causal_conv1d_update(step.cuda(), kept, weight.cuda(), bias.cuda(), "silu")
    whole = torch.cat([last, step[..., None]], -1)
    yield "one step", got, kit.silu((whole.double() * weight.double()).sum(-1) + bias.double()), 1e-5


@case("sglang", "attention of one token, keys in pages")
def sglang_token(make: Inputs) -> Iterator[Output]:
    sglang()
    from sglang.kernels.ops.attention.decode_attention import decode_attention_fwd  # type: ignore

    torch = make.torch
    lengths, heads, groups, width = [70, 33], 8, 2, 64
    pages = make.permutation(103)
    k, v = (make.normal(103, groups, width, dtype="float16") for _ in range(2))
    q = make.normal(2, heads, width, dtype="float16")
    out, starts = torch.zeros_like(q).cuda(), torch.tensor([0, 70, 103], dtype=torch.int32).cuda()
    logits, sums = torch.empty(2, heads, 4, width).cuda(), torch.empty(2, heads, 4).cuda()
    splits = torch.tensor([3, 2], dtype=torch.int32).cuda()
    given = (q.cuda(), k.cuda(), v.cuda(), out, starts, pages.cuda(), logits, sums, splits)
    decode_attention_fwd(*given, 4, width**-0.5, 1.0, 1.0)
    wanted = [
        kit.attention(row[:, None], k[at].transpose(0, 1), v[at].transpose(0, 1))[:, 0]
        for row, at in zip(q, pages.split(lengths), strict=True)
    ]
    yield "token", out, torch.stack(wanted), 3e-3
