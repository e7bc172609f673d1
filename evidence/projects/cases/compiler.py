"""Kernels that PyTorch's compiler writes: from a function of our own, and from the samples and kernels of PyTorch's own tests.

The files of `test/inductor` are in no package; what they draw their inputs from, and the kernels that they call, is: a table of
operators with samples (`OpInfo`), and `torch.testing._internal.triton_utils`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from evidence.projects import kit
from evidence.projects.kit import Inputs, Output, case

POINTWISE = ("erf", "nn.functional.gelu", "nn.functional.silu", "nn.functional.hardswish", "nn.functional.softplus", "pow",
             "fmod", "atan2", "where", "clamp", "lerp", "copysign", "expm1", "lgamma", "round")  # fmt: skip
REDUCTIONS = ("sum", "mean", "var", "std", "amax", "argmin", "prod", "logsumexp", "softmax", "log_softmax", "cumsum", "cumprod",
              "nn.functional.layer_norm", "nn.functional.group_norm", "nn.functional.rms_norm", "aminmax")  # fmt: skip
PLACES = ("gather", "index_select", "index_add", "scatter_add", "flip", "roll", "cat", "stack", "tril", "nn.functional.pad",
          "nn.functional.embedding", "nn.functional.interpolate", "constant_pad_nd", "repeat_interleave", "diagonal")  # fmt: skip


@case("pytorch-inductor", "kernels that torch.compile writes: norm, softmax, a product, sums, with gradients")
def inductor(make: Inputs) -> Iterator[Output]:
    import torch

    def function(x: Any, w: Any, b: Any) -> Any:
        y = torch.nn.functional.layer_norm(x, (96,), w, b)
        z = torch.nn.functional.gelu(y).cumsum(-1) * y.softmax(-1)
        return z + y.var(-1, keepdim=True) + y.argmax(-1, keepdim=True)

    x, w, b, g = make.normal(40, 96), make.normal(96), make.normal(96), make.normal(40, 96)
    given = kit.leaf(x, w, b)
    exact = [part.double().requires_grad_() for part in (x, w, b)]
    out, wanted = torch.compile(function)(*given), function(*exact)
    yield "out", out, wanted, 1e-5
    yield from kit.gradients_beside([f"gradient {n}" for n in range(len(given))], out, given, wanted, exact, g, 1e-5)


def moved(value: Any, to: Any) -> Any:
    """An argument with its tensors changed by a function."""
    if isinstance(value, (list, tuple)):
        return type(value)(moved(part, to) for part in value)
    return to(value) if hasattr(value, "dtype") and hasattr(value, "cuda") else value


def samples(make: Inputs, names: tuple[str, ...]) -> Iterator[Output]:
    """The third sample of each operator, or the last of fewer, compiled for the device and computed in double precision."""
    from torch.testing._internal.common_methods_invocations import op_db  # type: ignore

    torch = make.torch
    table = {operator.name: operator for operator in op_db if not operator.variant_test_name}
    table |= {operator.name: operator for operator in op_db if operator.name == "where"}
    for name in names:
        operator = table.get(name) or next(o for o in op_db if o.name == name)
        drawn = list(operator.sample_inputs("cpu", torch.float32))
        sample = drawn[min(2, len(drawn) - 1)]
        exact = lambda x: x.double() if x.is_floating_point() else x  # noqa: E731
        arguments = [[moved(x, to) for x in (sample.input, *sample.args)] for to in (lambda x: x.cuda(), exact)]
        words = [{key: moved(x, to) for key, x in sample.kwargs.items()} for to in (lambda x: x.cuda(), exact)]
        torch.compiler.reset()
        call = operator.op
        got = torch.compile(lambda *a, **k: call(*a, **k), fullgraph=True)(*arguments[0], **words[0])  # noqa: B023
        want = operator.op(*arguments[1], **words[1])
        pairs = zip(got, want, strict=True) if isinstance(want, tuple) else [(got, want)]
        for n, (a, b) in enumerate(pairs):
            yield f"{name} {n}" if n else name, a, b, 1e-5


@case("pytorch-inductor", "operators that work on each element, with samples of PyTorch's tests")
def pointwise(make: Inputs) -> Iterator[Output]:
    yield from samples(make, POINTWISE)


@case("pytorch-inductor", "reductions, scans and norms, with samples of PyTorch's tests")
def reductions(make: Inputs) -> Iterator[Output]:
    yield from samples(make, REDUCTIONS)


@case("pytorch-inductor", "gathers, scatters, joins and pads, with samples of PyTorch's tests")
def places(make: Inputs) -> Iterator[Output]:
    yield from samples(make, PLACES)


@case("pytorch-inductor", "Triton's kernels of PyTorch's tests, called in a compiled function")
def called(make: Inputs) -> Iterator[Output]:
    import torch.testing._internal.triton_utils as kernels  # type: ignore

    torch = make.torch
    x, y = make.normal(5, 70), make.normal(5, 70)

    def both(a: Any, b: Any) -> Any:
        out = torch.zeros_like(a)
        n = out.numel()
        kernels.add_kernel[((n + 63) // 64,)](a.sin(), b, out, n, BLOCK_SIZE=64)
        kernels.mul2_inplace_kernel[((n + 63) // 64,)](out, n, BLOCK_SIZE=64)
        return out.relu()

    yield "sum and product", torch.compile(both, fullgraph=True)(x.cuda(), y.cuda()), (2 * (x.double().sin() + y)).relu(), 1e-6

    def tuned(a: Any, b: Any) -> Any:
        out = torch.zeros_like(a)
        kernels.add_kernel_autotuned[lambda meta: ((out.numel() + meta["BLOCK_SIZE"] - 1) // meta["BLOCK_SIZE"],)](
            a, b, out, out.numel()
        )
        return out * out

    yield "tuned", torch.compile(tuned, fullgraph=True)(x.cuda(), y.cuda()), (x.double() + y).square(), 1e-6
