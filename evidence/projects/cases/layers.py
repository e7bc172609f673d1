"""Kernels of layers in libraries for training: norms, activations, positions, losses, with their gradients."""

from __future__ import annotations

import os
from collections.abc import Iterator
from types import SimpleNamespace

from evidence.projects import kit
from evidence.projects.kit import Inputs, Output, case


# attorch -----------------------------------------------------------------------------------------------------------------
@case("attorch", "layer norm, GELU, GLU and cross entropy with gradients")
def attorch_layers(make: Inputs) -> Iterator[Output]:
    import attorch  # type: ignore

    torch = make.torch
    functional = torch.nn.functional
    x, g, half = make.normal(9, 80), make.normal(9, 80), make.normal(9, 40)
    weight, bias, target = make.normal(80), make.normal(80), make.integers(0, 80, 9)
    norm = attorch.LayerNorm(80).cuda()
    with torch.no_grad():
        norm.weight.copy_(weight)
        norm.bias.copy_(bias)
    layers = {
        "norm": (norm, lambda y: functional.layer_norm(y, (80,), weight.double(), bias.double()), g),
        "GELU": (attorch.GELU(), functional.gelu, g),
        "GLU": (attorch.GLU(act_func="sigmoid"), functional.glu, half),
        "softmax": (attorch.Softmax(dim=-1), lambda y: y.softmax(-1), g),
        "loss": (lambda y: attorch.CrossEntropyLoss()(y, target.cuda()), lambda y: functional.cross_entropy(y, target), None),
    }
    for name, (layer, exact, given) in layers.items():
        (a,), b = kit.leaf(x), x.double().requires_grad_()
        out, wanted = layer(a), exact(b)
        yield name, out, wanted, 1e-5
        given = torch.ones(()) if given is None else given
        yield f"d {name}", kit.gradients(out, given.cuda(), a)[0], kit.gradients(wanted, given, b)[0], 1e-5


@case("attorch", "convolution and batch norm with gradients")
def attorch_images(make: Inputs) -> Iterator[Output]:
    import attorch  # type: ignore

    torch = make.torch
    functional = torch.nn.functional
    x, w, bias, g = make.normal(2, 8, 9, 9), make.normal(16, 8, 3, 3), make.normal(16), make.normal(2, 16, 9, 9)
    layer = attorch.Conv2d(8, 16, 3, padding=1).cuda()
    with torch.no_grad():
        layer.weight.copy_(w)
        layer.bias.copy_(bias)
    (a,), exact = kit.leaf(x), [y.double().requires_grad_() for y in (x, w, bias)]
    out, wanted = layer(a), functional.conv2d(*exact, padding=1)
    yield "convolution", out, wanted, 2e-3
    given = (a, layer.weight, layer.bias)
    yield from kit.gradients_beside(("dx", "dw", "db"), out, given, wanted, exact, g, 2e-3)
    norm = attorch.BatchNorm2d(16).cuda()
    (a,), b = kit.leaf(g), g.double().requires_grad_()
    out, wanted = norm(a), functional.batch_norm(b, None, None, training=True)
    yield "batch norm", out, wanted, 1e-5
    back = make.normal(2, 16, 9, 9)
    yield from kit.gradients_beside(("d batch norm",), out, (a,), wanted, (b,), back, 1e-5)


# unsloth -----------------------------------------------------------------------------------------------------------------
def unsloth() -> None:
    from packaging.version import Version

    kit.bare("unsloth", "unsloth.kernels")
    nothing = dict.fromkeys(("patch_layernorm", "patch_loss_functions", "LlamaRMSNorm", "logger", "weight_dequant", "fp8_linear"))
    for name in ("unsloth_zoo", "transformers", "transformers.models", "transformers.models.llama"):
        kit.stand_in(name)
    kit.stand_in("unsloth_zoo.utils", Version=Version)
    kit.stand_in("unsloth_zoo.patching_utils", patch_layernorm=None)
    kit.stand_in("unsloth_zoo.loss_utils", patch_loss_functions=None, post_patch_loss_function=None)
    kit.stand_in("transformers.models.llama.modeling_llama", LlamaRMSNorm=object, logger=None)
    kit.stand_in("unsloth.kernels.fp8", **nothing)
    kit.stand_in("unsloth.bnb_availability", native_kernels_ready=lambda *names: False)
    kit.stand_in("unsloth.device_type", is_hip=lambda: False, get_device_type=lambda: "cuda", DEVICE_TYPE="cuda",
                 DEVICE_TYPE_TORCH="cuda", DEVICE_COUNT=1, ALLOW_PREQUANTIZED_MODELS=True)  # fmt: skip


@case("unsloth", "RMS norm, layer norm and cross entropy with gradients")
def unsloth_norms(make: Inputs) -> Iterator[Output]:
    unsloth()
    from unsloth.kernels.cross_entropy_loss import fast_cross_entropy_loss  # type: ignore
    from unsloth.kernels.layernorm import fast_layernorm  # type: ignore
    from unsloth.kernels.rms_layernorm import fast_rms_layernorm  # type: ignore

    torch = make.torch
    functional = torch.nn.functional
    x, g, weight, bias = make.normal(2, 7, 192), make.normal(2, 7, 192), make.normal(192), make.normal(192)
    layer = SimpleNamespace(weight=weight.cuda(), variance_epsilon=1e-6)
    norm = torch.nn.LayerNorm(192).cuda().requires_grad_(False)
    norm.weight.copy_(weight)
    norm.bias.copy_(bias)
    kinds = {
        "RMS": (lambda y: fast_rms_layernorm(layer, y), lambda y: kit.rms_norm(y, weight, 1e-6)),
        "Gemma's": (lambda y: fast_rms_layernorm(layer, y, gemma=True), lambda y: kit.rms_norm(y, 1 + weight.double(), 1e-6)),
        "norm": (lambda y: fast_layernorm(norm, y), lambda y: functional.layer_norm(y, (192,), weight.double(), bias.double())),
    }
    for name, (kernel, reference) in kinds.items():
        (a,), b = kit.leaf(x), x.double().requires_grad_()
        out, wanted = kernel(a), reference(b)
        yield name, out, wanted, 1e-5
        yield from kit.gradients_beside((f"d {name}",), out, (a,), wanted, (b,), g, 1e-5)
    labels = make.integers(0, 192, 2, 7)
    labels[0, 3] = -100
    (a,), b = kit.leaf(x), x.double().requires_grad_()
    out, wanted = fast_cross_entropy_loss(a * 1, labels.cuda()), functional.cross_entropy(b.view(-1, 192), labels.view(-1))
    yield "loss", out, wanted, 1e-5
    yield from kit.gradients_beside(("d loss",), out, (a,), wanted, (b,), torch.ones(()), 1e-5)


@case("unsloth", "SwiGLU and GEGLU there and back, rotary positions")
def unsloth_gates(make: Inputs) -> Iterator[Output]:
    unsloth()
    from unsloth.kernels import geglu  # type: ignore
    from unsloth.kernels.rope_embedding import fast_rope_embedding  # type: ignore
    from unsloth.kernels.swiglu import swiglu_DWf_DW_dfg_kernel, swiglu_fg_kernel  # type: ignore

    torch = make.torch
    gelu = torch.nn.functional.gelu
    e, h, d = (make.normal(2, 5, 160, dtype="bfloat16") for _ in range(3))
    kinds = {
        "SwiGLU": (swiglu_fg_kernel, swiglu_DWf_DW_dfg_kernel, kit.silu),
        "GEGLU": (geglu.geglu_exact_forward_kernel, geglu.geglu_exact_backward_kernel, lambda y: gelu(y.double())),
        "GEGLU, tanh": (geglu.geglu_approx_forward_kernel, geglu.geglu_approx_backward_kernel,
                        lambda y: gelu(y.double(), approximate="tanh")),
    }  # fmt: skip
    for name, (forward, backward, gate) in kinds.items():
        a, b = (y.double().requires_grad_() for y in (e, h))
        wanted = gate(a) * b
        yield name, forward(e.cuda(), h.cuda()), wanted, 8e-3
        rows = [y.view(10, 160).cuda() for y in (d.clone(), e.clone(), h.clone())]
        got = backward(*rows)
        da, db = kit.gradients(wanted, d, a, b)
        for part, *pair in zip(("h", "df", "de"), got, (wanted, d.double() * gate(e), da), strict=True):
            yield f"{name}: {part}", pair[0], pair[1].view(10, 160), 1.6e-2
        del db
    q, k, angle = make.normal(2, 6, 13, 64), make.normal(2, 2, 13, 64), make.uniform(13, 32, high=6.0)
    cos, sin = (torch.cat([y, y], -1) for y in (angle.cos(), angle.sin()))
    got = fast_rope_embedding(q.cuda(), k.cuda(), cos.cuda(), sin.cuda())
    for name, y, x in zip("qk", got, (q, k), strict=True):
        turned = torch.cat([-x[..., 32:], x[..., :32]], -1).double()
        yield name, y, x.double() * cos.double() + turned * sin.double(), 1e-6


# flash-attention ---------------------------------------------------------------------------------------------------------
def flash() -> None:
    kit.bare("flash_attn", "flash_attn.ops", "flash_attn.ops.triton", "flash_attn.utils")


@case("flash-attention", "layer norm with a residual, RMS norm, with gradients")
def flash_norm(make: Inputs) -> Iterator[Output]:
    flash()
    from flash_attn.ops.triton.layer_norm import layer_norm_fn, rms_norm_fn  # type: ignore

    functional = make.torch.nn.functional
    x, r, g, weight, bias = make.normal(11, 200), make.normal(11, 200), make.normal(11, 200), make.normal(200), make.normal(200)
    given, exact = kit.leaf(x, r, weight, bias), [y.double().requires_grad_() for y in (x, r, weight, bias)]
    out, total = layer_norm_fn(given[0], given[2], given[3], residual=given[1], prenorm=True)
    wanted = functional.layer_norm(exact[0] + exact[1], (200,), *exact[2:], eps=1e-6)
    yield "sum", total, x.double() + r.double(), 1e-6
    yield "norm", out, wanted, 1e-5
    yield from kit.gradients_beside(("dx", "dr", "dw", "db"), out, given, wanted, exact, g, 1e-5)
    given, exact = kit.leaf(x, weight), [y.double().requires_grad_() for y in (x, weight)]
    out, wanted = rms_norm_fn(*given, None), kit.rms_norm(*exact, 1e-6)
    yield "RMS", out, wanted, 1e-5
    yield from kit.gradients_beside(("RMS dx", "RMS dw"), out, given, wanted, exact, g, 1e-5)


@case("flash-attention", "rotary positions, cross entropy with its gradient")
def flash_rest(make: Inputs) -> Iterator[Output]:
    flash()
    from flash_attn.ops.triton.cross_entropy import cross_entropy_loss  # type: ignore
    from flash_attn.ops.triton.rotary import apply_rotary  # type: ignore

    torch = make.torch
    x, angle = make.normal(2, 17, 3, 64), make.uniform(17, 32, high=6.0)
    cos, sin = angle.cos(), angle.sin()
    c, s = cos[:, None].double(), sin[:, None].double()
    a, b = x.double().split(32, -1)
    yield "halves", apply_rotary(x.cuda(), cos.cuda(), sin.cuda()), torch.cat([a * c - b * s, a * s + b * c], -1), 1e-6
    a, b = x.double()[..., ::2], x.double()[..., 1::2]
    pairs = torch.stack([a * c - b * s, a * s + b * c], -1).flatten(-2)
    yield "pairs", apply_rotary(x.cuda(), cos.cuda(), sin.cuda(), interleaved=True), pairs, 1e-6
    logits, labels, g = make.normal(9, 300), make.integers(0, 300, 9), make.normal(9)
    labels[4] = -100
    (given,), exact = kit.leaf(logits), logits.double().requires_grad_()
    loss, square = cross_entropy_loss(given, labels.cuda(), label_smoothing=0.1, lse_square_scale=1e-2)
    z = 1e-2 * exact.logsumexp(-1).square() * (labels != -100)
    wanted = torch.nn.functional.cross_entropy(exact, labels, label_smoothing=0.1, reduction="none") + z
    yield "loss", loss, wanted, 1e-5
    yield "z", square, z, 1e-5
    yield from kit.gradients_beside(("d loss",), loss, (given,), wanted, (exact,), g, 1e-5)


# xformers ----------------------------------------------------------------------------------------------------------------
@case("xformers", "RMS norm, rows added and gathered, with gradients")
def xformers(make: Inputs) -> Iterator[Output]:
    kit.bare("xformers", "xformers.ops", "xformers.ops._triton", "xformers.triton")
    from xformers.ops._triton.k_index_select_cat import index_select_cat_bwd, index_select_cat_fwd  # type: ignore
    from xformers.ops._triton.k_scaled_index_add import scaled_index_add_bwd, scaled_index_add_fwd  # type: ignore
    from xformers.ops._triton.rmsnorm_kernels import _rms_norm_add_forward, _rms_norm_forward  # type: ignore

    torch = make.torch
    x, y, weight = make.normal(6, 320), make.normal(6, 320), make.normal(320)
    yield "norm", _rms_norm_forward(x.cuda(), weight.cuda(), 1e-6), kit.rms_norm(x, weight, 1e-6), 1e-5
    given = x.cuda()
    yield "norm of a sum", _rms_norm_add_forward(given, y.cuda(), weight.cuda(), 1e-6), kit.rms_norm(x + y, weight, 1e-6), 1e-5
    yield "sum", given, x + y, 0.0
    source, index = make.normal(20, 70), make.permutation(20)[:7]
    out = torch.empty(7, 70).cuda()
    index_select_cat_fwd(out, source.cuda(), index.cuda())
    yield "gathered", out, source[index], 0.0
    back = torch.zeros(20, 70).cuda()
    index_select_cat_bwd(back, index.cuda(), out)
    yield "gathered, back", back, torch.zeros(20, 70).index_add(0, index, source[index]), 0.0
    base, part, scale = make.normal(9, 5, 64), make.normal(4, 5, 64), make.normal(64)
    index = make.permutation(9)[:4]
    given = base.cuda()
    scaled_index_add_fwd(given, index.cuda(), part.cuda(), scale.cuda(), 0.5)
    exact = [t.double().requires_grad_() for t in (part, scale)]
    wanted = base.double().index_add(0, index, exact[0] * exact[1], alpha=0.5)
    yield "added", given, wanted, 1e-6
    g = make.normal(9, 5, 64)
    ds, dscale = torch.empty_like(part).cuda(), torch.empty(4, 5, 64).cuda()
    scaled_index_add_bwd(g.cuda(), ds, dscale, part.cuda(), scale.cuda(), index.cuda(), 0.5)
    want = kit.gradients(wanted, g, *exact)
    yield "d part", ds, want[0], 1e-5
    yield "d scale", dscale.sum((0, 1)), want[1], 1e-5


# bitsandbytes ------------------------------------------------------------------------------------------------------------
@case("bitsandbytes", "8 and 4 bits by blocks, there and back; optimizers")
def bitsandbytes(make: Inputs) -> Iterator[Output]:
    kit.bare("bitsandbytes", "bitsandbytes.backends", "bitsandbytes.backends.triton")
    from bitsandbytes.backends.triton import ops  # type: ignore

    torch = make.torch
    x, code = make.normal(6, 256), torch.linspace(-1, 1, 256)
    values, largest = ops.quantize_blockwise(x.cuda(), code.cuda(), 256)
    scale = x.abs().amax(-1)
    near = (x.double()[..., None] / scale[:, None, None] - code.double()).abs()
    yield "largest", largest, scale, 0.0
    yield "distance", near.gather(-1, values.cpu().long()[..., None])[..., 0], near.amin(-1), 1e-4
    back = ops.dequantize_blockwise(values, largest, code.cuda(), 256, torch.float32)
    yield "back", back, code.double()[values.cpu().long()] * scale.double()[:, None], 1e-6
    for kind in ("nf4", "fp4"):
        small, sizes = ops.quantize_4bit(x.cuda(), 64, kind, torch.uint8)
        wide = ops.dequantize_4bit(small, sizes, 64, kind, (6, 256), torch.float32)
        yield f"{kind}: sizes", sizes.view(6, 4), x.view(6, 4, 64).abs().amax(-1), 0.0
        yield f"{kind}: back", wide, x, 0.17
    p, g, m, v = make.normal(500), make.normal(500), make.normal(500), make.uniform(500)
    given = [t.cuda() for t in (g, p, m, v)]
    ops.optimizer_update_32bit("adam", *given, None, 0.0, 0.0, 0.9, 0.99, 0.0, 0.0, 1e-8, 0.01, 3, 1e-2, 1.0, False)
    m2, v2 = 0.9 * m.double() + 0.1 * g.double(), 0.99 * v.double() + 0.01 * g.double().square()
    step = 1e-2 * (1 - 0.99**3) ** 0.5 / (1 - 0.9**3)
    moved = p.double() - step * m2 / (v2.sqrt() + (1 - 0.99**3) ** 0.5 * 1e-8)
    yield "momentum", given[2], m2, 1e-6
    yield "squares", given[3], v2, 1e-6
    yield "Adam", given[1], moved * (1 - 1e-2 * 0.01), 1e-5


# FlagGems, chalk ---------------------------------------------------------------------------------------------------------
@case("flag-gems", "torch's operators, replaced: elements, reductions, scans, places")
def gems(make: Inputs) -> Iterator[Output]:
    os.environ["GEMS_VENDOR"] = "nvidia"  # it would ask nvidia-smi
    import flag_gems  # type: ignore

    torch = make.torch
    functional = torch.nn.functional
    x, y, at = make.normal(7, 100), make.normal(100, 30), make.integers(0, 100, 7, 9)
    operators = {
        "gelu": lambda t, u, n: functional.gelu(t), "tanh": lambda t, u, n: t.tanh(),
        "power": lambda t, u, n: (t.abs() + 1) ** 1.5, "where": lambda t, u, n: torch.where(t > 0, t, t * 0.5),
        "flip": lambda t, u, n: t.flip(1),
        "softmax": lambda t, u, n: t.softmax(-1), "log softmax": lambda t, u, n: t.log_softmax(0),
        "sum": lambda t, u, n: t.sum(-1), "largest": lambda t, u, n: t.amax(0),
        "place": lambda t, u, n: t.argmax(-1),
        "variance": lambda t, u, n: t.var(-1), "running sum": lambda t, u, n: t.cumsum(-1),
        "layer norm": lambda t, u, n: functional.layer_norm(t, (100,)), "gather": lambda t, u, n: t.gather(1, n),
        "scatter": lambda t, u, n: t.scatter_add(1, n, t[:, :9]), "cat": lambda t, u, n: torch.cat([t, t * 2], 0),
        "sort": lambda t, u, n: t.sort(-1).values, "rows": lambda t, u, n: u.index_select(0, n[0]),
    }  # fmt: skip
    for name, operator in operators.items():
        given = x.cuda(), y.cuda(), at.cuda()
        with flag_gems.use_gems(exclude=["copy_"]):
            out = operator(*given)
        yield name, out, operator(x.double(), y.double(), at), 1e-5


@case("chalk", "RMS norm, SwiGLU and cross entropy of a product, with gradients")
def chalk(make: Inputs) -> Iterator[Output]:
    from chalk.ops import flce, rmsnorm, swiglu  # type: ignore

    functional = make.torch.nn.functional
    x, weight, g = make.normal(2, 9, 192), make.normal(192), make.normal(2, 9, 192)
    for name, plus in (("norm", 0), ("Gemma's norm", 1)):
        given, exact = kit.leaf(x, weight), [y.double().requires_grad_() for y in (x, weight)]
        out, wanted = rmsnorm._build_kernels(gemma=bool(plus))(*given, 1e-6), kit.rms_norm(exact[0], plus + exact[1], 1e-6)
        yield name, out, wanted, 1e-5
        yield from kit.gradients_beside((f"{name}: dx", f"{name}: dw"), out, given, wanted, exact, g, 1e-5)
    pair = make.normal(2, 9, 192), make.normal(2, 9, 192)
    given, exact = kit.leaf(*pair), [y.double().requires_grad_() for y in pair]
    out, wanted = swiglu._build_kernels()(*given), kit.silu(exact[0]) * exact[1]
    yield "SwiGLU", out, wanted, 1e-5
    yield from kit.gradients_beside(("d gate", "d up"), out, given, wanted, exact, g, 1e-5)
    hidden, table, labels = make.normal(20, 64, scale=0.5), make.normal(300, 64, scale=0.5), make.integers(0, 300, 20)
    labels[3] = -100
    given, exact = kit.leaf(hidden, table), [y.double().requires_grad_() for y in (hidden, table)]
    out, wanted = flce._build_kernels()(*given, labels.cuda()), functional.cross_entropy(exact[0] @ exact[1].T, labels)
    yield "loss", out, wanted, 1e-5
    yield from kit.gradients_beside(("dh", "dt"), out, given, wanted, exact, make.torch.ones(()), 1e-4)
