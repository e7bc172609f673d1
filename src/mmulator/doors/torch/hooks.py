"""Questions of torch's C++ to CUDA: two objects with virtual functions, of which a build without CUDA has empty ones.

Both get a table of functions of their own: a copy of the one they have, with some answers changed. Which function stands
where is read from the headers that torch comes with, so that this holds for each version. Most answers are a constant; for
these the functions are torch's own that return 0 and 1, since torch asks from threads that have no Python state.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Mapping
from pathlib import Path

import torch

from mmulator.base.errors import UnsupportedError
from mmulator.base.versions import TABLE

HERE = Path(torch.__file__).parent
_TABLES: list[object] = []  # of functions, alive as long as the process

_GUARD = "c10/core/impl/DeviceGuardImplInterface.h", "DeviceGuardImplInterface"
_ACCELERATOR = "ATen/detail/AcceleratorHooksInterface.h", "AcceleratorHooksInterface"
_HOOKS = "ATen/detail/CUDAHooksInterface.h", "CUDAHooksInterface"


def _unknown(what: str) -> UnsupportedError:
    return UnsupportedError(
        f"torch {torch.__version__} does not say {what}, which mmulator needs for the device cuda",
        hint=f"{TABLE['torch'].mend}: mmulator knows torch as pip installs it",
    )


def _functions(header: str, name: str) -> list[str]:
    """The virtual functions that a C++ class declares, in order; its destructor is `~`, and takes two places."""
    try:
        text = (HERE / "include" / header).read_text()
    except OSError:
        raise _unknown(f"what {header} declares") from None
    text = re.sub(r"//[^\n]*|/\*.*?\*/|#ifdef USE_ROCM.*?#endif", "", text, flags=re.S)
    text = text[re.search(rf"struct [\w ]*\b{name}\b[^;]*?\{{", text).end() :]  # type: ignore[union-attr]
    text = text[: text.index("\n};")]
    found: list[str] = []
    for match in re.finditer(r"\bvirtual\s[^;{]*?([~\w]+)\s*\(|(~\w+)\s*\([^;{]*override", text):
        word = match[1] or match[2]
        if match[2] or (word.startswith("~")):
            found += ["~", "~"]
        else:
            found.append(word)
    return found


def _slots(*classes: tuple[str, str]) -> list[str]:
    """Functions of a class's table in order: those of its base class, then its own."""
    table: list[str] = []
    for header, name in classes:
        own = _functions(header, name)
        table += own if not table else [f for f in own if f != "~" and f not in table]
    return table


class Table:
    """The virtual functions of one C++ object, by name. Address 0: a table of zeros."""

    def __init__(self, address: int, *classes: tuple[str, str]) -> None:
        self.address, self.names = address, _slots(*classes)
        count = len(self.names) + 2  # before the functions: an offset and the type
        start = ctypes.c_uint64.from_address(address).value - 16 if address else 0
        kept = ctypes.string_at(start, 8 * count) if address else bytes(8 * count)
        self.words = (ctypes.c_uint64 * count).from_buffer_copy(kept)

    def __getitem__(self, name: str) -> int:
        return self.words[2 + self.names.index(name)]

    def _with(self, answers: Mapping[str, int], others: int = 0) -> int:
        """A table with some functions changed.

        answers: addresses by name; names that this version lacks are left out.
        others: address for functions that the table lacks.
        """
        words = type(self.words)(*self.words[:2], *(w or others for w in self.words[2:]))
        for name, function in answers.items():
            if name in self.names:
                words[2 + self.names.index(name)] = function
        _TABLES.append(words)
        return ctypes.addressof(words) + 16

    def change(self, answers: Mapping[str, int]) -> None:
        """Give the object other functions."""
        ctypes.c_uint64.from_address(self.address).value = self._with(answers)

    def another(self, answers: Mapping[str, int], others: int = 0) -> int:
        """Address of another object of the class, with other functions and without data."""
        made = (ctypes.c_uint64 * 2)(self._with(answers, others), 0)
        _TABLES.append(made)
        return ctypes.addressof(made)


# Questions of torch, and the functions of allocator.py that answer.
_OF_HOOKS = {
    "one": ("hasCUDA", "isBuilt", "isAvailable", "hasPrimaryContext", "deviceCount", "getNumGPUs", "hasCuBLASLt",
            "hasCuSOLVER"),
    "zero": (
        "current_device", "getCurrentDevice", "setCurrentDevice", "exchangeDevice", "maybeExchangeDevice", "deviceSynchronize",
        "init", "hasCuDNN", "compiledWithCuDNN", "compiledWithMIOpen", "hasMAGMA",
    ),
    "is_pinned": ("isPinnedPtr",),
    "pinned_allocator": ("getPinnedMemoryAllocator",),
}  # fmt: skip
_OF_GUARD = {
    "one": ("type", "exchangeDevice", "getDevice", "deviceCount", "queryEvent", "queryStream"),  # cuda:0 is a 1, too
    "zero": (
        "setDevice", "uncheckedSetDevice", "record", "block", "synchronizeStream", "synchronizeEvent", "synchronizeDevice",
        "recordDataPtrOnStream", "destroyEvent", "getStreamNativeHandle",
    ),
    "stream": ("getStream", "getDefaultStream", "getStreamFromGlobalPool", "getNewStream", "exchangeStream"),
}  # fmt: skip


def answer(guard: ctypes.c_uint64, functions: Mapping[str, int]) -> None:
    """Make torch's C++ find a device cuda. Raises UnsupportedError for a torch whose hooks are elsewhere.

    guard: place of the address of the device guard.
    functions: addresses of the functions that answer.
    """
    try:
        ask = ctypes.CDLL(str(HERE / "lib" / "libtorch_cpu.so"))["_ZN2at6detail12getCUDAHooksEv"]
    except (OSError, AttributeError):
        raise _unknown("where its hooks for CUDA are") from None
    ask.restype = ctypes.c_void_p
    Table(ask(), _ACCELERATOR, _HOOKS).change({name: functions[f] for f, names in _OF_HOOKS.items() for name in names})
    answers = {name: functions[f] for f, names in _OF_GUARD.items() for name in names}
    guard.value = Table(guard.value, _GUARD).another(answers, functions["zero"])
