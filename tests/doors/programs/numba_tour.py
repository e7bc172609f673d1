"""A program of Numba-CUDA's users: every function beginning with `try_` runs kernels and checks what they left."""

import math

import numpy as np
from numba import cuda, float32, guvectorize, int32, vectorize
from numba.cuda import libdevice


def try_lazy_kernel():
    @cuda.jit
    def axpy(a, x, y):
        i = cuda.grid(1)
        if i < x.size:
            y[i] = a * x[i] + y[i]

    x, y = np.arange(1000, dtype=np.float32), np.ones(1000, np.float32)
    axpy[8, 128](np.float32(2), x, y)
    assert (y == 2 * np.arange(1000) + 1).all()
    axpy.forall(1000)(np.float64(2), x.astype(np.float64), y)  # another signature
    assert (y == 4 * np.arange(1000) + 1).all()


def try_signature_and_arrays():
    @cuda.jit("void(float64[:, :], float64[:, ::1])")
    def transpose(a, out):
        i, j = cuda.grid(2)
        if i < out.shape[0] and j < out.shape[1]:
            out[i, j] = a[j, i]

    a = np.random.default_rng(1).random((7, 13))
    there = cuda.to_device(a)
    out = cuda.device_array((13, 7), np.float64)
    transpose[(2, 2), (8, 8)](there, out)
    assert (out.copy_to_host() == a.T).all()
    assert (there[2:5].copy_to_host() == a[2:5]).all()


def try_shared_memory():
    @cuda.jit
    def backwards(x, y):
        still = cuda.shared.array(64, float32)
        moving = cuda.shared.array(0, float32)
        i = cuda.threadIdx.x
        still[i] = x[i]
        moving[63 - i] = x[i]
        cuda.syncthreads()
        y[i] = still[63 - i] + moving[i]

    x, y = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    backwards[1, 64, 0, 64 * 4](x, y)
    assert (y == 2 * x[::-1]).all()


def try_constant_and_local_arrays():
    table = np.array([3, 1, 4, 1, 5], np.int32)

    @cuda.jit
    def kernel(out):
        fixed = cuda.const.array_like(table)
        mine = cuda.local.array(5, int32)
        i = cuda.grid(1)
        for k in range(5):
            mine[k] = fixed[(i + k) % 5]
        out[i] = mine[0] * 10 + mine[4]

    out = np.zeros(10, np.int32)
    kernel[1, 10](out)
    assert (out == table[np.arange(10) % 5] * 10 + table[(np.arange(10) + 4) % 5]).all()


def try_streams_and_events():
    @cuda.jit
    def spin(x, n):
        for _ in range(n):
            x[cuda.threadIdx.x] += 1

    stream = cuda.stream()
    start, end = cuda.event(), cuda.event()
    with cuda.pinned(np.zeros(4)):
        x = cuda.to_device(np.zeros(32, np.int64), stream)
        start.record(stream)
        spin[1, 32, stream](x, 1000)
        end.record(stream)
        end.synchronize()
    got = x.copy_to_host(stream=stream)
    stream.synchronize()
    assert (got == 1000).all() and cuda.event_elapsed_time(start, end) > 0


def try_kinds_of_memory():
    @cuda.jit
    def double(x):
        x[cuda.threadIdx.x] *= 2

    for make in (cuda.mapped_array, cuda.managed_array):
        x = make(16, np.float32)
        x[:] = np.arange(16)
        double[1, 16](x)
        cuda.synchronize()
        assert (x == 2 * np.arange(16)).all()
    pinned = cuda.pinned_array(16, np.float32)
    pinned[:] = 3
    assert (cuda.to_device(pinned).copy_to_host() == 3).all()
    mine = np.arange(16, dtype=np.float32)
    with cuda.mapped(mine) as there:
        double[1, 16](there)
    assert (mine == 2 * np.arange(16)).all()


def try_atomics():
    @cuda.jit
    def kernel(x, counts, most, low):
        i = cuda.grid(1)
        cuda.atomic.add(counts, x[i] % 8, 1)
        cuda.atomic.max(most, 0, x[i])
        cuda.atomic.min(low, 0, float32(x[i]))
        cuda.atomic.cas(counts[8:], 0, 0, 7)

    x = np.random.default_rng(2).integers(0, 1000, 512)
    counts, most, low = np.zeros(9, np.int64), np.zeros(1, np.int64), np.full(1, 1e9, np.float32)
    kernel[4, 128](x, counts, most, low)
    assert (counts[:8] == np.bincount(x % 8, minlength=8)).all() and counts[8] == 7
    assert most[0] == x.max() and low[0] == x.min()


def try_warp_intrinsics():
    @cuda.jit
    def kernel(x, total, votes, lanes):
        i = cuda.threadIdx.x
        v = x[i]
        for step in (16, 8, 4, 2, 1):
            v += cuda.shfl_down_sync(0xFFFFFFFF, v, step)
        if i == 0:
            total[0] = v
        votes[i] = cuda.ballot_sync(0xFFFFFFFF, x[i] % 3 == 0)
        lanes[i] = cuda.laneid + cuda.popc(cuda.activemask())

    x = np.arange(32, dtype=np.int32) + 5
    total, votes, lanes = np.zeros(1, np.int32), np.zeros(32, np.uint32), np.zeros(32, np.int32)
    kernel[1, 32](x, total, votes, lanes)
    assert total[0] == x.sum() and (lanes == np.arange(32) + 32).all()
    assert (votes == sum(1 << n for n in range(32) if x[n] % 3 == 0)).all()


def try_grid_sync():
    @cuda.jit
    def prefix(x, y):
        grid, i = cuda.cg.this_grid(), cuda.grid(1)
        step = 1
        while step < x.size:
            y[i] = x[i] + (x[i - step] if i >= step else 0)
            grid.sync()
            x[i] = y[i]
            grid.sync()
            step *= 2

    x = np.random.default_rng(3).integers(0, 100, 1024)
    there = cuda.to_device(x)
    prefix[8, 128](there, cuda.device_array_like(there))
    assert (there.copy_to_host() == x.cumsum()).all()


def try_mathematics():
    @cuda.jit
    def kernel(x, out):
        i = cuda.grid(1)
        out[i, 0] = math.sin(x[i]) ** 2 + math.cos(x[i]) ** 2
        out[i, 1] = math.exp(math.log(x[i]))
        out[i, 2] = libdevice.rsqrt(x[i]) * math.sqrt(x[i])
        out[i, 3] = cuda.fma(x[i], x[i], -x[i] * x[i])

    x = np.random.default_rng(4).random(64) + 0.5
    out = np.zeros((64, 4))
    kernel[2, 32](x, out)
    assert np.abs(out[:, :2] / np.stack([np.ones(64), x], 1) - 1).max() < 1e-15
    assert np.abs(out[:, 2] - 1).max() < 1e-15 and np.abs(out[:, 3]).max() < 1e-15


def try_printing():
    @cuda.jit
    def hello(x):
        if cuda.threadIdx.x < 2:
            print("thread", cuda.threadIdx.x, "has", x[cuda.threadIdx.x])

    hello[1, 4](np.array([2.5, 3.5]))
    cuda.synchronize()


def try_exceptions():
    @cuda.jit(debug=True, opt=False)
    def picky(x):
        i = cuda.grid(1)
        if x[i] > 10:
            raise ValueError("too large")
        assert x[i] != 7, "seven"

    picky[1, 4](np.arange(4))
    for bad, error, word in ((11, ValueError, "too large"), (7, AssertionError, "seven")):
        try:
            picky[1, 4](np.array([0, 1, bad, 2]))
        except error as caught:
            assert word in str(caught) and "tid=" in str(caught)
        else:
            raise AssertionError("nothing was raised")


def try_device():
    device = cuda.get_current_device()
    assert cuda.is_available() and len(cuda.gpus) == 1 and device.compute_capability == (9, 0)
    assert device.MAX_THREADS_PER_BLOCK == 1024 and device.WARP_SIZE == 32 and device.MULTIPROCESSOR_COUNT == 132
    assert b"H100" in device.name.encode() and cuda.select_device(0) is not None
    free, total = cuda.current_context().get_memory_info()
    assert 0 < free <= total
    assert cuda.detect()


def try_device_functions_and_sources():
    twice = cuda.declare_device("twice", "int32(int32)", link=cuda.CUSource('extern "C" __device__ int '
                                'twice(int* out, int x) { *out = 2 * x; return 0; }'))  # fmt: skip

    @cuda.jit(device=True)
    def plus(a, b):
        return a + b

    @cuda.jit
    def kernel(x):
        i = cuda.grid(1)
        x[i] = plus(twice(x[i]), 1)

    x = np.arange(40, dtype=np.int32)
    kernel[2, 20](x)
    assert (x == 2 * np.arange(40) + 1).all()


def try_ufuncs_and_reduction():
    @vectorize(["float32(float32, float32)", "float64(float64, float64)"], target="cuda")
    def hypot(a, b):
        return math.sqrt(a * a + b * b)

    @guvectorize(["void(float64[:], float64[:], float64[:])"], "(n),(n)->()", target="cuda")
    def dot(a, b, out):
        total = 0.0
        for k in range(a.size):
            total += a[k] * b[k]
        out[0] = total

    a, b = np.random.default_rng(5).random((2, 6, 50))
    assert np.allclose(hypot(a, b), np.hypot(a, b), rtol=1e-15) and np.allclose(dot(a, b), (a * b).sum(1), rtol=1e-14)
    largest = cuda.reduce(lambda x, y: x if x > y else y)
    x = np.random.default_rng(6).integers(0, 10**6, 5000)
    assert largest(x) == x.max()


class Foreign:
    """An array of another library, as Numba sees it."""

    def __init__(self, there):
        self.__cuda_array_interface__ = there.__cuda_array_interface__
        self.there = there


def try_array_interface():
    @cuda.jit
    def negate(x):
        x[cuda.threadIdx.x] = -x[cuda.threadIdx.x]

    x = cuda.to_device(np.arange(8.0))
    negate[1, 8](Foreign(x))
    assert (cuda.as_cuda_array(Foreign(x)).copy_to_host() == -np.arange(8.0)).all()


def try_generated_assembly():
    @cuda.jit("void(float32[::1])")
    def kernel(x):
        x[cuda.threadIdx.x] += 1

    ptx = next(iter(kernel.inspect_asm().values()))
    assert ".visible .entry" in ptx and kernel.get_regs_per_thread() > 0


def try_out_of_bounds():
    @cuda.jit
    def kernel(n, pair, x):
        pair[1][0] = n
        x[cuda.threadIdx.x * 1000] = 1

    there = np.zeros(2)
    try:
        kernel[1, 32](3, (1, there), np.zeros(8))
    except Exception as error:
        text = str(error)
        assert "out of bounds" in text and "thread (1, 0, 0)" in text, text
        assert "argument 2 (x), which has 64" in text and "\n    x[cuda.threadIdx.x * 1000] = 1\n" in text, text
        assert "\n  launch: numba_tour.py:" in text and ": kernel[1, 32](3, (1, there), np.zeros(8))\n" in text, text
    else:
        raise AssertionError("nothing was raised")
    try:
        kernel[1, 1](3, (1, np.zeros(0)), np.zeros(1))
    except Exception as error:
        assert "argument 1 (pair), item 1" in str(error) or "null" in str(error), error
    x = np.zeros(1)
    kernel[1, 1](3, (1, there), x)
    cuda.jit(lambda x, nothing: None)[1, 1](x, ((), ()))  # a type that Numba cannot give lines for
    assert x[0] == 1  # and the next kernel runs
