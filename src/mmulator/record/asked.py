"""Elements that a user asks about: `C[3,5]`, `gemm:C[3,5]`, `C[3,5]@2`, a tuple of argument and index, or an address."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mmulator.errors import LaunchError, shown
from mmulator.isa.types import TYPES, type_bits
from mmulator.record.names import DeviceArray, DeviceNames

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
