"""Operators on cuda that are more than the CPU's kernel on the same memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from mmulator.doors.torch import dispatch, memory, raw

KEYS = raw.KEYS
_aten = torch.ops.aten
SPECIAL: dict[str, Callable[..., Any]] = {}


def kernel(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers a function as the kernel of operators on cuda."""

    def take(function: Callable[..., Any]) -> Callable[..., Any]:
        SPECIAL.update(dict.fromkeys(("aten::" + name for name in names), function))
        return function

    return take


# memory -------------------------------------------------------------------------------------------------------------------
_empty = _aten.empty.memory_format._handle.redispatch_boxed
_empty_strided = _aten.empty_strided.default._handle.redispatch_boxed


def _pinned(pin_memory: bool | None) -> None:
    if pin_memory:
        raise RuntimeError("Only dense CPU tensors can be pinned")


@kernel("empty.memory_format")
def empty(
    size: Any, *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None, memory_format: Any = None
) -> Any:
    _pinned(pin_memory)
    where = raw.CPU if device is None else dispatch.host(device)
    made = _empty(KEYS, size, dtype=dtype, layout=layout, device=where, memory_format=memory_format)
    return memory.poison(dispatch.adopt(made))


@kernel("empty_strided")
def empty_strided(
    size: Any, stride: Any, *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None
) -> Any:
    _pinned(pin_memory)
    where = raw.CPU if device is None else dispatch.host(device)
    return memory.poison(dispatch.adopt(_empty_strided(KEYS, size, stride, dtype=dtype, layout=layout, device=where)))


@kernel("resize_")
def resize_(self: Any, size: Any, *, memory_format: Any = None) -> Any:
    stride = None
    if memory_format is not None and memory_format not in (torch.contiguous_format, torch.preserve_format):
        stride = torch.empty(size, device="meta", memory_format=memory_format).stride()
    dispatch.resize(self, size, stride)
    return self


@kernel("set_.source_Storage_storage_offset")
def set_storage_offset(self: Any, source: Any, storage_offset: int, size: Any, stride: Any = ()) -> Any:
    _same_device(source)
    if not stride:
        stride = torch.empty(size, device="meta").stride()
    last = 0 if 0 in size else sum((n - 1) * s for n, s in zip(size, stride)) + 1
    needed = (storage_offset + last) * self.dtype.itemsize if last else 0
    if source.nbytes() < needed:
        raw.resize_storage(source, needed)
    return dispatch._set(KEYS, self, source, storage_offset, size, stride)


def _same_device(storage: Any) -> None:
    if storage.device.type != "cuda":
        raise RuntimeError(
            'Attempted to set the storage of a tensor on device "cuda:0" to a storage on different device '
            f'"{storage.device}".  This is no longer allowed; the devices must match.'
        )


@kernel("set_.source_Storage")
def set_storage(self: Any, source: Any) -> Any:
    return set_storage_offset(self, source, 0, [source.nbytes() // self.dtype.itemsize], [1])


@kernel("set_.source_Tensor")
def set_tensor(self: Any, source: Any) -> Any:
    return set_storage_offset(self, dispatch._storage_of(source), source.storage_offset(), source.size(), source.stride())


@kernel("set_")
def set_nothing(self: Any) -> Any:
    return set_storage_offset(self, memory.storage(0), 0, [0], [1])


@kernel("record_stream")
def record_stream(self: Any, stream: Any) -> None:
    """Memory is not given to anybody else before it is free, and streams do not run ahead."""


# to and from the CPU ------------------------------------------------------------------------------------------------------
_copy = _aten.copy_.default._handle.redispatch_boxed
_format = _aten.empty_like.default


@kernel("_to_copy")
def to_copy(
    self: Any, *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None, non_blocking: bool = False,
    memory_format: Any = None,
) -> Any:  # fmt: skip
    made = torch.empty_like(
        self, dtype=dtype, layout=layout, device=device or self.device, memory_format=memory_format or torch.preserve_format
    )
    return made.copy_(self)


# attention ----------------------------------------------------------------------------------------------------------------
@kernel("_fused_sdp_choice")
def sdp_choice(*args: Any, **kwargs: Any) -> int:
    """Which attention: plain arithmetic, one operator after the other."""
    return 0
