"""Row-wise and element-wise kernels: reductions, scans, sorts, normalisation, atomics, random numbers, conversions."""

import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def softmax(x, y, cols, B: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, B)
    v = tl.load(x + row * cols + c, mask=c < cols, other=-float("inf")).to(tl.float32)
    e = tl.exp(v - tl.max(v, 0))
    tl.store(y + row * cols + c, (e / tl.sum(e, 0)).to(y.dtype.element_ty), mask=c < cols)


@triton.jit
def softmax_online(x, y, cols, B: tl.constexpr):
    """Two passes over blocks of one row, the running maximum carried as scalars."""
    row = tl.program_id(0)
    m = -float("inf")
    s = 0.0
    for start in range(0, cols, B):
        c = start + tl.arange(0, B)
        v = tl.load(x + row * cols + c, mask=c < cols, other=-float("inf"))
        new = tl.maximum(m, tl.max(v, 0))
        s = s * tl.exp(m - new) + tl.sum(tl.exp(v - new), 0)
        m = new
    for start in range(0, cols, B):
        c = start + tl.arange(0, B)
        v = tl.load(x + row * cols + c, mask=c < cols, other=0)
        tl.store(y + row * cols + c, tl.exp(v - m) / s, mask=c < cols)


@triton.jit
def layernorm(x, w, b, y, mean, rstd, cols, eps, B: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, B)
    v = tl.load(x + row * cols + c, mask=c < cols, other=0).to(tl.float32)
    mu = tl.sum(v, 0) / cols
    d = tl.where(c < cols, v - mu, 0.0)
    r = 1 / tl.sqrt(tl.sum(d * d, 0) / cols + eps)
    tl.store(mean + row, mu)
    tl.store(rstd + row, r)
    out = d * r * tl.load(w + c, mask=c < cols, other=0) + tl.load(b + c, mask=c < cols, other=0)
    tl.store(y + row * cols + c, out.to(y.dtype.element_ty), mask=c < cols)


@triton.jit
def layernorm_backward(dy, x, w, dx, dw, lock, count, rstd, cols, B: tl.constexpr, GROUPS: tl.constexpr):
    """Weight gradients of several rows meet in one buffer under a spin lock (compare and swap)."""
    row = tl.program_id(0)
    c = tl.arange(0, B)
    mask = c < cols
    g = tl.load(dy + row * cols + c, mask=mask, other=0)
    v = tl.load(x + row * cols + c, mask=mask, other=0)
    wv = tl.load(w + c, mask=mask, other=0)
    r = tl.load(rstd + row)
    c1 = tl.sum(v * wv * g, 0)
    tl.store(dx + row * cols + c, (wv * g - v * c1) * r, mask=mask)
    slot = row % GROUPS
    while tl.atomic_cas(lock + slot, 0, 1) == 1:
        pass
    n = tl.load(count + slot)
    acc = g * v
    if n == 0:
        tl.atomic_xchg(count + slot, 1)
    else:
        acc += tl.load(dw + slot * cols + c, mask=mask)
    tl.store(dw + slot * cols + c, acc, mask=mask)
    tl.debug_barrier()
    tl.atomic_xchg(lock + slot, 0)


@triton.jit
def first_greater(av, ai, bv, bi):
    take = (av > bv) | ((av == bv) & (ai < bi))
    return tl.where(take, av, bv), tl.where(take, ai, bi)


@triton.jit
def reductions(x, out, index, R: tl.constexpr, C: tl.constexpr):
    """Sums, extremes and their places along each axis of a tile, and one reduction with a function of our own."""
    r = tl.arange(0, R)
    c = tl.arange(0, C)
    v = tl.load(x + r[:, None] * C + c[None, :])
    tl.store(out + r, tl.sum(v, 1))
    tl.store(out + R + r, tl.max(v, 1))
    tl.store(out + 2 * R + r, tl.min(v, 1))
    tl.store(out + 3 * R + c, tl.sum(v, 0))
    tl.store(out + 3 * R + C + c, tl.max(v, 0))
    tl.store(index + r, tl.argmax(v, 1))
    tl.store(index + R + r, tl.argmin(v, 1))
    best, place = tl.reduce((v, tl.broadcast_to(c[None, :], (R, C))), 1, first_greater)
    tl.store(index + 2 * R + r, place)
    tl.store(out + 3 * R + 2 * C + r, best)


@triton.jit
def int_reductions(x, out, R: tl.constexpr, C: tl.constexpr):
    r = tl.arange(0, R)
    c = tl.arange(0, C)
    v = tl.load(x + r[:, None] * C + c[None, :])
    tl.store(out + r, tl.sum(v, 1))
    tl.store(out + R + r, tl.xor_sum(v, 1))
    tl.store(out + 2 * R + r, tl.max(v, 1))
    tl.store(out + 3 * R + r, tl.min(v, 1))
    tl.store(out + 4 * R, tl.sum(v))


@triton.jit
def affine(ga, gb, ha, hb):
    return ga * ha, gb * ha + hb


@triton.jit
def scans(x, y, out, R: tl.constexpr, C: tl.constexpr):
    """Running sums forward and backward, a running product, and a linear recurrence as an associative scan."""
    r = tl.arange(0, R)
    c = tl.arange(0, C)
    at = r[:, None] * C + c[None, :]
    u = tl.load(x + at)
    v = tl.load(y + at)
    tl.store(out + at, tl.cumsum(u, 1))
    tl.store(out + R * C + at, tl.cumsum(v, 0, reverse=True))
    tl.store(out + 2 * R * C + at, tl.cumprod(u, 1))
    _, h = tl.associative_scan((u, v), 1, affine)
    tl.store(out + 3 * R * C + at, h)


@triton.jit
def histogram(x, n, out, shared_out, B: tl.constexpr, BINS: tl.constexpr):
    """The same counts twice: with global atomics and with tl.histogram."""
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + i, mask=i < n, other=0)
    tl.atomic_add(out + (v & (BINS - 1)), 1, mask=i < n)
    h = tl.histogram(v & (BINS - 1), BINS)
    tl.atomic_add(shared_out + tl.arange(0, BINS), h)


@triton.jit
def sort_rows(x, out, top, R: tl.constexpr, C: tl.constexpr, K: tl.constexpr):
    r = tl.arange(0, R)
    c = tl.arange(0, C)
    v = tl.load(x + r[:, None] * C + c[None, :])
    tl.store(out + r[:, None] * C + c[None, :], tl.sort(v))
    tl.store(top + r[:, None] * K + tl.arange(0, K)[None, :], tl.topk(v, K))


@triton.jit
def transpose(x, out, M, N, B: tl.constexpr):
    r = tl.program_id(0) * B + tl.arange(0, B)
    c = tl.program_id(1) * B + tl.arange(0, B)
    v = tl.load(x + r[:, None] * N + c[None, :], mask=(r[:, None] < M) & (c[None, :] < N))
    tl.store(out + c[:, None] * M + r[None, :], tl.trans(v), mask=(r[None, :] < M) & (c[:, None] < N))


@triton.jit
def shapes(x, idx, out, R: tl.constexpr, C: tl.constexpr):
    """Rearrangements: gather along an axis, join, split, interleave, flip, reshape, permute."""
    r = tl.arange(0, R)
    c = tl.arange(0, C)
    at = r[:, None] * C + c[None, :]
    v = tl.load(x + at)
    i = tl.load(idx + at)
    tl.store(out + at, tl.gather(v, i, 1))
    a, b = tl.split(tl.reshape(v, (R, C // 2, 2)))
    half = r[:, None] * (C // 2) + tl.arange(0, C // 2)[None, :]
    tl.store(out + R * C + half, a + b)
    tl.store(out + 2 * R * C + at, tl.interleave(b, a))
    tl.store(out + 3 * R * C + at, tl.flip(v, 1))
    w = tl.reshape(tl.permute(tl.reshape(v, (R, 4, C // 4)), (1, 0, 2)), (R, C))
    tl.store(out + 4 * R * C + at, w)


@triton.jit
def atomics(i32, i64, f32, f16, old, n, B: tl.constexpr):
    """Every atomic on 32-bit integers, some on 64 bits and floats; values are small, so the order does not matter."""
    i = tl.program_id(0) * B + tl.arange(0, B)
    m = i < n
    slot = i % 7
    tl.atomic_add(i32 + slot, i, mask=m)
    tl.atomic_max(i32 + 8 + slot, i - 50, mask=m)
    tl.atomic_min(i32 + 16 + slot, i - 50, mask=m)
    tl.atomic_and(i32 + 24 + slot, ~(1 << (i % 32)), mask=m)
    tl.atomic_or(i32 + 32 + slot, 1 << (i % 32), mask=m)
    tl.atomic_xor(i32 + 40 + slot, i * 2654435, mask=m)
    tl.atomic_add(i64 + slot, i.to(tl.int64) << 30, mask=m)
    tl.atomic_max(i64 + 8 + slot, (i - 60).to(tl.int64) << 33, mask=m)
    tl.atomic_add(f32 + slot, (i % 16).to(tl.float32) * 0.5, mask=m)
    tl.atomic_max(f32 + 8 + slot, (i - 70).to(tl.float32), mask=m)
    tl.atomic_min(f32 + 16 + slot, (i - 70).to(tl.float32), mask=m)
    tl.atomic_add(f16 + slot, (i % 4).to(tl.float16), mask=m)
    own = tl.atomic_xchg(old + i, i * 3, mask=m)
    tl.store(old + n + i, own, mask=m)
    swapped = tl.atomic_cas(old + 2 * n + i, i % 2, i + 100)
    tl.store(old + 3 * n + i, swapped, mask=m)


@triton.jit
def random(out, bits, seed, n, p, B: tl.constexpr):
    """Philox: integers, uniform and normal numbers, and a dropout decision."""
    i = tl.program_id(0) * B + tl.arange(0, B)
    m = i < n
    tl.store(bits + i, tl.randint(seed, i), mask=m)
    u = tl.rand(seed, i)
    tl.store(out + i, u, mask=m)
    tl.store(out + n + i, tl.randn(seed, i), mask=m)
    tl.store(out + 2 * n + i, tl.where(u > p, u / (1 - p), 0.0), mask=m)


@triton.jit
def elementary(x, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    m = i < n
    v = tl.load(x + i, mask=m)
    p = tl.abs(v)
    tl.store(out + i, tl.exp(v), mask=m)
    tl.store(out + n + i, tl.log(p), mask=m)
    tl.store(out + 2 * n + i, tl.sin(v) + tl.cos(v), mask=m)
    tl.store(out + 3 * n + i, tl.sqrt(p), mask=m)
    tl.store(out + 4 * n + i, tl.rsqrt(p), mask=m)
    tl.store(out + 5 * n + i, tl.erf(v), mask=m)
    tl.store(out + 6 * n + i, tl.floor(v) + 2 * tl.ceil(v), mask=m)
    tl.store(out + 7 * n + i, tl.sqrt_rn(p), mask=m)
    tl.store(out + 8 * n + i, tl.div_rn(1.0, v), mask=m)
    tl.store(out + 9 * n + i, libdevice.tanh(v), mask=m)
    tl.store(out + 10 * n + i, tl.sigmoid(v), mask=m)
    tl.store(out + 11 * n + i, tl.clamp(v, -0.5, 0.5), mask=m)
    tl.store(out + 12 * n + i, libdevice.pow(p, v), mask=m)
    tl.store(out + 13 * n + i, libdevice.log1p(p), mask=m)
    tl.store(out + 14 * n + i, tl.fma(v, v, p), mask=m)
    tl.store(out + 15 * n + i, libdevice.atan2(v, p + 0.25), mask=m)


@triton.jit
def integers(x, y, out, wide, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    m = i < n
    a = tl.load(x + i, mask=m, other=1)
    b = tl.load(y + i, mask=m, other=1)
    tl.store(out + i, a // b, mask=m)
    tl.store(out + n + i, a % b, mask=m)
    tl.store(out + 2 * n + i, a >> (b & 31), mask=m)
    tl.store(out + 3 * n + i, a << (b & 31), mask=m)
    tl.store(out + 4 * n + i, tl.umulhi(a.to(tl.uint32), b.to(tl.uint32)).to(tl.int32), mask=m)
    tl.store(out + 5 * n + i, tl.minimum(a, b) ^ tl.maximum(a, b), mask=m)
    tl.store(out + 6 * n + i, libdevice.popc(a) + 100 * libdevice.clz(b), mask=m)
    w = a.to(tl.int64) * b.to(tl.int64)
    tl.store(wide + i, w, mask=m)
    tl.store(wide + n + i, w // (b.to(tl.int64) | 1), mask=m)
    tl.store(wide + 2 * n + i, (w.to(tl.uint64) % 1000003).to(tl.int64), mask=m)


@triton.jit
def casts(x, f16, bf16, e4m3, e5m2, s8, s32, f64, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    m = i < n
    v = tl.load(x + i, mask=m)
    tl.store(f16 + i, v.to(tl.float16), mask=m)
    tl.store(bf16 + i, v.to(tl.bfloat16), mask=m)
    tl.store(e4m3 + i, v.to(tl.float8e4nv), mask=m)
    tl.store(e5m2 + i, v.to(tl.float8e5), mask=m)
    tl.store(s8 + i, v.to(tl.int8), mask=m)
    tl.store(s32 + i, (v * 1000).to(tl.int32), mask=m)
    tl.store(f64 + i, v.to(tl.float64) * 1.000000001, mask=m)


@triton.jit
def cross_entropy(x, target, loss, cols, B: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, B)
    v = tl.load(x + row * cols + c, mask=c < cols, other=-float("inf")).to(tl.float32)
    top = tl.max(v, 0)
    t = tl.load(target + row)
    picked = tl.load(x + row * cols + t).to(tl.float32)
    tl.store(loss + row, tl.log(tl.sum(tl.exp(v - top), 0)) + top - picked)


@triton.jit
def conv1d(x, w, y, n, taps, B: tl.constexpr):
    """Data-dependent addresses and a loop whose length is an argument."""
    i = tl.program_id(0) * B + tl.arange(0, B)
    acc = tl.zeros((B,), tl.float32)
    for t in range(taps):
        j = i + t - taps // 2
        acc += tl.load(w + t) * tl.load(x + j, mask=(j >= 0) & (j < n), other=0)
    tl.store(y + i, acc, mask=i < n)


@triton.jit
def collatz(x, steps, n, B: tl.constexpr):
    """A while loop per block, until the last lane is done."""
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + i, mask=i < n, other=1)
    s = tl.zeros((B,), tl.int32)
    while tl.max((v > 1).to(tl.int32), 0) > 0:
        run = v > 1
        v = tl.where(run, tl.where(v % 2 == 0, v // 2, 3 * v + 1), v)
        s += run.to(tl.int32)
    tl.store(steps + i, s, mask=i < n)


# not at the head: lines of kernels stand in recorded PTX
from tests.kernels.arguments import arr, bits, inout, out  # noqa: E402


def case(name, kernel, grid, args, *, cap=90, warps=4, stages=2, line_info=False, **constexpr):
    return {"name": name, "kernel": kernel, "capability": cap, "warps": warps, "stages": stages, "grid": grid,
            "constexpr": constexpr, "args": args, "line_info": line_info}


CASES = [
    case("softmax_bf16", softmax, [8, 1, 1], [arr("bf16", 8, 300), out("bf16", 8, 300), 300], cap=80, B=512),
    case("softmax_online", softmax_online, [4, 1, 1], [arr("f32", 4, 700), out("f32", 4, 700), 700], B=256, warps=2,
         line_info=True),
    case("layernorm", layernorm, [6, 1, 1], [arr("f16", 6, 200), arr("f32", 200, seed=2), arr("f32", 200, seed=3),
         out("f16", 6, 200), out("f32", 6), out("f32", 6), 200, {"f32": 1e-5}], B=256),
    case("layernorm_backward", layernorm_backward, [8, 1, 1], [arr("f32", 8, 64, dist=["integers", -8, 9]),
         arr("f32", 8, 64, seed=2, dist=["integers", -8, 9]), arr("f32", 64, seed=3, dist=["integers", -8, 9]), out("f32", 8, 64),
         out("f32", 2, 64), out("s32", 2), out("s32", 2), arr("f32", 8, seed=4), 64], B=64, GROUPS=2),
    case("reductions_f32", reductions, [1, 1, 1], [arr("f32", 32, 64), out("f32", 4 * 32 + 2 * 64), out("s32", 3 * 32)], R=32,
         C=64),
    case("reductions_f16", reductions, [1, 1, 1], [arr("f16", 64, 32), out("f32", 4 * 64 + 2 * 32), out("s32", 3 * 64)], R=64,
         C=32, cap=80, warps=8),
    case("int_reductions", int_reductions, [1, 1, 1], [bits("s32", 16, 128), out("s32", 4 * 16 + 1)], R=16, C=128, cap=80),
    case("scans", scans, [1, 1, 1], [arr("f32", 16, 64, dist="uniform"), arr("f32", 16, 64, seed=2), out("f32", 4, 16, 64)], R=16,
         C=64),
    case("scans_long", scans, [1, 1, 1], [arr("f32", 2, 512, dist="uniform"), arr("f32", 2, 512, seed=2), out("f32", 4, 2, 512)],
         R=2, C=512, cap=80),
    case("histogram", histogram, [4, 1, 1], [bits("s32", 1000), 1000, out("s32", 64), out("s32", 64)], B=256, BINS=64),
    case("sort_f32", sort_rows, [1, 1, 1], [arr("f32", 8, 128), out("f32", 8, 128), out("f32", 8, 16)], R=8, C=128, K=16),
    case("sort_s32", sort_rows, [1, 1, 1], [bits("s32", 4, 64), out("s32", 4, 64), out("s32", 4, 8)], R=4, C=64, K=8, cap=80,
         warps=1),
    case("transpose_f32", transpose, [3, 2, 1], [bits("f32", 70, 50), out("f32", 50, 70), 70, 50], B=32),
    case("transpose_f16", transpose, [2, 2, 1], [bits("f16", 64, 64), out("f16", 64, 64), 64, 64], B=32, cap=80),
    case("transpose_u8", transpose, [1, 2, 1], [bits("u8", 30, 64), out("u8", 64, 30), 30, 64], B=32),
    case("shapes", shapes, [1, 1, 1], [arr("f32", 16, 32), arr("s32", 16, 32, seed=2, dist=["integers", 0, 32]),
         out("f32", 5, 16, 32)], R=16, C=32),
    case("atomics", atomics, [2, 1, 1], [inout("s32", 48), inout("s64", 16, seed=2),
         inout("f32", 24, seed=3, dist=["integers", -9, 9]), inout("f16", 8, seed=4, dist=["integers", -9, 9]),
         inout("s32", 4, 200, seed=5, dist=["integers", 0, 2]), 200], B=128),
    case("random", random, [2, 1, 1], [out("f32", 3, 250), out("s32", 250), 1234567, 250, {"f32": 0.25}], B=128),
    case("elementary", elementary, [2, 1, 1], [arr("f32", 400), out("f32", 16, 400), 400], B=256),
    case("integers", integers, [2, 1, 1], [bits("s32", 300), arr("s32", 300, seed=2, dist=["integers", 1, 5000]),
         out("s32", 7, 300), out("s64", 3, 300), 300], B=256, cap=80),
    case("casts", casts, [2, 1, 1], [arr("f32", 400), out("f16", 400), out("bf16", 400), out("e4m3", 400), out("e5m2", 400),
         out("s8", 400), out("s32", 400), out("f64", 400), 400], B=256),
    case("cross_entropy", cross_entropy, [5, 1, 1], [arr("bf16", 5, 100), arr("s32", 5, seed=2, dist=["integers", 0, 100]),
         out("f32", 5), 100], B=128, cap=80),
    case("conv1d", conv1d, [2, 1, 1], [arr("f32", 200), arr("f32", 9, seed=2), out("f32", 200), 200, 9], B=128),
    case("collatz", collatz, [2, 1, 1], [arr("s32", 200, dist=["integers", 1, 1000]), out("s32", 200), 200], B=128, warps=1),
]
