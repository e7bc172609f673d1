"""As much of torch.Tensor as mmulator uses, for machines without PyTorch."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np

uint8 = np.uint8  # where the module of Tensor has it
_OWN = {"float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool"}


class Tensor:
    __module__ = "torch_stub"  # a tensor's library is the first part of its module's name, as `torch` is

    def __init__(self, array: Any, name: str, **attributes: Any) -> None:
        self.array, self.dtype = array, f"torch.{name}"
        self.attributes = {"device": "cpu", "layout": "torch.strided", "requires_grad": False, **attributes}

    @classmethod
    def of(cls, array: Any, **attributes: Any) -> Tensor:
        """A tensor on the memory of an array."""
        return cls(array, array.dtype.name, **attributes)

    @property
    def device(self) -> Any:
        return SimpleNamespace(type=self.attributes["device"].partition(":")[0])

    @property
    def layout(self) -> str:
        return self.attributes["layout"]

    @property
    def requires_grad(self) -> bool:
        return self.attributes["requires_grad"]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    def element_size(self) -> int:
        return self.array.itemsize

    def detach(self) -> Tensor:
        return Tensor(self.array, self.dtype[6:], **{**self.attributes, "requires_grad": False})

    def cpu(self) -> Tensor:
        return Tensor(self.array, self.dtype[6:], **{**self.attributes, "device": "cpu"})

    def is_conj(self) -> bool:
        return False

    is_neg = is_conj

    def is_contiguous(self) -> bool:
        return self.array.flags.c_contiguous

    def contiguous(self) -> Tensor:
        return Tensor(np.ascontiguousarray(self.array), self.dtype[6:], **self.attributes)

    def reshape(self, *shape: int) -> Tensor:
        return Tensor(self.array.reshape(*shape), self.dtype[6:], **self.attributes)

    def view(self, kind: Any) -> Tensor:
        return Tensor(self.array.view(kind), "uint8", **self.attributes)

    def numpy(self) -> Any:
        assert self.attributes["device"] == "cpu" and not self.requires_grad
        if self.dtype[6:] not in _OWN:
            raise TypeError(f"Got unsupported ScalarType {self.dtype}")
        return self.array


sys.modules.setdefault("torch_stub", sys.modules[__name__])
