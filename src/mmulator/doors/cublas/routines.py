"""The functions of libcublas: handles and their settings, copies of vectors and matrices, BLAS of levels 1 and 2."""

from collections.abc import Callable
from typing import Any

import numpy as np

from mmulator.doors.cublas.matrices import LOWER, UPPER, DeviceMatrix, say_other, sizes, turned, vector
from mmulator.doors.cublas.rows import (
    ROWS,
    STATUSES,
    Call,
    LibraryHandle,
    StreamWork,
    found,
    give,
    guarded,
    lost,
    made,
    routine,
    scalar,
    text,
    type_of,
    version,
)
from mmulator.doors.cudart.rows import VERSIONS
from mmulator.doors.libcuda.abi import Refused, needed, put, put_int
from mmulator.doors.libcuda.codes import Code
from mmulator.doors.libcuda.memory import move

VERSION = {12: 120903, 13: 130100}  # of the library, by that of CUDA; 13.1.0 is the one whose bits are known
_WORDS = {7: "an unsupported value or parameter was passed to the function", 15: "the requested functionality is not supported"}


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


def _give(p: Call, value: Any, dtype: Any) -> None:
    """Write a result. dtype: its type, where no argument names it."""
    give(p.of, p.out, value, type_of(p.out_type) if hasattr(p, "out_type") else dtype)


def _reduced(
    names: str, types: str, reduce: Callable[[Any], Any], result: Callable[[Any], Any], arguments: str = "count x x_step out"
) -> None:
    """Functions of one vector and a result. result: its type, by that of the elements."""

    @routine(names, types, arguments)
    def call(p: Call) -> StreamWork:
        def do() -> None:
            elements = vector(p.x, p.dtype, p.count, p.x_step)[1] if p.count > 0 and p.x_step > 0 else np.zeros(0, p.dtype)
            _give(p, reduce(elements.astype(_sum_type(p.dtype))), result(p.dtype))

        return p.work(do)


def magnitude(x: Any) -> Any:
    """How large elements are, as BLAS compares complex ones."""
    return np.abs(x.real) + np.abs(x.imag)


for _letter in "SDCZ":
    _reduced(f"cublasI{_letter.lower()}amax", _letter, lambda x: np.argmax(magnitude(x)) + 1 if len(x) else 0, lambda _: np.int32)
    _reduced(f"cublasI{_letter.lower()}amin", _letter, lambda x: np.argmin(magnitude(x)) + 1 if len(x) else 0, lambda _: np.int32)
def _norm(x: Any) -> Any:
    return np.sqrt((np.abs(x) ** 2).sum(dtype=real(x.dtype)))


for _letters, _types in (("S", "S"), ("D", "D"), ("Sc", "C"), ("Dz", "Z")):
    _reduced(f"cublas{_letters}asum", _types, lambda x: magnitude(x).sum(dtype=real(x.dtype)), real)
    _reduced(f"cublas{_letters}nrm2", _types, _norm, real)
_reduced("cublasNrm2Ex", "", _norm, real, "count x x_type x_step out out_type sums")


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
@routine("cublasAxpyEx", "", "count alpha alpha_type x x_type x_step y y_type y_step sums")
def axpy(p: Call) -> StreamWork:
    by = p.number("alpha")
    return p.work(lambda: _change(p, lambda x, y: (x, by() * x.astype(_sum_type(p.dtype)) + y), False))


@routine("cublas{}rot", "SD", "count x x_step y y_step c s")
def rot(p: Call) -> StreamWork:
    c, s = p.number("c"), p.number("s")
    return p.work(lambda: _change(p, lambda x, y: (c() * x + s() * y, c() * y - s() * x), True))


@routine("cublas{}rotm", "SD", "count x x_step y y_step parameters")
def rotm(p: Call) -> StreamWork:
    size = np.dtype(p.dtype).itemsize
    read = [scalar(p.of, p.parameters + n * size, p.dtype) for n in range(5)]

    def turn(x: Any, y: Any) -> tuple[Any, Any]:
        flag, a, b, c, d = (number() for number in read)
        if flag == -2:
            return x, y
        (a, d), (b, c) = (1, 1) if flag == 0 else (a, d), (-1, 1) if flag == 1 else (b, c)
        return a * x + c * y, b * x + d * y

    return p.work(lambda: _change(p, turn, True))


def _dotted(names: str, types: str, conjugated: bool, arguments: str = "count x x_step y y_step out") -> None:
    @routine(names, types, arguments)
    def call(p: Call) -> StreamWork:
        def do() -> None:
            x, y = (of[1] for of in _vectors(p)) if p.count > 0 else (np.zeros(0, p.dtype),) * 2
            x, y = (each.astype(_sum_type(p.dtype)) for each in (x.conj() if conjugated else x, y))
            _give(p, np.dot(x, y), p.dtype)

        return p.work(do)


_dotted("cublas{}dot", "SD", False)
_dotted("cublas{}dotu", "CZ", False)
_dotted("cublas{}dotc", "CZ", True)
for _name in ("Dot", "Dotc"):
    _dotted(f"cublas{_name}Ex", "", _name == "Dotc", "count x x_type x_step y y_type y_step out out_type sums")


def _scaled(names: str, types: str, alpha_type: Callable[[Any], Any], arguments: str = "count alpha x x_step") -> None:
    @routine(names, types, arguments)
    def call(p: Call) -> StreamWork:
        factor = p.number("alpha", alpha_type(p.dtype))

        def do() -> None:
            if p.count > 0 and p.x_step > 0:
                place, elements = vector(p.x, p.dtype, p.count, p.x_step)
                elements[:] = (elements.astype(_sum_type(p.dtype)) * factor()).astype(p.dtype)
                place.wrote()

        return p.work(do)


_scaled("cublas{}scal", "SDCZ", lambda dtype: dtype)
_scaled("cublasCsscal", "C", real)
_scaled("cublasZdscal", "Z", real)
_scaled("cublasScalEx", "", lambda dtype: dtype, "count alpha alpha_type x x_type x_step sums")


# level 2 ------------------------------------------------------------------------------------------------------------------
def _triangle(rows: int, fill: int) -> Any:
    """Indices into a matrix's transpose of one of its triangles, column by column."""
    return np.tril_indices(rows) if fill == UPPER else np.triu_indices(rows)


def stored(p: Call, rows: int, columns: int) -> Any:
    """A matrix [rows, columns] of arguments: full, packed (`packed`), or banded (`k`, or `kl` and `ku`). It has 0, or old values,
    where nothing is stored."""
    if hasattr(p, "packed"):
        made = np.zeros((rows, columns), p.dtype)
        made.T[_triangle(rows, p.fill)] = vector(p.packed, p.dtype, rows * (rows + 1) // 2, 1)[1]
    elif hasattr(p, "k") or hasattr(p, "ku"):
        above, below = (p.ku, p.kl) if hasattr(p, "ku") else (p.k, 0) if p.fill == UPPER else (0, p.k)
        made = np.zeros((rows, columns), p.dtype)
        for line, band in enumerate(DeviceMatrix(p.a, p.dtype, above + below + 1, columns, p.lda).array(), -above):
            of = np.arange(max(0, -line), min(columns, rows - line))
            made[of + line, of] = band[of]
    else:
        made = DeviceMatrix(p.a, p.dtype, rows, columns, p.lda).array()
    return made


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
@routine("cublas{}gbmv", "SDCZ", "ta m n kl ku alpha a lda x x_step beta y y_step")
def gemv(p: Call) -> StreamWork:
    sizes(p.m, p.n)
    return _times_vector(p, lambda: turned(stored(p, p.m, p.n), p.ta))


def _symmetric(name: str, types: str, conjugated: bool, arguments: str) -> None:
    @routine(name, types, arguments.format("x x_step beta y y_step"))
    def call(p: Call) -> StreamWork:
        sizes(p.n)
        return _times_vector(p, lambda: whole(stored(p, p.n, p.n), p.fill, conjugated))


for _real, _complex, _arguments in (
    ("sy", "he", "fill n alpha a lda {}"), ("sb", "hb", "fill n k alpha a lda {}"), ("sp", "hp", "fill n alpha packed {}"),
):  # fmt: skip
    _symmetric(f"cublas{{}}{_real}mv", "SDCZ", False, _arguments)
    _symmetric(f"cublas{{}}{_complex}mv", "CZ", True, _arguments)


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


def _triangle_ranks(name: str, types: str, conjugated: bool, arguments: str) -> None:
    """A = alpha x x' + A, or alpha x y' + alpha y x' + A of two vectors, of which one triangle is written."""

    @routine(name, types, arguments)
    def call(p: Call) -> StreamWork:
        sizes(p.n)
        two = hasattr(p, "y")
        by = p.number("alpha", real(p.dtype) if conjugated and not two else None)

        def do() -> None:
            if by() == 0:
                return
            x = vector(p.x, p.dtype, p.n, p.x_step)[1]
            y = vector(p.y, p.dtype, p.n, p.y_step)[1] if two else x
            values = by() * np.outer(x, y.conj() if conjugated else y)
            if two:
                values = values + (values.conj().T if conjugated else values.T)
            new, lines = (stored(p, p.n, p.n) + values).astype(p.dtype), _triangle(p.n, p.fill)
            if conjugated:
                np.fill_diagonal(new, new.diagonal().real)
            if hasattr(p, "packed"):
                place, elements = vector(p.packed, p.dtype, len(lines[0]), 1)
                elements[:] = new.T[lines]
            else:
                place = DeviceMatrix(p.a, p.dtype, p.n, p.n, p.lda)
                place.array().T[lines] = new.T[lines]
            place.wrote()

        return p.work(do)


for _other, _vector in (("", ""), ("2", "y y_step ")):
    _triangle_ranks(f"cublas{{}}syr{_other}", "SDCZ", False, f"fill n alpha x x_step {_vector}a lda")
    _triangle_ranks(f"cublas{{}}her{_other}", "CZ", True, f"fill n alpha x x_step {_vector}a lda")
    _triangle_ranks(f"cublas{{}}spr{_other}", "SD", False, f"fill n alpha x x_step {_vector}packed")
    _triangle_ranks(f"cublas{{}}hpr{_other}", "CZ", True, f"fill n alpha x x_step {_vector}packed")


def _triangle_vector(name: str, combine: Callable[[Any, Any], Any], arguments: str) -> None:
    """x = op(A) x, or the solution of op(A) y = x."""

    @routine(name, "SDCZ", arguments)
    def call(p: Call) -> StreamWork:
        sizes(p.n)

        def do() -> None:
            place, elements = vector(p.x, p.dtype, p.n, p.x_step)
            of = turned(whole(stored(p, p.n, p.n), p.fill, unit=bool(p.unit)), p.ta)
            elements[:] = combine(of, elements)
            place.wrote()

        return p.work(do)


for _kind, _arguments in (("tr", "a lda"), ("tb", "k a lda"), ("tp", "packed")):
    _arguments = f"fill ta unit n {_arguments} x x_step"
    _triangle_vector(f"cublas{{}}{_kind}mv", lambda a, x: a @ x, _arguments)
    _triangle_vector(f"cublas{{}}{_kind}sv", solved, _arguments)
