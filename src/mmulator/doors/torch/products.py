"""Products of f16 and bf16 with the bits of cuBLAS, where the order of its sums is known; others are the CPU's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import torch

from mmulator.doors.torch import dispatch
from mmulator.driver import current
from mmulator.instruction.cublas import ALIGNED, LibraryProduct, chain, finished, is_chain, rounded

_TYPES = {torch.float16: "f16", torch.bfloat16: "bf16"}
_NUMPY = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}
OPERATORS = tuple(name + out for name in ("mm", "bmm", "addmm", "baddbmm") for out in ("", ".out"))


def _in_lines(x: torch.Tensor) -> bool:
    """Whether a matrix, or each of a batch, has contiguous rows or columns that are aligned; of others torch makes copies."""
    (rows, columns), (down, across) = x.shape[-2:], x.stride()[-2:]
    if across == 1 and down >= columns:
        inner, pitch = columns, down
    elif down == 1 and across >= rows:
        inner, pitch = rows, across
    else:
        return bool(columns % ALIGNED == 0)
    steps = (inner, pitch, x.storage_offset(), *(x.stride()[:-2] if x.shape[0] > 1 else ()))
    return all(step % ALIGNED == 0 for step in steps)


def _raw(x: torch.Tensor) -> Any:
    return x.view(torch.uint16).numpy()


def product(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor | None = None, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """alpha a b + beta c, of CPU tensors [m, k], [k, n] or batches; None where it is not known how the library adds up."""
    type, device = _TYPES.get(a.dtype), current().device.name
    if type is None or b.dtype != a.dtype or not a.numel() or not b.numel():
        return None
    if a.dim() != b.dim() or a.shape[-1] != b.shape[-2] or a.shape[:-2] != b.shape[:-2]:
        return None  # an error that torch's own kernel words
    if c is not None and (c.dtype != a.dtype or c.dim() > a.dim()):
        return None
    m, n, k = a.shape[-2], b.shape[-1], b.shape[-2]
    biased = c is not None and beta == 1 and c.dim() == 1 and c.is_contiguous() and c.shape[0] == n  # cublasLt does it
    aligned = n % ALIGNED == 0 and _in_lines(a) and _in_lines(b)
    if not is_chain(LibraryProduct(m, n, k, a.shape[0] if a.dim() == 3 else 1, type, aligned), device):
        return None
    sums = chain(type, device, _raw(a), _raw(b)).view(np.float32)
    other = None if c is None or beta == 0 else c.expand(sums.shape).to(torch.float32).numpy()
    beta, bias = (0, other) if biased or other is None else (beta, None)
    made = rounded(finished(sums, alpha, beta, other, _NUMPY[type], bias), _NUMPY[type])
    return torch.from_numpy(made.view(np.uint16)).view(a.dtype)


class LibraryOperator(dispatch.Operator):
    """A product's kernel for tensors of cuda."""

    def __init__(self, op: torch._ops.OpOverload) -> None:
        super().__init__(op)
        self.plain, self.run = self.run, self.in_order

    def in_order(self, keys: Any, *values: Any, out: Any = None, **named: Any) -> Any:
        *c, a, b = values
        made = product(a, b, *c, **named) if out is None or out.dtype == a.dtype else None
        if out is None:
            return self.plain(keys, *values, **named) if made is None else made
        if made is None or made.shape != out.shape:  # torch's own kernel says what is wrong with `out`, or makes it larger
            self.plain(keys, *values, **named, out=out)
        return out if made is None else out.copy_(made)


def kernels() -> dict[str, Callable[..., Any]]:
    """Kernels by the names of operators."""
    return {f"aten::{name}": dispatch.kernel(f"aten::{name}", LibraryOperator) for name in OPERATORS}
