"""Arrays that hold each other's addresses, and those of code, as plain data: from one process to the next.

A field of a struct holds an address if the struct says so (types.py). All else is numbers, and none as large as an address: where
one is, or an address that leads nowhere known, nothing is made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from mmulator.codegen import named
from mmulator.codegen.types import struct_of

_ALIGNED = 64
_LARGEST = 1 << 40  # of a number; the machine's addresses are beyond it

Place = Sequence[Any]  # ("at", offset), ("function", name) or ("library", name, function)


class Unknown(Exception):
    """An address that has no name."""


def _aligned(size: int) -> int:
    return -(-size // _ALIGNED) * _ALIGNED


class LinkedArrays:
    """Arrays one behind the other, `data`, and what is to be put into it: (offset, whose address)."""

    def __init__(self, reachable: Iterable[np.ndarray], functions: Mapping[int, str]) -> None:
        """reachable: all arrays whose addresses may be met. functions: names of native functions by their addresses."""
        self._arrays = {a.ctypes.data: a for a in reachable}
        self._functions = functions
        self._offsets: dict[int, int] = {}
        self._parts: list[bytes] = []
        self._size = 0
        self.references: list[tuple[int, Place]] = []

    @property
    def data(self) -> bytes:
        return b"".join(self._parts)

    def add(self, array: np.ndarray) -> int:
        """Where an array lies; what it refers to is added. Raises Unknown."""
        at = array.ctypes.data
        if at in self._offsets:
            return self._offsets[at]
        offset = self._offsets[at] = self._size
        self._size += _aligned(array.nbytes)
        raw = array.tobytes()
        self._parts.append(raw + bytes(_aligned(len(raw)) - len(raw)))
        struct = struct_of(array.dtype)
        if struct is None:
            self._check(array)
            return offset
        for row, item in enumerate(array.reshape(-1)):
            for name, (_, count) in struct.fields.items():
                if name not in struct.addresses or count:
                    self._check(item[name])
                elif item[name]:
                    place = self.place(int(item[name]))
                    self.references.append((offset + row * struct.size + struct.offset[name], place))
        return offset

    @staticmethod
    def _check(values: Any) -> None:
        array = np.asarray(values)
        if array.dtype.kind not in "iub" or (array.dtype.itemsize == 8 and bool((np.abs(array) >= _LARGEST).any())):
            raise Unknown(f"numbers of {array.dtype}")

    def place(self, address: int) -> Place:
        """What lies at an address. Raises Unknown."""
        if address in self._arrays:
            return "at", self.add(self._arrays[address])
        if address in self._functions:
            return "function", self._functions[address]
        library = named.place_of(address)
        if library is None:
            raise Unknown(f"0x{address:x}")
        return "library", *library


def memory_of(data: bytes | memoryview, references: Iterable[tuple[int, Place]], functions: Mapping[str, int]) -> np.ndarray:
    """The bytes of LinkedArrays, with the addresses of this process. Raises LookupError where there is no such code."""
    memory = np.zeros(len(data) + _ALIGNED, np.uint8)
    skip = -memory.ctypes.data % _ALIGNED
    memory = memory[skip : skip + len(data)]
    memory[:] = np.frombuffer(data, np.uint8)
    words = memory.view(np.uint64)
    for offset, place in references:
        words[offset // 8] = address_of(place, functions) if place[0] != "at" else memory.ctypes.data + place[1]
    return memory


def address_of(place: Place, functions: Mapping[str, int]) -> int:
    """Of code. Raises LookupError."""
    return functions[place[1]] if place[0] == "function" else named.library(place[1]).address(place[2])
