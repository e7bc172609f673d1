"""The functions of cuBLAS as rows: handles, status codes, work on a stream.

    @routine("cublas{}axpy", "SDCZ")     carries out cublasSaxpy_v2, cublasSaxpy_v2_64, cublasDaxpy_v2 and so on

A name that the real libraries export and no row has is refused. Names and arguments stand in libcublas.txt and libcublasLt.txt.

Source: cuBLAS Library User Guide 13, and the headers cublas_api.h and cublasLt.h of cuBLAS 13.10 and 12.9.
"""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial, wraps
from types import SimpleNamespace
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from mmulator.base.errors import UnsupportedError
from mmulator.doors.cublas.names import signature_of
from mmulator.doors.libcuda import abi
from mmulator.doors.libcuda.abi import Refused, get_bytes, put_bytes, unsupported
from mmulator.doors.libcuda.codes import Code
from mmulator.doors.libcuda.state import PRIMARY, state
from mmulator.host.driver.streams import ordering, seconds_of_library

version = [13]  # of CUDA, of the library that the process has loaded last
# cublasStatus_t
SUCCESS, NOT_INITIALIZED, ALLOC_FAILED, INVALID_VALUE, EXECUTION_FAILED, NOT_SUPPORTED = 0, 1, 3, 7, 13, 15
STATUSES = {
    0: "SUCCESS", 1: "NOT_INITIALIZED", 3: "ALLOC_FAILED", 7: "INVALID_VALUE", 8: "ARCH_MISMATCH", 11: "MAPPING_ERROR",
    13: "EXECUTION_FAILED", 14: "INTERNAL_ERROR", 15: "NOT_SUPPORTED", 16: "LICENSE_ERROR",
}  # fmt: skip
_OF_CODES: dict[int, int] = {
    Code.SUCCESS: SUCCESS, Code.INVALID_VALUE: INVALID_VALUE, Code.OUT_OF_MEMORY: ALLOC_FAILED, Code.NOT_SUPPORTED: NOT_SUPPORTED,
    Code.INVALID_HANDLE: INVALID_VALUE, Code.NOT_INITIALIZED: NOT_INITIALIZED,
}  # fmt: skip
LETTERS: dict[str, Any] = {
    "S": np.float32, "D": np.float64, "C": np.complex64, "Z": np.complex128, "H": np.float16,
}  # fmt: skip
# cudaDataType
TYPES: dict[int, Any] = {
    0: np.float32, 1: np.float64, 2: np.float16, 3: np.int8, 4: np.complex64, 5: np.complex128, 8: np.uint8, 10: np.int32,
    14: ml_dtypes.bfloat16, 28: ml_dtypes.float8_e4m3fn, 29: ml_dtypes.float8_e5m2,
}  # fmt: skip
ROWS: dict[str, Callable[..., int]] = {}
_kept: list[Any] = []


@dataclass
class LibraryHandle:
    """A handle of the library.

    stream: on which its work is done.
    device_scalars: whether alpha, beta and results lie in device memory.
    settings: other values that were set, by name.
    """

    stream: int = 0
    device_scalars: bool = False

    def __post_init__(self) -> None:
        self.settings: dict[str, int] = {}


# handles and opaque values ------------------------------------------------------------------------------------------------
_opaque: dict[int, Any] = {}


def made(value: Any, at: int = 0) -> int:
    """The address under which a program knows a value. at: memory of the program that is to be the value's."""
    if not at:
        room = ctypes.create_string_buffer(256)
        at = ctypes.addressof(room)
        value.__dict__["room"] = room
    _opaque[at] = value
    return at


def found(address: int) -> Any:
    if address not in _opaque:
        raise Refused(Code.NOT_INITIALIZED)
    return _opaque[address]


def lost(address: int) -> None:
    found(address)
    del _opaque[address]


# functions ----------------------------------------------------------------------------------------------------------------
def guarded(function: Callable[..., Any], name: str) -> Callable[..., int]:
    """The function with a status for every outcome. It may return work, which is done on the stream of its handle: now, or when
    a graph that is being captured runs."""

    def run(*args: int) -> None:
        if not state().contexts:
            state().contexts.append(PRIMARY)
        work = function(*args)
        if work is None:
            return
        queue = state().stream(work.stream)
        if queue.capture is not None:
            queue.capture.add(queue, "call", work.do)
        elif ordering:
            with ordering[-1].on(queue.stream, what=f"the call of {name}"):
                work.do()
        else:
            work.do()
        queue.stream.seconds += seconds_of_library(state().driver.device.name, work.macs)

    inner = abi.guarded(run, name)

    @wraps(function)
    def call(*args: int) -> int:
        code = inner(*args)
        if code:
            abi.tell(abi.taken())
        return _OF_CODES.get(code, EXECUTION_FAILED)

    return call


class StreamWork(NamedTuple):
    """Work of a function on a stream. stream: its handle. do: carries it out. macs: its size, in multiply-accumulates of f16."""

    stream: int
    do: Callable[[], None]
    macs: float = 0


class Call(SimpleNamespace):
    """The arguments of a call by their names, with `of`, the handle's value, and `dtype`, NumPy's type of the elements."""

    of: LibraryHandle
    dtype: Any

    def number(self, name: str, dtype: Any = None) -> Callable[[], Any]:
        """A number whose address is an argument: alpha, beta. dtype: its type, where it is no argument and not the elements'."""
        named = getattr(self, f"{name}_type", None)
        dtype = self.dtype if dtype is None else dtype
        return scalar(self.of, getattr(self, name), dtype if named is None else type_of(named))

    def work(self, do: Callable[[], None], macs: float = 0) -> StreamWork:
        return StreamWork(self.of.stream, do, macs)


def routine(names: str, types: str = "", arguments: str = "") -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: a function for each name, its variant for 64-bit sizes, and each type.

    names: parted by spaces, `{}` for the letter of a type; `_v2` is added where the library has it.
    types: letters of LETTERS.
    arguments: names of the arguments behind the handle, for a function that takes a Call.
    """
    words = arguments.split()

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        for name in names.split():
            for letter in types or " ":
                base = name.format(letter)
                base += "_v2" if signature_of(f"{base}_v2") is not None else ""
                carry_out = partial(_called, function, words, LETTERS.get(letter)) if words else function
                for exact in (base, f"{base}_64"):
                    signature = signature_of(exact)
                    if words and signature is not None and len(signature) != len(words) + 1:
                        raise ValueError(f"{exact} has {len(signature)} arguments")
                    if signature is not None:
                        ROWS[exact] = guarded(carry_out, exact)
        return function

    return register


def _called(function: Callable[[Call], Any], words: list[str], dtype: Any, handle: int, *arguments: int) -> Any:
    call = Call(of=found(handle), dtype=dtype, **dict(zip(words, arguments)))
    if "x_type" in words:
        if getattr(call, "y_type", call.x_type) != call.x_type:
            raise unsupported("cuBLAS", "vectors of two types are not written")
        call.dtype = type_of(call.x_type)
    return function(call)


def type_of(number: int) -> Any:
    """NumPy's type of a cudaDataType. Raises Refused for one that is not written."""
    if number not in TYPES:
        raise unsupported("cuBLAS", f"elements of cudaDataType {number} are not written")
    return TYPES[number]


def refusal(name: str) -> Callable[..., int]:
    """A function that is not written."""
    old = signature_of(name) == "-" and signature_of(f"{name}_v2") is not None
    why = "the interface of cublas.h is not written: cublas_v2.h" if old else "this function of cuBLAS is not written"

    def refuse(*_: int) -> None:
        raise Refused(Code.NOT_SUPPORTED, UnsupportedError(f"{name}: {why}"))

    return guarded(refuse, name)


# memory of the caller -----------------------------------------------------------------------------------------------------
def host(address: int, size: int) -> int:
    """Where bytes of device memory, or of the program's own, are on the host."""
    return int(state().driver.memory.host_place(address, size))


def scalar(handle: LibraryHandle, address: int, dtype: Any) -> Callable[[], Any]:
    """A number that the program gives by its address: read now from the host's memory, or by the work from the device's."""
    size = np.dtype(dtype).itemsize

    def read() -> Any:
        return np.frombuffer(get_bytes(host(address, size), size), dtype)[0]

    if handle.device_scalars:
        return read
    value = read()
    return lambda: value


def give(handle: LibraryHandle, address: int, value: Any, dtype: Any) -> None:
    """Write a result where the program wants it, in its own memory or the device's."""
    data = np.asarray(value).astype(dtype).tobytes()
    put_bytes(host(address, len(data)), data)
    if handle.device_scalars:
        state().driver.memory.wrote(address, len(data))
        if ordering:
            ordering[-1].used(address, 1, 0, len(data), True)


@cache
def text(words: str) -> int:
    """The address of a text that stays."""
    _kept.append(ctypes.create_string_buffer(words.encode()))
    return ctypes.addressof(_kept[-1])
