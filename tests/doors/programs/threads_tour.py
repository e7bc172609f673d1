"""A program whose threads Python did not start calls CUDA's driver from native code."""

import ctypes
from pathlib import Path

import numpy as np

from mmulator.base.codegen import loading
from mmulator.base.codegen.lang import native
from mmulator.base.codegen.types import Struct, i32, ptr_to, u32, u64
from mmulator.doors.library.boot import call

Work = Struct("Work", [("set", u64), ("allocate", u64), ("free", u64), ("context", u64), ("memory", u64), ("failed", u32)])
MEMORY = Work.offset["memory"]

cuda, libc = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL(None)


@native
def work(w: ptr_to(Work)) -> u64:
    """What a thread does: each call finds the context that the one before made current."""
    w.failed = w.failed | u32(call(w.set, i32, w.context))
    w.failed = w.failed | u32(call(w.allocate, i32, u64(w) + MEMORY, u64(64)))
    w.failed = w.failed | u32(call(w.free, i32, w.memory))
    return 0


def resident():
    """Kilobytes of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4


def try_threads_that_python_did_not_start():
    context, thread = ctypes.c_void_p(), ctypes.c_ulong()
    assert cuda.cuInit(0) == cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    loading.ensure([work])
    todo = np.zeros(1, Work.numpy_dtype())
    for name, function in (("set", "cuCtxSetCurrent"), ("allocate", "cuMemAlloc_v2"), ("free", "cuMemFree_v2")):
        todo[name] = ctypes.cast(getattr(cuda, function), ctypes.c_void_p).value
    todo["context"] = context.value
    body, given = ctypes.c_void_p(loading.address(work)), ctypes.c_void_p(todo.ctypes.data)

    def run(number):
        for _ in range(number):
            assert libc.pthread_create(ctypes.byref(thread), None, body, given) == 0
            assert libc.pthread_join(thread, None) == 0

    run(500)
    before = resident()
    run(3000)
    assert todo["failed"][0] == 0 and todo["memory"][0] != 0
    grown = resident() - before
    assert grown < 1000, f"{grown} KB of threads that have ended are kept"
