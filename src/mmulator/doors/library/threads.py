"""Threads of a program that Python did not start: each keeps its Python state for as long as it lives.

Without this, ctypes makes a new state for every call of such a thread, and what a `threading.local` holds is lost: the thread's
context, its last error, the launch between <<< and >>>.
"""

import atexit
import ctypes
import os
import threading
from typing import Any

import numpy as np

from mmulator.codegen import loading
from mmulator.codegen.lang import native
from mmulator.codegen.types import Struct, i32, ptr_to, u64, void
from mmulator.doors.library.boot import call

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
