"""f16 and bf16 on cuda: what a GPU computes in f32 and rounds once has the bits of that. Prints a line for each that has not."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from mmulator.doors.torch import install

ROWS, COLUMNS = 64, 777


def gradients(function: Callable[..., Any], *given: Any) -> Any:
    """Of the tensors of floats among the arguments, the first of which is the gradient of the result."""
    upstream, *rest = given
    leaves = [t.detach().requires_grad_() if t.is_floating_point() else t for t in rest]
    return torch.autograd.grad(function(*leaves), [t for t in leaves if t.requires_grad], upstream)


def cases() -> dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]:
    torch.manual_seed(1)
    x, y = torch.randn(ROWS, COLUMNS), torch.randn(ROWS, COLUMNS)
    weight, bias = torch.rand(COLUMNS), torch.rand(COLUMNS)
    image, channels = torch.randn(4, 16, 9, 9), torch.rand(16)
    index, rows = torch.randint(0, 10, (500,)), torch.randn(500, 64)
    classes = torch.randint(0, COLUMNS, (ROWS,))

    def batch_norm(t: Any, w: Any, b: Any) -> Any:
        return F.batch_norm(t, None, None, w, b, True)

    def layer_norm(t: Any, w: Any, b: Any) -> Any:
        return F.layer_norm(t, (COLUMNS,), w, b)

    return {
        "log_softmax": (lambda t: torch.log_softmax(t, -1), (x,)),
        "log_softmax's way back": (lambda g, t: torch.ops.aten._log_softmax_backward_data(g, t, -1, t.dtype), (x, -y.abs())),
        "softmax of columns": (lambda t: torch.softmax(t, 0), (x,)),
        "layer_norm": (layer_norm, (x, weight, bias)),
        "layer_norm's way back": (lambda *a: gradients(layer_norm, *a), (y, x, weight, bias)),
        "batch_norm": (batch_norm, (image, channels, -channels)),
        "batch_norm's way back": (lambda *a: gradients(batch_norm, *a), (image.flip(0), image, channels, -channels)),
        "embedding's way back": (lambda g, n: torch.ops.aten.embedding_dense_backward(g, n, 10, -1, False), (rows, index)),
        "index_put": (lambda g, n: g.new_zeros(10, 64).index_put_((n,), g, accumulate=True), (rows, index)),
        "nll_loss": (lambda t, c: F.nll_loss(t, c), (-x.abs(), classes)),
        "prod": (lambda t: torch.prod(t, -1), (1 + x[:, :20] / 8,)),
        "add": (lambda a, b: torch.add(a, b, alpha=0.3), (x, y)),
        "add_": (lambda a, b: a.clone().sub_(b, alpha=0.3), (x, y)),
        "add to a tensor": (lambda a, b: torch.add(a, b, alpha=0.3, out=a.new_empty(0)), (x, y)),
        "glu's way back": (lambda *a: gradients(F.glu, *a), (x[:, :388], y[:, :776])),
    }  # fmt: skip


def converted(given: tuple[Any, ...], dtype: torch.dtype) -> list[Any]:
    return [t.to(dtype) if t.is_floating_point() else t for t in given]


def check(name: str, function: Callable[..., Any], given: tuple[Any, ...], dtype: torch.dtype) -> None:
    """cuda in a narrow type, against the CPU in f32, rounded: of rows that are added up in CUDA's order a few may differ."""
    most = given[0].numel() // 2_000 if "softmax" in name or "layer_norm" in name else 0
    narrow = converted(given, dtype)
    found = function(*[t.cuda() for t in narrow])
    wanted = function(*converted(tuple(narrow), torch.float32))
    for n, (a, b) in enumerate(zip(*((r if isinstance(r, tuple) else (r,)) for r in (found, wanted)))):
        if a.dtype != dtype or (a.cpu() != b.to(dtype)).sum() > most:
            print(f"{name}, result {n}, {dtype}: {a.dtype}, {int((a.cpu() != b.to(dtype)).sum())} of {b.numel()} differ")


def half_to_float(dtype: torch.dtype) -> None:
    """What torch asks of CUDA alone: softmax of a narrow tensor, in f32."""
    x = torch.randn(5, 7, device="cuda", dtype=dtype, requires_grad=True)
    for function in (torch.softmax, torch.log_softmax):
        y = function(x, -1, dtype=torch.float32)
        y.pow(2).sum().backward()
        near = torch.allclose(y.cpu(), function(x.detach().cpu().float(), -1), rtol=1e-6)
        if y.dtype != torch.float32 or not near or x.grad is None:
            print(f"{function.__name__} of {dtype} in f32: {y.dtype}")


def running_statistics(dtype: torch.dtype) -> None:
    module = torch.nn.BatchNorm1d(7).cuda().to(dtype)
    module(torch.ones(5, 7, device="cuda", dtype=dtype))
    if not torch.equal(module.running_mean.cpu(), torch.full((7,), 0.1, dtype=dtype)):
        print(f"running_mean in {dtype}: {module.running_mean}")


def long_rows() -> None:
    """The gradient of a loss over a vocabulary, smoothed: as near to f64 as a sum in a tree, which the CPU's is not."""
    given = torch.randn(4, 32000), torch.randint(0, 32000, (4,))
    gradients = []
    for x, y in ((given[0].cuda(), given[1].cuda()), (given[0].double(), given[1])):
        x.requires_grad_()
        torch.nn.functional.cross_entropy(x, y, label_smoothing=0.2, reduction="sum").backward()
        gradients.append(x.grad.cpu().double())
    error = ((gradients[0] - gradients[1]).abs() / gradients[1].abs()).median().item()
    if error > 1e-6:
        print(f"gradient of cross_entropy in f32: off by {error:g}")


if __name__ == "__main__":
    install()
    torch.set_num_threads(1)
    for kind in (torch.bfloat16, torch.float16):
        for label, (function, given) in cases().items():
            check(label, function, given, kind)
        half_to_float(kind)
        running_statistics(kind)
    long_rows()
    print("done")
