"""cupy.matmul and cupy.dot, which CuPy asks cuBLAS for: in the library's order where that is known, else NumPy's; counted.

On an NVIDIA H200 1,125 of 1,125 products of two matrices had the bits of torch's. Those of batches had not (CuPy 14.2: 105 of 375
had others): their order is not known.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mmulator.doors.cupy.arrays import ndarray, refuse, unwrap, wrap
from mmulator.doors.launch_site import line_of_launch
from mmulator.host.driver import current
from mmulator.host.driver.findings import reader
from mmulator.host.driver.products import products
from mmulator.matrix.instruction.cublas import ALIGNED, LibraryProduct, chain, is_chain, placed, rounded

_TYPES = {"e": "f16", "f": "f32", "d": "f64"}  # by NumPy's character


def matmul(a: Any, b: Any, /, out: Any = None) -> Any:
    """cupy.matmul: a @ b."""
    return _given(_product(unwrap(a), unwrap(b)), out)


def dot(a: Any, b: Any, out: Any = None) -> Any:
    """cupy.dot of vectors and matrices; with a number, or of more dimensions, it is refused."""
    x, y = unwrap(a), unwrap(b)
    if not (0 < np.ndim(x) < 3 and 0 < np.ndim(y) < 3):
        raise refuse("dot", "only of vectors and matrices")
    return _given(_product(x, y), out)


def _given(found: Any, out: Any) -> Any:
    if out is None:
        return wrap(found)
    if not isinstance(out, ndarray) or out._host.shape != found.shape or out._host.dtype != found.dtype:
        raise ValueError("Output array has an invalid size or dtype")
    out._host[...] = found
    return out


def _product(a: Any, b: Any) -> Any:
    """A product of NumPy's arrays. Integers are exact; of two matrices of floats of one type the order may be known."""
    reader().called()
    if np.result_type(a, b).kind in "biu":
        return np.matmul(a, b)
    type = _TYPES.get(a.dtype.char, a.dtype.name)
    if a.dtype == b.dtype and a.ndim == b.ndim == 2 and a.size and b.size and a.shape[1] == b.shape[0]:
        return _matrices(type, a, b)
    found = _plain(a, b)
    products().count(f"{type} {'batch' if max(a.ndim, b.ndim) > 2 else 'vector'} of CuPy", False, line_of_launch)
    return found


def _plain(a: Any, b: Any) -> Any:
    """NumPy's product, with sums of f32 for f16."""
    wide = [x.astype(np.float32) if x.dtype.char == "e" else x for x in (a, b)]
    with np.errstate(all="ignore"):
        return np.asarray(rounded(np.matmul(*wide), np.result_type(a, b)))


def _matrices(type: str, a: Any, b: Any) -> Any:
    (of_a, a_aligned), (of_b, b_aligned) = (
        placed(x.shape, tuple(s // x.itemsize for s in x.strides), x.ctypes.data // x.itemsize % ALIGNED) for x in (a, b)
    )
    (m, k), n, call = a.shape, b.shape[1], "mm" if of_a and of_b else ""
    aligned = a_aligned and b_aligned and n % ALIGNED == 0
    of, device = LibraryProduct(m, n, k, 1, type, aligned, of_a + of_b, call), current().device.name
    known = is_chain(of, device)
    products().count(of.kind, known, line_of_launch)
    if known:
        raw = np.dtype(f"u{a.itemsize}")
        return rounded(chain(type, device, a.view(raw), b.view(raw)), a.dtype)
    return _plain(a, b)


for _name, _call in {"dot": dot, "__matmul__": matmul, "__rmatmul__": lambda self, other: matmul(other, self)}.items():
    setattr(ndarray, _name, _call)
