"""Kernels of attention in its kinds: softmax, linear, sigmoid, of triangles, recurrent, late interaction."""

from __future__ import annotations

from collections.abc import Iterator

from evidence.projects import kit
from evidence.projects.kit import Inputs, Output, case


@case("trifast", "attention of triangles with gradients")
def trifast(make: Inputs) -> Iterator[Output]:
    from trifast.torch import triangle_attention  # type: ignore

    torch = make.torch
    shape = (1, 2, 20, 20, 32)
    q, k, v, g = (make.normal(*shape, dtype="bfloat16") for _ in range(4))
    b, mask = make.normal(1, 2, 20, 20, dtype="bfloat16"), make.uniform(1, 20, 20) < 0.2
    given = kit.leaf(q, k, v, b)
    out = triangle_attention(*given, mask.cuda())
    exact = [x.double().requires_grad_() for x in (q, k, v, b)]
    scores = torch.einsum("bhijd,bhikd->bhijk", exact[0] * 32**-0.5, exact[1]) + exact[3][:, :, None]
    scores = scores.masked_fill(mask[:, None, :, None], -1e30)
    wanted = torch.einsum("bhijk,bhikd->bhijd", scores.softmax(-1), exact[2])
    yield "out", out, wanted, 2e-2
    yield from kit.gradients_beside(("dq", "dk", "dv", "db"), out, given, wanted, exact, g, 3e-2)


@case("lightning-attn", "linear attention with decay and gradients")
def lightning(make: Inputs) -> Iterator[Output]:
    from lightning_attn.ops.triton.lightning_attn2 import lightning_attn2  # type: ignore

    torch = make.torch
    q, k, v, g = (make.normal(1, 2, 100, 32, dtype="bfloat16", scale=0.5) for _ in range(4))
    decay = make.uniform(2, low=0.05, high=0.3)
    given = kit.leaf(q, k, v)
    out = lightning_attn2(*given, decay.view(2, 1, 1).cuda())
    exact = [x.double().requires_grad_() for x in (q, k, v)]
    distance = torch.arange(100)[:, None] - torch.arange(100)[None]
    factor = torch.where(distance >= 0, torch.exp(-decay.double()[:, None, None] * distance.clamp_min(0)), 0.0)
    wanted = (exact[0] @ exact[1].transpose(-1, -2) * factor) @ exact[2]
    yield "out", out, wanted, 2e-2
    yield from kit.gradients_beside(("dq", "dk", "dv"), out, given, wanted, exact, g, 3e-2)


@case("triton-sigmoid", "sigmoid attention with gradients")
def sigmoid(make: Inputs) -> Iterator[Output]:
    from triton_sigmoid.sigmoid_triton_dense import sigmoid_attention  # type: ignore

    torch = make.torch
    q, k, v, g = (make.normal(1, 70, 2, 32, dtype="float16") for _ in range(4))
    given = kit.leaf(q, k, v)
    out = sigmoid_attention(*given, is_causal=True)
    exact = [x.double().requires_grad_() for x in (q, k, v)]
    a, b, c = (x.transpose(1, 2) for x in exact)
    weights = (a @ b.transpose(-1, -2) * 32**-0.5 - torch.tensor(70.0).double().log()).sigmoid().tril()
    wanted = (weights @ c).transpose(1, 2)
    yield "out", out, wanted, 5e-3
    yield from kit.gradients_beside(("dq", "dk", "dv"), out, given, wanted, exact, g, 5e-3)


@case("ring-attention-pytorch", "flash attention with gradients")
def ring(make: Inputs) -> Iterator[Output]:
    import importlib.metadata as metadata

    version = metadata.version
    metadata.version = lambda name: version("triton" if name == "triton-nightly" else name)  # it asks for a nightly Triton
    from ring_attention_pytorch.triton_flash_attn import flash_attn_backward, flash_attn_forward  # type: ignore

    torch = make.torch
    q, k, v, g = (make.normal(1, 150, 2, 64, dtype="bfloat16") for _ in range(4))
    out, _, lse = flash_attn_forward(
        q.cuda(), k.cuda(), v.cuda(), causal=True, return_normalized_output=True, load_accumulated=False
    )
    exact = [x.double().requires_grad_() for x in (q, k, v)]
    wanted = kit.attention(*(x.transpose(1, 2) for x in exact), causal=True).transpose(1, 2)
    yield "out", out, wanted, 1e-2
    grads = [torch.zeros_like(x, dtype=torch.float32).cuda() for x in (q, k, v)]
    flash_attn_backward(g.cuda(), q.cuda(), k.cuda(), v.cuda(), out, lse, *grads, causal=True, softmax_scale=0.125)
    for name, *pair in zip("qkv", grads, kit.gradients(wanted, g, *exact), strict=True):
        yield f"d{name}", *pair, 2e-2


@case("jvp-flash-attention", "attention with gradients and a tangent")
def jvp(make: Inputs) -> Iterator[Output]:
    from jvp_flash_attention.jvp_attention import JVPAttn  # type: ignore

    torch = make.torch
    q, k, v, g, dq, dk, dv = (make.normal(1, 2, 128, 32, dtype="float16") for _ in range(7))
    given = kit.leaf(q, k, v)
    out = JVPAttn.fwd(*given, causal=True)
    exact = [x.double().requires_grad_() for x in (q, k, v)]
    wanted = kit.attention(*exact, causal=True)
    yield "out", out, wanted, 5e-3
    yield from kit.gradients_beside(("dq", "dk", "dv"), out, given, wanted, exact, g, 5e-3)
    import torch.autograd.forward_ad as forward

    with forward.dual_level():
        duals = [forward.make_dual(x.cuda(), t.cuda()) for x, t in ((q, dq), (k, dk), (v, dv))]
        tangent = forward.unpack_dual(JVPAttn.fwd_dual(*duals, causal=True)).tangent
    plain = lambda *x: kit.attention(*x, causal=True)  # noqa: E731
    want = torch.func.jvp(plain, (q.double(), k.double(), v.double()), (dq.double(), dk.double(), dv.double()))[1]
    yield "tangent", tangent, want, 1e-2


@case("late-interaction-kernels", "sums of the largest products")
def late(make: Inputs) -> Iterator[Output]:
    from late_interaction_kernels.forward import maxsim_forward  # type: ignore

    q, d = make.normal(3, 20, 64, dtype="float16"), make.normal(5, 70, 64, dtype="float16")
    keep = make.uniform(5, 70) < 0.9
    keep[:, 0] = True
    scores, _ = maxsim_forward(q.cuda(), d.cuda(), None, keep.cuda())
    products = make.torch.einsum("aqx,bdx->abqd", q.double(), d.double())
    yield "scores", scores, products.masked_fill(~keep[None, :, None], -1e30).amax(-1).sum(-1), 1e-5


@case("mlstm-kernels", "xLSTM, chunks with gradients, against its own reference")
def mlstm(make: Inputs) -> Iterator[Output]:
    from mlstm_kernels.torch.chunkwise.triton_xl_chunk import mlstm_chunkwise__xl_chunk  # type: ignore
    from mlstm_kernels.torch.parallel.native_stablef import mlstm_parallel__native_stablef_custbw  # type: ignore

    q, k, v, g = (make.normal(1, 2, 128, 64) for _ in range(4))
    i, f = make.normal(1, 2, 128), make.normal(1, 2, 128) + 3
    given = kit.leaf(q, k, v, i, f)
    out = mlstm_chunkwise__xl_chunk(*given, chunk_size=64, autocast_kernel_dtype=make.torch.float32)
    exact = [x.requires_grad_() for x in (q, k, v, i, f)]
    wanted = mlstm_parallel__native_stablef_custbw(*exact)  # like the kernel, it takes the normalizer for a constant
    yield "out", out, wanted, 1e-2
    yield from kit.gradients_beside(("dq", "dk", "dv", "di", "df"), out, given, wanted, exact, g, 2e-2)


@case("flash-linear-attention", "gated delta rule in chunks, with gradients")
def fla(make: Inputs) -> Iterator[Output]:
    from fla.ops.gated_delta_rule import chunk_gated_delta_rule  # type: ignore

    torch = make.torch
    functional = torch.nn.functional
    q, k, v, g = (make.normal(1, 130, 2, 32, dtype="bfloat16") for _ in range(4))
    k = functional.normalize(k.float(), dim=-1).bfloat16()
    decay, beta = -make.uniform(1, 130, 2, high=0.3), make.uniform(1, 130, 2, dtype="bfloat16")
    given = kit.leaf(q, k, v, decay, beta)
    out, _ = chunk_gated_delta_rule(*given, scale=32**-0.5)
    exact = [x.double().requires_grad_() for x in (q, k, v, decay, beta)]
    state, rows = torch.zeros(1, 2, 32, 32, dtype=torch.double), []
    for t in range(130):
        a, b, c, e, n = (x[:, t] for x in exact)
        state = state * e.exp()[..., None, None]
        new = (c - torch.einsum("bhk,bhkv->bhv", b, state)) * n[..., None]
        state = state + b[..., None] * new[..., None, :]
        rows.append(torch.einsum("bhk,bhkv->bhv", a * 32**-0.5, state))
    wanted = torch.stack(rows, 1)
    yield "out", out, wanted, 2e-2
    names = "d q", "d k", "d v", "d decay", "d beta"
    yield from kit.gradients_beside(names, out, given, wanted, exact, g, 4e-2)
