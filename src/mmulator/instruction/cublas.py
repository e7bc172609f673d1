"""Products of matrices with the sums of NVIDIA's cuBLAS: which kernel it takes decides in which order a chip adds up.

Known is one order: the chain of a GPU's largest kernels, one tensor-core product after the other along K. On an NVIDIA H200
(torch 2.11, CUDA 13.0) the kernels of 78,726 random products of f16 and bf16 with aligned rows say which of them have it: all
but long sums of few results, which are cut in parts, and of biases where K is long. docs/torch.md has the
comparison.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mmulator.numerics.profiles import DotKey
from mmulator.twin.matrices import twin_matmul

DEVICES = ("sm_90",)
ALIGNED = 8  # elements of 16 bits that rows are a multiple of
CHUNK = 16  # elements of K that are added up at once
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
