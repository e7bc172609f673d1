"""The functions of libcublas: handles and their settings, copies of vectors and matrices, BLAS of levels 1 and 2."""

from collections.abc import Callable
from typing import Any

import numpy as np

from mmulator.doors.cublas.matrices import LOWER, DeviceMatrix, say_other, sizes, turned, vector
from mmulator.doors.cublas.rows import (
    ROWS,
    STATUSES,
    TYPES,
    Call,
    LibraryHandle,
    StreamWork,
    found,
    give,
    guarded,
    lost,
    made,
    routine,
    text,
    version,
)
from mmulator.doors.cudart.rows import VERSIONS
from mmulator.doors.libcuda.abi import Refused, needed, put, put_int, unsupported
from mmulator.doors.libcuda.codes import Code
from mmulator.doors.libcuda.memory import move

VERSION = {12: 120903, 13: 130100}  # of the library, by that of CUDA; 13.1.0 is the one whose bits are known
_WORDS = {7: "an unsupported value or parameter was passed to the function", 15: "the requested functionality is not supported"}


def type_of(number: int) -> Any:
    """NumPy's type of a cudaDataType. Raises Refused for one that is not written."""
    if number not in TYPES:
        raise unsupported("cuBLAS", f"elements of cudaDataType {number} are not written")
    return TYPES[number]


# handles ------------------------------------------------------------------------------------------------------------------
@routine("cublasCreate cublasLtCreate")
def create(out: int) -> None:
    needed(out)
    put(out, made(LibraryHandle()))


@routine("cublasDestroy cublasLtDestroy")
def destroy(handle: int) -> None:
    lost(handle)


@routine("cublasGetVersion")
def get_version(handle: int, out: int) -> None:
    put_int(out, VERSION[version[0]])


@routine("cublasSetStream")
def set_stream(handle: int, stream: int) -> None:
    found(handle).stream = stream


@routine("cublasGetStream")
def get_stream(handle: int, out: int) -> None:
    put(out, found(handle).stream)


@routine("cublasSetPointerMode")
def set_pointer_mode(handle: int, mode: int) -> None:
    found(handle).device_scalars = bool(mode)


@routine("cublasGetPointerMode")
def get_pointer_mode(handle: int, out: int) -> None:
    put_int(out, int(found(handle).device_scalars))


def _setting(name: str) -> None:
    """Functions that keep a value of a handle and return it."""

    def keep(handle: int, value: int) -> None:
        found(handle).settings[name] = value

    def say_it(handle: int, out: int) -> None:
        put_int(out, found(handle).settings.get(name, 0))

    routine(f"cublasSet{name}")(keep)
    routine(f"cublasGet{name}")(say_it)


for _name in ("MathMode", "AtomicsMode", "SmCountTarget", "EmulationStrategy"):
    _setting(_name)


@routine("cublasSetWorkspace")
def set_workspace(handle: int, address: int, size: int) -> None:
    found(handle)


@routine("cublasGetProperty cublasLtGetProperty")
def get_property(which: int, out: int) -> None:
    of = VERSION[version[0]]
    put_int(out, (of // 10000, of // 100 % 100, of % 100)[which])


ROWS["cublasGetCudartVersion"] = ROWS["cublasLtGetCudartVersion"] = lambda: VERSIONS[version[0]]
ROWS["cublasLtGetVersion"] = lambda: VERSION[version[0]]
ROWS["cublasGetStatusName"] = ROWS["cublasLtGetStatusName"] = lambda status: text(
    f"CUBLAS_STATUS_{STATUSES.get(status, 'UNKNOWN')}"
)
ROWS["cublasGetStatusString"] = ROWS["cublasLtGetStatusString"] = lambda status: text(
    _WORDS.get(status, STATUSES.get(status, "unknown error").lower().replace("_", " "))
)
ROWS["cublasLoggerConfigure"] = guarded(lambda on, to_stdout, to_stderr, file: None, "cublasLoggerConfigure")
ROWS["cublasSetLoggerCallback"] = guarded(lambda function: None, "cublasSetLoggerCallback")


# copies -------------------------------------------------------------------------------------------------------------------
def _copy_vector(count: int, size: int, source: int, source_step: int, to: int, to_step: int, *_: int) -> None:
    sizes(count)
    if count and min(size, source_step, to_step) <= 0:
        raise Refused(Code.INVALID_VALUE)
    if source_step == to_step == 1:
        move(to, source, count * size)
        return
    for n in range(count):
        move(to + n * to_step * size, source + n * source_step * size, size)


def _copy_matrix(rows: int, columns: int, size: int, source: int, source_step: int, to: int, to_step: int, *_: int) -> None:
    sizes(rows, columns)
    if min(source_step, to_step) < max(rows, 1):
        raise Refused(Code.INVALID_VALUE)
    for n in range(columns):
        move(to + n * to_step * size, source + n * source_step * size, rows * size)


for _way in ("Set", "Get"):
    routine(f"cublas{_way}Vector cublas{_way}VectorAsync")(_copy_vector)
    routine(f"cublas{_way}Matrix cublas{_way}MatrixAsync")(_copy_matrix)


# level 1 ------------------------------------------------------------------------------------------------------------------
def real(dtype: Any) -> Any:
    """NumPy's type of an element's real part."""
    return np.zeros(0, dtype).real.dtype


def _sum_type(dtype: Any) -> Any:
    return np.float32 if np.dtype(dtype).itemsize < 4 else dtype


def _reduced(names: str, types: str, reduce: Callable[[Any], Any], result: Callable[[Any], Any]) -> None:
    """Functions of one vector and a result. result: its type, by that of the elements."""

    @routine(names, types, "count x x_step out")
    def call(p: Call) -> StreamWork:
        def do() -> None:
            elements = vector(p.x, p.dtype, p.count, p.x_step)[1] if p.count > 0 and p.x_step > 0 else np.zeros(0, p.dtype)
            give(p.of, p.out, reduce(elements), result(p.dtype))

        return p.work(do)


def _size(x: Any) -> Any:
    return np.abs(x.real) + np.abs(x.imag)


for _letter in "SDCZ":
    _reduced(f"cublasI{_letter.lower()}amax", _letter, lambda x: np.argmax(_size(x)) + 1 if len(x) else 0, lambda _: np.int32)
    _reduced(f"cublasI{_letter.lower()}amin", _letter, lambda x: np.argmin(_size(x)) + 1 if len(x) else 0, lambda _: np.int32)
for _letters, _types in (("S", "S"), ("D", "D"), ("Sc", "C"), ("Dz", "Z")):
    _reduced(f"cublas{_letters}asum", _types, lambda x: _size(x).sum(dtype=real(x.dtype)), real)
    _reduced(f"cublas{_letters}nrm2", _types, lambda x: np.sqrt((np.abs(x) ** 2).sum(dtype=real(x.dtype))), real)


def _vectors(p: Call) -> tuple[tuple[DeviceMatrix, Any], tuple[DeviceMatrix, Any]]:
    """The memory of x and of y, each with its elements in order."""
    return vector(p.x, p.dtype, p.count, p.x_step), vector(p.y, p.dtype, p.count, p.y_step)


def _of_two(names: str, types: str, change: Callable[[Any, Any], tuple[Any, Any]], both: bool = False) -> None:
    """Functions that change y, or both vectors. change: new elements of both, by the old ones."""

    @routine(names, types, "count x x_step y y_step")
    def call(p: Call) -> StreamWork:
        return p.work(lambda: _change(p, change, both))


def _change(p: Call, change: Callable[[Any, Any], tuple[Any, Any]], both: bool) -> None:
    if p.count > 0:
        (x_place, x), (y_place, y) = _vectors(p)
        x[:], y[:] = (new.astype(p.dtype) for new in change(x.copy(), y.copy()))
        for place in (y_place, x_place)[: 1 + both]:
            place.wrote()


_of_two("cublas{}copy", "SDCZ", lambda x, y: (x, x))
_of_two("cublas{}swap", "SDCZ", lambda x, y: (y, x), True)


@routine("cublas{}axpy", "SDCZ", "count alpha x x_step y y_step")
def axpy(p: Call) -> StreamWork:
    by = p.number("alpha")
    return p.work(lambda: _change(p, lambda x, y: (x, by() * x + y), False))


@routine("cublasAxpyEx", "", "count alpha alpha_type x x_type x_step y y_type y_step sums")
def axpy_of_types(p: Call) -> StreamWork:
    if p.x_type != p.y_type:
        raise unsupported("cublasAxpyEx", "vectors of two types are not written")
    p.dtype, by = type_of(p.y_type), p.number("alpha", type_of(p.alpha_type))
    return p.work(lambda: _change(p, lambda x, y: (x, by() * x.astype(_sum_type(p.dtype)) + y), False))


@routine("cublas{}rot", "SD", "count x x_step y y_step c s")
def rot(p: Call) -> StreamWork:
    c, s = p.number("c"), p.number("s")
    return p.work(lambda: _change(p, lambda x, y: (c() * x + s() * y, c() * y - s() * x), True))


def _dotted(names: str, types: str, conjugated: bool) -> None:
    @routine(names, types, "count x x_step y y_step out")
    def call(p: Call) -> StreamWork:
        def do() -> None:
            x, y = (of[1] for of in _vectors(p)) if p.count > 0 else (np.zeros(0, p.dtype),) * 2
            give(p.of, p.out, np.dot(x.conj() if conjugated else x, y), p.dtype)

        return p.work(do)


_dotted("cublas{}dot", "SD", False)
_dotted("cublas{}dotu", "CZ", False)
_dotted("cublas{}dotc", "CZ", True)


def _scaled(names: str, types: str, alpha_type: Callable[[Any], Any]) -> None:
    @routine(names, types, "count alpha x x_step")
    def call(p: Call) -> StreamWork:
        factor = p.number("alpha", alpha_type(p.dtype))

        def do() -> None:
            if p.count > 0 and p.x_step > 0:
                place, elements = vector(p.x, p.dtype, p.count, p.x_step)
                elements[:] = (elements * factor()).astype(p.dtype)
                place.wrote()

        return p.work(do)


_scaled("cublas{}scal", "SDCZ", lambda dtype: dtype)
_scaled("cublasCsscal", "C", real)
_scaled("cublasZdscal", "Z", real)


# level 2 ------------------------------------------------------------------------------------------------------------------
def whole(a: Any, fill: int, conjugated: bool = False, unit: bool | None = None) -> Any:
    """A matrix of which one triangle is stored. unit: it is triangular, and whether its diagonal is 1; None: it is symmetric, or
    Hermitian if `conjugated`."""
    half = np.tril(a) if fill == LOWER else np.triu(a)
    if unit is not None:
        return np.tril(half, -1) + np.triu(half, 1) + np.eye(len(a), dtype=a.dtype) if unit else half
    made_whole = half + (half.conj().T if conjugated else half.T)
    np.fill_diagonal(made_whole, a.diagonal().real if conjugated else a.diagonal())
    return made_whole


def solved(a: Any, b: Any) -> Any:
    """The solution of A X = B for a triangular A [n, n], by substitution. b: [n] or [n, columns]."""
    x, upwards = b.copy(), not np.tril(a, -1).any()
    for row in reversed(range(len(a))) if upwards else range(len(a)):
        done = slice(row + 1, None) if upwards else slice(0, row)
        x[row] = (x[row] - a[row, done] @ x[done]) / a[row, row]
    return x


def _times_vector(p: Call, read: Callable[[], Any]) -> StreamWork:
    """y = alpha A x + beta y. read: A [rows, columns]."""
    by, plus = p.number("alpha"), p.number("beta")

    def do() -> None:
        a = read()
        place, to = vector(p.y, p.dtype, len(a), p.y_step)
        sums = a @ vector(p.x, p.dtype, a.shape[1], p.x_step)[1] * by() if a.shape[1] else np.zeros(len(a), p.dtype)
        to[:] = sums + plus() * to if plus() != 0 else sums
        place.wrote()
        say_other(p.dtype)

    return p.work(do)


@routine("cublas{}gemv", "SDCZ", "ta m n alpha a lda x x_step beta y y_step")
def gemv(p: Call) -> StreamWork:
    sizes(p.m, p.n)
    return _times_vector(p, lambda: turned(DeviceMatrix(p.a, p.dtype, p.m, p.n, p.lda).array(), p.ta))


def _symmetric(name: str, types: str, conjugated: bool) -> None:
    @routine(name, types, "fill n alpha a lda x x_step beta y y_step")
    def call(p: Call) -> StreamWork:
        sizes(p.n)
        return _times_vector(p, lambda: whole(DeviceMatrix(p.a, p.dtype, p.n, p.n, p.lda).array(), p.fill, conjugated))


_symmetric("cublas{}symv", "SDCZ", False)
_symmetric("cublas{}hemv", "CZ", True)


def _ranks(name: str, types: str, conjugated: bool) -> None:
    """A = alpha x y' + A."""

    @routine(name, types, "m n alpha x x_step y y_step a lda")
    def call(p: Call) -> StreamWork:
        sizes(p.m, p.n)
        by, to = p.number("alpha"), DeviceMatrix(p.a, p.dtype, p.m, p.n, p.lda)

        def do() -> None:
            row = vector(p.y, p.dtype, p.n, p.y_step)[1]
            to.put(to.array() + by() * np.outer(vector(p.x, p.dtype, p.m, p.x_step)[1], row.conj() if conjugated else row))

        return p.work(do)


_ranks("cublas{}ger", "SD", False)
_ranks("cublas{}geru", "CZ", False)
_ranks("cublas{}gerc", "CZ", True)


def _triangle_vector(name: str, combine: Callable[[Any, Any], Any]) -> None:
    """x = op(A) x, or the solution of op(A) y = x."""

    @routine(name, "SDCZ", "fill ta unit n a lda x x_step")
    def call(p: Call) -> StreamWork:
        sizes(p.n)

        def do() -> None:
            place, elements = vector(p.x, p.dtype, p.n, p.x_step)
            of = turned(whole(DeviceMatrix(p.a, p.dtype, p.n, p.n, p.lda).array(), p.fill, unit=bool(p.unit)), p.ta)
            elements[:] = combine(of, elements)
            place.wrote()

        return p.work(do)


_triangle_vector("cublas{}trmv", lambda a, x: a @ x)
_triangle_vector("cublas{}trsv", solved)
