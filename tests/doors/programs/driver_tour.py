"""A program that calls CUDA's driver as C programs do, through the library of that name."""

import ctypes

cuda = ctypes.CDLL("libcuda.so.1")
PTX = b"""
.version 8.0
.target sm_80
.address_size 64
.visible .global .align 4 .u32 total[2] = {5, 0};
.visible .entry add(.param .u64 x, .param .u32 n)
{
    .reg .pred %p<2>;
    .reg .b32 %r<6>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [x];
    ld.param.u32 %r1, [n];
    mov.u32 %r2, %tid.x;
    setp.ge.u32 %p1, %r2, %r1;
    @%p1 ret;
    mul.wide.u32 %rd2, %r2, 4;
    add.s64 %rd2, %rd1, %rd2;
    ld.u32 %r3, [%rd2];
    add.u32 %r3, %r3, 1;
    st.u32 [%rd2], %r3;
    atom.global.add.u32 %r4, [total], %r3;
    ret;
}
"""


class Failed(Exception):
    pass


def call(name, *args):
    code = getattr(cuda, name)(*args)
    if code:
        name, text = ctypes.c_char_p(), ctypes.c_char_p()
        cuda.cuGetErrorName(code, ctypes.byref(name))
        cuda.cuGetErrorString(code, ctypes.byref(text))
        raise Failed(f"{name.value.decode()}: {text.value.decode()}")


def made(name, *args):
    out = ctypes.c_void_p()
    call(name, ctypes.byref(out), *args)
    return out


def made_last(name, *args):
    out = ctypes.c_void_p()
    call(name, *args, ctypes.byref(out))
    return out


call("cuInit", 0)
context = made("cuDevicePrimaryCtxRetain", 0)
call("cuCtxPushCurrent_v2", context)


def load():
    module = made("cuModuleLoadData", PTX)
    return module, made("cuModuleGetFunction", module, b"add")


def launch(function, x, n, block=32, stream=None, shared=0):
    values = x, ctypes.c_uint32(n)
    pointers = (ctypes.c_void_p * 2)(*(ctypes.addressof(v) for v in values))
    call("cuLaunchKernel", function, 1, 1, 1, block, 1, 1, shared, stream, pointers, None)


def try_a_context_is_detached_as_often_as_it_was_attached():
    own = made("cuCtxCreate_v2", 0, 0)
    assert made("cuCtxAttach", 0).value == own.value
    call("cuCtxDetach", own)
    call("cuCtxSynchronize")
    call("cuCtxDetach", own)
    assert cuda.cuCtxDetach(own) != 0


def try_launch():
    module, add = load()
    x = made("cuMemAlloc_v2", ctypes.c_size_t(128))
    host = (ctypes.c_uint32 * 32)(*range(32))
    call("cuMemcpyHtoD_v2", x, host, ctypes.c_size_t(128))
    launch(add, x, 32)
    call("cuMemcpyDtoH_v2", host, x, ctypes.c_size_t(128))
    assert [*host] == [*range(1, 33)]
    size = ctypes.c_size_t()
    total = ctypes.c_void_p()
    call("cuModuleGetGlobal_v2", ctypes.byref(total), ctypes.byref(size), module, b"total")
    sums = (ctypes.c_uint32 * 2)()
    call("cuMemcpyDtoH_v2", sums, total, size)
    assert size.value == 8 and sums[0] == 5 + sum(range(1, 33))


def try_linking():
    head = b".version 8.0\n.target sm_80\n.address_size 64\n"
    log = ctypes.create_string_buffer(b"what was here")
    options, values = (ctypes.c_int * 2)(5, 6), (ctypes.c_void_p * 2)(ctypes.addressof(log), len(log))
    link = made_last("cuLinkCreate_v2", 2, options, values)
    texts = (
        head + b".extern .func (.param .b32 y) twice(.param .b32 x);\n"
        b".visible .entry k(.param .u64 at) { .reg .b64 %a; .reg .b32 %v;\n"
        b"ld.param.u64 %a, [at]; ld.global.u32 %v, [%a]; { .param .b32 x; .param .b32 y; st.param.b32 [x], %v;\n"
        b"call (y), twice, (x); ld.param.b32 %v, [y]; } st.global.u32 [%a], %v; ret; }",
        head + b".visible .func (.param .b32 y) twice(.param .b32 x) { .reg .b32 %v; ld.param.b32 %v, [x]; add.u32 %v, %v, %v;\n"
        b"st.param.b32 [y], %v; ret; }",
    )
    for text in texts:
        call("cuLinkAddData_v2", link, 1, text, ctypes.c_size_t(len(text) + 1), b"text", 0, None, None)
    image, size = ctypes.c_void_p(), ctypes.c_size_t()
    call("cuLinkComplete", link, ctypes.byref(image), ctypes.byref(size))
    module = made("cuModuleLoadData", image)
    call("cuLinkDestroy", link)
    function = made("cuModuleGetFunction", module, b"k")
    at, value = made("cuMemAlloc_v2", ctypes.c_size_t(4)), ctypes.c_uint32(21)
    call("cuMemcpyHtoD_v2", at, ctypes.byref(value), ctypes.c_size_t(4))
    launch(function, at, 0, 1)
    call("cuMemcpyDtoH_v2", ctypes.byref(value), at, ctypes.c_size_t(4))
    assert (value.value, log.value) == (42, b"")


def try_streams_and_events():
    _, add = load()
    stream, start, end = made("cuStreamCreate", 0), made("cuEventCreate", 0), made("cuEventCreate", 0)
    x = made("cuMemAllocAsync", ctypes.c_size_t(128), stream)
    call("cuMemsetD32Async", x, 7, ctypes.c_size_t(32), stream)
    call("cuEventRecord", start, stream)
    launch(add, x, 32, stream=stream)
    call("cuEventRecord", end, stream)
    elapsed = ctypes.c_float()
    call("cuEventElapsedTime", ctypes.byref(elapsed), start, end)
    assert elapsed.value > 0
    host = (ctypes.c_uint32 * 32)()
    call("cuMemcpyDtoHAsync_v2", host, x, ctypes.c_size_t(128), stream)
    assert [*host] == [8] * 32
    for name, handle in (("cuMemFree_v2", x), ("cuStreamDestroy_v2", stream), ("cuEventDestroy_v2", start)):
        call(name, handle)
    refused("cuMemcpyDtoH_v2", host, x, ctypes.c_size_t(128), word="not an address of device memory")


def refused(name, *args, word):
    try:
        call(name, *args)
    except Failed as error:
        assert word in str(error), error
    else:
        raise AssertionError(f"{name} was not refused")


def try_many_destructions():
    """More than the ring has room for, with other calls between."""
    for _ in range(70):
        for event in [made("cuEventCreate", 0) for _ in range(1000)]:
            call("cuEventDestroy_v2", event)


def try_addresses_of_functions():
    found = {}
    for name in (b"cuMemAlloc", b"cuLaunchKernel", b"cuNobodyWroteThis"):
        out = ctypes.c_void_p()
        call("cuGetProcAddress_v2", name, ctypes.byref(out), 13000, ctypes.c_uint64(0), None)
        found[name] = out.value
    assert found[b"cuMemAlloc"] == ctypes.cast(cuda.cuMemAlloc_v2, ctypes.c_void_p).value
    assert ctypes.CFUNCTYPE(ctypes.c_int)(found[b"cuNobodyWroteThis"])() == 801  # CUDA_ERROR_NOT_SUPPORTED


def try_what_is_wrong_is_said():
    _, add = load()
    x = made("cuMemAlloc_v2", ctypes.c_size_t(100))
    for n, words in ((26, ("CUDA_ERROR_ILLEGAL_ADDRESS", "byte 100 of device memory, which has 100", "thread (25, 0, 0)")),):
        try:
            launch(add, x, n)
        except Failed as error:
            assert all(word in str(error) for word in words), error
        else:
            raise AssertionError("nothing was said")
    launch(add, x, 25)
    host = (ctypes.c_char * 128)()
    refused("cuMemcpyDtoH_v2", host, x, ctypes.c_size_t(101), word="leave device memory")
    refused("cuMemcpyDtoH_v2", host, ctypes.c_void_p(64), ctypes.c_size_t(8), word="CUDA_ERROR_INVALID_VALUE")
    refused("cuMemAlloc_v2", ctypes.byref(x), ctypes.c_size_t(1 << 50), word="CUDA_ERROR_OUT_OF_MEMORY")
    refused("cuModuleLoadData", ctypes.byref(x), PTX.replace(b"add.u32", b"add.u33"), word="CUDA_ERROR_INVALID_PTX")
    refused("cuModuleLoadData", ctypes.byref(x), b"\x7fELF" + bytes(100), word="a cubin without its PTX")
    refused("cuModuleGetFunction", ctypes.byref(x), load()[0], b"ad", word="CUDA_ERROR_NOT_FOUND")
    refused("cuDeviceGet", ctypes.byref(x), 1, word="CUDA_ERROR_INVALID_DEVICE")
    refused("cuStreamSynchronize", ctypes.c_void_p(12345), word="CUDA_ERROR_INVALID_HANDLE")
    try:
        launch(add, x, 1, shared=60000)
    except Failed as error:
        assert "opted in to 49152" in str(error) and "MaxDynamicSharedMemorySize, 60000)" in str(error), error
    else:
        raise AssertionError("nothing was said")
    try:
        launch(add, x, 1, shared=300000)
    except Failed as error:
        assert "more than the 232448 of sm_90" in str(error) and "opted" not in str(error), error
    else:
        raise AssertionError("nothing was said")
    call("cuFuncSetAttribute", add, 8, 60000)
    launch(add, x, 1, shared=60000)
    call("cuFuncSetAttribute", add, 8, 50000)  # what was allowed before is not any more
    try:
        launch(add, x, 1, shared=60000)
    except Failed as error:
        assert "opted in to 50000" in str(error), error
    else:
        raise AssertionError("nothing was said")


def try_memory_of_the_device_is_counted():
    def left():
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value

    before = left()
    x, host = made("cuMemAlloc_v2", ctypes.c_size_t(1000)), made("cuMemAllocHost_v2", ctypes.c_size_t(500))
    assert left() == before - 1000
    call("cuMemFreeHost", host)
    call("cuMemFree_v2", x)
    assert left() == before


HEAP = (
    PTX.partition(b".visible .global")[0]
    + b"""
.extern .func (.param .b64 out) malloc(.param .b64 n);
.extern .func free(.param .b64 p);
.visible .entry chain(.param .u64 x, .param .u32 n)
{
    .reg .pred %p<3>;
    .reg .b32 %r<6>;
    .reg .b64 %rd<8>;
    mov.u32 %r1, %tid.x;
    mov.u32 %r3, 0;
$next:
    add.u32 %r2, %r1, %r3;
    mul.wide.u32 %rd1, %r2, 3;
    { .param .b64 a; st.param.b64 [a], %rd1; .param .b64 b; call (b), malloc, (a); ld.param.b64 %rd2, [b]; }
    st.u32 [%rd2], %r2;
    bar.sync 0;
    ld.u32 %r4, [%rd2];
    setp.ne.u32 %p1, %r4, %r2;
    @%p1 trap;
    { .param .b64 a; st.param.b64 [a], %rd2; call free, (a); }
    add.u32 %r3, %r3, 1;
    setp.lt.u32 %p2, %r3, 300;
    @%p2 bra $next;
    ld.param.u64 %rd3, [x];
    mul.wide.u32 %rd4, %r1, 4;
    add.u64 %rd3, %rd3, %rd4;
    st.u32 [%rd3], %r3;
    ret;
}
"""
)


def try_memory_of_kernels():
    """Ten times what the heap has room for, given back each time."""
    module = made("cuModuleLoadData", HEAP)
    chain = made("cuModuleGetFunction", module, b"chain")
    x = made("cuMemAlloc_v2", ctypes.c_size_t(1024))
    launch(chain, x, 256, block=256)
    host = (ctypes.c_uint32 * 256)()
    call("cuMemcpyDtoH_v2", host, x, ctypes.c_size_t(1024))
    assert [*host] == [300] * 256
