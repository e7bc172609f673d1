"""Names of bytes in device memory: `C[3,5]` where the array is known, else bytes of an argument or of an allocation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from operator import attrgetter
from typing import Any

import numpy as np

from mmulator.errors import OperandError
from mmulator.interop import named_dtype
from mmulator.launch.launch import Launch
from mmulator.launch.regions import pointer
from mmulator.layouts.tensormap.encoded import Encoded
from mmulator.layouts.tensormap.fields import BYTES

_ALIGN = 64  # bytes, of a parameter that is a tensor map


@dataclass(frozen=True)
class DeviceArray:
    """An array in device memory.

    name: as users call it.
    start, size: generic address of its first byte, bytes.
    shape: extents; () if only the bytes are known.
    itemsize: bytes of an element.
    dtype: NumPy's dtype of an element, or None.
    strides: bytes from an element to the next along each extent; () if the array is contiguous.
    also: another name that users may ask for.
    maker: says where the program allocated it, `main at a.cu:7`, if it has no other name.
    """

    name: str
    start: int
    size: int
    shape: tuple[int, ...] = ()
    itemsize: int = 1
    dtype: np.dtype[Any] | None = None
    strides: tuple[int, ...] = ()
    also: str = ""
    maker: Callable[[], str] = field(default=str, compare=False, repr=False)

    @property
    def listed(self) -> str:
        """The name, of an array that has none of its own with the place: `alloc_2 (main at a.cu:7)`."""
        return f"{self.name} ({place})" if (place := self.maker()) else self.name

    def holds(self, address: int) -> bool:
        return self.start <= address < self.start + self.size

    def index(self, address: int) -> tuple[tuple[int, ...], int]:
        """(index of the element at an address, its byte there); () as the index in an array whose shape is not known."""
        number, byte = divmod(address - self.start, self.itemsize)
        if self.strides:
            index, byte = [0] * len(self.shape), address - self.start
            for n in sorted(range(len(self.shape)), key=lambda n: -self.strides[n]):
                if self.strides[n] > 0 and self.shape[n] > 1:
                    index[n], byte = divmod(byte, self.strides[n])
            return tuple(index), byte
        known = self.shape and number < prod(self.shape)
        return tuple(int(i) for i in np.unravel_index(number, self.shape)) if known else (), byte

    def owns(self, address: int) -> bool:
        """Whether an element of the array is at an address: not in a gap between the rows of a view."""
        index, _ = self.index(address)
        return not self.strides or all(i < n for i, n in zip(index, self.shape))

    def element(self, address: int) -> str:
        """The element at an address: `C[3,5]`; behind it the byte of the element, if it is not the first."""
        index, byte = self.index(address)
        number = (address - self.start) // self.itemsize
        at = ",".join(map(str, index)) or (str(number) if self.itemsize > 1 or self.shape else f"byte {number}")
        return f"{self.name}[{at}]" + (f", byte {byte}" if byte else "")

    def elements(self, address: int, size: int) -> str:
        """The elements in a range of bytes: `C[3,5]`, `C[3,4..7]`, `C[3,98] to C[4,1]`; "" where their type is not known."""
        if self.dtype is None and not self.shape:
            return ""
        ends = address, address + max(size - self.itemsize, 0)
        first, last = (self.index(at)[0] for at in ends)
        if first and first[:-1] == last[:-1]:
            at = ",".join(str(a) if a == b else f"{a}..{b}" for a, b in zip(first, last))
            return f"{self.name}[{at}]"
        return " to ".join(dict.fromkeys(map(self.element, ends)))

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

    def __call__(self, address: int, size: int = 0) -> str:
        """The name of the byte at an address. size: bytes that are read there, which count where a type is not known."""
        found = self.at(address)
        if found is None:
            return f"0x{address:x}"
        return (replace(found, itemsize=size) if size and found.dtype is None else found).element(address)

    def at(self, address: int) -> DeviceArray | None:
        """The array at an address: of several the one that begins last."""
        return max((a for a in self.arrays if a.holds(address)), key=attrgetter("start"), default=None)

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
        arrays += mapped(launch, [p.name for p in launch.kernel.signature.params])
        known = {a.start for a in arrays}
        for region in (*arguments.buffers, *arguments.regions.given, *arguments.regions):
            if region.start not in known:
                arrays.append(DeviceArray(region.label, region.start, region.size))
        return cls(arrays)


def mapped(launch: Launch, names: Sequence[str]) -> Iterator[DeviceArray]:
    """The tensors of the tensor maps among a kernel's parameters: `map B`, with the map's type, sizes and strides.

    names: of the parameters.
    """
    params, offsets = launch.arguments.params.tobytes(), launch.arguments.offsets
    for name, p, at in zip(names, launch.kernel.signature.params, offsets):
        if p.size != BYTES or p.align < _ALIGN:
            continue
        try:
            m = Encoded.decode(params[at : at + BYTES])
        except OperandError:
            continue
        strides, size = (m.type.memory, *m.strides), m.type.memory
        reach = size + sum((count - 1) * stride for count, stride in zip(m.sizes, strides))
        memory = (*launch.arguments.buffers, *launch.arguments.regions)
        if m.type.elements == 1 and not m.slice and any(r.start <= m.address < r.end for r in memory):
            dtype = named_dtype(m.type.dtypes[0]) if m.type.dtypes else None
            yield DeviceArray(f"map {name}", m.address, reach, m.sizes[::-1], size, dtype, strides[::-1])


def _host(buffer: Any) -> int:
    owner = buffer.owner[0] if isinstance(buffer.owner, tuple) else buffer.owner
    return pointer(owner) if isinstance(owner, np.ndarray) else buffer.host
