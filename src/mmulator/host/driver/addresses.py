"""Addresses that a program takes of torch's tensors: a kernel that finds one may touch what it leads to."""

import sys
from typing import Any

from mmulator.host.driver.driver import current

_TRITON = "triton.runtime.jit"  # asks at each launch
_LIBRARIES = ("torch", "triton", "mmulator")


def _now(storage: Any) -> tuple[int, int]:
    """Where its memory begins, and how many bytes it has; nowhere if it has none any more."""
    try:
        return storage.data_ptr(), storage.nbytes()
    except RuntimeError:
        return 0, 0


def watch(torch: Any) -> None:
    """From here on, a kernel may touch the memory of tensors whose data_ptr() a program asks for. Does nothing the second time,
    and where somebody else watches already."""
    tensor, plain = torch.Tensor, torch._C.TensorBase.data_ptr
    if tensor.data_ptr is not plain:
        return

    def data_ptr(self: Any) -> int:
        address = int(plain(self))
        asking = sys._getframe(1).f_globals.get("__name__", "")
        if asking != _TRITON and address and asking.partition(".")[0] not in _LIBRARIES:
            storage = self.untyped_storage()
            start, size, memory = storage.data_ptr(), storage.nbytes(), current().memory
            known = memory.known(start)
            if known is None or known.address != start or known.size < size:
                label = "a tensor whose data_ptr() was taken"
                memory.expose(start, size, storage, label, whole=storage.resizable(), now=_now)
        return address

    def resize_(self: Any, size: int) -> Any:
        current().memory.settle()  # the old memory goes, under the kernels of other threads
        return resize(self, size)

    resize = torch.UntypedStorage.resize_
    data_ptr.__doc__, resize_.__doc__ = plain.__doc__, resize.__doc__
    tensor.data_ptr, torch.UntypedStorage.resize_ = data_ptr, resize_
