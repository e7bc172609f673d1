"""Arrays that contain addresses of each other and of code, as plain data that another process can load.

A struct declares which of its fields are addresses (types.py). All other data are numbers, none as large as an address. If a
number is that large, or an address is unknown, nothing is written.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from mmulator.base.codegen.types import Struct, struct_of

_ALIGNED = 64
_LARGEST = 1 << 40  # of a number; the machine's addresses are beyond it

Place = Sequence[Any]  # ("at", offset) or ("function", name)


class Unknown(Exception):
    """An address that has no name."""


def _aligned(size: int) -> int:
    return -(-size // _ALIGNED) * _ALIGNED


class LinkedArrays:
    """Arrays in contiguous memory, `data`, and the addresses to insert into it: (offset, target)."""

    def __init__(self, reachable: Iterable[np.ndarray], functions: Callable[[int], str | None]) -> None:
        """reachable: all arrays whose addresses may occur. functions: the name of the native function at an address."""
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
        """Offset of an array, after adding it and everything to which it refers. Raises Unknown."""
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
            self._refer(struct, item, offset + row * struct.size)
        return offset

    def _refer(self, struct: Struct, item: Any, offset: int) -> None:
        """Note the addresses in a value of a struct, which lies at `offset`. Raises Unknown."""
        for name, (ty, count) in struct.fields.items():
            if isinstance(ty, Struct) and not count:
                self._refer(ty, item[name], offset + struct.offset[name])
            elif name not in struct.addresses or count:
                self._check(item[name])
            elif item[name]:
                self.references.append((offset + struct.offset[name], self.place(int(item[name]))))

    @staticmethod
    def _check(values: Any) -> None:
        array = np.asarray(values)
        if array.dtype.kind not in "iub" or (array.dtype.itemsize == 8 and bool((np.abs(array) >= _LARGEST).any())):
            raise Unknown(f"numbers of {array.dtype}")

    def place(self, address: int) -> Place:
        """The array or function at an address. Raises Unknown."""
        if address in self._arrays:
            return "at", self.add(self._arrays[address])
        name = self._functions(address)
        if name is not None:
            return "function", name
        raise Unknown(f"0x{address:x}")


def memory_of(data: bytes | memoryview, references: Iterable[tuple[int, Place]], functions: Mapping[str, int]) -> np.ndarray:
    """The bytes of a LinkedArrays, with the addresses of this process. Raises LookupError if some code is not stored."""
    memory = np.zeros(len(data) + _ALIGNED, np.uint8)
    skip = -memory.ctypes.data % _ALIGNED
    memory = memory[skip : skip + len(data)]
    memory[:] = np.frombuffer(data, np.uint8)
    words = memory.view(np.uint64)
    for offset, place in references:
        words[offset // 8] = address_of(place, functions) if place[0] != "at" else memory.ctypes.data + place[1]
    return memory


def address_of(place: Place, functions: Mapping[str, int]) -> int:
    """Address of code."""
    return functions[place[1]]


# records of blocks ---------------------------------------------------------------------------------------------------
BEGIN = "run_records"  # the native function that begins a block's records (runtime/native/threads/scheduler.py)


class StoredRecords:
    """Records as they are stored. names: the stencils. blocks: as in Records."""

    def __init__(self, data: bytes) -> None:
        first, _, rest = data.partition(b"\n")
        head = json.loads(first)
        self.names: list[str] = head["names"]
        self.blocks: list[tuple[int, int]] = head["blocks"]
        self._words = np.frombuffer(rest, np.uint64, head["words"])
        self._uses = np.frombuffer(rest, np.uint32, -1, 8 * head["words"]).reshape(-1, 2)

    def placed(self, symbols: Mapping[str, int]) -> np.ndarray:
        """The words, with the addresses of the stencils, which are loaded."""
        words = self._words.copy()
        words[self._uses[:, 0]] = np.array([symbols[name] for name in self.names], np.uint64)[self._uses[:, 1]]
        return words
