"""Python functions as functions of the driver API: their C signatures, their results, and errors as codes.

    @api("cuMemAlloc_v2", "pq")                                        the function below carries it out
    answers("cuCtxGetId", "pp", lambda handle: 1, at=1)                its result is a number
    accepts("cuProfilerStart cuProfilerStop")                          nothing is to be done

A letter stands for each argument: `p` a pointer or handle, `q` 64 bits, `u` and `i` 32 bits without and with a sign. A function
returns None for success, or a code. An MmulatorError becomes a code, and is kept for the door that tells the program (`taken`).
With `runtime` a row holds for CUDA's runtime, too, which has the function with the same arguments (doors/cudart).
"""

import ctypes
import re
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

from mmulator.base.errors import (
    ExecutionFault,
    InvalidInstructionError,
    LaunchError,
    LimitReached,
    MmulatorError,
    PtxSyntaxError,
    UnsupportedError,
)  # fmt: skip
from mmulator.base.refusals import register
from mmulator.doors.libcuda import caller
from mmulator.doors.libcuda.codes import CODES, FAULTS, Code
from mmulator.doors.library import lifetime
from mmulator.host.driver.findings import launched

_C = {"p": ctypes.c_uint64, "q": ctypes.c_uint64, "u": ctypes.c_uint32, "i": ctypes.c_int32}
_CODE_OF: tuple[tuple[type[BaseException], Code], ...] = (
    (PtxSyntaxError, Code.INVALID_PTX), (InvalidInstructionError, Code.INVALID_PTX), (UnsupportedError, Code.NOT_SUPPORTED),
    (LaunchError, Code.INVALID_VALUE), (LimitReached, Code.LAUNCH_TIMEOUT), (ExecutionFault, Code.LAUNCH_FAILED),
    (MmulatorError, Code.LAUNCH_FAILED), (MemoryError, Code.OUT_OF_MEMORY),
)  # fmt: skip
_told = threading.local()
WORK = re.compile(r"_*cu(da)?(Launch|GraphLaunch|Memcpy|Memset)|cublas")  # that are asked for work, not for what it needs
_OWN = LaunchError, ExecutionFault, KeyboardInterrupt, MemoryError  # how work fails by the program's own doing


class Refused(Exception):
    """A call that fails with a code of the driver API. why: the reason, where a code alone does not say it."""

    def __init__(self, code: Code, why: MmulatorError | None = None) -> None:
        super().__init__(code)
        self.code, self.why = code, why


@dataclass(frozen=True)
class EntryPoint:
    """A function of the library.

    name: exported.
    base: the name without a suffix such as `_v2`.
    since: the CUDA version of this variant, 12000 for 12.0.
    native: pointer of the native function.
    call: the Python function.
    back: it gives something back, and is carried out later.
    """

    name: str
    base: str
    since: int
    native: Any
    call: Callable[..., int]
    back: bool

    @property
    def pointer(self) -> int:
        return int(ctypes.cast(self.native, ctypes.c_void_p).value or 0)


ENTRIES: dict[str, EntryPoint] = {}
watching: list[Callable[[str, tuple[int, ...]], None]] = []  # what forbids calls while a stream is captured (captures.py)
pending: list[Callable[[], None]] = []  # what carries out the calls that were noted (loading.py)


SHARED: list[tuple[str, str, Callable[..., Any]]] = []  # functions of the runtime: names, signature, the driver's function


def api(
    names: str, signature: str = "", since: int = 2000, back: bool = False, runtime: bool | str = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: register a function of the driver API.

    names: exported names, parted by spaces.
    signature: a letter an argument; arguments behind those that the Python function takes are passed over.
    since: the version of CUDA that a suffix (`_v2`) came with.
    back: the function gives something back, with one or two handles as arguments. Destructors call it, when Python cannot run; so
        the call is noted, and carried out before the next call of another function.
    runtime: names behind `cuda` of functions of the runtime with these arguments; True: those of the driver without a suffix.
    """
    prototype = ctypes.CFUNCTYPE(ctypes.c_int, *(_C[c] for c in signature))

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        takes = function.__code__.co_argcount or len(signature)  # 0: `*args`
        call = guarded(function if takes == len(signature) else lambda *args: function(*args[:takes]), names.split()[0])
        native = prototype(telling(call))
        plain = []
        for name in names.split():
            base, _, suffix = name.rpartition("_v")
            base = base if suffix.isdigit() and base else name
            plain += [name[2:]] * (base == name)
            ENTRIES[name] = EntryPoint(name, base, since if base != name else 0, native, call, back)
        if runtime:
            theirs = runtime.split() if isinstance(runtime, str) else plain
            SHARED.append((" ".join(f"cuda{name}" for name in theirs), signature, function))
        return function

    return register


def shared(name: str, signature: str = "") -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: register a function of both libraries. name: behind `cu` and `cuda`."""
    return api(f"cu{name}", signature, runtime=True)


EDGED: dict[str, tuple[str, int, Callable[..., Any]]] = {}  # with the number of the argument that only newer versions have


def edged(name: str, signature: str, place: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: register a function of both libraries, which has an array of a graph's edges as argument number `place`, and
    which older versions have without.
    """

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        EDGED[name] = signature, place, function
        api(f"cu{name}_v2", signature, 12030)(function)
        api(f"cu{name}", signature[:place] + signature[place + 1 :])(without(place, function))
        return function

    return register


def without(place: int, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function without an argument, which is 0."""
    return lambda *args: function(*args[:place], 0, *args[place:])


def answers(
    names: str, signature: str, number: Callable[..., int], at: int = 0, size: int = 4, since: int = 2000,
    runtime: bool | str = False,
) -> None:  # fmt: skip
    """Register a function whose result is one number.

    number: the result, by the arguments but `at`, or the first of them.
    at: which argument has the address where it is written.
    size: bytes of the result.
    names, signature, since, runtime: as of `api`.
    """
    takes = number.__code__.co_argcount

    def answer(*args: int) -> None:
        put(args[at], number(*(*args[:at], *args[at + 1 :])[:takes]), size)

    api(names, signature, since, runtime=runtime)(answer)


def accepts(
    names: str, signature: str = "", check: Callable[..., object] = lambda: None, since: int = 2000, runtime: bool | str = False
) -> None:
    """Register a function that has no effect. check: gets its first arguments, and raises what is wrong with them."""
    takes = check.__code__.co_argcount

    def accept(*args: int) -> None:
        check(*args[:takes])

    api(names, signature, since, runtime=runtime)(accept)


def guarded(function: Callable[..., Any], name: str) -> Callable[..., int]:
    """The function with a code for every outcome: no exception leaves it."""

    @wraps(function)
    def call(*args: int) -> int:
        lifetime.keep()
        if pending:
            pending[0]()
        try:
            if watching:
                watching[0](name, args)
            found = function(*args)
            return Code.SUCCESS if found is None else int(found)
        except Refused as refused:
            _told.error = refused.why or _told.__dict__.get("error")
            return counted(name, refused.why, int(refused.code))
        except BaseException as error:
            return counted(name, error, _failed(name, error))

    return call


def counted(name: str, error: BaseException | None, code: int) -> int:
    """Enter a call into the register, if it was refused. Returns its code.

    This is the one place where a C program's refusals are counted. Work is open until the program asks for the error. What only
    prepares work was answered with its code: a program that probes goes another way, and one that does not fails at the work.
    """
    said = error.message if isinstance(error, MmulatorError) else f"{type(error).__name__}: {error}"
    if WORK.match(name):
        launch = "Launch" in name
        if error is None:  # no such kernel, or no such graph: to make it may have been refused
            said = register.doubt if launch else ""
        if said and not isinstance(error, _OWN):
            lifetime.opened(register.work(said, code, launch))
    elif isinstance(error, UnsupportedError):
        register.doubt = said
    return code


def behind(name: str, code: int) -> int:
    """The code of a call behind a refused launch: a launch is not run either."""
    if "Launch" in name and WORK.match(name):
        register.work(next(r.why for r in register.refused.values() if r.open and r.code == code), code, True)
    return code


def telling(call: Callable[..., int]) -> Callable[..., int]:
    """The function for a program: one of C++ sees a code alone, so that the reason of a failure is printed there."""
    if sys.orig_argv:  # a program of Python
        return call

    @wraps(call)
    def tells(*args: int) -> int:
        code = call(*args)
        if code:
            tell(taken())
        return code

    return tells


def tell(error: BaseException | None) -> None:
    """Print the reason of a failed call, once where one error is the reason of many."""
    if isinstance(error, MmulatorError) and not (error.told or error.__dict__.get("printed")):
        error.__dict__["printed"] = True
        sys.stdout.flush()
        print(f"mmulator: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        if isinstance(error, ExecutionFault) and (place := launched()):
            print(f"  {place.removeprefix(', ')}", file=sys.stderr, flush=True)


def code_of(error: BaseException) -> int | None:
    """The code of an error: of a fault by what happened, of others by their class. None for an error of this package itself."""
    if isinstance(error, ExecutionFault) and error.fault in FAULTS:
        return int(FAULTS[error.fault])
    return next((int(code) for kind, code in _CODE_OF if isinstance(error, kind)), None)


def fault_code(error: BaseException) -> int | None:
    """The code of an error in which a launch ended, and the context with it; None for an error before the launch."""
    return code_of(error) if isinstance(error, ExecutionFault) and error.fault else None


def _failed(name: str, error: BaseException) -> int:
    _told.error = error
    code = code_of(error)
    if code is not None:
        return code
    if isinstance(error, KeyboardInterrupt):
        return int(Code.LAUNCH_FAILED)
    print(f"mmulator: {name} failed:", file=sys.stderr)
    sys.excepthook(type(error), error, error.__traceback__)
    return int(Code.UNKNOWN)


def taken() -> BaseException | None:
    """The error behind the last call of this thread that failed; each error is returned once, then None."""
    found = _told.__dict__.pop("error", None)
    return found if isinstance(found, BaseException) else None


def untaken() -> BaseException | None:
    """The error behind the last call of this thread that failed, which `taken` still returns."""
    found = _told.__dict__.get("error")
    return found if isinstance(found, BaseException) else None


def unsupported(name: str, what: str, hint: str | None = None) -> Refused:
    """The refusal of an unsupported function, with its name."""
    return Refused(Code.NOT_SUPPORTED, UnsupportedError(f"{name}: {what}", hint=hint))


def resolve(name: str, version: int) -> EntryPoint | None:
    """The newest variant of a function that `version` of CUDA has."""
    exact = ENTRIES.get(name)
    if exact is not None and exact.base != name:
        return exact
    fit = [e for e in ENTRIES.values() if e.base == name and e.since <= version]
    return max(fit, key=lambda e: e.since, default=None)


# memory of the caller -----------------------------------------------------------------------------------------------
def put(address: int, value: int, size: int = 8) -> None:
    """Write an integer of `size` bytes to the caller's memory; a null pointer wants nothing."""
    put_bytes(address, (value & ((1 << 8 * size) - 1)).to_bytes(size, "little"))


def needed(address: int, what: str = "place for the result") -> None:
    """Refuse a null pointer for what a call cannot do without."""
    if not address:
        raise Refused(Code.INVALID_VALUE, LaunchError(f"the {what} is a null pointer"))


def put_int(address: int, value: int) -> None:
    put(address, value, 4)


def put_bytes(address: int, data: bytes) -> None:
    if address and not caller.write(address, data):
        raise _nothing(address, len(data))


def get_bytes(address: int, size: int) -> bytes:
    """Bytes of the caller's memory. Raises Refused where there is no such memory."""
    found = caller.read(address, size)
    if len(found) < size:
        raise _nothing(address, size)
    return found


def get(address: int, size: int = 8) -> int:
    return int.from_bytes(get_bytes(address, size), "little")


def text(address: int) -> str:
    found = caller.string(address)
    if found is None:
        raise _nothing(address, 1)
    return found.decode(errors="replace")


def _nothing(address: int, size: int) -> Refused:
    return Refused(Code.INVALID_VALUE, LaunchError(f"the program has no {size} bytes of memory at 0x{address:x}"))


_kept: dict[str, Any] = {}


def c_string(value: str) -> int:
    """The address of a C string that is kept for ever."""
    if value not in _kept:
        _kept[value] = ctypes.create_string_buffer(value.encode())
    return ctypes.addressof(_kept[value])


def name_of(code: int) -> str | None:
    found = CODES.get(code)
    return None if found is None else ("CUDA_SUCCESS" if code == 0 else f"CUDA_ERROR_{found}")
