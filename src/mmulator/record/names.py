"""Names of bytes in device memory: `C[3,5]` where the array is known, else bytes of an argument or of an allocation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from mmulator.launch.launch import Launch
from mmulator.launch.regions import pointer


@dataclass(frozen=True)
class DeviceArray:
    """An array in device memory.

    name: as users call it.
    start, size: generic address of its first byte, bytes.
    shape: extents; () if only the bytes are known.
    itemsize: bytes of an element.
    dtype: NumPy's dtype of an element, or None.
    strides: bytes from an element to the next along each extent; () if the array is contiguous.
    """

    name: str
    start: int
    size: int
    shape: tuple[int, ...] = ()
    itemsize: int = 1
    dtype: np.dtype[Any] | None = None
    strides: tuple[int, ...] = ()

    def holds(self, address: int) -> bool:
        return self.start <= address < self.start + self.size

    def element(self, address: int) -> str:
        """The element at an address: `C[3,5]`; behind it the byte of the element, if it is not the first."""
        number, byte = divmod(address - self.start, self.itemsize)
        if self.strides:
            index, rest = [0] * len(self.shape), address - self.start
            for n in sorted(range(len(self.shape)), key=lambda n: -self.strides[n]):
                index[n], rest = divmod(rest, self.strides[n]) if self.strides[n] > 0 and self.shape[n] > 1 else (0, rest)
            byte, at = rest, ",".join(map(str, index))
        elif self.shape and number < prod(self.shape):
            at = ",".join(str(int(i)) for i in np.unravel_index(number, self.shape))
        else:
            at = str(number) if self.itemsize > 1 else f"byte {number}"
        return f"{self.name}[{at}]" + (f", byte {byte}" if byte else "")

    def offset(self, index: Sequence[int]) -> int:
        """Byte of an element from the start. Raises ValueError for an index outside."""
        if len(index) == 1 and len(self.shape) != 1:
            count = self.size // self.itemsize
            return int(np.ravel_multi_index(tuple(index), (count,))) * self.itemsize
        number = int(np.ravel_multi_index(tuple(index), self.shape))
        return sum(i * s for i, s in zip(index, self.strides)) if self.strides else number * self.itemsize


class DeviceNames:
    """The names of all arrays that a launch knows."""

    def __init__(self, arrays: Sequence[DeviceArray]) -> None:
        self.arrays = list(arrays)

    def __call__(self, address: int) -> str:
        found = next((a for a in self.arrays if a.holds(address)), None)
        return found.element(address) if found is not None else f"0x{address:x}"

    @classmethod
    def of(cls, launch: Launch, named: Mapping[str, np.ndarray]) -> DeviceNames:
        """Names of the arrays that a launch was given. named: arrays that the caller has names for."""
        arrays, arguments = [], launch.arguments
        for name, value in (*named.items(), *zip((p.name for p in launch.kernel.signature.params), arguments.values)):
            if isinstance(value, np.ndarray) and value.nbytes:
                place = pointer(value)
                for buffer in (*arguments.buffers, *arguments.regions):
                    if buffer.owner is not None and _host(buffer) == place and buffer.size == value.nbytes:
                        arrays.append(DeviceArray(name, buffer.start, value.nbytes, value.shape, value.itemsize, value.dtype))
                        break
        known = {a.start for a in arrays}
        for region in (*arguments.buffers, *arguments.regions.given, *arguments.regions):
            if region.start not in known:
                arrays.append(DeviceArray(region.label, region.start, region.size))
        return cls(arrays)


def _host(buffer: Any) -> int:
    owner = buffer.owner[0] if isinstance(buffer.owner, tuple) else buffer.owner
    return pointer(owner) if isinstance(owner, np.ndarray) else buffer.host
