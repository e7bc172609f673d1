"""Convolutions on cuda: sums are the CPU's, and memory has the order of cuDNN's, which torch.compile takes for granted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from mmulator.doors.torch import dispatch

OPERATORS = {"convolution": 0, "_convolution": 0, "convolution_backward": 1}  # and where the input stands among the arguments
_asked = torch._C._conv_determine_backend_memory_format


def memory_format(x: torch.Tensor, weight: torch.Tensor) -> torch.memory_format:
    """The order in which cuDNN lays out a result: channels last where the input or the weight has it, but not of f64."""
    from torch._prims_common import suggest_memory_format

    if torch.float64 in (x.dtype, weight.dtype) or x.dim() not in (4, 5):
        return torch.contiguous_format
    found = {suggest_memory_format(x), suggest_memory_format(weight)} - {torch.contiguous_format}
    return found.pop() if found else torch.contiguous_format


def expected(x: torch.Tensor, weight: torch.Tensor, backend: Any) -> torch.memory_format:
    """The order that a tracer of torch takes for that of a convolution's result."""
    return memory_format(x, weight) if x.device.type == "cuda" else _asked(x, weight, backend)


class Convolution(dispatch.Operator):
    """A convolution's kernel for tensors of cuda."""

    def __init__(self, op: torch._ops.OpOverload) -> None:
        super().__init__(op)
        self.plain, self.run, self.first = self.run, self.ordered_memory, OPERATORS[op._opname]

    def ordered_memory(self, keys: Any, *values: Any, **named: Any) -> Any:
        made = self.plain(keys, *values, **named)
        if len(values) < self.first + 2:
            return made
        order = memory_format(*values[self.first : self.first + 2])
        if isinstance(made, torch.Tensor):
            return made.contiguous(memory_format=order)
        return tuple(t if t is None or t.dim() < 2 else t.contiguous(memory_format=order) for t in made)


def kernels() -> dict[str, Callable[..., Any]]:
    """Kernels by the names of operators."""
    return {f"aten::{name}": dispatch.kernel(f"aten::{name}", Convolution) for name in OPERATORS}


def install() -> None:
    """Let torch know how memory of results is ordered."""
    torch._C._conv_determine_backend_memory_format = expected
