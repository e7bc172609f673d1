"""Names of bytes in device memory, `C[3,5]` where the array is known, and the elements that a user asks about by them:
`C[3,5]`, `gemm:C[3,5]`, `C[3,5]@2`, a tuple of argument and index, or an address."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from operator import attrgetter
from typing import Any

import numpy as np

from mmulator.base.errors import LaunchError, OperandError, shown
from mmulator.base.interop import named_dtype
from mmulator.isa.types import TYPES, type_bits
from mmulator.matrix.layouts.tensormap.encoded import Encoded
from mmulator.matrix.layouts.tensormap.fields import BYTES
from mmulator.runtime.launch.launch import Launch
from mmulator.runtime.launch.regions import pointer

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


_TEXT = re.compile(
    r"(?:(?P<kernel>(?!0x)[^:\[\]@]+):)?(?P<name>[^\[\]@:]+?)(?:\[(?P<index>[^\]]*)\])?(?::(?P<type>\w+))?(?:@(?:launch)?\s*(?P<launch>\d+))?"
)
FORMS = "C[3,5], KERNEL:C[3,5], z[999], z[999]:f32, 0x7f00:f32; with @3 behind it of the third launch"
AUTO = "auto"  # in place of an element: the first ones that a comparison rejects
_BY_NUMPY = {t.numpy: t.name for t in reversed(TYPES.values()) if t.numpy and t.name != "tf32"}


@dataclass(frozen=True)
class Question:
    """A question as a user typed it.

    text: as typed.
    kernel: part of the kernel's name, or "" for any.
    name: argument, or an address in digits.
    index: of the element, or None for an address.
    type: PTX type, or "" where that of the array or of the store counts.
    launch: number of the launch from 1 on, or 0 for each.
    """

    text: str
    kernel: str
    name: str
    index: tuple[int, ...] | None
    type: str = ""
    launch: int = 0


@dataclass(frozen=True)
class Asked:
    """An element of a launch.

    name: `C[3,5]`.
    start: generic address of its first byte.
    type: PTX type.
    """

    name: str
    start: int
    type: str

    @property
    def size(self) -> int:
        """Bytes."""
        return max(1, type_bits(self.type) // 8)

    @property
    def end(self) -> int:
        return self.start + self.size


def question(text: str) -> Question:
    """A question as typed. Raises LaunchError."""
    found = _TEXT.fullmatch(text.strip())
    try:
        if found is None:
            raise ValueError
        index = found["index"]
        numbers = None if index is None else tuple(int(part, 0) for part in index.split(","))
        if numbers is None:
            int(found["name"], 0)
        if found["type"] and found["type"] not in TYPES:
            raise ValueError
    except ValueError:
        raise LaunchError(f"why: {shown(text)} is no element", hint=FORMS) from None
    return Question(text, found["kernel"] or "", found["name"].strip(), numbers, found["type"] or "", int(found["launch"] or 0))


def ptx_type(dtype: np.dtype[Any]) -> str:
    """The PTX type of an array's elements; bits where there is none."""
    return _BY_NUMPY.get(dtype.name, f"b{8 * dtype.itemsize}")


def asked(given: object, names: DeviceNames, parameters: Sequence[str]) -> list[Asked]:
    """The elements that `why=` names: a text, a pair (number of an argument, index), or several. Raises LaunchError."""
    if isinstance(given, str) or _is_pair(given):
        return [one(given, names, parameters)]
    if isinstance(given, Sequence) and given:
        return [one(each, names, parameters) for each in given]
    raise LaunchError(f"why is {shown(given)}, not an element", hint=FORMS)


def _is_pair(given: object) -> bool:
    return isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], int)


def one(given: object, names: DeviceNames, parameters: Sequence[str]) -> Asked:
    """One element that `why=` names."""
    if isinstance(given, str):
        return element_of(question(given), names)
    if not isinstance(given, tuple) or not _is_pair(given):
        raise LaunchError(f"why is {shown(given)}, not an element", hint=FORMS)
    argument, index = int(given[0]), given[1]
    if not 0 <= argument < len(parameters):
        raise LaunchError(f"why: there is no argument {argument}", hint=f"arguments: 0 to {len(parameters) - 1}")
    at = index if isinstance(index, tuple) else (index,)
    return element_of(Question(f"argument {argument}", "", parameters[argument], tuple(int(i) for i in at)), names)


def element_of(q: Question, names: DeviceNames, stored: Callable[[], str] = str) -> Asked:
    """The element that a question means.

    q: the question.
    names: of what the launch has.
    stored: gives the PTX type in which the kernel stores, where the type of an array is not known; "" if that is not known.

    Raises LaunchError.
    """
    if q.index is None:
        address = int(q.name, 0)
        return Asked(names(address), address, q.type or "b32")
    array = next((a for a in names.arrays if q.name in (a.name, a.also)), None) or next(
        (a for a in names.arrays if q.name in re.split(r"\W+", a.name) or a.name.removesuffix("_ptr").endswith(q.name)), None
    )
    if array is None:
        known = ", ".join(dict.fromkeys(a.listed for a in names.arrays)) or "none"
        raise LaunchError(f"why: there is no array {q.name}", hint=f"arrays: {known}")
    type_name = q.type or (ptx_type(array.dtype) if array.dtype is not None else stored())
    if not type_name:
        raise LaunchError(f"why: the type of {q.name}'s elements is not known here", hint=f"say it: {q.text}:f32")
    return _of_array(q, array, type_name)


def _of_array(q: Question, array: DeviceArray, type_name: str) -> Asked:
    index = q.index or ()
    size = max(1, type_bits(type_name) // 8)
    if array.dtype is None or array.itemsize != size:
        array = replace(array, shape=(), strides=(), itemsize=size)
    try:
        start = array.start + array.offset(index)
    except (ValueError, TypeError):
        shape = array.shape or (array.size // array.itemsize,)
        raise LaunchError(f"why: {array.name} of shape {shape} has no element {list(index)}") from None
    return Asked(array.element(start), start, type_name)
