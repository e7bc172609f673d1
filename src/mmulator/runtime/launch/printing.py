"""Device printf: formats what kernels print, as the C library does, in the order in which lanes call it."""

import ctypes
import re
import struct
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from mmulator.base.classes import dataclass
from mmulator.runtime.launch.arena import read, read_string
from mmulator.runtime.native.state import LANES

# What CUDA knows, as measured: a precision is a number, sizes are h, l and ll. Whatever else begins with % is text.
_SPEC = r"%%|%([-+ #0]*)(\*|\d+)?(?:\.(\d*))?(h|ll?)?([diouxXcsfFeEgGaAp])"
_BITS = {"": 32, "h": 16, "l": 64, "ll": 64}
_WORDS, _LONGS = ctypes.POINTER(ctypes.c_uint32), ctypes.POINTER(ctypes.c_uint64)
CALLBACK = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_void_p, ctypes.c_uint32, _LONGS, _LONGS, _WORDS)
CUT = "the kernel printed more than the buffer of printf holds (cudaLimitPrintfFifoSize): the oldest lines are left out"
LIMIT = 8_650_752  # bytes of CUDA's buffer, as an H200 has it with driver 580, unless a program asks for more or less
buffer = [LIMIT]  # bytes of a launch's buffer: cudaLimitPrintfFifoSize
_HEAD = 16  # bytes of a call in the buffer, besides its arguments


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


def format_c(text: str, values: Iterable[Any], room: int = LIMIT) -> str:
    """`printf`, of which `room` characters are wanted. values: arguments, as words or, of %s, strings, or 0 for none."""
    argument = iter(values).__next__

    def one(match: re.Match[str]) -> str:
        flags, wide, precise, length, kind = match.groups()
        if kind is None:
            return "%"
        width = argument() if wide == "*" else int(wide or 0)
        if width < 0:
            flags, width = flags + "-", -width
        precision = None if precise is None else min(int(precise or 0), room)
        spec = Spec(flags, min(width, room), precision, kind)
        value = argument()
        if kind in "diouxX":
            bits = _BITS[length or ""]
            value &= (1 << bits) - 1
            return _integer(spec, value - (1 << bits) if kind in "di" and value >> (bits - 1) else value)
        if kind == "c":
            return spec.pad(chr(value & 0xFF))
        if kind == "s":
            return spec.pad(("(null)" if value == 0 else value)[:precision])
        return spec.pad(hex(value)) if kind == "p" else _float(spec, value)

    made: list[str] = []
    at = 0
    for match in re.finditer(_SPEC, text):
        made += [text[at : match.start()], one(match)]
        at = match.end()
        room -= len(made[-2]) + len(made[-1])
        if room <= 0:
            break
    else:
        made.append(text[at:])
    return "".join(made)


@lru_cache(1024)
def layout(text: str) -> tuple[struct.Struct, tuple[int, ...]]:
    """(the arguments of a format as they lie in memory, the numbers of those that are strings)."""
    letters, strings = "", []
    for _, wide, _, length, kind in (m.groups() for m in re.finditer(_SPEC, text)):
        letters += "i" * (wide == "*")
        strings += [len(letters)] * (kind == "s")
        if kind is not None:
            letters += "I" if kind == "c" or (kind in "diouxX" and _BITS[length or ""] < 64) else "Q"
    return struct.Struct(letters), tuple(strings)


class Printer:
    """Keeps what the lanes of a launch print, in a buffer as CUDA's: the oldest calls make room for new ones. `callback` is what
    native code calls.

    stop: not zero if the launch is to stop. problem: why a call could not be carried out. cut: there was more text.
    """

    def __init__(self, stop: np.ndarray) -> None:
        self.stop = stop
        self.problem = ""
        self.lock = threading.Lock()
        self.callback = CALLBACK(self._print)
        self.begin()

    def begin(self) -> None:
        """Prepare for a launch."""
        self.calls: deque[tuple[str, Sequence[Any], int]] = deque()  # format, arguments, bytes in the buffer
        self.size, self.cut = 0, False

    @property
    def address(self) -> int:
        return ctypes.cast(self.callback, ctypes.c_void_p).value or 0

    def text(self) -> str:
        """Return what the buffer holds, no more characters than it has bytes, and empty it."""
        made: list[str] = []
        room = buffer[0]
        while self.calls:
            template, values, _ = self.calls.pop()
            text = format_c(template, values, buffer[0])
            self.cut |= len(text) > room
            if made and len(text) > room:
                self.calls.clear()
                break
            made.append(text[:room])
            room -= len(made[-1])
        return "".join(reversed(made))

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
        template = read_string(warp, lane, format_address)
        memory, strings = layout(template)
        values: list[Any] = [*memory.unpack(read(warp, lane, at, memory.size).ljust(memory.size, b"\0"))]
        size = _HEAD + memory.size
        for n in strings:
            if values[n]:
                values[n] = read_string(warp, lane, values[n]) if size <= buffer[0] else ""
                size += len(values[n])
        with self.lock:
            self.calls.append((template, values, size))
            self.size += size
            while self.size > buffer[0] and len(self.calls) > 1:
                self.size -= self.calls.popleft()[2]
                self.cut = True
        return len(values)
