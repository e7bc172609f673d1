"""Comparisons of torch and NumPy that a program makes: the first element that one rejects is explained (rejections.py).

`install()` puts a function before each that looks at the arrays when a comparison fails; it is called where somebody asks for
that (`--why auto`). A comparison does what it did, and raises or returns the same.
"""

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmulator.base.interop import strided
from mmulator.doors.imports import after_import
from mmulator.host.driver.driver import current
from mmulator.observation.record.launches.rejections import Keeping, Rejected, endings, keeping

Array = NDArray[Any]
_FLOATS = {"float16": (1e-3, 1e-5), "bfloat16": (1.6e-2, 1e-5), "float32": (1.3e-6, 1e-5), "float64": (1e-7, 1e-7)}
Tolerances = Callable[[Mapping[str, Any], Array], tuple[float, float]]


def _given(relative: float, absolute: float) -> Tolerances:
    def tolerances(options: Mapping[str, Any], expected: Array) -> tuple[float, float]:
        r, a = options.get("rtol"), options.get("atol")
        return float(relative if r is None else r), float(absolute if a is None else a)

    return tolerances


def _of_type(options: Mapping[str, Any], expected: Array) -> tuple[float, float]:
    """The tolerances of torch.testing.assert_close, which go with the type."""
    return _given(*_FLOATS.get(expected.dtype.name, (0.0, 0.0)))(options, expected)


def _decimals(default: int, factor: float) -> Tolerances:
    return lambda options, expected: (0.0, factor * 10.0 ** -int(options.get("decimal", default)))


@dataclass(frozen=True)
class Comparer:
    """A function that compares.

    module, name: where it is.
    options: names of its parameters behind the two arrays, in order.
    tolerances: what it allows, (relative, absolute), for some options and the expected array.
    """

    module: str
    name: str
    options: tuple[str, ...]
    tolerances: Tolerances

    @property
    def full_name(self) -> str:
        return f"{self.module}.{self.name}"


_EXACT, _CLOSE = _given(0.0, 0.0), ("rtol", "atol")
COMPARERS = (
    Comparer("torch.testing", "assert_close", (), _of_type),
    Comparer("torch", "allclose", _CLOSE, _given(1e-5, 1e-8)),
    Comparer("torch", "equal", (), _EXACT),
    Comparer("numpy.testing", "assert_allclose", _CLOSE, _given(1e-7, 0.0)),
    Comparer("numpy.testing", "assert_array_equal", (), _EXACT),
    Comparer("numpy.testing", "assert_equal", (), _EXACT),
    Comparer("numpy.testing", "assert_array_almost_equal", ("decimal",), _decimals(6, 1.5)),
    Comparer("numpy.testing", "assert_almost_equal", ("decimal",), _decimals(7, 1.5)),
    Comparer("numpy", "allclose", _CLOSE, _given(1e-5, 1e-8)),
    Comparer("numpy", "array_equal", (), _EXACT),
)


@dataclass
class _Refused:
    """The newest comparison that was false, and told only by what it returned: the test or program may go on."""

    comparer: Comparer
    pair: tuple[Any, Any]
    options: Mapping[str, Any]


_refused: list[_Refused] = []
_inside: list[Comparer] = []
_installed: set[str] = set()


def install() -> None:
    """Put a function before each comparison of libraries that are imported, or will be."""
    if failed not in endings:
        endings.append(failed)
    for library in dict.fromkeys(c.module for c in COMPARERS):
        if library not in _installed:
            _installed.add(library)
            after_import(library, functools.partial(_wrap, library))


def _wrap(library: str, module: ModuleType) -> None:
    for comparer in COMPARERS:
        if comparer.module == library and hasattr(module, comparer.name):
            setattr(module, comparer.name, _before(comparer, getattr(module, comparer.name)))


def _before(comparer: Comparer, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def compares(*arguments: Any, **named: Any) -> Any:
        __tracebackhide__ = True
        if _inside:  # a comparison that another one makes
            return function(*arguments, **named)
        _inside.append(comparer)
        try:
            answer = function(*arguments, **named)
        except AssertionError:
            _look(_Refused(comparer, *_pair(comparer, arguments, named)))
            raise
        finally:
            _inside.pop()
        if answer is False:
            _refused[:] = [_Refused(comparer, *_pair(comparer, arguments, named))]
        return answer

    return compares


def _pair(comparer: Comparer, arguments: Sequence[Any], named: Mapping[str, Any]) -> tuple[tuple[Any, Any], dict[str, Any]]:
    """((what is compared, what is expected), options) of a call."""
    rest = dict(named)
    values = [*arguments]
    while len(values) < 2:
        values.append(rest.pop(next(iter(rest))))
    return (values[0], values[1]), {**dict(zip(comparer.options, values[2:])), **rest}


def look_at_refused() -> None:
    """Explain the newest comparison that was false, as a test or a program has failed."""
    for refused in _refused:
        if not asked().rejected:
            _look(refused)
    _refused.clear()
    if not asked().rejected and asked().launches:
        said = "no comparison of torch.testing, numpy.testing, torch or numpy led to it; ask by name: --why NAME[INDEX]"
        asked().rejected.append(Rejected("why auto: the assert failed", (), said))


def failed() -> None:
    """Explain, as the program ends, what led to an AssertionError that it did not catch."""
    if isinstance(getattr(sys, "last_value", None), AssertionError):
        look_at_refused()


def asked() -> Keeping:
    """The launches that the process keeps."""
    settings = current().settings
    return keeping(settings.why_depth, settings.why_against)


def _look(refused: _Refused) -> None:
    """Explain what a comparison rejects; whatever goes wrong, the program's own error is the one that is raised."""
    try:
        _explain(refused)
    except Exception as error:
        said = f"not explained: {type(error).__name__}: {error}"
        asked().rejected.append(Rejected(refused.comparer.full_name, (), said))


def _explain(refused: _Refused) -> None:
    """Explain the first element of two arrays, or of pairs of arrays in lists, that a comparison rejects."""
    for got, want in _leaves(*refused.pair):
        a, b = _array(got), _array(want)
        if a is None or b is None or a.shape != b.shape or not a.size:
            continue
        index = first_apart(a, b, *refused.comparer.tolerances(refused.options, b))
        if index is None:
            continue
        other, found = b, asked().find(_address(got, a, index), a, index)
        if found is None:  # calls may have the two in the other order
            other, found = a, asked().find(_address(want, b, index), b, index)
        asked().explain(refused.comparer.full_name, index, found, other[index], a[index])
        return


def _leaves(got: Any, want: Any) -> Any:
    """Pairs of arrays in two arrays, lists or dictionaries."""
    if isinstance(got, Mapping) and isinstance(want, Mapping):
        for key in got:
            if key in want:
                yield from _leaves(got[key], want[key])
    elif isinstance(got, (list, tuple)) and isinstance(want, (list, tuple)) and any(hasattr(x, "shape") for x in got):
        for pair in zip(got, want):
            yield from _leaves(*pair)
    else:
        yield got, want


def _is_tensor(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _array(value: Any) -> Array | None:
    """The values of a tensor, array, number or list of numbers; None for what has none."""
    if isinstance(value, (int, float, list, tuple)):
        return np.asarray(value)
    if _is_tensor(value):
        value = value.detach()
        value = value if value.device.type == "cpu" else value.cpu()
    return value if isinstance(value, np.ndarray) else strided(value, "a compared array")


def _address(value: Any, values: Array, index: tuple[int, ...]) -> int:
    """Address of an element of a tensor or array, whose values are given."""
    if _is_tensor(value):
        return int(value.data_ptr()) + values.itemsize * sum(i * s for i, s in zip(index, value.stride()))
    return int(values.__array_interface__["data"][0]) + sum(i * s for i, s in zip(index, values.strides))


def first_apart(got: Array, want: Array, relative: float, absolute: float) -> tuple[int, ...] | None:
    """The first index at which two arrays differ by more than tolerances allow; None if there is none."""
    with np.errstate(all="ignore"):
        a, b = (x.astype(np.float64) if x.dtype.kind not in "iub" else x for x in (got, want))
        near = (a == b) | (np.isnan(a.astype(np.float64)) & np.isnan(b.astype(np.float64)))
        if relative or absolute:
            x, y = a.astype(np.float64), b.astype(np.float64)
            near |= np.isfinite(x) & np.isfinite(y) & (np.abs(x - y) <= absolute + relative * np.abs(y))
    if near.all():
        return None
    return tuple(int(n) for n in np.unravel_index(int(np.argmin(near)), got.shape)) if got.ndim else ()
