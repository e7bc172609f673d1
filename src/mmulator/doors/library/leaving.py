"""The end of a process in which work was refused: a last line and, under `mmulator exec`, exit code 4 in place of 0.

Python does not know the exit code of its process, and is over when C's functions of on_exit(3) get it; so a native function does.
"""

import atexit
import ctypes
import os

from mmulator.codegen import loading
from mmulator.codegen.lang import native
from mmulator.codegen.types import i32, u64, void
from mmulator.doors.library.boot import call
from mmulator.driver import findings as told
from mmulator.refusals import GATHERED, REFUSED, RefusedWork, register

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


def read(code: int | None = None) -> None:
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
