"""Threads of a program that Python did not start: each keeps its Python state for as long as it lives.

Without this, ctypes makes a new state for every call of such a thread, and what a `threading.local` holds is lost: the thread's
context, its last error, the launch between <<< and >>>.
"""

from __future__ import annotations

import atexit
import ctypes
import threading

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


class _Seen(threading.local):
    here = False


class _Key:
    """A key of the C library whose destructor runs as a thread ends."""

    def __init__(self) -> None:
        self.calls = np.zeros(1, ThreadCalls.numpy_dtype())
        for name, function in (("ensure", ctypes.pythonapi.PyGILState_Ensure), ("release", ctypes.pythonapi.PyGILState_Release)):
            self.calls[name] = ctypes.cast(function, ctypes.c_void_p).value
        loading.ensure([thread_ends])
        self.libc, self.number = ctypes.CDLL(None), ctypes.c_uint()
        self.libc.pthread_key_create(ctypes.byref(self.number), ctypes.c_void_p(loading.address(thread_ends)))
        atexit.register(self.calls.fill, 0)

    def mark(self) -> None:
        self.libc.pthread_setspecific(self.number, ctypes.c_void_p(self.calls.ctypes.data))


_seen, _keys, _lock = _Seen(), list[_Key](), threading.Lock()


def keep() -> None:
    """Keep the Python state of the thread that calls, if Python did not start the thread."""
    if _seen.here:
        return
    _seen.here = True
    me = threading.get_ident()
    if any(thread.ident == me for thread in threading.enumerate()):
        return
    with _lock:
        if not _keys:
            _keys.append(_Key())
    ctypes.pythonapi.PyGILState_Ensure()  # without a Release: the count never comes to 0
    _keys[0].mark()
