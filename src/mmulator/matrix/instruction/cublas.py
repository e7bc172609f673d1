"""Products of matrices with the sums of NVIDIA's cuBLAS: which kernel it takes decides in which order a chip adds up.

Known is one order: the chain of a GPU's largest kernels, one tensor-core product after the other along K. On an NVIDIA H200
(torch 2.11, CUDA 13.0) the kernels of 78,726 random products of f16 and bf16 with aligned rows say which of them have it: all
but long sums of few results, which are cut in parts, and of biases where K is long. docs/how-to/programs.md has the
comparison.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mmulator.matrix.numerics.profiles import DotKey
from mmulator.matrix.twin.matrices import twin_matmul

DEVICES = ("sm_90",)
ALIGNED = 8  # elements of 16 bits that rows are a multiple of
CHUNK = 16  # elements of K that are added up at once
NAN = 0x7FFF  # of f16 and bf16
# A K longer than LONG with fewer than FEW results is cut in parts (none was with more than half as many), whose number is not
# known. Bits were compared up to a K of DEEPEST, and up to that of batches.
LONG, FEW, DEEPEST, DEEPEST_OF_BATCHES = 2560, 1 << 20, 6400, 16384


@dataclass(frozen=True)
class LibraryProduct:
    """A product of the library, [m, k] by [k, n].

    m, n, k: sizes in elements.
    batch: products in one call.
    type: of A, B and the result, "f16" or "bf16"; sums are f32.
    aligned: whether the rows of all three in memory, and the bytes between them, are multiples of 16 bytes, and begin at one.
    """

    m: int
    n: int
    k: int
    batch: int
    type: str
    aligned: bool


def is_chain(product: LibraryProduct, device: str) -> bool:
    """Whether cuBLAS is known to add up a product along K, one tensor-core product after the other, on a device ("sm_90")."""
    deepest = DEEPEST_OF_BATCHES if product.batch > 1 else DEEPEST if product.m * product.n >= FEW else LONG
    return device in DEVICES and product.aligned and 0 < product.k <= deepest


def chain(type: str, device: str, a: Any, b: Any) -> Any:
    """The sums of a product as raw f32 [..., m, n], before anything is done to them.

    type: of the elements, "f16" or "bf16".
    device: whose arithmetic, such as "sm_90".
    a, b: raw elements, uint16 [..., m, k] and [..., k, n].
    """
    short = -a.shape[-1] % CHUNK
    if short:
        a, b = (np.pad(x, [(0, 0)] * (x.ndim - 2) + w) for x, w in ((a, [(0, 0), (0, short)]), (b, [(0, short), (0, 0)])))
    return twin_matmul(DotKey("wgmma", type, type, "f32", "f32", CHUNK), device, a, b, None)


def finished(sums: Any, alpha: Any, beta: Any, c: Any, dtype: Any, bias: Any = None, relu: bool = False) -> Any:
    """relu(alpha A B + beta C + bias) as f32, before it is rounded, as the kernels of a chain compute it.

    With a beta of 1 and no ReLU, alpha A B + bias is rounded before C is added. In all other cases alpha A B + (beta C) is one
    fused multiply-add.

    sums: of A B, f32 [..., m, n].
    c: of any floating-point type, [..., m, n]; not looked at where beta is 0.
    dtype: NumPy's type of the result.
    bias: f32, of a shape that is repeated to [..., m, n]; None: there is none.
    """
    alpha, beta = np.float32(alpha), np.float32(beta)
    with np.errstate(all="ignore"):
        if beta == 1 and not relu:
            first = sums * alpha if bias is None else sums * alpha + bias
            return first.astype(dtype).astype(np.float32) + c.astype(np.float32)
        total = sums * alpha if beta == 0 else _fused(sums, alpha, beta * c.astype(np.float32))
        total = total if bias is None else total + bias
        return np.where(total > 0, total, np.float32(0)) if relu else total


def rounded(values: Any, dtype: Any) -> Any:
    """Values as another floating-point type of NumPy's; a NaN of 16 bits is 0x7fff, as a GPU's conversions make it."""
    with np.errstate(over="ignore", invalid="ignore"):
        made = values.astype(dtype)
    if made.dtype.itemsize == 2 and (nan := np.isnan(values)).any():
        made.view(np.uint16)[nan] = NAN
    return made


def _fused(a: Any, b: Any, c: Any) -> Any:
    """a b + c of f32, rounded once."""
    product, c = a.astype(np.float64) * np.float64(b), c.astype(np.float64)  # exact: 24 bits by 24
    total = product + c
    part = total - product
    rest = (product - (total - part)) + (c - part)  # what is missing in the sum, exactly
    odd = total.view(np.int64) & 1 != 0
    nudged = np.nextafter(total, np.where(rest > 0, np.inf, -np.inf))
    return np.where((rest != 0) & np.isfinite(total) & ~odd, nudged, total).astype(np.float32)  # to odd: rounding twice is once
