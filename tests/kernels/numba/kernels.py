"""Kernels in Python, compiled by Numba: arrays are seven parameters each, indices are signed 64-bit."""

import math

from numba import cuda, float32, float64, int32, int64, uint8

from tests.kernels.arguments import arr, bits, inout, out


def matmul(a, b, c):
    """Shared-memory tiles of 16 by 16 with edge checks."""
    sa = cuda.shared.array((16, 16), float32)
    sb = cuda.shared.array((16, 16), float32)
    x, y = cuda.grid(2)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    acc = float32(0)
    for t in range((a.shape[1] + 15) // 16):
        sa[ty, tx] = a[y, t * 16 + tx] if y < a.shape[0] and t * 16 + tx < a.shape[1] else float32(0)
        sb[ty, tx] = b[t * 16 + ty, x] if x < b.shape[1] and t * 16 + ty < b.shape[0] else float32(0)
        cuda.syncthreads()
        for k in range(16):
            acc += sa[ty, k] * sb[k, tx]
        cuda.syncthreads()
    if y < c.shape[0] and x < c.shape[1]:
        c[y, x] = acc


def saxpy(a, x, y):
    """A grid-stride loop with negative indices."""
    for i in range(cuda.grid(1), x.shape[0], cuda.gridsize(1)):
        y[-1 - i] = a * x[i] + math.sin(y[-1 - i]) / (x[i] // 3 + 4)


def escape(out, limit):
    """Complex arithmetic and a data-dependent loop."""
    i = cuda.grid(1)
    if i < out.size:
        c = complex((i % 40) * 0.07 - 2.0, (i // 40) * 0.1 - 1.0)
        z = 0j
        n = 0
        while n < limit and abs(z) < 2:
            z = z * z + c
            n += 1
        out[i] = n


def histogram(data, bins):
    """Privatised in shared memory, merged with global atomics."""
    s = cuda.shared.array(64, int32)
    t = cuda.threadIdx.x
    if t < 64:
        s[t] = 0
    cuda.syncthreads()
    for i in range(cuda.grid(1), data.size, cuda.gridsize(1)):
        cuda.atomic.add(s, data[i] % 64, 1)
    cuda.syncthreads()
    if t < 64:
        cuda.atomic.add(bins, t, s[t])


def warp_sum(x, out):
    """Shuffles, votes, and a local array."""
    i = cuda.grid(1)
    v = x[i]
    k = cuda.local.array(4, float64)
    for j in range(4):
        k[j] = v * (j + 0.5)
    total = k[i % 4]
    for d in (16, 8, 4, 2, 1):
        total += cuda.shfl_xor_sync(0xFFFFFFFF, total, d)
    mask = cuda.ballot_sync(0xFFFFFFFF, v > 0)
    out[i] = total + cuda.popc(mask) * (1 if cuda.laneid % 2 else -1) + math.fmod(v, 0.3)


def integer_powers(x, out):
    """Python's floor division, modulo, powers and shifts on signed 64-bit integers."""
    i = cuda.grid(1)
    if i < x.size:
        v = x[i]
        out[0, i] = v // 7
        out[1, i] = v % -13
        out[2, i] = (v % 11) ** 5
        out[3, i] = (v >> 3) ^ (v << 2)
        out[4, i] = abs(v) // (i + 1)
        out[5, i] = min(v, i) + max(v, -i)


A1, A2 = float32[::1], float32[:, ::1]


def case(kernel, signature, grid, block, arrays):
    return {"name": f"numba_{kernel.__name__}", "kernel": kernel, "signature": signature, "grid": grid, "block": block,
            "arrays": arrays}  # fmt: skip


CASES = [
    case(matmul, (A2, A2, A2), [3, 2, 1], [16, 16, 1], [arr("f32", 30, 37), arr("f32", 37, 45, seed=2), out("f32", 30, 45)]),
    case(saxpy, (float32, A1, A1), [2, 1, 1], [64, 1, 1], [{"f32": 1.7}, arr("f32", 300),
         inout("f32", 300, seed=2, dist="normal")]),
    case(escape, (int32[::1], int32), [7, 1, 1], [128, 1, 1], [out("s32", 800), 60]),
    case(histogram, (uint8[::1], int32[::1]), [3, 1, 1], [128, 1, 1], [bits("u8", 1000), out("s32", 64)]),
    case(warp_sum, (float64[::1], float64[::1]), [2, 1, 1], [64, 1, 1], [arr("f64", 128), out("f64", 128)]),
    case(integer_powers, (int64[::1], int64[:, ::1]), [2, 1, 1], [128, 1, 1],
         [arr("s64", 200, dist=["integers", -(10**9), 10**9]), out("s64", 6, 200)]),
]
