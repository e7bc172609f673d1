"""Matrices and vectors in device memory as NumPy's arrays, and products of them.

A product whose order of sums in the library is known is added up in it (matrix/instruction/cublas.py), and products of integers
are exact. All others are NumPy's, in the library's type of sums: their last bits may be others. Both are counted for the report.
"""

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from mmulator.doors.cublas.rows import host
from mmulator.doors.libcuda import memory
from mmulator.doors.libcuda.abi import Refused
from mmulator.doors.libcuda.codes import Code
from mmulator.doors.libcuda.state import state
from mmulator.host.driver.findings import reader
from mmulator.host.driver.products import products
from mmulator.host.driver.streams import ordering
from mmulator.matrix.instruction.cublas import LibraryProduct, chain, finished, is_chain, rounded
from mmulator.runtime.launch.arena import bytes_at

NORMAL, CONJUGATED = 0, 2  # cublasOperation_t; 1: transposed
LOWER, UPPER, FULL = 0, 1, 2  # cublasFillMode_t
LEFT, RIGHT = 0, 1  # cublasSideMode_t
_TYPES: dict[Any, str] = {
    np.dtype(np.float16): "f16", np.dtype(ml_dtypes.bfloat16): "bf16", np.dtype(np.float32): "f32", np.dtype(np.float64): "f64",
}  # fmt: skip
# cublasComputeType_t -> the type of sums, without the pedantic ones, which are one more; complex matrices have complex sums
SUMS: dict[int, Any] = {
    64: np.float16, 65: np.float16, 68: np.float32, 69: np.float32, 74: np.float32, 75: np.float32, 77: np.float32,
    78: np.float32, 70: np.float64, 71: np.float64, 72: np.int32, 73: np.int32,
}  # fmt: skip
# and of which the order may be known, by the type of the matrices; f32 with sums of 77 is multiplied as tf32
_KNOWN = {("f16", 68), ("bf16", 68), ("f32", 68), ("f64", 70), ("f32", 77)}
_AS_TF32 = 77


@dataclass(frozen=True)
class DeviceMatrix:
    """A matrix in device memory.

    address: of its first element.
    dtype: NumPy's type of the elements.
    rows, columns: sizes in elements.
    step: elements from column to column, or from row to row of a matrix by rows.
    by_rows: whether rows are contiguous; columns are otherwise.
    """

    address: int
    dtype: Any
    rows: int
    columns: int
    step: int
    by_rows: bool = False

    def array(self) -> Any:
        """The elements, [rows, columns]; written through. Raises Refused where there is no such memory."""
        size, (lines, inner) = np.dtype(self.dtype).itemsize, self._lines()
        if not lines or not inner:
            return np.empty((self.rows, self.columns), self.dtype)
        span = ((lines - 1) * self.step + inner) * size
        memory.check(self.address, span)
        if ordering:
            ordering[-1].used(self.address, lines, self.step * size, inner * size, False)
        flat = bytes_at(host(self.address, span), span).view(self.dtype)
        array = np.lib.stride_tricks.as_strided(flat, (lines, inner), (self.step * size, size))
        return array if self.by_rows else array.T

    def _lines(self) -> tuple[int, int]:
        return (self.rows, self.columns) if self.by_rows else (self.columns, self.rows)

    def wrote(self) -> None:
        """The library has written all elements."""
        size, (lines, inner), of = np.dtype(self.dtype).itemsize, self._lines(), state().driver.memory
        if ordering and lines and inner:
            ordering[-1].used(self.address, lines, self.step * size, inner * size, True)
        if of.watched:
            for line in range(lines):
                of.wrote(self.address + line * self.step * size, inner * size)

    def put(self, values: Any) -> None:
        """Write values, [rows, columns], after conversion to the matrix's type."""
        self.array()[...] = converted(values, self.dtype)
        self.wrote()

    @property
    def aligned(self) -> bool:
        """Whether lines in memory begin at multiples of 16 bytes, and have such a length."""
        size = np.dtype(self.dtype).itemsize
        return self.address % 16 == 0 and not any(n * size % 16 for n in (self.step, self._lines()[1]))


def vector(address: int, dtype: Any, count: int, step: int) -> tuple[DeviceMatrix, Any]:
    """(the memory of a vector, its elements in order). step: elements from one to the next, below 0 from the last one on."""
    place = DeviceMatrix(address, dtype, 1, max(count, 0), abs(step) or 1)
    elements = place.array()[0]
    return place, elements[::-1] if step < 0 else elements


def converted(values: Any, dtype: Any) -> Any:
    """Values as another type, as the library's conversions round them; to integers with saturation."""
    to = np.dtype(dtype)
    if to == values.dtype:
        return values
    if to.kind in "iu" and values.dtype.kind == "f":
        limits = np.iinfo(to)
        return np.clip(np.rint(np.nan_to_num(values, nan=0.0)), limits.min, limits.max).astype(to)
    return rounded(values, to)


def turned(matrix: Any, operation: int) -> Any:
    """op(A) of a function's arguments, for arrays [..., rows, columns]."""
    if operation == NORMAL:
        return matrix
    return np.swapaxes(matrix, -1, -2).conj() if operation == CONJUGATED else np.swapaxes(matrix, -1, -2)


@dataclass(frozen=True)
class LibraryGemm:
    """C = alpha op(A) op(B) + beta C.

    a, b, c: the matrices; d: where the result goes.
    a_turned, b_turned: cublasOperation_t of A and B.
    sums: cublasComputeType_t.
    batch: products that one call has; this is one of them.
    call: of LibraryProduct.
    """

    a: DeviceMatrix
    b: DeviceMatrix
    c: DeviceMatrix
    d: DeviceMatrix
    a_turned: int
    b_turned: int
    sums: int
    batch: int = 1
    call: str = ""

    @property
    def of(self) -> LibraryProduct:
        """The product by rows: a matrix by columns is its transpose."""
        types = [_TYPES.get(np.dtype(x.dtype), str(np.dtype(x.dtype))) for x in (self.a, self.b, self.d)]
        one = types[0] if len(set(types)) == 1 else " by ".join(types[:2]) + f" to {types[2]}"
        known = one if (one, self.sums) in _KNOWN else f"{one} with sums {self.sums}"
        layout = "".join("n" if t == NORMAL else "t" for t in (self.b_turned, self.a_turned))
        m, k = (self.a.rows, self.a.columns) if self.a_turned == NORMAL else (self.a.columns, self.a.rows)
        aligned = all(x.aligned for x in (self.a, self.b, self.d))
        type = "tf32" if known == "f32" and self.sums == _AS_TF32 else known
        return LibraryProduct(self.d.columns, m, k, self.batch, type, aligned, layout, self.call)

    def product(self, plain: bool) -> tuple[Any, bool]:
        """(the sums [m, n] in their type, whether a chip's order is known to be this one). plain: whether C is not added."""
        a, b = turned(self.a.array(), self.a_turned), turned(self.b.array(), self.b_turned)
        wanted, of, device = SUMS[self.sums], self.of, state().driver.device.name
        if (plain or a.dtype.itemsize == 2) and is_chain(of, device):
            raw = np.dtype(f"u{a.dtype.itemsize}")
            return np.ascontiguousarray(chain(of.type, device, b.T.view(raw), a.T.view(raw))).T, True
        if np.dtype(wanted).kind == "i":
            return (a.astype(np.int64) @ b.astype(np.int64)).astype(np.int32), True  # exact, modulo 2^32
        if a.dtype.kind == "c":
            wanted = a.dtype
        sums = np.float32 if wanted is np.float16 else wanted
        with np.errstate(all="ignore"):
            return (a.astype(sums) @ b.astype(sums)).astype(wanted), False

    def result(self, alpha: Any, beta: Any, bias: Any = None, relu: bool = False) -> tuple[Any, bool]:
        """(relu(alpha A B + beta C + bias) before it is rounded, whether it is known to have the library's bits)."""
        values, known = self.product(beta == 0 and bias is None and not relu)
        c = self.c.array() if beta != 0 else None
        if known and values.dtype.kind == "f":
            return finished(values, alpha, beta, c, self.d.dtype, bias, relu), True
        with np.errstate(all="ignore"):
            if alpha != 1:
                values = values * np.asarray(alpha).astype(values.dtype)
            if c is not None:
                values = values + np.asarray(beta).astype(values.dtype) * c.astype(values.dtype)
            values = values if bias is None else values + bias.astype(values.dtype)
            return np.where(values > 0, values, np.zeros((), values.dtype)) if relu else values, known

    def run(self, alpha: Any, beta: Any) -> bool:
        """Multiply, and write the result; whether it is known to have the library's bits."""
        values, known = self.result(alpha, beta)
        self.d.put(values)
        return known


def say(known: bool, kind: str) -> None:
    """Count a call for the report."""
    products().count(kind, known)
    reader().called()


def say_other(dtype: Any) -> None:
    """Count a call of a function that is no product of two full matrices: the library's order is not known."""
    say(False, f"{_TYPES.get(np.dtype(dtype), str(np.dtype(dtype)))} other function")


def sizes(*values: int) -> None:
    """Raise Refused for a size below 0."""
    if any(value < 0 for value in values):
        raise Refused(Code.INVALID_VALUE)
