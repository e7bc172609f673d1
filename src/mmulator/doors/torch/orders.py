"""Products of tensors in the order of cuBLAS, where it is known. Nothing here needs the device cuda of this package."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import torch

from mmulator.matrix.instruction.cublas import ALIGNED, PART, LibraryProduct, chain, finished, is_chain, placed, rounded

_TYPES = {torch.float16: "f16", torch.bfloat16: "bf16", torch.float32: "f32", torch.float64: "f64"}
_NUMPY: dict[Any, Any] = {
    torch.float16: np.float16, torch.bfloat16: ml_dtypes.bfloat16, torch.float32: np.float32, torch.float64: np.float64,
}  # fmt: skip


def _placed(x: torch.Tensor) -> tuple[str, bool]:
    return placed(tuple(x.shape), x.stride(), x.storage_offset())


def _raw(x: torch.Tensor) -> Any:
    size = x.dtype.itemsize
    return x.view(torch.uint16).numpy() if size == 2 else x.numpy().view(np.uint32 if size == 4 else np.uint64)


def type_name(dtype: torch.dtype) -> str:
    """The type of a product, as the table of orders has it."""
    allowed = dtype == torch.float32 and torch.backends.cuda.matmul.allow_tf32
    return "tf32" if allowed else _TYPES.get(dtype, str(dtype).removeprefix("torch."))


def scaled(
    device: str, a: torch.Tensor, b: torch.Tensor, scales: tuple[torch.Tensor, torch.Tensor], fast: bool, bias: Any = None
) -> Any:
    """(a b) times scales of e4m3 tensors, of one number each or one a row of A and a column of B, plus a bias, f32 [m, n].

    fast: whether the program allows sums to stay in tensor cores all along K.
    bias: [n], or None.
    Returns None where it is not known how the library adds up.
    """
    (m, k), n, wanted = a.shape, b.shape[1], (a.dtype, b.dtype, *(scale.dtype for scale in scales))
    if wanted != (torch.float8_e4m3fn, torch.float8_e4m3fn, torch.float32, torch.float32):
        return None
    if not is_chain(LibraryProduct(m, n, k, 1, "e4m3", True, "nt", "scaled_mm"), device):
        return None
    if [scale.numel() for scale in scales] not in ([1, 1], [m, n]):
        return None
    sums = chain("e4m3", device, a.view(torch.uint8).numpy(), b.view(torch.uint8).numpy(), 0 if fast else PART)
    of_a, of_b = scales[0].reshape(-1, 1), scales[1].reshape(1, -1)
    made = torch.from_numpy(sums)
    made = made * (of_a * of_b) if of_a.numel() == of_b.numel() == 1 else made * of_b * of_a
    return made if bias is None else made + bias.float()


def product(
    device: str, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor | None = None, *, beta: Any = 1, alpha: Any = 1
) -> tuple[LibraryProduct | None, Any]:
    """(the product, alpha a b + beta c) of CPU tensors [m, k], [k, n] or batches on a device such as "sm_90". The result is None
    where it is not known how the library adds up, and so is the product of operands that torch refuses, or that are empty."""
    if b.dtype != a.dtype or not a.numel() or not b.numel():
        return None, None
    if a.dim() != b.dim() or a.shape[-1] != b.shape[-2] or a.shape[:-2] != b.shape[:-2]:
        return None, None  # an error that torch's own kernel words
    if c is not None and (c.dtype != a.dtype or c.dim() > a.dim()):
        return None, None
    type = type_name(a.dtype)
    m, n, k = a.shape[-2], b.shape[-1], b.shape[-2]
    biased = c is not None and beta == 1 and c.dim() == 1 and c.is_contiguous() and c.shape[0] == n  # cublasLt does it
    (of_a, a_aligned), (of_b, b_aligned), narrow = _placed(a), _placed(b), a.dtype.itemsize == 2
    aligned = n % ALIGNED == 0 and a_aligned and b_aligned
    call = "bmm" if a.dim() == 3 else "bias" if biased else "mm"
    call = call if of_a and of_b and alpha == 1 and (c is None or biased) and not (c is not None and a.dim() == 3) else ""
    of = LibraryProduct(m, n, k, a.shape[0] if a.dim() == 3 else 1, type, aligned, of_a + of_b, call)
    if not is_chain(of, device):
        return of, None
    sums = chain(type, device, _raw(a), _raw(b))
    other = None if c is None or beta == 0 else c.expand(sums.shape)
    other = other if other is None else other.to(torch.float32).numpy() if narrow else other.numpy()
    beta, bias = (0, other) if biased or other is None else (beta, None)
    made = rounded(finished(sums, alpha, beta, other, _NUMPY[a.dtype], bias), _NUMPY[a.dtype])
    return of, torch.from_numpy(made.view(np.uint16)).view(a.dtype) if narrow else torch.from_numpy(made)
