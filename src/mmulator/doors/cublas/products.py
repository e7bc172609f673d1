"""BLAS of level 3 and what cuBLAS adds to it: products of matrices, one or many, of one type or several; triangles; sums."""

from collections.abc import Callable
from typing import Any

import numpy as np

from mmulator.doors.cublas.matrices import (
    FULL,
    LEFT,
    LOWER,
    NORMAL,
    SUMS,
    DeviceMatrix,
    LibraryGemm,
    say,
    say_other,
    sizes,
    turned,
    vector,
)
from mmulator.doors.cublas.routines import real, solved, whole
from mmulator.doors.cublas.rows import Call, LibraryHandle, StreamWork, host, routine, type_of
from mmulator.doors.libcuda.abi import Refused, get_bytes, unsupported
from mmulator.doors.libcuda.codes import Code

_ONE = "ta tb m n k alpha a lda b ldb beta c ldc"
_TYPED = "ta tb m n k alpha a a_type lda b b_type ldb beta c c_type ldc"
_PEDANTIC, _TF32 = 2, 3  # cublasMath_t
_BY_SIZE = {2: 64, 4: 68, 8: 70}  # cublasComputeType_t by the bytes of a real part
_F32, _F32_AS_TF32 = 68, 77


def _sums_of(of: LibraryHandle, dtype: Any) -> int:
    """cublasComputeType_t of functions that do not name it."""
    mode, kind = of.settings.get("MathMode", 0) & 15, _BY_SIZE[real(dtype).itemsize]
    return kind + 1 if mode == _PEDANTIC else _F32_AS_TF32 if mode == _TF32 and kind == _F32 else kind


def check_sums(number: int) -> None:
    """Raise Refused for a cublasComputeType_t that is not written."""
    if number not in SUMS:
        raise unsupported("cuBLAS", f"sums of cublasComputeType_t {number} are not written")


def listed(address: int, number: int) -> int:
    """An address of a list of addresses in device memory."""
    return int.from_bytes(get_bytes(host(address + 8 * number, 8), 8), "little")


def _gemm(p: Call) -> StreamWork | None:
    """C = alpha op(A) op(B) + beta C, for each of a batch: at equal distances (`a_next`), or at addresses in lists."""
    types = (p.dtype,) * 3 if p.dtype else tuple(type_of(t) for t in (p.a_type, p.b_type, p.c_type))
    batch, sums = getattr(p, "batch", 1), p.sums if hasattr(p, "sums") else _F32 if not p.dtype else _sums_of(p.of, p.dtype)
    sizes(p.m, p.n, p.k, batch)
    check_sums(sums)
    shapes = (p.m, p.k) if p.ta == NORMAL else (p.k, p.m), (p.k, p.n) if p.tb == NORMAL else (p.n, p.k), (p.m, p.n)
    if any(step < max(1, rows) for step, (rows, _) in zip((p.lda, p.ldb, p.ldc), shapes)):
        raise Refused(Code.INVALID_VALUE)
    if not p.m or not p.n or not batch:
        return None
    scale = types[2] if np.dtype(types[2]).kind == "c" else SUMS[sums]
    by, plus = p.number("alpha", scale), p.number("beta", scale)
    call = "bmm" if hasattr(p, "a_next") else "mm" if not hasattr(p, "batch") else ""
    starts, nexts = (p.a, p.b, p.c), (p.a_next, p.b_next, p.c_next) if hasattr(p, "a_next") else None

    def place(which: int, number: int) -> int:
        if nexts is not None:
            return int(starts[which] + number * nexts[which] * np.dtype(types[which]).itemsize)
        return listed(starts[which], number) if hasattr(p, "batch") else int(starts[which])

    def do() -> None:
        known, kind = True, ""
        for number in range(batch):
            a, b, c = (DeviceMatrix(place(n, number), types[n], *shapes[n], step) for n, step in enumerate((p.lda, p.ldb, p.ldc)))
            gemm = LibraryGemm(a, b, c, c, p.ta, p.tb, sums, batch, call)
            known, kind = gemm.run(by(), plus()) and known, gemm.of.kind
        say(known, kind)

    return p.work(do, batch * p.m * p.n * p.k * np.dtype(types[0]).itemsize / 2)


routine("cublas{}gemm cublas{}gemm3m", "SDCZH", _ONE)(_gemm)
routine("cublas{}gemmBatched", "SDCZH", f"{_ONE} batch")(_gemm)
routine("cublas{}gemmStridedBatched", "SDCZH", "ta tb m n k alpha a lda a_next b ldb b_next beta c ldc c_next batch")(_gemm)
routine("cublasSgemmEx cublasCgemmEx", "", _TYPED)(_gemm)
routine("cublasGemmEx", "", f"{_TYPED} sums algorithm")(_gemm)
routine("cublasGemmBatchedEx", "", f"{_TYPED} batch sums algorithm")(_gemm)
routine(
    "cublasGemmStridedBatchedEx", "",
    "ta tb m n k alpha a a_type lda a_next b b_type ldb b_next beta c c_type ldc c_next batch sums algorithm",
)(_gemm)  # fmt: skip


@routine("cublas{}gemmGroupedBatched", "SD", "ta tb m n k alpha a lda b ldb beta c ldc groups count")
@routine("cublasGemmGroupedBatchedEx", "", f"{_TYPED} groups count sums")
def grouped(p: Call) -> StreamWork:
    """Batches of products, each with sizes, factors and operations of its own, which lie in arrays of the host's."""
    one, works, at = np.dtype(p.dtype or SUMS[p.sums]).itemsize, [], 0
    for group in range(p.groups):
        of = Call(**vars(p))
        for name in ("ta", "tb", "m", "n", "k", "lda", "ldb", "ldc", "count"):
            setattr(of, name, int.from_bytes(get_bytes(getattr(p, name) + 4 * group, 4), "little", signed=True))
        of.a, of.b, of.c, of.alpha, of.beta = p.a + at, p.b + at, p.c + at, p.alpha + group * one, p.beta + group * one
        of.batch = of.count
        works.append(_gemm(of))
        at += 8 * of.count
    every = [work for work in works if work]

    def do() -> None:
        for work in every:
            work.do()

    return p.work(do, sum(work.macs for work in every))


# symmetric, triangular, and sums of matrices --------------------------------------------------------------------------------
def _put(to: DeviceMatrix, values: Any, beta: Any, fill: int = FULL) -> None:
    """Write values + beta C to C, or to one triangle of it."""
    old = to.array()
    new = values + beta * old if beta != 0 else values
    if fill != FULL:
        written = np.tri(*old.shape) > 0
        new = np.where(written if fill == LOWER else written.T, new, old)
    to.put(new)
    say_other(to.dtype)


def _symmetric_product(name: str, types: str, conjugated: bool) -> None:
    """C = alpha A B + beta C or alpha B A + beta C."""

    @routine(name, types, "side fill m n alpha a lda b ldb beta c ldc")
    def call(p: Call) -> StreamWork:
        sizes(p.m, p.n)
        order, by, plus = p.m if p.side == LEFT else p.n, p.number("alpha"), p.number("beta")

        def do() -> None:
            one = whole(DeviceMatrix(p.a, p.dtype, order, order, p.lda).array(), p.fill, conjugated)
            other = DeviceMatrix(p.b, p.dtype, p.m, p.n, p.ldb).array()
            to = DeviceMatrix(p.c, p.dtype, p.m, p.n, p.ldc)
            _put(to, by() * (one @ other if p.side == LEFT else other @ one), plus())

        return p.work(do)


_symmetric_product("cublas{}symm", "SDCZ", False)
_symmetric_product("cublas{}hemm", "CZ", True)


def _rank_k(name: str, types: str, conjugated: bool, two: bool) -> None:
    """C = alpha A A' + beta C, or alpha A B' + alpha B A' + beta C of `two` matrices, of which one triangle is written."""

    @routine(name, types, f"fill ta n k alpha a lda {'b ldb ' * two}beta c ldc")
    def call(p: Call) -> StreamWork:
        sizes(p.n, p.k)
        by = p.number("alpha", real(p.dtype) if conjugated and not two else None)
        plus = p.number("beta", real(p.dtype) if conjugated else None)
        to, shape = DeviceMatrix(p.c, p.dtype, p.n, p.n, p.ldc), (p.n, p.k) if p.ta == NORMAL else (p.k, p.n)

        def do() -> None:
            if plus() == 1 and (not p.k or by() == 0):
                return  # nothing is added, and the diagonal keeps its imaginary parts
            x = turned(DeviceMatrix(p.a, p.dtype, *shape, p.lda).array(), p.ta)
            y = turned(DeviceMatrix(p.b, p.dtype, *shape, p.ldb).array(), p.ta) if two else x
            values = by() * (x @ (y.conj().T if conjugated else y.T))
            if two:
                values = values + (np.conj(by()) * (y @ x.conj().T) if conjugated else by() * (y @ x.T))
            _put(to, values.astype(p.dtype), plus(), p.fill)
            if conjugated:
                np.fill_diagonal(to.array(), to.array().diagonal().real)

        return p.work(do)


_rank_k("cublas{}syrk", "SDCZ", False, False)
_rank_k("cublas{}herk", "CZ", True, False)
_rank_k("cublas{}syr2k", "SDCZ", False, True)
_rank_k("cublas{}her2k", "CZ", True, True)


def _triangular(name: str, arguments: str, combine: Callable[[Any, Any], Any]) -> None:
    """C, or B itself, from op(A) and alpha B, from the left or, transposed, from the right."""

    @routine(name, "SDCZ", arguments)
    def call(p: Call) -> StreamWork:
        sizes(p.m, p.n)
        by, order = p.number("alpha"), p.m if p.side == LEFT else p.n

        def do() -> None:
            many = hasattr(p, "batch")
            for n in range(p.batch if many else 1):
                a, b = (listed(x, n) if many else x for x in (p.a, p.b))
                source = DeviceMatrix(b, p.dtype, p.m, p.n, p.ldb)
                to = DeviceMatrix(p.c, p.dtype, p.m, p.n, p.ldc) if hasattr(p, "c") else source
                half = whole(DeviceMatrix(a, p.dtype, order, order, p.lda).array(), p.fill, unit=bool(p.unit))
                left, right = turned(half, p.ta), source.array() * by()
                to.put(combine(left, right) if p.side == LEFT else combine(left.T, right.T).T)
            say_other(p.dtype)

        return p.work(do)


_triangular("cublas{}trmm", "side fill ta unit m n alpha a lda b ldb c ldc", lambda a, b: a @ b)
_triangular("cublas{}trsm", "side fill ta unit m n alpha a lda b ldb", solved)
_triangular("cublas{}trsmBatched", "side fill ta unit m n alpha a lda b ldb batch", solved)


@routine("cublas{}geam", "SDCZ", "ta tb m n alpha a lda beta b ldb c ldc")
def geam(p: Call) -> StreamWork:
    """C = alpha op(A) + beta op(B)."""
    sizes(p.m, p.n)
    by, plus = p.number("alpha"), p.number("beta")

    def term(factor: Any, address: int, step: int, operation: int) -> Any:
        if factor == 0:
            return np.zeros((p.m, p.n), p.dtype)
        shape = (p.m, p.n) if operation == NORMAL else (p.n, p.m)
        return factor * turned(DeviceMatrix(address, p.dtype, *shape, step).array(), operation)

    to = DeviceMatrix(p.c, p.dtype, p.m, p.n, p.ldc)
    return p.work(lambda: to.put(term(by(), p.a, p.lda, p.ta) + term(plus(), p.b, p.ldb, p.tb)))


@routine("cublas{}dgmm", "SDCZ", "side m n a lda x x_step c ldc")
def dgmm(p: Call) -> StreamWork:
    """C = diag(x) A or A diag(x)."""
    sizes(p.m, p.n)

    def do() -> None:
        elements = vector(p.x, p.dtype, p.m if p.side == LEFT else p.n, p.x_step)[1]
        of = DeviceMatrix(p.a, p.dtype, p.m, p.n, p.lda).array()
        DeviceMatrix(p.c, p.dtype, p.m, p.n, p.ldc).put(elements[:, None] * of if p.side == LEFT else of * elements)

    return p.work(do)
