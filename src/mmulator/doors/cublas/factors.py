"""Systems of equations of many small matrices: factors with rows swapped, solutions, inverses.

Elimination is that of LAPACK's getrf without blocks; the library's order of sums is not known.
"""

from typing import Any

import numpy as np

from mmulator.doors.cublas.matrices import NORMAL, DeviceMatrix, say_other, sizes, turned, vector
from mmulator.doors.cublas.products import listed
from mmulator.doors.cublas.routines import magnitude, solved, whole
from mmulator.doors.cublas.rows import Call, StreamWork, routine
from mmulator.doors.libcuda.abi import put_int

_LOWER, _UPPER = 0, 1


def _factor(a: Any, swaps: Any) -> int:
    """L and U of a matrix [n, n] in its place, L without its diagonal of 1.

    swaps: integers [n], that get the row, from 1 on, which each row was swapped with; None: no rows are swapped.
    Returns the first column, from 1 on, whose pivot is 0; 0 if there is none.
    """
    singular = 0
    for k in range(len(a)):
        if swaps is not None:
            row = k + int(np.argmax(magnitude(a[k:, k])))
            swaps[k] = row + 1
            a[[k, row]] = a[[row, k]]
        if a[k, k] == 0:
            singular = singular or k + 1
            continue
        a[k + 1 :, k] /= a[k, k]
        a[k + 1 :, k + 1 :] -= np.outer(a[k + 1 :, k], a[k, k + 1 :])
    return singular


def _solve(factors: Any, swaps: Any, b: Any, operation: int) -> Any:
    """The solution of op(A) X = B, [n, columns], from A's factors; swaps: as of `_factor`."""
    rows = np.arange(len(factors))
    for k, other in enumerate(() if swaps is None else swaps - 1):
        rows[[k, other]] = rows[[other, k]]
    halves = [turned(whole(factors, fill, unit=fill == _LOWER), operation) for fill in (_LOWER, _UPPER)]
    if operation == NORMAL:
        return solved(halves[1], solved(halves[0], b[rows]))
    made = np.empty_like(b)
    made[rows] = solved(halves[0], solved(halves[1], b))
    return made


@routine("cublas{}getrfBatched", "SDCZ", "n a lda swaps info batch")
@routine("cublas{}matinvBatched", "SDCZ", "n a lda c ldc info batch")
def factored(p: Call) -> StreamWork:
    """A's factors in its place; or, into C, its inverse."""
    sizes(p.n, p.batch)

    def do() -> None:
        for number in range(p.batch):
            a = DeviceMatrix(listed(p.a, number), p.dtype, p.n, p.n, p.lda)
            at = getattr(p, "swaps", 0) and p.swaps + 4 * number * p.n
            kept = vector(at, np.int32, p.n, 1) if at else None
            of, swaps = a.array().copy(), kept[1] if kept else np.zeros(p.n, np.int32) if hasattr(p, "c") else None
            singular = _factor(of, swaps)
            if hasattr(p, "c") and not singular:
                inverse = _solve(of, swaps, np.eye(p.n, dtype=p.dtype), NORMAL)
                DeviceMatrix(listed(p.c, number), p.dtype, p.n, p.n, p.ldc).put(inverse)
            elif not hasattr(p, "c"):
                a.put(of)
            if kept:
                kept[0].wrote()
            place, told = vector(p.info + 4 * number, np.int32, 1, 1)
            told[0] = singular
            place.wrote()
        say_other(p.dtype)

    return p.work(do)


@routine("cublas{}getrsBatched", "SDCZ", "ta n columns a lda swaps b ldb info batch")
@routine("cublas{}getriBatched", "SDCZ", "n a lda swaps c ldc info batch")
def solutions(p: Call) -> StreamWork:
    """The solutions of op(A) X = B, in B's place; or A's inverse, into C."""
    inverse = hasattr(p, "c")
    address, step, columns = (p.c, p.ldc, p.n) if inverse else (p.b, p.ldb, p.columns)
    sizes(p.n, columns, p.batch)
    if not inverse:
        put_int(p.info, 0)  # of the arguments, for the host

    def do() -> None:
        for number in range(p.batch):
            factors = DeviceMatrix(listed(p.a, number), p.dtype, p.n, p.n, p.lda).array()
            swaps = vector(p.swaps + 4 * number * p.n, np.int32, p.n, 1)[1] if p.swaps else None
            to = DeviceMatrix(listed(address, number), p.dtype, p.n, columns, step)
            with np.errstate(all="ignore"):
                right = np.eye(p.n, dtype=p.dtype) if inverse else to.array()
                to.put(_solve(factors, swaps, right, NORMAL if inverse else p.ta))
            if inverse:
                place, told = vector(p.info + 4 * number, np.int32, 1, 1)
                zero = np.flatnonzero(factors.diagonal() == 0)
                told[0] = zero[0] + 1 if len(zero) else 0
                place.wrote()
        say_other(p.dtype)

    return p.work(do)
