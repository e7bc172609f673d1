"""Parts of a case: fixed inputs, outputs, what is expected of them, and the list of all cases."""

from __future__ import annotations

import hashlib
import importlib
import pkgutil
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Output = tuple[str, Any, Any, float]  # name, what the kernel computed, the expected tensor, the tolerance


class Inputs:
    """Tensors on the CPU, drawn with a seed that the name of the case gives."""

    def __init__(self, name: str) -> None:
        import torch

        self.torch = torch
        seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "little")
        self.generator = torch.Generator().manual_seed(seed)
        torch.manual_seed(seed)

    def normal(self, *shape: int, dtype: str = "float32", scale: float = 1.0) -> Any:
        """Normal numbers times a scale, rounded to the type."""
        drawn = self.torch.randn(shape, generator=self.generator) * scale
        return drawn.to(getattr(self.torch, dtype))

    def uniform(self, *shape: int, low: float = 0.0, high: float = 1.0, dtype: str = "float32") -> Any:
        drawn = self.torch.rand(shape, generator=self.generator) * (high - low) + low
        return drawn.to(getattr(self.torch, dtype))

    def integers(self, low: int, high: int, *shape: int, dtype: str = "int64") -> Any:
        """Integers from low to high - 1."""
        return self.torch.randint(low, high, shape, generator=self.generator).to(getattr(self.torch, dtype))

    def permutation(self, n: int) -> Any:
        return self.torch.randperm(n, generator=self.generator)


@dataclass(frozen=True)
class Case:
    """A program of a project. run: yields its outputs, each beside what is expected."""

    project: str
    name: str
    run: Callable[[Inputs], Iterator[Output]]


CASES: list[Case] = []


def case(project: str, name: str) -> Callable[[Callable[[Inputs], Iterator[Output]]], Callable[[Inputs], Iterator[Output]]]:
    """Take a function into the list of cases."""

    def take(run: Callable[[Inputs], Iterator[Output]]) -> Callable[[Inputs], Iterator[Output]]:
        CASES.append(Case(project, name, run))
        return run

    return take


def cases() -> list[Case]:
    """All cases."""
    from evidence.projects import cases as package

    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
    return CASES


def error(got: Any, want: Any) -> float:
    """The largest difference of two tensors, over the largest magnitude that is expected; infinite where NaN stands."""
    import torch

    a, b = got.detach().cpu().double(), want.detach().cpu().double()
    if a.shape != b.shape:
        return float("inf")
    same = (a == b) | (a.isnan() & b.isnan())
    difference = torch.where(same, 0.0, (a - b).abs())
    if difference.isnan().any():
        return float("inf")
    largest = b[b.isfinite()].abs().max() if b.isfinite().any() else b.new_tensor(1.0)
    return float(difference.max() / largest.clamp_min(1e-30)) if a.numel() else 0.0


def digest(tensor: Any) -> str:
    """The digest of a tensor's bytes."""
    import torch

    return hashlib.sha256(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes()).hexdigest()[:16]


def bare(*names: str) -> None:
    """Let modules of packages be imported without running the packages' own __init__.py, which needs what is not here."""
    for name in names:
        if name not in sys.modules:
            module = types.ModuleType(name)
            module.__path__ = [str(Path(path, *name.split("."))) for path in sys.path if Path(path, *name.split(".")).is_dir()]
            sys.modules[name] = module


def stand_in(name: str, **members: Any) -> None:
    """A module that a project imports and that these cases do not use."""
    if name not in sys.modules:
        sys.modules[name] = types.ModuleType(name)
    vars(sys.modules[name]).update(members)


def attention(q: Any, k: Any, v: Any, scale: float | None = None, causal: bool = False) -> Any:
    """Softmax attention in double precision; heads of q are a multiple of those of k and v. Axes: ..., head, row, column.
    Causal: the last row sees all columns."""
    import torch

    q, k, v = (x.double() for x in (q, k, v))
    groups = q.shape[-3] // k.shape[-3]
    k, v = (x.repeat_interleave(groups, -3) for x in (k, v))
    scores = q @ k.transpose(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if causal:
        rows, columns = scores.shape[-2:]
        scores = scores.masked_fill(torch.ones(rows, columns, dtype=torch.bool).tril(columns - rows).logical_not(), -torch.inf)
    return scores.softmax(-1) @ v


def rms_norm(x: Any, weight: Any, eps: float) -> Any:
    """RMS normalisation in double precision."""
    x = x.double()
    return x * (x.square().mean(-1, keepdim=True) + eps).rsqrt() * weight.double()


def silu(x: Any) -> Any:
    """SiLU in double precision."""
    return x.double() * x.double().sigmoid()


def leaf(*tensors: Any) -> tuple[Any, ...]:
    """Copies on the device that ask for gradients."""
    return tuple(x.cuda().requires_grad_() for x in tensors)


def gradients(output: Any, gradient: Any, *inputs: Any) -> tuple[Any, ...]:
    """Gradients of the inputs, from that of an output."""
    import torch

    return torch.autograd.grad(output, inputs, gradient.to(output))


def gradients_beside(
    names: Iterable[str], out: Any, given: Sequence[Any], wanted: Any, exact: Sequence[Any], gradient: Any, tolerance: float
) -> Iterator[Output]:
    """Gradients of a kernel's inputs beside those that are expected, as outputs of a case.

    names: of the outputs, one for each input.
    out, given: what the kernel made, from inputs on the device.
    wanted, exact: what is expected, from inputs in double precision.
    gradient: of out.
    tolerance: as `error` measures.
    """
    got, want = gradients(out, gradient.cuda(), *given), gradients(wanted, gradient, *exact)
    for name, *pair in zip(names, got, want, strict=True):
        yield name, *pair, tolerance
