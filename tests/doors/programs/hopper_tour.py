"""A program that calls CUDA's driver as C programs do, for what Hopper has: tensor maps and clusters."""

import ctypes
import struct

cuda = ctypes.CDLL("libcuda.so.1")
HEAD = b".version 8.0\n.target sm_90\n.address_size 64\n"
RANKS = b"""
.visible .entry NAME(.param .u64 out) ORDER
{
    .reg .b32 %r<4>;
    .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [out];
    mov.u32 %r1, %cluster_ctarank;
    mov.u32 %r2, %cluster_nctarank;
    mad.lo.s32 %r1, %r1, 100, %r2;
    mov.u32 %r3, %ctaid.x;
    mul.wide.u32 %rd2, %r3, 4;
    add.s64 %rd1, %rd1, %rd2;
    st.global.u32 [%rd1], %r1;
    ret;
}
"""
# Loads the box at (x, y) and stores its first 128 words.
BOX = b"""
.visible .entry box(.param .align 64 .b8 map[128], .param .u64 out, .param .u32 x, .param .u32 y)
{
    .reg .pred %p<3>;
    .reg .b32 %r<8>;
    .reg .b64 %rd<6>;
    .shared .align 128 .b8 tile[512];
    .shared .align 8 .b64 bar;
    mov.b64 %rd1, map;
    cvta.param.u64 %rd1, %rd1;
    ld.param.u64 %rd2, [out];
    ld.param.u32 %r1, [x];
    ld.param.u32 %r2, [y];
    mov.u32 %r3, %tid.x;
    mov.u32 %r4, tile;
    mov.u32 %r5, bar;
    setp.ne.u32 %p1, %r3, 0;
    @%p1 bra $wait;
    mbarrier.init.shared.b64 [%r5], 1;
    fence.proxy.async.shared::cta;
    mbarrier.arrive.expect_tx.shared.b64 _, [%r5], 512;
    cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r4], [%rd1, {%r1, %r2}], [%r5];
$wait:
    bar.sync 0;
$again:
    mbarrier.try_wait.parity.shared.b64 %p2, [%r5], 0;
    @!%p2 bra $again;
    shl.b32 %r6, %r3, 2;
    add.u32 %r4, %r4, %r6;
    ld.shared.u32 %r7, [%r4];
    cvt.u64.u32 %rd3, %r6;
    add.u64 %rd2, %rd2, %rd3;
    st.global.u32 [%rd2], %r7;
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


def refused(name, *args, word):
    try:
        call(name, *args)
    except Failed as error:
        assert word in str(error), error
    else:
        raise AssertionError(f"{name} was not refused")


def made(name, *args):
    out = ctypes.c_void_p()
    call(name, ctypes.byref(out), *args)
    return out


def words(numbers, letter="I"):
    """An array of integers in memory."""
    return ctypes.create_string_buffer(struct.pack(f"<{len(numbers)}{letter}", *numbers))


call("cuInit", 0)
call("cuCtxPushCurrent_v2", made("cuDevicePrimaryCtxRetain", 0))


def kernel(text, name, order=b""):
    module = made("cuModuleLoadData", HEAD + text.replace(b"NAME", name).replace(b"ORDER", order))
    return made("cuModuleGetFunction", module, name)


def launch(function, grid, block, values, cluster=None, shared=0, how="cuLaunchKernelEx"):
    pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(v) for v in values))
    attributes = ctypes.create_string_buffer(72)
    if cluster:
        struct.pack_into("<2I3I", attributes, 0, 4, 0, *cluster)
    config = ctypes.create_string_buffer(56)
    count = int(cluster is not None)
    struct.pack_into("<7I4xQQI", config, 0, grid, 1, 1, block, 1, 1, shared, 0, ctypes.addressof(attributes), count)
    if how == "cuLaunchKernelEx":
        call(how, config, function, pointers, None)
        return None
    out = ctypes.c_int()
    call(how, ctypes.byref(out), function, config)
    return out.value


def back(memory, count):
    host = (ctypes.c_uint32 * count)()
    call("cuMemcpyDtoH_v2", host, memory, ctypes.c_size_t(4 * count))
    return [*host]


def try_clusters():
    out = made("cuMemAlloc_v2", ctypes.c_size_t(64))
    plain, twos = kernel(RANKS, b"plain"), kernel(RANKS, b"twos", b".explicitcluster .reqnctapercluster 2, 1, 1")
    launch(plain, 16, 1, [out], (4, 1, 1))
    assert back(out, 16) == [4, 104, 204, 304] * 4
    launch(twos, 16, 1, [out])
    assert back(out, 16) == [2, 102] * 8
    launch(plain, 16, 1, [out])
    assert back(out, 16) == [1] * 16
    extent = [ctypes.c_int() for _ in range(3)]
    for number, place in zip((11, 12, 13), extent):
        call("cuFuncGetAttribute", ctypes.byref(place), number, twos)
    assert [e.value for e in extent] == [2, 1, 1]
    refused("cuFuncSetAttribute", twos, 11, 4, word="CUDA_ERROR_NOT_PERMITTED")
    for grid, cluster, word in ((15, (2, 1, 1), "no multiple"), (16, (16, 1, 1), "8 are portable"), (32, (32, 1, 1), "1 to 16")):
        try:
            launch(plain, grid, 1, [out], cluster)
        except Failed as error:
            assert "CUDA_ERROR_INVALID_CLUSTER_SIZE" in str(error) and word in str(error), error
        else:
            raise AssertionError("nothing was said")
    call("cuFuncSetAttribute", plain, 14, 1)
    launch(plain, 16, 1, [out], (16, 1, 1))
    assert back(out, 16) == [100 * n + 16 for n in range(16)]
    call("cuFuncSetAttribute", plain, 11, 8)
    for number in (12, 13):
        call("cuFuncSetAttribute", plain, number, 1)
    launch(plain, 16, 1, [out])
    assert back(out, 16) == [100 * n + 8 for n in range(8)] * 2


def try_occupancy_of_clusters():
    plain = kernel(RANKS, b"plain")
    call("cuFuncSetAttribute", plain, 8, 200 << 10)
    held = [launch(plain, 16, 128, [], (n, 1, 1), 200 << 10, "cuOccupancyMaxActiveClusters") for n in (1, 2, 8)]
    assert held == [132, 66, 15]
    assert launch(plain, 16, 128, [], None, 0, "cuOccupancyMaxPotentialClusterSize") == 8
    call("cuFuncSetAttribute", plain, 14, 1)
    assert launch(plain, 16, 128, [], None, 0, "cuOccupancyMaxPotentialClusterSize") == 16


def aligned():
    """Room for a tensor map, and its address."""
    room = ctypes.create_string_buffer(256)
    return room, ctypes.c_void_p(ctypes.addressof(room) + -ctypes.addressof(room) % 64)


def tiled(address, sizes=(40, 20), strides=(160,), box=(16, 8), steps=(1, 1), swizzle=0, fill=0):
    """Of words: arguments of cuTensorMapEncodeTiled, with the room at their end."""
    room, place = aligned()
    extents = words(sizes, "Q"), words(strides, "Q"), words(box), words(steps)
    return (place, 2, len(sizes), address, *extents, 0, swizzle, 0, fill), room


def try_tensor_maps():
    x, out = made("cuMemAlloc_v2", ctypes.c_size_t(3200)), made("cuMemAlloc_v2", ctypes.c_size_t(512))
    call("cuMemcpyHtoD_v2", x, words(range(800)), ctypes.c_size_t(3200))
    asked, room = tiled(x)
    call("cuTensorMapEncodeTiled", *asked)
    box = kernel(BOX, b"box")
    given = [(ctypes.c_char * 128).from_address(asked[0].value), out]
    launch(box, 1, 128, [*given, ctypes.c_uint32(4), ctypes.c_uint32(2)])
    assert back(out, 128) == [40 * row + column for row in range(2, 10) for column in range(4, 20)]
    launch(box, 1, 128, [*given, ctypes.c_int32(-8), ctypes.c_uint32(16)])
    inside = [[0] * 8 + [40 * row + column for column in range(8)] if row < 20 else [0] * 16 for row in range(16, 24)]
    assert back(out, 128) == [word for row in inside for word in row]
    call("cuTensorMapReplaceAddress", asked[0], ctypes.c_void_p(x.value + 160))
    launch(box, 1, 128, [(ctypes.c_char * 128).from_address(asked[0].value), out, ctypes.c_uint32(0), ctypes.c_uint32(0)])
    assert back(out, 16) == [*range(40, 56)]
    refused("cuTensorMapReplaceAddress", asked[0], ctypes.c_void_p(x.value + 4), word="multiple of 16 bytes")
    del room


def try_images():
    room, place = aligned()
    x = made("cuMemAlloc_v2", ctypes.c_size_t(4 * 2 * 8 * 8 * 16))
    call("cuTensorMapEncodeIm2col", place, 7, 4, x, words((16, 8, 8, 2), "Q"), words((64, 512, 4096), "Q"), words((-1, -1), "i"),
         words((1, 1), "i"), 16, 32, words((1, 1, 1, 1)), 0, 2, 0, 1)  # fmt: skip
    assert any(ctypes.string_at(place, 128))
    del room


def try_maps_that_the_driver_refuses():
    x = made("cuMemAlloc_v2", ctypes.c_size_t(3200))
    for changes, word in (({"strides": (164,)}, "globalStrides[0] is 164 bytes: it must be a multiple of 16"),
                          ({"box": (300, 1)}, "boxDim[0] is 300: it must be 1 to 256"), ({"box": (1, 300)}, "boxDim[1] is 300"),
                          ({"box": (3, 1)}, "boxDim[0] is 3"),
                          ({"swizzle": 9}, "swizzle is 9"), ({"fill": 1}, "oobFill is nan")):  # fmt: skip
        asked, room = tiled(x, **changes)
        refused("cuTensorMapEncodeTiled", *asked, word="CUDA_ERROR_INVALID_VALUE")
        refused("cuTensorMapEncodeTiled", *asked, word=word)
        del room
    asked, room = tiled(x)
    refused("cuTensorMapEncodeTiled", None, *asked[1:], word="tensorMap is a null pointer")
    refused("cuTensorMapEncodeTiled", asked[0], 2, 6, *asked[3:], word="1 to 5 dimensions")
    refused("cuTensorMapEncodeTiled", *asked[:4], None, *asked[5:], word="globalDim is a null pointer")
    del room
