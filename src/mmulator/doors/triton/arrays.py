"""Arrays that Triton does not know, as arguments: NumPy's, and those that speak DLPack or an array interface.

Triton takes objects with `data_ptr()` and a `dtype`. The stand-in of an array has both, and keeps the array's memory.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np

from mmulator.base.errors import LaunchError
from mmulator.base.interop import named_dtype
from mmulator.runtime.launch.regions import kept, pointer, room_behind

# Types of elements as Triton's and torch's people write them; ml_dtypes uses the same names.
_NAMES = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "bfloat16", "float32", "float64",
    "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz",
)  # fmt: skip
_PLAIN = (bool, int, float, complex, str, bytes, np.generic, type, list, dict, set)


class Dtype(str):
    """The name of an element type, with what Triton's tensor descriptors ask of a torch dtype."""

    @property
    def itemsize(self) -> int:
        return named_dtype(self).itemsize

    @property
    def is_floating_point(self) -> bool:
        return "float" in self


class ArrayPointer:
    """The stand-in of an array among a kernel's arguments.

    address: of its first element.
    start, size: of the memory it lies in.
    room: as in Region.
    owner: what keeps that memory, besides the array.
    """

    def __init__(
        self, array: Any, dtype: Dtype, address: int, start: int, size: int, writable: bool = True, room: int = 0,
        owner: Any = None,
    ) -> None:  # fmt: skip
        self.array, self.dtype, self.room, self.owner = array, dtype, room, (array, owner)
        self.address, self.start, self.size, self.writable = address, start, size, writable

    def data_ptr(self) -> int:
        return self.address

    def element_size(self) -> int:
        return self.dtype.itemsize

    def is_contiguous(self) -> bool:
        """Whether elements lie in order without gaps, as torch says it."""
        dense, size = True, 1
        for count, step in zip(reversed(self.array.shape), reversed(self.stride())):
            dense, size = dense and (count < 2 or step == size), size * count
        return dense or not size

    def stride(self) -> tuple[int, ...]:
        """Strides in elements, as torch counts. Raises LaunchError for an array that does not say."""
        if not hasattr(self.array, "strides"):
            what = type(self.array).__name__
            raise LaunchError(f"a {what} does not say its strides", hint="give the descriptor shape and strides")
        return tuple(n // self.dtype.itemsize for n in self.array.strides)

    def __getattr__(self, name: str) -> Any:
        if name == "array":
            raise AttributeError(name)
        return getattr(self.array, name)

    def __repr__(self) -> str:
        return f"ArrayPointer({type(self.array).__name__} of {self.dtype} at 0x{self.address:x})"


def stand_in(value: Any) -> Any:
    """A value that Triton can take: the stand-in of an array, also inside a tuple; another value is itself. Raises LaunchError
    for an array whose elements Triton has no type for, or that is on a GPU.
    """
    if isinstance(value, tuple):
        items = [stand_in(item) for item in value]
        if all(new is old for new, old in zip(items, value)):
            return value
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    if isinstance(value, np.ndarray):
        return _of_array(value, value)
    if value is None or isinstance(value, _PLAIN) or hasattr(value, "data_ptr"):
        return value
    if hasattr(value, "__cuda_array_interface__"):
        return _of_interface(value, value.__cuda_array_interface__)
    if hasattr(value, "__array_interface__"):
        return _of_array(np.asarray(value), value)
    if hasattr(value, "__dlpack__") and hasattr(value, "__dlpack_device__"):
        return _of_dlpack(value)
    return value


@cache
def _named(dtype: Any) -> Dtype:
    """The Dtype of a NumPy dtype. Raises LaunchError."""
    name = Dtype(dtype.name)
    if not dtype.isnative:
        raise LaunchError(f"an array of {dtype} is big-endian, a GPU is not", hint="pass x.astype(x.dtype.newbyteorder('='))")
    if name not in _NAMES:
        raise LaunchError(
            f"Triton has no type for an array of {dtype}", hint="pass a view of a type that it has, x.view(np.uint8)"
        )
    return name


def _of_array(array: np.ndarray, value: Any) -> ArrayPointer:
    root = array
    while isinstance(root.base, np.ndarray):
        root = root.base
    flags = array.flags
    if root is array and flags.c_contiguous:
        address = pointer(array)
        room = room_behind(array.nbytes) if flags.owndata else 0
        return ArrayPointer(value, _named(array.dtype), address, address, array.nbytes, flags.writeable, room, kept(array))
    low, high = np.lib.array_utils.byte_bounds(root)
    address = pointer(array)
    if not array.size or not low <= address <= high:  # made by as_strided, or of no elements
        low, high = np.lib.array_utils.byte_bounds(array)
    return ArrayPointer(value, _named(array.dtype), address, low, high - low, flags.writeable, owner=kept(root))


def _of_interface(value: Any, said: dict[str, Any]) -> ArrayPointer:
    """Stand-in of a door's array: memory of the driver's own."""
    from mmulator.host.driver import current

    address, read_only = said["data"]
    found = current().memory.find(address) if address else None
    if address and found is None:
        raise LaunchError(
            f"a {type(value).__name__} at 0x{address:x} is on a real GPU", hint="copy it to the host first: x.get()"
        )
    start, size = (found.address, found.size) if found else (0, 0)
    return ArrayPointer(value, _named(np.dtype(said["typestr"])), address, start, size, not read_only)


def take_arrays() -> None:
    """Let tensor descriptors of the host be made of arrays, too. No effect the second time."""
    try:
        from triton.tools.tensor_descriptor import TensorDescriptor
    except ImportError:
        return
    make: Any = TensorDescriptor.from_tensor
    if getattr(make, "__module__", "") == __name__:
        return

    def from_tensor(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        return make(stand_in(tensor), *args, **kwargs)

    from_tensor.__doc__ = make.__doc__
    TensorDescriptor.from_tensor = staticmethod(from_tensor)


# DLPack ---------------------------------------------------------------------------------------------------------------
_HOST = (1, 3, 11, 13)  # kinds of devices: host memory, also pinned and managed
_KINDS = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 6: "bool"}
_FLOATS = {10: "float8_e4m3fn", 11: "float8_e4m3fnuz", 12: "float8_e5m2", 13: "float8_e5m2fnuz"}


class _Tensor(ctypes.Structure):
    """DLTensor (dlpack.h)."""

    _fields_ = [
        ("data", ctypes.c_void_p), ("device", ctypes.c_int32 * 2), ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64),
    ]  # fmt: skip


def _of_dlpack(value: Any) -> ArrayPointer:
    """Stand-in of an array that speaks DLPack. NumPy does not read bf16 and fp8 through DLPack, so the struct itself is read; the
    value keeps its memory alive.
    """
    what = type(value).__name__
    if int(value.__dlpack_device__()[0]) not in _HOST:
        raise LaunchError(f"a {what} is on a real GPU (DLPack device {value.__dlpack_device__()[0]})", hint="copy it to the host")
    capsule = value.__dlpack__()
    unwrap = ctypes.pythonapi.PyCapsule_GetPointer
    unwrap.restype, unwrap.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    tensor = _Tensor.from_address(unwrap(capsule, b"dltensor"))
    name = _FLOATS.get(tensor.code) or f"{_KINDS.get(tensor.code, '?')}{tensor.bits}"
    name = Dtype("bool" if tensor.code == 6 else name)
    if name not in _NAMES or tensor.lanes != 1:
        raise LaunchError(f"Triton has no type for the elements of a {what} (DLPack code {tensor.code}, {tensor.bits} bits)")
    shape = tensor.shape[: tensor.ndim] if tensor.ndim else []
    dense = [int(np.prod(shape[n + 1 :])) for n in range(len(shape))]
    strides = tensor.strides[: tensor.ndim] if tensor.ndim and tensor.strides else dense
    address, item = (tensor.data or 0) + tensor.byte_offset, tensor.bits // 8
    if 0 in shape:
        return ArrayPointer(value, name, address, address, 0)
    reach = [(n - 1) * s * item for n, s in zip(shape, strides)]
    low, high = sum(r for r in reach if r < 0), sum(r for r in reach if r > 0) + item
    return ArrayPointer(value, name, address, address + low, high - low, owner=capsule)
