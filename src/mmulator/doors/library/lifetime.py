"""Lives of a program's threads, which keep their Python state, and the end of a process in which work was refused.

Without that state ctypes makes a new one for every call of a thread that Python did not start, and what a `threading.local`
holds is lost: the thread's context, its last error, the launch between <<< and >>>.

Where work was refused, the process ends with a last line and, under `mmulator exec`, with exit code 4 in place of 0. Python does
not know the exit code, and is over when C's functions of on_exit(3) get it; so a native function does.
"""

import atexit
import ctypes
import os
import threading
from typing import Any

import numpy as np

from mmulator.base.codegen import loading
from mmulator.base.codegen.lang import native
from mmulator.base.codegen.types import Struct, i32, ptr_to, u64, void
from mmulator.base.refusals import GATHERED, REFUSED, RefusedWork, register
from mmulator.doors.library.boot import call
from mmulator.host.driver import findings as told

ThreadCalls = Struct("ThreadCalls", [("ensure", u64), ("release", u64)])  # functions of Python; 0 when Python ends


@native
def thread_ends(calls: ptr_to(ThreadCalls)) -> None:
    """Give back the state of a thread that ends: the reference of this call, and the one that `keep` took."""
    if calls.ensure != 0:
        held = call(calls.ensure, i32)
        call(calls.release, void, i32(0))
        call(calls.release, void, held)


class _Known(threading.local):
    here = False


class _AtEnd:
    """Code that runs as a thread ends: before keys of the C library lose their values, among them Python's (destructors
    of keys run after that)."""

    def __init__(self) -> None:
        self.calls = np.zeros(1, ThreadCalls.numpy_dtype())
        for name, function in (("ensure", ctypes.pythonapi.PyGILState_Ensure), ("release", ctypes.pythonapi.PyGILState_Release)):
            self.calls[name] = ctypes.cast(function, ctypes.c_void_p).value
        loading.ensure([thread_ends])
        atexit.register(self.calls.fill, 0)

    def mark(self) -> None:
        _when_thread_ends(ctypes.c_void_p(loading.address(thread_ends)), ctypes.c_void_p(self.calls.ctypes.data))


_register = getattr(ctypes.CDLL(None), "__cxa_thread_atexit_impl", None)  # from glibc 2.18 on


def _when_thread_ends(function: Any, argument: Any) -> None:
    """Let a function of C run as the calling thread ends."""
    if _register is not None:
        _register(function, argument, ctypes.cast(_register, ctypes.c_void_p))  # any address of a library that stays


def main_ends(function: Any) -> None:
    """Let a function of C run as the main thread ends, or calls exit(): before all destructors and functions of atexit(3)."""
    if threading.get_native_id() == os.getpid():
        _when_thread_ends(function, None)
    else:
        _of_main.append(function)


_of_main: list[Any] = []
_known, _at_end, _lock = _Known(), list[_AtEnd](), threading.Lock()


def keep() -> None:
    """Keep the Python state of the thread that calls, if Python did not start the thread."""
    if _known.here:
        return
    _known.here = True
    if _of_main and threading.get_native_id() == os.getpid():
        _when_thread_ends(_of_main.pop(), None)
    me = threading.get_ident()
    if any(thread.ident == me for thread in threading.enumerate()):
        return
    with _lock:
        if not _at_end:
            _at_end.append(_AtEnd())
    ctypes.pythonapi.PyGILState_Ensure()  # without a Release: the count never comes to 0
    _at_end[0].mark()


_libc = ctypes.CDLL(None)
_prepared: list[int] = []  # the address of `leave`, from the first refusal on


@native
def leave(status: i32, function: u64) -> None:
    """Call exit(4), `function`, where a process ends with 0: functions of atexit(3) that are left run then."""
    if status == 0:
        call(function, void, i32(REFUSED))


def opened(refusal: RefusedWork) -> None:
    """Work was refused, and the program may pass over its code."""
    if not _prepared:
        _prepared.append(loading.address(leave))  # now: no thread can start when Python ends
        atexit.register(_end)
        os.register_at_fork(after_in_child=register.clear)
    told.pass_on(refusal)


def read_errors(code: int | None = None) -> None:
    """The program has asked for an error, of any code or of this one: it knows of refusals."""
    if found := register.read(code):
        told.pass_on(*found)


def _end() -> None:
    line = register.line()
    if not line:
        return
    told.finish_refused(line)
    if os.environ.get("MMULATOR_EXEC") and not os.environ.get(GATHERED) and hasattr(_libc, "on_exit"):
        _libc.on_exit(ctypes.c_void_p(_prepared[0]), _libc.exit)
