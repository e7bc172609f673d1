"""A program of CuPy's users: every function beginning with `try_` runs kernels and checks what they left."""

import cupy as cp
import numpy as np


def try_raw_kernel():
    saxpy = cp.RawKernel(
        r"""
        extern "C" __global__ void saxpy(float a, const float* x, float* y, int n) {
            int i = blockDim.x * blockIdx.x + threadIdx.x;
            if (i < n) y[i] = a * x[i] + y[i];
        }
        """, "saxpy")  # fmt: skip
    x = cp.arange(1000, dtype=cp.float32).reshape(10, 100)
    y = cp.ones((10, 100), dtype=cp.float32)
    saxpy((8,), (128,), (cp.float32(2), x, y, cp.int32(1000)))
    assert (cp.asnumpy(y) == 2 * np.arange(1000).reshape(10, 100) + 1).all()
    assert saxpy.max_threads_per_block == 1024
    saxpy((8,), (128,), (cp.float32(-2), x, y, 1000))  # CuPy passes 8 bytes, and the kernel reads the low four
    assert (y.get() == 1).all()
    for wrong, args in ((0, (2.0, x, y, 1000)), (3, (cp.float32(2), x, y, 1 << 32)), (0, (2, x, y, 1000))):
        try:
            saxpy((8,), (128,), args)
        except Exception as error:
            assert f"argument {wrong}" in str(error) and "numpy.float32" in str(error), error
        else:
            raise AssertionError("nothing was said")


def try_questions_about_the_device():
    runtime, found = cp.cuda.runtime, cp.cuda.device.get_compute_capability()
    known = runtime.getDeviceProperties(runtime.getDevice())
    assert found == cp.cuda.Device().compute_capability == f"{known['major']}{known['minor']}"
    assert runtime.getDeviceCount() == 1 and runtime.runtimeGetVersion() >= 12000 <= runtime.driverGetVersion()
    assert runtime.memGetInfo()[1] == known["totalGlobalMem"] and runtime.setDevice(0) is None
    assert runtime.deviceGetAttribute(16, 0) == known["multiProcessorCount"]


def try_raw_module():
    code = """
    template <typename T> __global__ void scale(T* x, T a) { x[threadIdx.x] *= a; }
    __constant__ float weights[4];
    extern "C" __global__ void weigh(float* x) { x[threadIdx.x] *= weights[threadIdx.x % 4]; }
    """
    module = cp.RawModule(code=code, options=("-std=c++17",), name_expressions=("scale<int>", "scale<double>"))
    for name, dtype in (("scale<int>", cp.int32), ("scale<double>", cp.float64)):
        x = cp.arange(32, dtype=dtype)
        module.get_function(name)((1,), (32,), (x, dtype(3)))
        assert (x.get() == 3 * np.arange(32)).all()
    weights = cp.ndarray(4, cp.float32, module.get_global("weights"))
    weights[...] = cp.arange(4, dtype=cp.float32)
    x = cp.full(32, 2, dtype=cp.float32)
    module.get_function("weigh")((1,), (32,), (x,))
    assert (x.get() == 2 * (np.arange(32) % 4)).all()


def try_shared_memory_and_streams():
    turn = cp.RawKernel(
        r"""
        extern "C" __global__ void turn(double* x) {
            extern __shared__ double room[];
            room[threadIdx.x] = x[threadIdx.x];
            __syncthreads();
            x[threadIdx.x] = room[blockDim.x - 1 - threadIdx.x];
        }
        """, "turn")  # fmt: skip
    x = cp.arange(64.0)
    start, end = cp.cuda.Event(), cp.cuda.Event()
    with cp.cuda.Stream() as stream:
        start.record()
        turn((1,), (64,), (x,), shared_mem=64 * 8)
        end.record()
    stream.synchronize()
    assert cp.array_equal(x, cp.arange(64.0)[::-1]) and cp.cuda.get_elapsed_time(start, end) > 0


def try_elementwise_kernel():
    difference = cp.ElementwiseKernel("T x, T y", "T z", "z = (x - y) * (x - y)", "squared_difference")
    x, y = cp.arange(10, dtype=np.float32).reshape(2, 5), cp.arange(5, dtype=np.float32)
    z = difference(x, y)
    assert z.dtype == np.float32 and (z.get() == (x.get() - y.get()) ** 2).all()
    out = cp.empty((2, 5), dtype=np.float32)
    difference(x, 5, out)
    assert (out.get() == (x.get() - 5) ** 2).all()
    shifted = cp.ElementwiseKernel("T x, raw T y", "T z", "z = x + y[n - i - 1]", "add_reverse")
    assert (shifted(x[0], y).get() == x.get()[0] + y.get()[::-1]).all()


def try_arrays():
    x = cp.asarray(np.random.default_rng(1).random((4, 6)))
    y = cp.concatenate([x, x[:2] * 2 + 1])
    assert y.shape == (6, 6) and (y[4:].get() == x.get()[:2] * 2 + 1).all()
    y[y > 1] = 0
    assert float(y.max()) <= 1 and int((y == 0).sum()) == (x.get()[:2] > 0).sum() + 0
    assert cp.get_array_module(x) is cp and cp.get_array_module(np.zeros(1)) is np
    assert x.data.ptr == x.__cuda_array_interface__["data"][0]
    assert cp.cuda.Device().compute_capability == "90" and cp.cuda.runtime.getDeviceCount() == 1


def try_pointers_in_memory():
    gather = cp.RawKernel(
        r"""
        extern "C" __global__ void gather(float** rows, float* out) { out[threadIdx.x] = rows[threadIdx.x][0]; }
        """, "gather")  # fmt: skip
    rows = [cp.full(3, n, dtype=cp.float32) for n in range(8)]
    out = cp.zeros(8, dtype=cp.float32)
    gather((1,), (8,), (cp.array([r.data.ptr for r in rows], dtype=cp.uint64), out))
    assert (out.get() == np.arange(8)).all()


def try_products():
    """The order of f64 [64, 32] by [32, 64] is known: a chain of fused multiply-adds."""
    x = cp.array(np.arange(64.0 * 32).reshape(64, 32)) / 3
    chain = np.zeros((64, 64))
    for k in range(32):
        left, right = x.get()[:, k], x.get()[:, k]
        exact = left.astype(np.longdouble)[:, None] * right.astype(np.longdouble) + chain  # 64 bits of 106: enough for these
        chain = exact.astype(np.float64)
    assert (abs((x @ x.T).get() - chain) <= np.spacing(chain)).all() and (x.dot(x.T).get() == (x @ x.T).get()).all()
    batch = cp.array(np.arange(2 * 3 * 4, dtype=np.int64).reshape(2, 3, 4))
    assert ((batch @ batch.mT).get() == batch.get() @ batch.get().mT).all()
    assert float(cp.dot(x[0], x[1])) == float(x.get()[0] @ x.get()[1])


def try_what_is_not_there():
    x = cp.arange(4.0)
    refused = {
        "exp": lambda: cp.exp(x),
        "sum": lambda: x.sum(),
        "ndarray.mean": lambda: x.mean(),
        "tensordot": lambda: cp.tensordot(x, x),
        "fft.fft": lambda: cp.fft.fft(x),
        "linalg.norm": lambda: cp.linalg.norm(x),
        "ReductionKernel": lambda: cp.ReductionKernel("T x", "T y", "x", "a + b", "y = a", "0"),
    }
    for name, use in refused.items():
        try:
            use()
        except Exception as error:
            assert type(error).__name__ == "UnsupportedError" and f"cupy.{name} " in str(error), (name, error)
        else:
            raise AssertionError(f"cupy.{name}")
    try:
        np.asarray(x)
    except TypeError as error:
        assert ".get()" in str(error)


def try_errors():
    beyond = cp.RawKernel('extern "C" __global__ void beyond(int* x) { x[threadIdx.x] = 1; }', "beyond")
    try:
        beyond((1,), (32,), (cp.zeros(20, dtype=cp.int32),))
    except Exception as error:
        assert "out of bounds" in str(error) and "argument 0" in str(error), error
    else:
        raise AssertionError("nothing was said")
    try:
        cp.RawKernel('extern "C" __global__ void k() { nonsense; }', "k")((1,), (1,), ())
    except cp.cuda.compiler.CompileException as error:
        assert "nonsense" in str(error)


def try_functions_that_move_and_compare():
    x = np.array([[3, 1, 2], [1, 3, 3]])
    on = cp.array(x)
    for name, more in (("unique", ()), ("isin", ([1, 2],)), ("setdiff1d", ([3],)), ("delete", (1,)), ("searchsorted", ([2],))):
        given = (x[0], *more) if name == "searchsorted" else (x, *more)
        found = getattr(cp, name)(*map(cp.array, given))
        assert type(found) is cp.ndarray and (found.get() == getattr(np, name)(*given)).all(), name
    cp.fill_diagonal(on, 7)
    cp.copyto(on[:, 2], cp.array([8, 9]))
    assert on.tolist() == [[7, 1, 8], [1, 7, 9]] and (on.T.get() == on.mT.get()).all()
    z = cp.array([1 + 2j])
    assert z.real.get() == 1 and z.imag.get() == 2 and z.conj().get() == 1 - 2j
    assert cp.arange(2, dtype="i2").byteswap().tolist() == [0, 256]
    assert cp.empty_like(cp.zeros((3, 2)).T).flags.f_contiguous
