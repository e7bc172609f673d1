"""Products of matrices with the sums of NVIDIA's cuBLAS: which kernel it takes decides in which order a chip adds up.

Known is one order for each type: a chain along K, of tensor-core products (f16, bf16, tf32) or of fused multiply-adds (f32, f64).
On an NVIDIA H200 (torch 2.11, CUDA 13.0) all kernels that do not cut K in parts have it. Which products are not cut, the rows of
cublas.txt say for f32, f64 and tf32: of each kind, how many results there must be for a K. Of f16 and bf16 with aligned rows the
kernels of 78,726 random products say it: all but long sums of few results. docs/how-to/programs.md has the comparison.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from mmulator.matrix.numerics.profiles import DotKey
from mmulator.matrix.twin.matrices import twin_matmul

LIBRARY, CHIP = "cuBLAS of CUDA 13.0 (torch 2.11)", "NVIDIA H200"  # that all rows of orders were confirmed with
DEVICES = ("sm_90",)
ALIGNED = 8  # elements of 16 bits that rows are a multiple of
CHUNK = 16  # elements of K that are added up at once
NAN = 0x7FFF  # of f16 and bf16
_BELOW, _LEAST = (1 << 29) - 1, 2.0**-126  # bits that f64 has more than f32; the least normal f32
PART = 128  # elements of K of e4m3 whose sum is added to f32, unless the program allows fast accumulation
NARROW = 17  # rows and columns from which on rows of the table hold: smaller products have kernels of their own
_HALVES = ("f16", "bf16")
# A K longer than LONG with fewer than FEW results is cut in parts (none was with more than half as many), whose number is not
# known. Bits were compared up to a K of DEEPEST, and up to that of batches.
LONG, FEW, DEEPEST, DEEPEST_OF_BATCHES, DEEPEST_OF_E4M3 = 2560, 1 << 20, 6400, 16384, 4096


ORDERS = Path(__file__).with_suffix(".txt")
KEYS = {
    "f16": DotKey("wgmma", "f16", "f16", "f32", "f32", CHUNK), "bf16": DotKey("wgmma", "bf16", "bf16", "f32", "f32", CHUNK),
    "tf32": DotKey("wgmma", "tf32", "tf32", "f32", "f32", 8), "f32": DotKey("mma", "f32", "f32", "f32", "f32", 4),
    "f64": DotKey("mma", "f64", "f64", "f64", "f64", 4), "e4m3": DotKey("wgmma", "e4m3", "e4m3", "f32", "f32", 32),
}  # fmt: skip


@dataclass(frozen=True)
class LibraryProduct:
    """A product of the library, [m, k] by [k, n].

    m, n, k: sizes in elements.
    batch: products in one call.
    type: of A, B and the result: "f16", "bf16", "f32", "f64"; "tf32": f32 by tensor cores; "e4m3" of A and B alone. Sums are f64
        of f64, else f32.
    aligned: whether rows in memory of all three, and the bytes between them, are multiples of 8 elements, and begin at one.
    layout: of A and B: "n" if its rows are contiguous, "t" if its columns are.
    call: "mm"; "bmm" with a batch; "bias" with a vector that is added to each row; "scaled_mm"; "" for others.
    """

    m: int
    n: int
    k: int
    batch: int
    type: str
    aligned: bool
    layout: str = ""
    call: str = ""

    @property
    def kind(self) -> str:
        """The class of products that it is counted with."""
        words = (self.type, self.layout, self.call or "other", "" if self.aligned else "not aligned")
        return " ".join(word for word in words if word)


@dataclass(frozen=True)
class OrderRow:
    """Products of one kind that are added up along K by one chain.

    least: by the number of binary digits of K, from 2 on: of how many results such a product has at least, 0 if none is known.
    confirmed: products that had these bits on a GPU; no other had others.
    """

    least: tuple[int, ...]
    confirmed: int

    def has(self, product: LibraryProduct) -> bool:
        """Whether a product is one of them."""
        at = product.k.bit_length() - 2
        least = self.least[at] if 0 <= at < len(self.least) else 0
        return 0 < least <= product.m * product.n * product.batch and min(product.m, product.n) >= NARROW


@cache
def orders() -> dict[tuple[str, str, str], OrderRow]:
    """The rows of the table by type, layout and call."""
    found = {}
    for line in ORDERS.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            type, layout, call, confirmed, *least = line.split()
            found[type, layout, call] = OrderRow(tuple(0 if x == "-" else int(x) for x in least), int(confirmed))
    return found


def is_chain(product: LibraryProduct, device: str) -> bool:
    """Whether cuBLAS is known to add up a product along K, one product after the other, on a device ("sm_90"): by tensor cores
    if f16, bf16 and tf32, by fused multiply-adds if f32 and f64."""
    if device not in DEVICES or product.k < 1:
        return False
    if product.type in _HALVES:
        deepest = DEEPEST_OF_BATCHES if product.batch > 1 else DEEPEST if product.m * product.n >= FEW else LONG
        return product.aligned and product.k <= deepest
    if product.type == "e4m3":
        return product.call == "scaled_mm" and product.k <= DEEPEST_OF_E4M3
    row = orders().get((product.type, product.layout, product.call))
    return row is not None and (product.aligned or product.type != "tf32") and row.has(product)


def placed(shape: tuple[int, ...], strides: tuple[int, ...], offset: int = 0) -> tuple[str, bool]:
    """(layout, aligned) of LibraryProduct for a matrix, or a batch: "n" if rows are contiguous, "t" if columns are, "" of others,
    which libraries copy. Strides and the offset of the first element count elements."""
    (rows, columns), (down, across) = shape[-2:], strides[-2:]
    if across == 1 and down >= columns:
        layout, inner, pitch = "n", columns, down
    elif down == 1 and across >= rows:
        layout, inner, pitch = "t", rows, across
    else:
        return "", columns % ALIGNED == 0
    steps = (inner, pitch, offset, *(strides[:-2] if shape[0] > 1 else ()))
    return layout, all(step % ALIGNED == 0 for step in steps)


def chain(type: str, device: str, a: Any, b: Any, part: int = 0) -> Any:
    """The sums of a product, f32 [..., m, n] (f64 of f64), before anything is done to them.

    type: of the elements, as LibraryProduct has it.
    device: whose arithmetic, such as "sm_90".
    a, b: raw elements, unsigned integers [..., m, k] and [..., k, n].
    part: elements of K that a chain has; the sums of the chains are added up in f32, one after the other. 0: all.
    """
    key, k = KEYS[type], a.shape[-1]
    if part and k > part:
        total = chain(type, device, a[..., :part], b[..., :part, :])
        with np.errstate(all="ignore"):
            for at in range(part, k, part):
                total = total + chain(type, device, a[..., at : at + part], b[..., at : at + part, :])
        return total
    if type == "tf32":
        a, b = _as_tf32(a), _as_tf32(b)
    short = -a.shape[-1] % key.k
    if short:
        a, b = (np.pad(x, [(0, 0)] * (x.ndim - 2) + w) for x, w in ((a, [(0, 0), (0, short)]), (b, [(0, short), (0, 0)])))
    return twin_matmul(key, device, a, b, None).view(np.float64 if type == "f64" else np.float32)


def _as_tf32(raw: Any) -> Any:
    """Raw f32 rounded to tf32, to even, as the library's kernels do; infinities and NaN stay."""
    made = raw + np.uint32(0xFFF) + (raw >> np.uint32(13) & np.uint32(1))
    return np.where(raw & np.uint32(0x7F800000) == 0x7F800000, raw, made) & np.uint32(0xFFFFE000)


def finished(sums: Any, alpha: Any, beta: Any, c: Any, dtype: Any, bias: Any = None, relu: bool = False) -> Any:
    """relu(alpha A B + beta C + bias) in the sums' type, before it is rounded, as the kernels of a chain compute it.

    With a beta of 1 and no ReLU, alpha A B + bias is rounded before C is added. In all other cases alpha A B + (beta C) is one
    fused multiply-add.

    sums: of A B, f32 [..., m, n]; f64 with a beta of 0.
    c: of any floating-point type, [..., m, n]; not looked at where beta is 0.
    dtype: NumPy's type of the result.
    bias: f32, of a shape that is repeated to [..., m, n]; None: there is none.
    """
    alpha, beta = sums.dtype.type(alpha), sums.dtype.type(beta)
    with np.errstate(all="ignore"):
        if beta == 1 and not relu:
            first = sums * alpha if bias is None else sums * alpha + bias
            return first.astype(dtype).astype(np.float32) + c.astype(np.float32)
        total = sums * alpha if beta == 0 else fused(sums, alpha, beta * c.astype(np.float32))
        total = total if bias is None else total + bias
        return np.where(total > 0, total, sums.dtype.type(0)) if relu else total


def rounded(values: Any, dtype: Any) -> Any:
    """Values as another floating-point type of NumPy's; a NaN of 16 bits is 0x7fff, as a GPU's conversions make it."""
    with np.errstate(over="ignore", invalid="ignore"):
        made = values.astype(dtype)
    if made.dtype.itemsize == 2 and (nan := np.isnan(values)).any():
        made.view(np.uint16)[nan] = NAN
    return made


def fused(a: Any, b: Any, c: Any) -> Any:
    """a b + c of f32, rounded once. b: may be one number."""
    product, c = a.astype(np.float64) * np.float64(b), np.asarray(c, np.float64)  # exact: 24 bits by 24
    total = product + c
    made = total.astype(np.float32)
    # the sum was rounded to 53 bits, and is rounded again: wrong only where it now lies halfway between two f32
    again = (total.view(np.int64) & _BELOW == _BELOW + 1 >> 1) | (np.abs(total) < _LEAST)
    if again.any():
        product, c, total = product[again], np.broadcast_to(c, total.shape)[again], total[again]
        part = total - product
        rest = (product - (total - part)) + (c - part)  # what is missing in the sum, exactly
        nudged = np.nextafter(total, np.where(rest > 0, np.inf, -np.inf))
        odd = total.view(np.int64) & 1 != 0
        made[again] = np.where((rest != 0) & np.isfinite(total) & ~odd, nudged, total)  # to odd: rounding twice is once
    return made
