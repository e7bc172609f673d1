"""Device printf: formats what kernels print, as the C library does, in the order in which lanes call it."""

from __future__ import annotations

import ctypes
import re
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from mmulator.machine.state import LANES, SHARED_BASE, SLOT_LOCAL, SLOT_SHARED, SLOT_SHIFT, Cta, Warp

if TYPE_CHECKING:
    from mmulator.machine.launch import Grid

_SPEC = re.compile(r"%([-+ #0]*)(\*|\d+)?(?:\.(\*|\d+))?(hh|h|ll|l|j|z|t|L)?([diouxXcsfFeEgGaAp%])")
_LONG = ("l", "ll", "j", "z", "t")
_WORDS, _LONGS = ctypes.POINTER(ctypes.c_uint32), ctypes.POINTER(ctypes.c_uint64)
CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, _LONGS, _LONGS, _WORDS)
WARP, CTA = Warp.numpy_dtype(), Cta.numpy_dtype()
LIMIT = 1 << 20  # characters kept of a launch, as CUDA keeps 1 MiB


def format_c(text: str, argument: Callable[[int], bytes], string: Callable[[int], str]) -> str:
    """`printf`. argument(size): the next argument's bytes, aligned to its size; string(address): a C string."""

    def number() -> int:
        return int.from_bytes(argument(4), "little", signed=True)

    def one(match: re.Match[str]) -> Any:
        flags, width, precision, length, kind = match.groups()
        if kind == "%":
            return "%"
        width = str(number()) if width == "*" else width or ""
        precision = str(number()) if precision == "*" else precision
        spec = "%" + flags + width + (f".{precision}" if precision is not None else "")
        if kind in "di":
            size = 8 if length in _LONG else 4
            return (spec + "d") % int.from_bytes(argument(size), "little", signed=True)
        if kind in "ouxX":
            size = 8 if length in _LONG else 4
            return (spec + kind.replace("u", "d")) % int.from_bytes(argument(size), "little")
        if kind == "c":
            return ("%" + flags + width + "c") % (number() & 255)
        if kind == "s":
            return (spec + "s") % string(int.from_bytes(argument(8), "little"))
        if kind == "p":
            return ("%" + flags + width + "s") % hex(int.from_bytes(argument(8), "little"))
        value = struct.unpack("<d", argument(8))[0]
        if kind in "aA":
            return value.hex() if kind == "a" else value.hex().upper()
        if value != value:
            return ("%" + flags.replace("0", "") + width + "s") % "nan"
        return (spec + kind) % value

    return _SPEC.sub(one, text)


class Printer:
    """Collects the text of a launch. `callback` is what native code calls."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid
        self.text: list[str] = []
        self.size = 0
        self.callback = CALLBACK(self._print)

    @property
    def address(self) -> int:
        return ctypes.cast(self.callback, ctypes.c_void_p).value or 0

    def _print(self, warp: int, mask: int, formats: object, values: object, results: object) -> None:
        w = np.frombuffer((ctypes.c_uint8 * WARP.itemsize).from_address(warp), WARP)[0]
        for lane in range(LANES):
            if mask >> lane & 1:
                text, count = self._lane(w, lane, int(formats[lane]), int(values[lane]))  # type: ignore[index]
                results[lane] = count  # type: ignore[index]
                if self.size < LIMIT:
                    self.text.append(text)
                    self.size += len(text)

    def _lane(self, w: np.void, lane: int, format_address: int, at: int) -> tuple[str, int]:
        place = at

        def argument(size: int) -> bytes:
            nonlocal place
            place = -(-place // size) * size
            place += size
            return self.read(w, lane, place - size, size)

        def string(address: int) -> str:
            found = bytearray()
            while len(found) < 4096:
                byte = self.read(w, lane, address + len(found), 1)
                if byte in (b"", b"\0"):
                    break
                found += byte
            return found.decode("utf-8", "replace")

        template = string(format_address)
        arguments = sum(1 for m in _SPEC.finditer(template) if m[5] != "%")
        return format_c(template, argument, string), arguments

    def read(self, w: np.void, lane: int, address: int, size: int) -> bytes:
        """Bytes at a lane's generic address; zeros where there is no memory."""
        slot, offset = address >> SLOT_SHIFT, address & ((1 << SLOT_SHIFT) - 1)
        host = 0
        if slot == SLOT_LOCAL and offset + size <= self.grid.kernel.local_bytes:
            host = int(w["local"]) + lane * self.grid.kernel.local_bytes + offset
        elif slot == SLOT_SHARED and SHARED_BASE <= offset <= SHARED_BASE + self.grid.shape.shared - size:
            cta = np.frombuffer((ctypes.c_uint8 * CTA.itemsize).from_address(int(w["cta"])), CTA)[0]
            host = int(cta["shared"]) + offset - SHARED_BASE
        else:
            return self.grid.read(address, size)
        return bytes((ctypes.c_uint8 * size).from_address(host))
