"""A program that takes numbers from device memory, as C programs do: some of its parts forget to fill it, others do not."""

import ctypes
import sys

from mmulator.doors.libcuda import loading

loading.install()
cuda = ctypes.CDLL("libcuda.so.1")
PTX = b"""
.version 8.0
.target sm_80
.address_size 64
.visible .global .align 4 .u32 offset[32];
.visible .entry next(.param .u64 from, .param .u64 to)
{
    .reg .b32 %r<6>;
    .reg .b64 %rd<8>;
    ld.param.u64 %rd1, [from];
    ld.param.u64 %rd2, [to];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd3, %r1, 4;
    add.s64 %rd1, %rd1, %rd3;
    add.s64 %rd2, %rd2, %rd3;
    mov.u64 %rd4, offset;
    add.s64 %rd4, %rd4, %rd3;
    ld.global.u32 %r2, [%rd1];
    ld.global.u32 %r3, [%rd4];
    add.u32 %r2, %r2, %r3;
    st.global.u32 [%rd2], %r2;
    ret;
}
"""
SIZE = 128


def call(name, *args):
    code = getattr(cuda, name)(*args)
    assert code == 0, (name, code)


def made(name, *args):
    out = ctypes.c_void_p()
    call(name, ctypes.byref(out), *args)
    return out


def bytes_(n):
    return ctypes.c_size_t(n)


def memory():
    return made("cuMemAlloc_v2", bytes_(SIZE))


def behind(address, n):
    return ctypes.c_void_p(address.value + n)


def next_(source, to):
    """A launch of a kernel that is loaded anew: its findings are told by themselves."""
    call("cuInit", 0)
    module = made("cuModuleLoadData", PTX)
    values = source, to
    pointers = (ctypes.c_void_p * 2)(*(ctypes.addressof(v) for v in values))
    call("cuLaunchKernel", made("cuModuleGetFunction", module, b"next"), 1, 1, 1, 32, 1, 1, 0, None, pointers, None)


HOST = (ctypes.c_uint32 * 32)(*range(32))


def forgotten():
    next_(memory(), memory())


def half_filled():
    x = memory()
    call("cuMemsetD8_v2", x, 0, bytes_(32))
    next_(x, memory())


def copied_from_what_is_unwritten():
    x, y = memory(), memory()
    call("cuMemcpyHtoD_v2", y, HOST, bytes_(SIZE))
    call("cuMemcpyDtoD_v2", y, x, bytes_(SIZE))
    next_(y, memory())


def given_out_again():
    x = made("cuMemAllocAsync", bytes_(SIZE), None)
    call("cuMemcpyHtoDAsync_v2", x, HOST, bytes_(SIZE), None)
    call("cuMemFreeAsync", x, None)
    next_(made("cuMemAllocAsync", bytes_(SIZE), None), memory())


def all_is_filled():
    x, y = memory(), memory()
    call("cuMemcpyHtoD_v2", x, HOST, bytes_(SIZE))
    next_(x, y)
    next_(y, x)
    call("cuMemcpyDtoD_v2", memory(), memory(), bytes_(SIZE))
    z = memory()
    call("cuMemcpy", z, HOST, bytes_(64))
    call("cuMemcpyDtoDAsync_v2", behind(z, 64), y, bytes_(64), None)
    next_(z, memory())
    for name, many in (("cuMemsetD8_v2", SIZE), ("cuMemsetD16Async", 64), ("cuMemsetD32_v2", 32)):
        z = memory()
        call(name, z, 7, bytes_(many), *((None,) if "Async" in name else ()))
        next_(z, memory())
    z = memory()
    call("cuMemsetD2D8_v2", z, bytes_(32), 7, bytes_(32), bytes_(4))
    next_(z, memory())
    call("cuMemcpyDtoH_v2", HOST, memory(), bytes_(SIZE))


def a_plane_is_copied():
    z = memory()
    ends = [0, 0, 1, ctypes.addressof(HOST), 0, 0, 32, 0, 0, 2, 0, z.value, 0, 32, 32, 4]
    call("cuMemcpy2D_v2", (ctypes.c_uint64 * 16)(*ends))
    next_(z, memory())


def memory_of_the_host():
    next_(made("cuMemAllocManaged", bytes_(SIZE), 1), memory())
    next_(made("cuMemAllocHost_v2", bytes_(SIZE)), memory())
    next_(made("cuMemHostAlloc", bytes_(SIZE), 2), memory())
    room = ctypes.create_string_buffer(SIZE)
    call("cuMemHostRegister_v2", room, bytes_(SIZE), 0)
    next_(ctypes.c_void_p(ctypes.addressof(room)), memory())


call("cuInit", 0)
call("cuCtxPushCurrent_v2", made("cuDevicePrimaryCtxRetain", 0))
for part in sys.argv[1:]:
    globals()[part]()
