"""The names of cupy, replaced for a program."""

import types
from collections.abc import Callable
from typing import Any

import numpy as np

from mmulator.doors.cupy import arrays, device, elementwise, kernels, products
from mmulator.doors.cupy.arrays import EXACT, INTEGERS_ONLY, check_numbers, ndarray, unwrap, wrap

# Functions of NumPy that only make, move, compare and choose.
MOVING = (
    *("zeros", "ones", "full", "arange", "eye", "identity", "diag", "zeros_like", "ones_like", "full_like", "tri", "tril"),
    *("triu", "copy", "reshape", "ravel", "transpose", "swapaxes", "moveaxis", "expand_dims", "squeeze", "concatenate"),
    *("stack", "vstack", "hstack", "dstack", "split", "array_split", "hsplit", "vsplit", "tile", "repeat", "flip", "fliplr"),
    *("flipud", "roll", "take", "broadcast_to", "broadcast_arrays", "where", "nonzero", "flatnonzero", "array_equal"),
    *("allclose", "isclose", "meshgrid", "atleast_1d", "atleast_2d", "atleast_3d", "all", "any", "min", "max", "amin"),
    *("amax", "argmin", "argmax", "sum", "prod", "count_nonzero", "clip", "ascontiguousarray", "asfortranarray", "rot90"),
    *("cumsum", "cumprod", "pad", "indices", "ndim", "size", "shape", "diagonal", "result_type", "can_cast", "isin", "unique"),
    *("intersect1d", "setdiff1d", "setxor1d", "union1d", "fill_diagonal", "copyto", "putmask", "place", "put", "compress"),
    *("extract", "select", "choose", "delete", "append", "resize", "trim_zeros", "array_equiv", "diag_indices", "rollaxis"),
    *("diag_indices_from", "tril_indices", "tril_indices_from", "triu_indices", "triu_indices_from", "column_stack", "diff"),
    *("take_along_axis", "unravel_index", "ravel_multi_index", "searchsorted", "digitize", "packbits", "unpackbits", "real"),
    *("imag", "isneginf", "isposinf", "nan_to_num", "isscalar", "iscomplexobj", "isrealobj", "promote_types", "common_type"),
)  # fmt: skip
RANDOM = ("seed", "rand", "randn", "random", "random_sample", "uniform", "normal", "standard_normal", "randint", "permutation")


def install() -> None:
    """Replace the names of cupy, right after its import. A second call does nothing."""
    import cupy

    if hasattr(cupy, "mmulator"):
        return
    cupy.mmulator = True
    for module, name in ((cupy, ""), *_parts(cupy)):
        _refuse_all(module, name)
    _put(cupy, {name: _numpy(name) for name in (*MOVING, *EXACT, *INTEGERS_ONLY) if hasattr(np, name)})
    _put(cupy, {
        "ndarray": ndarray, "array": array, "asarray": asarray, "asanyarray": asarray, "asnumpy": asnumpy, "empty": empty,
        "empty_like": empty_like, "RawKernel": kernels.RawKernel, "RawModule": kernels.RawModule,
        "ElementwiseKernel": elementwise.ElementwiseKernel, "get_array_module": get_array_module, "is_available": lambda: True,
        "abs": _numpy("absolute"), "matmul": products.matmul, "dot": products.dot,
    })  # fmt: skip
    _put(cupy.random, {name: _random(name) for name in RANDOM})
    _put(cupy.cuda, {
        "Device": device.CupyDevice, "Stream": device.CupyStream, "Event": device.CupyEvent,
        "get_elapsed_time": device.get_elapsed_time, "get_current_stream": device.current_stream,
        "is_available": lambda: True, "MemoryPointer": arrays.MemoryPointer,
    })  # fmt: skip
    device.CupyStream.null = device.CupyStream(null=True)
    _put(cupy.cuda.runtime, device.runtime())
    _put(cupy.cuda.device, {
        "Device": device.CupyDevice, "get_compute_capability": device.compute_capability, "get_device_id": lambda: 0,
    })  # fmt: skip
    _put(cupy.cuda.stream, {"get_current_stream": device.current_stream})


def _put(module: Any, names: dict[str, Any]) -> None:
    for name, value in names.items():
        setattr(module, name, value)


def _parts(cupy: Any) -> list[tuple[Any, str]]:
    """Modules of cupy whose functions use a device."""
    return [(getattr(cupy, name), f"{name}.") for name in ("random", "linalg", "fft", "sparse") if hasattr(cupy, name)]


def _refuse_all(module: Any, prefix: str) -> None:
    for name, value in list(vars(module).items()):
        if name.startswith("_") or isinstance(value, types.ModuleType) or vars(np).get(name) is value:
            continue
        if isinstance(value, type) and issubclass(value, np.generic | BaseException):
            continue
        if callable(value):
            setattr(module, name, arrays._refusal(prefix + name))


def _numpy(name: str) -> Callable[..., Any]:
    """NumPy's function on the memory of the arrays."""
    function = getattr(np, name)

    def call(*args: Any, **kwargs: Any) -> Any:
        given, named = unwrap(args), {k: unwrap(v) for k, v in kwargs.items()}
        if name in INTEGERS_ONLY:
            check_numbers(name, [a for a in given if isinstance(a, np.ndarray | float)])
        with np.errstate(all="ignore"):
            found = function(*given, **named)
        if "out" in kwargs and isinstance(kwargs["out"], ndarray):
            return kwargs["out"]
        return wrap(np.asarray(found) if isinstance(found, bool) else found)

    call.__name__ = name
    return call


def _random(name: str) -> Callable[..., Any]:
    """A function that returns numbers of NumPy's generator, which are not cuRAND's of that seed."""
    function = getattr(np.random, name)

    def call(*args: Any, dtype: Any = None, **kwargs: Any) -> Any:
        found = function(*unwrap(args), **kwargs)
        return None if found is None else wrap(np.asarray(found, dtype))

    call.__name__ = name
    return call


def array(obj: Any, dtype: Any = None, copy: bool = True, order: str = "K", subok: bool = False, ndmin: int = 0) -> ndarray:
    """cupy.array."""
    return ndarray._of(np.array(unwrap(obj), dtype, copy=copy or None, order=order, ndmin=ndmin))  # type: ignore[call-overload]


def asarray(a: Any, dtype: Any = None, order: Any = None, *, blocking: bool = False) -> ndarray:
    """cupy.asarray: an array of the device stays itself, one of the host is copied."""
    if isinstance(a, ndarray) and (dtype is None or a._host.dtype == np.dtype(dtype)):
        return a
    return ndarray._of(np.array(unwrap(a), dtype, order=order))


def asnumpy(a: Any, stream: Any = None, order: str = "C", out: Any = None, *, blocking: bool = True) -> Any:
    """cupy.asnumpy."""
    return a.get(order=order, out=out) if isinstance(a, ndarray) else np.asarray(a, order=order)  # type: ignore[call-overload]


def empty(shape: Any, dtype: Any = float, order: str = "C") -> ndarray:
    """cupy.empty: memory with undefined contents."""
    return ndarray(shape, dtype, order=order)


def empty_like(prototype: Any, dtype: Any = None, order: str = "K", subok: Any = None, shape: Any = None) -> ndarray:
    """cupy.empty_like."""
    made = ndarray._of(np.empty_like(unwrap(prototype), dtype, order, shape=shape))  # type: ignore[call-overload]
    made._host.reshape(-1, order="A").view(np.uint8)[...] = 0xCD
    return made


def get_array_module(*args: Any) -> Any:
    """cupy.get_array_module."""
    import cupy

    return cupy if any(isinstance(a, ndarray) for a in args) else np
