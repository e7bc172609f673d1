"""The functions of the CUDA runtime as rows: name, versions, signature, and whether a function does what it says.

    @api("cudaMalloc", "pq")                   does: the function below carries it out
    answers("cudaGetDevice", "p", lambda: 0)   does: its result is a number
    accepts("cudaFuncSetCacheConfig", "pi", "there are no caches to divide")
    refuses("textures are not modelled", "cudaCreateTextureObject cudaDestroyTextureObject")

Rows of doors/libcuda say, too, which functions of the driver are the runtime's. A name that the real library exports and no row
has is refused. The suffixes `_ptsz` and `_ptds` stand for the default stream
of each thread: these functions are those without the suffix, on that stream.

Source: CUDA Runtime API reference manual 13.0, and 12.9 for what only CUDA 12 has.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, wraps
from pathlib import Path
from typing import Any

from mmulator.base.errors import UnsupportedError
from mmulator.base.refusals import register
from mmulator.doors.libcuda import abi
from mmulator.doors.libcuda.abi import Refused
from mmulator.doors.libcuda.codes import Code
from mmulator.doors.libcuda.state import PRIMARY, state
from mmulator.doors.library.lifetime import keep
from mmulator.host.driver.streams import ordering

SUCCESS, FORKED, NOT_READY = 0, 3, 600
_VARIADIC = 4  # flag of a code object whose function has `*args`
VERSIONS = {12: 12090, 13: 13000}  # of CUDA, as cudaRuntimeGetVersion says
DOES, ACCEPTS, REFUSES = "does", "accepts", "refuses"
_SUFFIXES = ("_ptsz", "_ptds")
_ASIDE = {SUCCESS, NOT_READY}  # codes that are no errors


class ByteExtent(ctypes.Structure):
    """cudaExtent, as of memory without elements: bytes of a line, lines of a plane, planes."""

    _fields_ = [("width", ctypes.c_uint64), ("height", ctypes.c_uint64), ("depth", ctypes.c_uint64)]


class Pitched(ctypes.Structure):
    """cudaPitchedPtr: an address, bytes from line to line, bytes of a line, lines of a plane."""

    _fields_ = [("address", ctypes.c_uint64), ("pitch", ctypes.c_uint64), ("width", ctypes.c_uint64), ("height", ctypes.c_uint64)]


# The structs are passed by value, and too long for registers: where they lie then depends on the processor.
_LETTERS: dict[str, type[ctypes._SimpleCData[int]] | type[ctypes.Structure]] = {
    "p": ctypes.c_uint64, "q": ctypes.c_uint64, "u": ctypes.c_uint32, "i": ctypes.c_int32, "E": ByteExtent, "P": Pitched,
}  # fmt: skip


@dataclass(frozen=True)
class RuntimeRow:
    """A function of the runtime.

    name: exported.
    signature: a letter an argument (_LETTERS).
    kind: DOES, ACCEPTS (success without an effect) or REFUSES (cudaErrorNotSupported).
    why: the reason, for ACCEPTS and REFUSES.
    call: the Python function that takes the arguments and returns a code.
    """

    name: str
    signature: str
    kind: str
    why: str
    call: Callable[..., int]


ROWS: dict[str, RuntimeRow] = {}


@cache
def exports() -> dict[str, tuple[int, ...]]:
    """The versions of CUDA whose library exports a function, by name."""
    lines = Path(__file__).with_name("exports.txt").read_text().splitlines()
    return {name: tuple(map(int, versions)) for name, *versions in map(str.split, lines) if name != "#"}


def names() -> list[str]:
    """The names that are exported, without their variants."""
    return [name for name in exports() if not name.endswith(_SUFFIXES)]


def _add(row: RuntimeRow) -> None:
    if row.name in ROWS:
        raise ValueError(f"two rows have the name {row.name}")
    ROWS[row.name] = row


def _variants(names: str) -> Iterator[str]:
    for name in names.split():
        yield name
        yield from (name + suffix for suffix in _SUFFIXES if name + suffix in exports())


# errors ---------------------------------------------------------------------------------------------------------------
class _ThreadState(threading.local):
    """State of a thread of the program.

    last: the code that cudaGetLastError returns.
    ready: whether the thread has the device's context.
    version: of CUDA (12 or 13), of the library that the thread has called: a program may have both.
    """

    last = SUCCESS
    ready = False
    version = 13


thread = _ThreadState()


@dataclass
class _Process:
    """State of the process.

    sticky: the code of a fault, which ends the context: each later call returns it.
    flags: those of cudaSetDeviceFlags.
    own: the number of the process in which a library started Python, 0 where Python started the program.
    """

    sticky: int = SUCCESS
    flags: int = 0
    own: int = 0


process = _Process()


def fail(code: int) -> int:
    """Keep a code as the last error of the thread, unless it is none. Returns the code."""
    if code not in _ASIDE:
        thread.last = code
    return code


def guarded(function: Callable[..., Any], name: str, lost: bool = True) -> Callable[..., int]:
    """The function with a code for every outcome. lost: whether it fails once a fault has ended the context."""
    inner = abi.guarded(_own_stream(function) if name.endswith(_SUFFIXES) else function, name)

    @wraps(function)
    def call(*args: int) -> int:
        keep()
        if process.own and process.own != os.getpid():
            return fail(FORKED)  # the device's context stays with the parent, as on a GPU
        if not thread.ready:
            thread.ready = True
            if not state().contexts:
                state().contexts.append(PRIMARY)
        if lost and (code := process.sticky or register.sticky):
            return fail(code if process.sticky else abi.behind(name, code))
        code = inner(*args)
        if code:
            abi.tell(abi.taken())
            fail(code)
        return code

    return call


def _own_stream(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function where the default stream is the thread's own."""

    def call(*args: int) -> Any:
        threads = state().threads
        threads.own = True
        try:
            return function(*args)
        finally:
            threads.own = False

    return call


def api(names: str, signature: str = "", lost: bool = True, now: str = "") -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: a function of the runtime, for each name and its variants. It returns None for success, or a code.

    names: parted by spaces.
    signature: a letter an argument; arguments behind those that the Python function takes are passed over.
    lost: whether the function fails once a fault has ended the context.
    now: names of the functions without its last argument, the stream: they use the default stream.
    """

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        takes, all_of_them = function.__code__.co_argcount, bool(function.__code__.co_flags & _VARIADIC)
        whole = all_of_them or takes == len(signature)
        plain: Callable[..., Any] = function if whole else lambda *args: function(*args[:takes])
        for name in _variants(names):
            _add(RuntimeRow(name, signature, DOES, "", guarded(plain, name, lost)))

        def waits(*args: Any) -> Any:
            return ordering[-1].call(plain, *args, 0) if ordering else plain(*args, 0)

        for name in _variants(now):
            _add(RuntimeRow(name, signature[:-1], DOES, "", guarded(waits, name, lost)))
        return function

    return register


def answers(names: str, signature: str, number: Callable[..., int], size: int = 4, lost: bool = True) -> None:
    """Functions whose result is one number of `size` bytes, written where the first argument says. number: by the others."""
    takes = number.__code__.co_argcount
    api(names, signature, lost)(lambda out, *args: abi.put(out, number(*args[:takes]), size))


def accepts(names: str, signature: str, why: str) -> None:
    """Functions that return success and do nothing. why: the reason that nothing is to be done."""
    for name in _variants(names):
        _add(RuntimeRow(name, signature, ACCEPTS, why, lambda *_: process.sticky or register.sticky))


def refuses(why: str, names: str) -> None:
    """Functions that return cudaErrorNotSupported. why: the reason."""
    for name in _variants(names):
        _add(RuntimeRow(name, "", REFUSES, why, _refusal(name, why)))


def _refusal(name: str, why: str) -> Callable[[], int]:
    def refuse() -> None:
        raise Refused(Code.NOT_SUPPORTED, UnsupportedError(f"{name}: {why}"))

    return guarded(refuse, name, False)


def complete() -> None:
    """Add the functions that the runtime has with the driver's arguments, and refuse each exported name that has no row."""
    for names, signature, function in abi.SHARED:
        if names.split()[0] not in ROWS:
            api(names, signature)(function)
    for name in exports():
        if name not in ROWS:
            _add(RuntimeRow(name, "", REFUSES, UNWRITTEN, _refusal(name, UNWRITTEN)))


def plain(name: str, signature: str, call: Callable[..., int], pointer: bool = False) -> None:
    """A function whose result is no code of an error. pointer: whether the result is an address."""
    _add(RuntimeRow(name, signature + ">" * pointer, DOES, "", call))


UNWRITTEN = "this function of CUDA's runtime is not written"


@cache
def native(signature: str) -> Any:
    """The C type of a function. signature: letters of the arguments; `>` behind them for one that returns an address."""
    arguments = signature.rstrip(">")
    return ctypes.CFUNCTYPE(ctypes.c_int if arguments == signature else ctypes.c_uint64, *(_LETTERS[c] for c in arguments))


def blocking() -> bool:
    """Whether a launch returns its own fault (CUDA_LAUNCH_BLOCKING)."""
    return os.environ.get("CUDA_LAUNCH_BLOCKING", "0") not in ("", "0")
