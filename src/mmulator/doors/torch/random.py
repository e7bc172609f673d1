"""Random numbers of cuda: generators that say they are of that device."""

from __future__ import annotations

from typing import Any

import torch

_Plain: Any = torch._C.Generator


class _Kind(type(_Plain)):  # type: ignore[misc]
    """What is a generator stays one; a new one is of the device that it is asked for."""

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, _Plain)

    def __call__(cls, device: Any = "cpu") -> Any:
        wanted = torch.device(device)
        if wanted.type != "cuda":
            return _Plain(wanted)
        if wanted.index not in (None, 0):
            raise getattr(torch, "AcceleratorError", RuntimeError)("CUDA error: invalid device ordinal")
        return type.__call__(cls, torch.device("cpu"))


class Generator(_Plain, metaclass=_Kind):  # type: ignore[misc]
    """A generator of cuda:0."""

    @property
    def device(self) -> torch.device:
        return torch.device("cuda", 0)


Generator.__name__ = Generator.__qualname__ = "Generator"
Generator.__module__ = "torch"
default: Any = None


def install() -> None:
    global default
    torch.Generator = Generator  # type: ignore[misc]
    default = Generator("cuda")
    default.manual_seed(torch.initial_seed())
    torch.cuda.default_generators = (default,)
