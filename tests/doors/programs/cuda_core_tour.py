"""A program of cuda.core's users: every function beginning with `try_` runs kernels and checks what they left."""

import numpy as np
from cuda.core import (
    Device,
    DeviceMemoryResource,
    EventOptions,
    LaunchConfig,
    LegacyPinnedMemoryResource,
    Linker,
    LinkerOptions,
    ObjectCode,
    Program,
    ProgramOptions,
    launch,
)  # fmt: skip
from cuda.core.utils import StridedMemoryView

device = Device()
device.set_current()
stream = device.create_stream()

SCALE = """
template <typename T> __global__ void scale(T* x, T a, size_t n) {
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) x[i] *= a;
}
"""


def pinned(values):
    buffer = LegacyPinnedMemoryResource().allocate(values.nbytes)
    view = np.from_dlpack(buffer).view(values.dtype)
    view[:] = values
    return buffer, view


def run(kernel, values, *more, grid=2, block=64):
    """Values after a kernel went over them on the device."""
    host, view = pinned(values)
    there = device.allocate(values.nbytes, stream=stream)
    host.copy_to(there, stream=stream)
    launch(stream, LaunchConfig(grid=grid, block=block), kernel, there, *more)
    there.copy_to(host, stream=stream)
    stream.sync()
    there.close(stream)
    return view


def try_device():
    assert device.compute_capability == (9, 0) and device.arch == "90" and "H100" in device.name
    assert device.properties.multiprocessor_count == 132 and device.properties.warp_size == 32
    assert len(device.uuid) == 36 and Device().device_id == 0


def try_templates():
    for target in ("ptx", "cubin"):
        names = ("scale<float>", "scale<double>")
        program = Program(SCALE, "c++", ProgramOptions(std="c++17", arch=f"sm_{device.arch}"))
        module = program.compile(target, name_expressions=names)
        for name, dtype in zip(names, (np.float32, np.float64)):
            kernel = module.get_kernel(name)
            assert kernel.num_arguments == 3 and kernel.attributes.max_threads_per_block == 1024
            x = np.arange(1000, dtype=dtype)
            assert (run(kernel, x, dtype(3), np.uint64(1000)) == 3 * x).all()


def try_ptx():
    ptx = """
    .version 8.0
    .target sm_80
    .address_size 64
    .visible .entry squares(.param .u64 out)
    {
        .reg .b32 %r<3>;
        .reg .b64 %rd<3>;
        ld.param.u64 %rd1, [out];
        mov.u32 %r1, %tid.x;
        mul.wide.u32 %rd2, %r1, 4;
        add.s64 %rd2, %rd1, %rd2;
        mul.lo.u32 %r2, %r1, %r1;
        st.global.u32 [%rd2], %r2;
        ret;
    }
    """
    kernel = ObjectCode.from_ptx(ptx.encode()).get_kernel("squares")
    assert (run(kernel, np.zeros(64, np.int32), grid=1) == np.arange(64) ** 2).all()


def try_linker():
    options = ProgramOptions(arch=f"sm_{device.arch}", relocatable_device_code=True)
    caller = 'extern "C" __device__ int f(int); extern "C" __global__ void k(int* x) { x[threadIdx.x] = f(threadIdx.x); }'
    callee = 'static __device__ int t[3] = {1, 2, 3}; extern "C" __device__ int f(int a) { return a * a + t[a % 3]; }'
    parts = [Program(text, "c++", options).compile("ptx") for text in (caller, callee)]
    kernel = Linker(*parts, options=LinkerOptions(arch=f"sm_{device.arch}")).link("cubin").get_kernel("k")
    n = np.arange(32)
    assert (run(kernel, np.zeros(32, np.int32), grid=1, block=32) == n * n + n % 3 + 1).all()


def try_link_time_optimisation():
    options = ProgramOptions(arch=f"sm_{device.arch}", link_time_optimization=True)
    caller = 'extern "C" __device__ int f(int); extern "C" __global__ void k(int* x) { x[threadIdx.x] = f(threadIdx.x); }'
    parts = [
        Program(t, "c++", options).compile("ltoir") for t in (caller, 'extern "C" __device__ int f(int a) { return 3 * a; }')
    ]
    linked = Linker(*parts, options=LinkerOptions(arch=f"sm_{device.arch}", link_time_optimization=True)).link("cubin")
    assert (run(linked.get_kernel("k"), np.zeros(32, np.int32), grid=1, block=32) == 3 * np.arange(32)).all()


def try_events_and_streams():
    other = device.create_stream()
    kernel = Program(SCALE, "c++", ProgramOptions(arch=f"sm_{device.arch}")).compile(
        "cubin", name_expressions=("scale<float>",)).get_kernel("scale<float>")  # fmt: skip
    there = device.allocate(400, stream=stream)
    timed = EventOptions(timing_enabled=True) if "timing_enabled" in EventOptions.__dataclass_fields__ else EventOptions(
        enable_timing=True)  # fmt: skip
    start = stream.record(options=timed)
    launch(stream, LaunchConfig(grid=1, block=100), kernel, there, np.float32(2), np.uint64(100))
    end = stream.record(options=timed)
    other.wait(end)
    end.sync()
    assert end.is_done and end - start > 0


def try_memory_and_views():
    pool = DeviceMemoryResource(device)
    buffer = pool.allocate(256, stream=stream)
    buffer.fill(np.uint8(7), stream=stream)
    host, view = pinned(np.zeros(256, np.uint8))
    buffer.copy_to(host, stream=stream)
    stream.sync()
    assert (view == 7).all() and buffer.size == 256 and buffer.device_id == 0

    class Array:
        __cuda_array_interface__ = {"shape": (64,), "typestr": "<f4", "data": (int(buffer.handle), False), "version": 3}  # noqa: RUF012

    seen = StridedMemoryView.from_any_interface(Array(), stream_ptr=-1)
    assert seen.ptr == int(buffer.handle) and seen.shape == (64,) and seen.dtype == np.float32 and seen.is_device_accessible


def try_clusters():
    code = """
    extern "C" __global__ void ranks(unsigned* o) {
        unsigned rank, size;
        asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
        asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
        o[blockIdx.x] = 100 * rank + size;
    }
    """
    kernel = Program(code, "c++", ProgramOptions(arch=f"sm_{device.arch}")).compile("cubin").get_kernel("ranks")
    there = device.allocate(32, stream=stream)
    config = LaunchConfig(grid=2, cluster=4, block=32)  # the grid counts clusters
    launch(stream, config, kernel, there)
    host, view = pinned(np.zeros(8, np.uint32))
    there.copy_to(host, stream=stream)
    assert view.tolist() == [4, 104, 204, 304] * 2


def try_tensor_maps():
    if not hasattr(StridedMemoryView, "as_tensor_map"):
        return  # an older cuda.core
    code = """
    struct alignas(64) CUtensorMap { char bytes[128]; };
    extern "C" __global__ void box(const __grid_constant__ CUtensorMap map, float* out, int x, int y) {
        __shared__ alignas(128) float tile[8][16];
        __shared__ unsigned long long bar;
        unsigned at = (unsigned)__cvta_generic_to_shared(&bar), to = (unsigned)__cvta_generic_to_shared(tile), done = 0;
        if (threadIdx.x == 0) {
            asm volatile("mbarrier.init.shared.b64 [%0], 1;" :: "r"(at) : "memory");
            asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
            asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], 512;" :: "r"(at) : "memory");
            asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
                :: "r"(to), "l"(&map), "r"(x), "r"(y), "r"(at) : "memory");
        }
        __syncthreads();
        while (!done)
            asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }"
                : "=r"(done) : "r"(at) : "memory");
        out[threadIdx.x] = tile[threadIdx.x / 16][threadIdx.x % 16];
    }
    """
    options = ProgramOptions(arch=f"sm_{device.arch}", std="c++17")
    kernel = Program(code, "c++", options).compile("cubin").get_kernel("box")
    x = np.arange(800, dtype=np.float32)
    host, _ = pinned(x)
    there, out = device.allocate(x.nbytes, stream=stream), device.allocate(512, stream=stream)
    host.copy_to(there, stream=stream)
    view = StridedMemoryView.from_buffer(there, (20, 40), dtype=np.dtype(np.float32))
    made = view.as_tensor_map((8, 16))
    launch(stream, LaunchConfig(grid=1, block=128), kernel, made, out, np.int32(-4), np.int32(15))
    back, seen = pinned(np.zeros(128, np.float32))
    out.copy_to(back, stream=stream)
    wide = np.zeros((23, 44), np.float32)
    wide[:20, 4:] = x.reshape(20, 40)
    assert (seen.reshape(8, 16) == wide[15:, :16]).all()


def try_cooperative_launch():
    code = """
    #include <cooperative_groups.h>
    extern "C" __global__ void k(int* x) {
        x[blockIdx.x] = blockIdx.x;
        cooperative_groups::this_grid().sync();
        if (blockIdx.x == 0) { int s = 0; for (int i = 0; i < gridDim.x; i++) s += x[i]; x[0] = s; }
    }
    """
    try:
        program = Program(code, "c++", ProgramOptions(arch=f"sm_{device.arch}"))
        kernel = program.compile("cubin").get_kernel("k")
    except Exception as error:
        assert "cooperative_groups.h" in str(error), error  # the headers of CUDA are not installed here
        return
    there = device.allocate(4 * 16, stream=stream)
    host, view = pinned(np.zeros(16, np.int32))
    launch(stream, LaunchConfig(grid=16, block=32, is_cooperative=True), kernel, there)
    there.copy_to(host, stream=stream)
    assert view[0] == 120


def try_graph():
    kernel = Program(SCALE, "c++", ProgramOptions(arch=f"sm_{device.arch}")).compile(
        "ptx", name_expressions=("scale<float>",)).get_kernel("scale<float>")  # fmt: skip
    there = device.allocate(40, stream=stream)
    host, view = pinned(np.arange(10, dtype=np.float32))
    host.copy_to(there, stream=stream)
    own = device.create_stream()
    builder = own.create_graph_builder()
    builder.begin_building()
    launch(builder, LaunchConfig(grid=1, block=32), kernel, there, np.float32(2), np.uint64(10))
    graph = builder.end_building().complete()
    there.copy_to(host, stream=stream)
    assert view.tolist() == list(range(10))  # recorded, and not run
    graph.launch(own)
    graph.launch(own)
    there.copy_to(host, stream=stream)
    assert view.tolist() == [4 * n for n in range(10)]


def try_errors():
    kernel = Program(SCALE, "c++", ProgramOptions(arch=f"sm_{device.arch}")).compile(
        "ptx", name_expressions=("scale<float>",)).get_kernel("scale<float>")  # fmt: skip
    there = device.allocate(40, stream=stream)
    for arguments, word in (((there, np.float32(2), np.uint64(11)), "byte 40 of device memory, which has 40"),):
        try:
            launch(stream, LaunchConfig(grid=1, block=32), kernel, *arguments)
        except Exception as error:
            assert word in str(error) and "CUDA_ERROR_ILLEGAL_ADDRESS" in str(error), error
        else:
            raise AssertionError("nothing was raised")
