"""Memory of tensors of cuda: what is in it when it is fresh, and which of it a kernel may touch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from mmulator.doors.torch import dispatch, raw
from mmulator.driver import current

# What fresh memory holds: a signalling NaN of each floating-point type, elsewhere bytes of 0xCD. (integer type, bits)
_BYTES = {1: (torch.int8, -0x33), 2: (torch.int16, -0x3233), 4: (torch.int32, -0x32323233), 8: (torch.int64, -0x3232323232323233)}
_F64, _F32, _F16 = (torch.int64, 0x7FF4CDCDCDCDCDCD), (torch.int32, 0x7FACCDCD), (torch.int16, 0x7DCD)
POISON: dict[torch.dtype, tuple[torch.dtype, int]] = {
    torch.float64: _F64, torch.complex128: _F64, torch.float32: _F32, torch.complex64: _F32, torch.float16: _F16,
    torch.complex32: _F16, torch.bfloat16: (torch.int16, 0x7FAD), torch.bool: (torch.int8, 1),
    torch.float8_e4m3fn: (torch.int8, 0x7F), torch.float8_e5m2: (torch.int8, 0x7D), torch.float8_e4m3fnuz: (torch.int8, -0x80),
    torch.float8_e5m2fnuz: (torch.int8, -0x80),
}  # fmt: skip
if hasattr(torch, "float8_e8m0fnu"):
    POISON[torch.float8_e8m0fnu] = (torch.int8, -1)

_fill = torch.ops.aten.fill_.Scalar._handle.redispatch_boxed


def poison(tensor: torch.Tensor) -> torch.Tensor:
    """Fill the whole storage of a fresh tensor of cuda with what nobody takes for a value."""
    storage = dispatch._storage_of(tensor)
    size = storage.nbytes()
    if size:
        dtype, bits = POISON.get(tensor.dtype) or _BYTES[1]
        if size % dtype.itemsize:
            dtype, bits = _BYTES[1]
        _fill(raw.KEYS, dispatch.base(dispatch._address_of(storage), size, dtype), bits)
    return tensor


# addresses ----------------------------------------------------------------------------------------------------------------
_data_ptr = torch._C.TensorBase.data_ptr


def expose(tensor: torch.Tensor) -> None:
    """The program has the address of this tensor's memory, and may store it where a kernel finds it."""
    storage = dispatch._storage_of(tensor)
    address, size = dispatch._address_of(storage), storage.nbytes()
    known = current().memory._known.get(address)
    if size and (known is None or not known.alive or known.size < size):
        current().memory.expose(address, size, storage, "a tensor whose data_ptr() was taken")


_inside = ("torch.", "triton.", "mmulator.")


def _taken(self: torch.Tensor) -> int:
    """data_ptr() of a program: kernels may touch what it points at while the memory lives."""
    import sys

    address = _data_ptr(self)
    name = sys._getframe(1).f_globals.get("__name__", "")
    if address and not (name in ("torch", "triton") or name.startswith(_inside)):
        expose(self)
    return address


def watch_addresses() -> None:
    """From here on, a kernel may touch the memory whose address a program asks for. Of tensors of all devices."""
    if torch.Tensor.data_ptr is not _taken:
        _taken.__doc__ = _data_ptr.__doc__
        torch.Tensor.data_ptr = _taken  # type: ignore[method-assign]


def storage(size: int) -> Any:
    """An untyped storage of cuda, of `size` bytes that nobody may count on."""
    return dispatch._storage_of(poison(dispatch.empty([size], torch.uint8)))


def poisoned(size: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    return poison(dispatch.empty(size, dtype))


# storages -----------------------------------------------------------------------------------------------------------------
def storages() -> None:
    """Storages of cuda can be made and resized by hand, as torch's serialisation does."""
    plain, resize = torch.UntypedStorage.__new__, torch.UntypedStorage.resize_

    def new(cls: Any, *args: Any, device: Any = None, **kwargs: Any) -> Any:
        if device is None or torch.device(device).type != "cuda":
            return plain(cls, *args, **kwargs) if device is None else plain(cls, *args, device=device, **kwargs)
        dispatch.host(torch.device(device))
        given = args[0] if args else kwargs.get("size", 0)
        if isinstance(given, int):
            return storage(given)
        made = storage(len(given))
        made.copy_(plain(cls, given))
        return made

    def grow(self: Any, size: int) -> Any:
        if self.device.type != "cuda":
            return resize(self, size)
        raw.resize_storage(self, size)
        return self

    torch.UntypedStorage.__new__ = new  # type: ignore[method-assign,assignment]
    torch.UntypedStorage.resize_ = grow  # type: ignore[method-assign]
