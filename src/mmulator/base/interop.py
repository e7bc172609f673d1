"""Arrays of other libraries as NumPy arrays: torch tensors, DLPack, the buffer protocol, `__array__`.

No library is imported: a caller with a tensor has imported its library. `readable` may copy; `writable` shares memory or refuses.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from mmulator.base.errors import MmulatorError, OperandError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

_CPU_DEVICES = (1, 3, 11, 13)  # DLPack: host memory, also pinned and managed
_MOVE = "move it to the CPU first: x.cpu(), cupy.asnumpy(x), numpy.asarray(x)"
_PLAIN = (bool, int, float, complex, str, type(None), np.generic, list, tuple, dict, set, type)


class _ArrayReader:
    """Reads values of other libraries.

    what: how messages begin.
    error: class of the errors.
    shared: refuse a copy, which the value itself would not see changed.
    """

    def __init__(self, what: str, error: type[MmulatorError], shared: bool) -> None:
        self.what, self.error, self.shared = what, error, shared

    def fail(self, message: str, hint: str | None = None) -> NoReturn:
        raise self.error(f"{self.what}: {message}", hint=hint) from None

    def read(self, value: Any) -> Array | None:
        """The value as an array; None if it is no array."""
        if isinstance(value, np.ndarray):
            if not self.shared and isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
                self.fail("elements of the array are masked", "pass x.filled(0), or x.data")
            return value if type(value) is np.ndarray else np.asarray(value)
        if isinstance(value, _PLAIN):
            return None
        torch = _torch_of(value)
        if torch is not None:
            return self._tensor(value, torch)
        if _has(value, "__cuda_array_interface__"):
            self.fail(f"the {type(value).__name__} is on a GPU", _MOVE)
        try:
            view = memoryview(value)
        except (TypeError, BufferError, ValueError):
            view = None
        if view is not None:
            return self._buffer(view)
        if _has(value, "__dlpack__") and _has(value, "__dlpack_device__"):
            found = self._dlpack(value)
            if found is not None:
                return found
        if _has(value, "__array__") or _has(value, "__array_interface__"):
            return self._array(value)
        if _has(value, "__dlpack__"):
            self.fail(f"NumPy cannot read this {type(value).__name__} through DLPack", "pass a NumPy array, or a view as uint8")
        return None

    # torch -----------------------------------------------------------------------------------------------------------
    def _tensor(self, x: Any, torch: Any) -> Array:
        try:
            return self._tensor_bits(x, torch)
        except MmulatorError:
            raise
        except Exception as error:  # tensors without memory: fake, wrapped, nested
            reason = next(iter(str(error).splitlines()), "")
            self.fail(f"a {type(x).__name__} without memory of its own ({reason[:120]})", "pass a plain tensor on the CPU")

    def _tensor_bits(self, x: Any, torch: Any) -> Array:
        if x.device.type == "meta":
            self.fail("a meta tensor has no elements")
        if x.device.type != "cpu":
            self.fail(f"the tensor is on {x.device}", "move it to the CPU: x.cpu()")
        if str(x.layout) != "torch.strided":
            self.fail(f"the tensor's layout is {x.layout}: it has no plain memory", "pass x.to_dense(), or its parts")
        if getattr(x, "is_quantized", False):
            self.fail("the tensor is quantized", "pass x.int_repr()")
        if self.shared and x.requires_grad:
            self.fail(
                "the tensor requires grad, and kernels update their buffers in place",
                "pass x.detach(): it shares the memory",
            )
        x = x.detach()
        if x.is_conj() or x.is_neg():
            if self.shared:
                self.fail("the tensor is a conjugate or negative view", "pass x.resolve_conj().resolve_neg()")
            x = x.resolve_conj().resolve_neg()
        if not x.is_contiguous():
            if self.shared:
                self.fail("the tensor is not contiguous", "pass x.contiguous(), and copy what the kernel wrote back")
            x = x.contiguous()
        name = str(x.dtype).removeprefix("torch.")
        dtype = _ml_dtype(name)
        if dtype is None:
            try:
                return np.asarray(x.numpy())
            except TypeError:  # NumPy has no such dtype: the bytes
                dtype = np.dtype(np.uint8)
        raw = np.asarray(x.reshape(-1).view(torch.uint8).numpy())
        if name == "float4_e2m1fn_x2" and not self.shared:  # two elements in a byte, the low half first
            both = np.stack([raw & 15, raw >> 4], axis=-1).reshape(*x.shape[:-1], -1)
            return both.view(_ml_dtype("float4_e2m1fn"))
        shape = tuple(x.shape) if dtype.itemsize == x.element_size() else (*x.shape[:-1], -1)
        return raw.view(dtype).reshape(shape)

    # protocols -------------------------------------------------------------------------------------------------------
    def _buffer(self, view: memoryview) -> Array:
        if self.shared and view.readonly:
            hint = "pass bytearray(x) or an array; bytes are for structs by value"
            self.fail("the buffer is read-only, and kernels update their buffers in place", hint)
        if self.shared and not view.c_contiguous:
            self.fail("the buffer is not contiguous", "pass a copy")
        try:
            return np.asarray(view)
        except (ValueError, TypeError, RuntimeError, NotImplementedError):  # elements that NumPy has no dtype for
            return np.frombuffer(view if view.c_contiguous else view.tobytes(), np.uint8)

    def _dlpack(self, value: Any) -> Array | None:
        """The value through DLPack; None where NumPy cannot take it, for example bf16."""
        try:
            kind = int(value.__dlpack_device__()[0])
        except Exception:
            return None
        if kind not in _CPU_DEVICES:
            self.fail(f"the {type(value).__name__} is on a GPU (DLPack device {kind})", _MOVE)
        try:
            found = np.from_dlpack(value)
        except Exception:
            return None
        if self.shared and not found.flags.writeable:
            if not _has(value, "__array__"):
                self.fail("the array is read-only, and kernels update their buffers in place", "pass a copy")
            return None  # an old exporter does not say whether one may write: __array__ may know
        return found

    def _array(self, value: Any) -> Array:
        try:
            found = np.asarray(value)
            again = np.asarray(value) if self.shared else found
        except Exception as error:
            reason = next(iter(str(error).splitlines()), "")
            self.fail(f"{type(value).__name__} gives no array: {reason[:200]}", "pass numpy.asarray(x), on the CPU")
        if self.shared and found.size and _address(found) != _address(again):
            self.fail(
                f"{type(value).__name__} gives a copy of its elements, so that what the kernel writes would be lost",
                "pass numpy.array(x), and read that after the launch",
            )
        return found


def readable(value: Any, what: str = "the array", error: type[MmulatorError] = OperandError) -> Array | None:
    """The elements of another library's array, or None for what is no array (numbers, lists, strings)."""
    return _ArrayReader(what, error, shared=False).read(value)


def writable(value: Any, what: str, error: type[MmulatorError] = OperandError) -> Array | None:
    """A NumPy array on the value's memory, or None for what is no array. Raises `error` where memory cannot be shared.

    NumPy arrays are returned as they are.
    """
    return _ArrayReader(what, error, shared=True).read(value)


def strided(value: Any, what: str, error: type[MmulatorError] = OperandError) -> Array | None:
    """A NumPy array on the value's memory, as `writable`; a torch tensor that is not contiguous gives a view with its strides."""
    torch = _torch_of(value)
    if torch is None or str(value.layout) != "torch.strided" or value.is_contiguous():
        return writable(value, what, error)
    lying = writable(value.as_strided((_reach(value),), (1,)), what, error)
    if lying is None:
        return None
    steps = tuple(step * lying.itemsize for step in value.stride())
    return np.lib.stride_tricks.as_strided(lying, tuple(value.shape), steps)


def _reach(x: Any) -> int:
    """Elements from a tensor's first to its last in memory."""
    return 1 + sum((size - 1) * step for size, step in zip(x.shape, x.stride())) if x.numel() else 0


def as_array(name: str, value: Any) -> Array:
    """np.asarray of a value. Raises OperandError for what makes no array. name: how messages call it."""
    if type(value) is np.ndarray:
        return value
    try:
        found = readable(value, name)
        return np.asarray(value) if found is None else found
    except MmulatorError:
        raise
    except (ValueError, TypeError, OverflowError, MemoryError, RecursionError) as error:
        raise OperandError(f"{name} makes no array: {error}") from None


def is_float(dtype: np.dtype[Any]) -> bool:
    """Whether a dtype is floating point, those of ml_dtypes included."""
    return dtype.kind == "f" or (dtype.kind == "V" and dtype.names is None and dtype.name.startswith(("bfloat", "float")))


@cache
def named_dtype(name: str) -> np.dtype[Any]:
    """The dtype that has a name in NumPy, or else in ml_dtypes. Raises TypeError for other names."""
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name, name))


def _torch_of(value: Any) -> Any:
    """The torch that made a tensor, or None."""
    for base in type(value).__mro__:
        if base.__name__ == "Tensor" and hasattr(base, "detach"):
            return sys.modules.get(base.__module__.partition(".")[0])
    return None


def _ml_dtype(name: str) -> Any:
    import ml_dtypes

    if name in ("float16", "float32", "float64", "float4_e2m1fn_x2"):
        return np.dtype(np.uint8) if name == "float4_e2m1fn_x2" else None
    found = getattr(ml_dtypes, name, None)
    return None if found is None or not isinstance(found, type) else np.dtype(found)


def _has(value: Any, name: str) -> bool:
    try:
        return hasattr(value, name)
    except Exception:
        return False


def _address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])


def is_lazy(value: Any) -> bool:
    """Whether a value is a Dask array."""
    array = sys.modules.get("dask.array")
    return array is not None and isinstance(value, array.Array)
