"""Device printf: formats what kernels print, as the C library does, in the order in which lanes call it."""

from __future__ import annotations

import ctypes
import re
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mmulator.launch.arena import read, read_string
from mmulator.native.state import LANES

# What CUDA knows, as measured: a precision is a number, sizes are h, l and ll. Whatever else begins with % is text.
_SPEC = re.compile(r"%%|%([-+ #0]*)(\*|\d+)?(?:\.(\d*))?(h|ll?)?([diouxXcsfFeEgGaAp])")
_BITS = {"": 32, "h": 16, "l": 64, "ll": 64}
_WORDS, _LONGS = ctypes.POINTER(ctypes.c_uint32), ctypes.POINTER(ctypes.c_uint64)
CALLBACK = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_void_p, ctypes.c_uint32, _LONGS, _LONGS, _WORDS)
CUT = "the kernel printed more than 1 MiB: what came after that is left out (CUDA keeps the last MiB)"
LIMIT = 1 << 20  # characters kept of a launch, as CUDA keeps 1 MiB


@dataclass(frozen=True)
class Spec:
    """A conversion: flags, width and precision (None: not given) with the arguments of `*` put in."""

    flags: str
    width: int
    precision: int | None
    kind: str

    def pad(self, text: str, prefix: str = "", zeros: bool = False) -> str:
        """prefix + text in the width; zeros go between the two."""
        if "-" in self.flags:
            return (prefix + text).ljust(self.width)
        if zeros and "0" in self.flags:
            return prefix + text.rjust(self.width - len(prefix), "0")
        return (prefix + text).rjust(self.width)

    def sign(self, negative: bool) -> str:
        return "-" if negative else "+" if "+" in self.flags else " " if " " in self.flags else ""


def _integer(spec: Spec, value: int) -> str:
    digits = format(abs(value), {"o": "o", "x": "x", "X": "X"}.get(spec.kind, "d"))
    if spec.precision is not None:
        digits = digits.rjust(spec.precision, "0") if value or spec.precision else ""
    prefix = spec.sign(value < 0) if spec.kind in "di" else ""
    if "#" in spec.flags and spec.kind == "o" and not digits.startswith("0"):
        digits = "0" + digits
    if "#" in spec.flags and spec.kind in "xX" and value:
        prefix = "0" + spec.kind
    return spec.pad(digits, prefix, zeros=spec.precision is None)


def _hexadecimal(bits: int, precision: int | None, point: bool) -> str:
    """The digits of %a behind 0x: one, a point and up to 13 more, and the exponent."""
    exponent, mantissa = bits >> 52 & 0x7FF, bits & ((1 << 52) - 1)
    whole = (exponent != 0) << 52 | mantissa
    digits = 13
    if precision is not None and precision < 13:
        drop = 4 * (13 - precision)
        rest, half = whole & ((1 << drop) - 1), 1 << (drop - 1)
        whole = (whole >> drop) + (rest > half or (rest == half and whole >> drop & 1))
        digits = precision
    fraction = format(whole & ((1 << 4 * digits) - 1), f"0{digits}x") if digits else ""
    fraction = fraction.rstrip("0") if precision is None else fraction.ljust(precision, "0")
    power = exponent - 1023 if exponent else -1022 if mantissa else 0
    return f"{whole >> 4 * digits}{'.' if fraction or point else ''}{fraction}p{power:+d}"


def _float(spec: Spec, bits: int) -> str:
    value = struct.unpack("<d", struct.pack("<Q", bits))[0]
    prefix, point = spec.sign(bool(bits >> 63)), "#" in spec.flags
    if value != value or abs(value) == float("inf"):
        text = "nan" if value != value else "inf"
        return spec.pad(text.upper() if spec.kind.isupper() else text, prefix)
    if spec.kind in "aA":
        text = _hexadecimal(bits & ~(1 << 63), spec.precision, point)
        text, prefix = (text.upper(), prefix + "0X") if spec.kind == "A" else (text, prefix + "0x")
    else:
        precision = 6 if spec.precision is None else spec.precision
        text = f"%{'#' if point else ''}.{precision}{spec.kind}" % abs(value)
    return spec.pad(text, prefix, zeros=True)


def format_c(text: str, argument: Callable[[int], bytes], string: Callable[[int], str], room: int = LIMIT) -> str:
    """`printf`, of which `room` characters are wanted.

    argument(size): the next argument's bytes, aligned to its size; string(address): a C string.
    """

    def one(match: re.Match[str]) -> str:
        flags, wide, precise, length, kind = match.groups()
        if kind is None:
            return "%"
        width = int.from_bytes(argument(4), "little", signed=True) if wide == "*" else int(wide or 0)
        if width < 0:
            flags, width = flags + "-", -width
        precision = None if precise is None else min(int(precise or 0), room)
        spec = Spec(flags, min(width, room), precision, kind)
        if kind in "diouxX":
            bits = _BITS[length or ""]
            value = int.from_bytes(argument(8 if bits == 64 else 4), "little") & ((1 << bits) - 1)
            return _integer(spec, value - (1 << bits) if kind in "di" and value >> (bits - 1) else value)
        if kind == "c":
            return spec.pad(chr(argument(4)[0]))
        word = int.from_bytes(argument(8), "little")
        if kind == "s":
            return spec.pad((string(word) if word else "(null)")[:precision])
        return spec.pad(hex(word)) if kind == "p" else _float(spec, word)

    made: list[str] = []
    at = 0
    for match in _SPEC.finditer(text):
        made += [text[at : match.start()], one(match)]
        at = match.end()
        room -= len(made[-2]) + len(made[-1])
        if room <= 0:
            break
    else:
        made.append(text[at:])
    return "".join(made)


def conversions(text: str) -> int:
    """Arguments that a format takes: what printf returns on a GPU."""
    return sum((m[5] is not None) + (m[2] == "*") for m in _SPEC.finditer(text))


class Printer:
    """Collects the text of a launch, at most LIMIT characters. `callback` is what native code calls.

    stop: not zero if the launch is to stop. problem: why a call could not be carried out. cut: there was more text.
    """

    def __init__(self, stop: np.ndarray) -> None:
        self.stop = stop
        self.text: list[str] = []
        self.size = 0
        self.problem, self.cut = "", False
        self.lock = threading.Lock()
        self.callback = CALLBACK(self._print)

    @property
    def address(self) -> int:
        return ctypes.cast(self.callback, ctypes.c_void_p).value or 0

    def _print(self, warp: int, mask: int, formats: Any, values: Any, results: Any) -> int:
        """One call of vprintf by the lanes in `mask`: 0, or 1 + the lane that failed. Called from native code, so nothing may be
        raised; a launch that is to stop prints no more."""
        lane = 0
        try:
            for lane in range(LANES):
                if self.stop[0]:
                    return 0
                if mask >> lane & 1:
                    results[lane] = self._lane(warp, lane, int(formats[lane]), int(values[lane]))
        except Exception as error:
            self.problem = self.problem or f"{type(error).__name__}: {error}"
            return lane + 1
        return 0

    def _lane(self, warp: int, lane: int, format_address: int, at: int) -> int:
        place = at

        def argument(size: int) -> bytes:
            nonlocal place
            place = -(-place // size) * size
            place += size
            return read(warp, lane, place - size, size).ljust(size, b"\0")

        def string(address: int) -> str:
            return read_string(warp, lane, address)

        template = string(format_address)
        with self.lock:
            if self.size < LIMIT:
                text = format_c(template, argument, string, LIMIT - self.size)[: LIMIT - self.size]
                self.text.append(text)
                self.size += len(text)
            self.cut = self.cut or self.size >= LIMIT
        return conversions(template)
