"""Contents of new memory of tensors of cuda."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NoReturn

import torch

from mmulator.base.errors import UnsupportedError
from mmulator.doors.torch import dispatch, objects
from mmulator.host.driver.memory import unfilled

# Contents of new memory: a signalling NaN of each floating-point type, else bytes of 0xCD. Hexadecimal, one element.
_WORDS = {
    torch.float64: "7ff4cdcdcdcdcdcd", torch.float32: "7faccdcd", torch.float16: "7dcd", torch.bfloat16: "7fad",
    torch.complex128: "7ff4cdcdcdcdcdcd", torch.complex64: "7faccdcd", torch.complex32: "7dcd", torch.bool: "01",
    torch.float8_e4m3fn: "7f", torch.float8_e5m2: "7d", torch.float8_e4m3fnuz: "80", torch.float8_e5m2fnuz: "80",
}  # fmt: skip
if hasattr(torch, "float8_e8m0fnu"):
    _WORDS[torch.float8_e8m0fnu] = "ff"
POISON = {dtype: int(word * (16 // len(word)), 16) for dtype, word in _WORDS.items()}
_PLAIN = int("cd" * 8, 16)
_USUAL = {POISON[t] for t in POISON if t.itemsize == 1}  # which programs write, too: it does not tell who has


class _Filling(threading.local):
    """Whether an operator of this thread fills all memory that it asks for."""

    on = False


_filling = _Filling()


def filled(run: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which fills new tensors of cuda itself, before anybody sees them."""

    def call(*args: Any, **kwargs: Any) -> Any:
        before, _filling.on = _filling.on, True
        try:
            return run(*args, **kwargs)
        finally:
            _filling.on = before

    return call


def poison(tensor: torch.Tensor) -> torch.Tensor:
    """Fill the whole storage of a new tensor of cuda with a value that looks wrong, unless the program cannot see it."""
    if _filling.on:
        return tensor
    storage = dispatch._storage_of(tensor)
    address, size, word = dispatch._address_of(storage), storage.nbytes(), POISON.get(tensor.dtype, _PLAIN)
    objects.memory.fill(address, size, word)
    if word not in _USUAL:
        unfilled[address] = size, word
    return tensor


def storage(size: int) -> Any:
    """An untyped storage of cuda, of `size` bytes with undefined contents."""
    return dispatch._storage_of(poison(dispatch.empty([size], torch.uint8)))


def not_shared(*_: Any, **__: Any) -> NoReturn:
    """Raise the error for a tensor of cuda that torch.multiprocessing sends to another process."""
    raise UnsupportedError("a tensor of cuda cannot be sent to another process", hint="send tensor.cpu(), and call cuda() there")


# storages -----------------------------------------------------------------------------------------------------------------
def storages() -> None:
    """Let storages of cuda be made and resized by hand, as torch's serialisation does."""
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
        objects.resize_storage(self, size)
        return self

    torch.UntypedStorage._share_cuda_ = torch.UntypedStorage._new_shared_cuda = not_shared
    torch.UntypedStorage.__new__ = new
    torch.UntypedStorage.resize_ = grow
