"""cupy.ndarray over host memory. It computes what has equal bits on every machine that rounds as IEEE 754 says; other functions,
and sums of floats, whose order is CuPy's, are refused by name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from mmulator.base.errors import LaunchError, UnsupportedError
from mmulator.host.driver import Region, current
from mmulator.host.driver.streams import ordering
from mmulator.runtime.launch.regions import kept, room_behind

# Functions of elements whose results are exact, or rounded once.
EXACT = frozenset((
    *("add", "subtract", "multiply", "divide", "true_divide", "negative", "positive", "absolute", "sqrt", "square", "sign"),
    *("equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "minimum", "maximum", "fmin", "fmax"),
    *("logical_and", "logical_or", "logical_xor", "logical_not", "bitwise_and", "bitwise_or", "bitwise_xor", "invert"),
    *("left_shift", "right_shift", "floor", "ceil", "trunc", "rint", "isnan", "isinf", "isfinite", "signbit", "copysign"),
    *("conjugate",),
))  # fmt: skip
INTEGERS_ONLY = frozenset(("floor_divide", "remainder", "sum", "prod", "cumsum", "cumprod"))
_HINT = "compute it on the host: x.get()"


def refuse(name: str, why: str = "only NVIDIA's libraries have CuPy's bits of it") -> UnsupportedError:
    return UnsupportedError(f"cupy.{name} is not there without a GPU: {why}", hint=_HINT)


def unwrap(value: Any) -> Any:
    """The value with a NumPy array in place of each cupy array."""
    if isinstance(value, ndarray):
        return value._host
    if isinstance(value, tuple | list):
        return type(value)(map(unwrap, value))
    return value


def wrap(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return ndarray._of(np.asarray(value))
    if isinstance(value, tuple | list):
        return type(value)(map(wrap, value))
    return value


def check_numbers(name: str, arrays: Any) -> None:
    """Raise UnsupportedError where a function is exact for integers alone, and these are none."""
    kinds = {np.asarray(a).dtype.kind for a in arrays}
    if name in INTEGERS_ONLY and not kinds <= set("biu"):
        raise refuse(name, "of floats it depends on CuPy's own order and rounding")


class MemoryPointer:
    """cupy.cuda.MemoryPointer. ptr: the address. mem: the owner of the memory."""

    def __init__(self, host: np.ndarray) -> None:
        self.mem, self._host = host.base if isinstance(host.base, np.ndarray) else host, host
        self.ptr = int(host.ctypes.data)
        owner = _owner(host)
        memory = current().memory
        memory.expose(int(owner.ctypes.data), owner.nbytes, owner, "an array of cupy", whole=owner.flags.owndata)


def _owner(host: np.ndarray) -> np.ndarray:
    while isinstance(host.base, np.ndarray):
        host = host.base
    return host


def region(host: np.ndarray, label: str) -> Region:
    """The memory that an array lies in."""
    owner = _owner(host)
    room = room_behind(owner.nbytes) if owner.flags.owndata else 0
    return Region(int(owner.ctypes.data), owner.nbytes, label, room=room, owner=(owner, kept(owner)))


class ndarray(NDArrayOperatorsMixin):
    """cupy.ndarray."""

    __array_priority__ = 100

    def __init__(self, shape: Any, dtype: Any = float, memptr: Any = None, strides: Any = None, order: str = "C") -> None:
        if memptr is not None:
            if strides is not None:
                raise refuse("ndarray(strides=...)", "arrays over a pointer are contiguous here")
            room = memptr._host.reshape(-1).view(np.uint8)
            size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
            if size > room.size:
                raise LaunchError(f"an array of {size} bytes over memory of {room.size}")
            self._host = room[:size].view(dtype).reshape(shape, order=order)
            return
        self._host = np.empty(shape, dtype, order)  # type: ignore[call-overload]
        if self._host.dtype.kind == "O":
            raise ValueError(f"Unsupported dtype {self._host.dtype}")
        self._host.reshape(-1, order="A").view(np.uint8)[...] = 0xCD  # contents are undefined, as on a GPU

    @classmethod
    def _of(cls, host: np.ndarray) -> ndarray:
        made = cls.__new__(cls)
        if host.dtype.kind not in "biufc":
            raise ValueError(f"Unsupported dtype {host.dtype}")
        made._host = host
        return made

    # what it is ------------------------------------------------------------------------------------------------------
    @property
    def data(self) -> MemoryPointer:
        return MemoryPointer(self._host)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        at, host = self.data.ptr, self._host
        strides = None if host.flags.c_contiguous else host.strides
        return {"shape": host.shape, "typestr": host.dtype.str, "descr": host.dtype.descr, "data": (at, False),
                "strides": strides, "version": 3, "stream": 1}  # fmt: skip

    @property
    def shape(self) -> tuple[int, ...]:
        return self._host.shape

    @shape.setter
    def shape(self, shape: Any) -> None:
        self._host = self._host.reshape(shape)

    @property
    def device(self) -> Any:
        from mmulator.doors.cupy.device import CupyDevice

        return CupyDevice(0)

    def __len__(self) -> int:
        return len(self._host)

    def __repr__(self) -> str:
        return repr(self._host)

    def __str__(self) -> str:
        return str(self._host)

    # to the host and back --------------------------------------------------------------------------------------------
    def get(self, stream: Any = None, order: str = "C", out: Any = None, blocking: bool = True) -> np.ndarray:
        if blocking and ordering:
            ordering[-1].synchronize()
        if out is not None:
            out[...] = self._host
            return np.asarray(out)
        return np.array(self._host, order=order)  # type: ignore[call-overload]

    def set(self, arr: Any, stream: Any = None) -> None:
        self._host[...] = arr

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError("Implicit conversion to a NumPy array is not allowed. Please use `.get()` to construct one explicitly.")

    def __bool__(self) -> bool:
        return bool(self._host)

    def __int__(self) -> int:
        return int(self._host)

    def __index__(self) -> int:
        return self._host.__index__()

    def __float__(self) -> float:
        return float(self._host)

    def __complex__(self) -> complex:
        return complex(self._host)

    # elements --------------------------------------------------------------------------------------------------------
    def __getitem__(self, key: Any) -> ndarray:
        found = self._host[unwrap(key)]
        return ndarray._of(found if isinstance(found, np.ndarray) else self._host[(*_places(key), ...)])

    def __setitem__(self, key: Any, value: Any) -> None:
        self._host[unwrap(key)] = unwrap(value)

    def __iter__(self) -> Any:
        return (self[n] for n in range(len(self)))

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        name = ufunc.__name__
        if method != "__call__" or name not in EXACT | INTEGERS_ONLY:
            raise refuse(name if method == "__call__" else f"{name}.{method}")
        if any(isinstance(i, np.ndarray) and i.ndim for i in inputs):
            raise TypeError(f"Unsupported type {np.ndarray}")  # as CuPy says to arrays of the host
        given = unwrap(inputs)
        check_numbers(name, given)
        if (out := kwargs.pop("out", None)) is not None:
            kwargs["out"] = unwrap(out)
        with np.errstate(all="ignore"):
            found = ufunc(*given, **kwargs)
        return out[0] if out is not None else wrap(found)


def _places(key: Any) -> tuple[Any, ...]:
    return tuple(unwrap(key)) if isinstance(key, tuple) else (unwrap(key),)


def _method(name: str, in_place: bool = False) -> Callable[..., Any]:
    def call(self: ndarray, *args: Any, **kwargs: Any) -> Any:
        check_numbers(name, [self._host])
        kwargs.pop("blocking", None)
        return wrap(getattr(self._host, name)(*unwrap(args), **{k: unwrap(v) for k, v in kwargs.items()}))

    call.__name__ = name
    return call


_SAME = (
    *("astype", "copy", "reshape", "ravel", "flatten", "transpose", "swapaxes", "squeeze", "view", "fill", "take", "repeat"),
    *("all", "any", "min", "max", "argmin", "argmax", "sum", "prod", "cumsum", "cumprod", "clip", "diagonal", "nonzero"),
    *("byteswap", "choose", "compress", "conj", "conjugate", "put", "searchsorted"),
)  # fmt: skip
_PLAIN = ("dtype", "ndim", "size", "itemsize", "nbytes", "strides", "flags", "item", "tolist", "tobytes")
_REFUSED = ("mean", "var", "std", "sort", "argsort", "partition", "trace", "round", "dump", "ptp", "__pow__", "__rpow__",
            "__divmod__")  # fmt: skip
for _name in _SAME:
    setattr(ndarray, _name, _method(_name))


def _attribute(name: str) -> property:
    return property(lambda self: wrap(getattr(self._host, name)))


for _name in (*_PLAIN, "T", "mT", "real", "imag"):
    setattr(ndarray, _name, _attribute(_name))


def _refusal(name: str) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        raise refuse(name)

    call.__name__ = name
    return call


for _name in _REFUSED:
    setattr(ndarray, _name, _refusal(f"ndarray.{_name}"))
ndarray.__module__ = "cupy"
