"""Matrix products as Triton compiles them: odd sizes under masks, all operand types, accumulators and schedules."""

import triton
import triton.language as tl

from tests.kernels.arguments import arr, bits, out


@triton.jit
def gemm(a, b, c, M, N, K, sam, sak, sbk, sbn, scm, scn,
         BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, ACC: tl.constexpr, PRECISION: tl.constexpr,
         IMPRECISE: tl.constexpr):
    """C = A B, any strides, masked in M, N and K."""
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), ACC)
    for k in range(0, K, BK):
        am = (rm[:, None] < M) & (k + rk[None, :] < K)
        bm = (k + rk[:, None] < K) & (rn[None, :] < N)
        x = tl.load(a + rm[:, None] * sam + (k + rk[None, :]) * sak, mask=am, other=0.0)
        y = tl.load(b + (k + rk[:, None]) * sbk + rn[None, :] * sbn, mask=bm, other=0.0)
        acc = tl.dot(x, y, acc, out_dtype=ACC, input_precision=PRECISION, max_num_imprecise_acc=IMPRECISE)
    cm = (rm[:, None] < M) & (rn[None, :] < N)
    tl.store(c + rm[:, None] * scm + rn[None, :] * scn, acc.to(c.dtype.element_ty), mask=cm)


@triton.jit
def gemm_grouped(a, b, bias, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr):
    """One-dimensional grid in groups of rows, wrapped addresses instead of masks, bias and GELU-like epilogue."""
    pid = tl.program_id(0)
    tiles_m = tl.cdiv(M, BM)
    tiles_n = tl.cdiv(N, BN)
    group = pid // (GROUP * tiles_n)
    first = group * GROUP
    size = min(tiles_m - first, GROUP)
    pm = first + (pid % (GROUP * tiles_n)) % size
    pn = (pid % (GROUP * tiles_n)) // size
    rm = (pm * BM + tl.arange(0, BM)) % M
    rn = (pn * BN + tl.arange(0, BN)) % N
    rk = tl.arange(0, BK)
    pa = a + rm[:, None] * K + rk[None, :]
    pb = b + rk[:, None] * N + rn[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(tl.cdiv(K, BK)):
        x = tl.load(pa, mask=rk[None, :] < K - k * BK, other=0)
        y = tl.load(pb, mask=rk[:, None] < K - k * BK, other=0)
        acc = tl.dot(x, y, acc)
        pa += BK
        pb += BK * N
    acc += tl.load(bias + rn)[None, :].to(tl.float32)
    acc = tl.where(acc >= 0, acc, 0.01 * acc)
    om = pm * BM + tl.arange(0, BM)
    on = pn * BN + tl.arange(0, BN)
    tl.store(c + om[:, None] * N + on[None, :], acc.to(c.dtype.element_ty), mask=(om[:, None] < M) & (on[None, :] < N))


@triton.jit
def gemm_persistent(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Each block walks over tiles with the grid as its stride."""
    tiles_n = tl.cdiv(N, BN)
    for tile in range(tl.program_id(0), tl.cdiv(M, BM) * tiles_n, tl.num_programs(0)):
        rm = (tile // tiles_n) * BM + tl.arange(0, BM)
        rn = (tile % tiles_n) * BN + tl.arange(0, BN)
        rk = tl.arange(0, BK)
        acc = tl.zeros((BM, BN), tl.float32)
        for k in range(0, K, BK):
            x = tl.load(a + rm[:, None] * K + k + rk[None, :], mask=(rm[:, None] < M) & (k + rk[None, :] < K), other=0)
            y = tl.load(b + (k + rk[:, None]) * N + rn[None, :], mask=(k + rk[:, None] < K) & (rn[None, :] < N),
                        other=0)
            acc = tl.dot(x, y, acc)
        tl.store(c + rm[:, None] * N + rn[None, :], acc.to(c.dtype.element_ty),
                 mask=(rm[:, None] < M) & (rn[None, :] < N))


@triton.jit
def gemm_split_k(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SPLIT: tl.constexpr,
                 ACC: tl.constexpr):
    """The third grid axis splits K; partial sums meet in global atomics."""
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.program_id(2) * BK + tl.arange(0, BK)
    acc = tl.zeros((BM, BN), ACC)
    for k in range(0, K, BK * SPLIT):
        x = tl.load(a + rm[:, None] * K + k + rk[None, :], mask=(rm[:, None] < M) & (k + rk[None, :] < K), other=0)
        y = tl.load(b + (k + rk[:, None]) * N + rn[None, :], mask=(k + rk[:, None] < K) & (rn[None, :] < N), other=0)
        acc = tl.dot(x, y, acc, out_dtype=ACC)
    tl.atomic_add(c + rm[:, None] * N + rn[None, :], acc, mask=(rm[:, None] < M) & (rn[None, :] < N))


@triton.jit
def gemm_batched(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Row-major batch of products through block pointers with boundary checks."""
    batch = tl.program_id(2)
    pa = tl.make_block_ptr(a + batch * M * K, (M, K), (K, 1), (tl.program_id(0) * BM, 0), (BM, BK), (1, 0))
    pb = tl.make_block_ptr(b + batch * K * N, (K, N), (N, 1), (0, tl.program_id(1) * BN), (BK, BN), (1, 0))
    acc = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, K, BK):
        x = tl.load(pa, boundary_check=(0, 1), padding_option="zero")
        y = tl.load(pb, boundary_check=(0, 1), padding_option="zero")
        acc = tl.dot(x, y, acc)
        pa = tl.advance(pa, (0, BK))
        pb = tl.advance(pb, (BK, 0))
    pc = tl.make_block_ptr(c + batch * M * N, (M, N), (N, 1), (tl.program_id(0) * BM, tl.program_id(1) * BN),
                           (BM, BN), (1, 0))
    tl.store(pc, acc.to(c.dtype.element_ty), boundary_check=(0, 1))


@triton.jit
def gemm_w8(a, w, scale, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """f16 activations times s8 weights converted on the way, scaled per column."""
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        x = tl.load(a + rm[:, None] * K + k + rk[None, :], mask=(rm[:, None] < M) & (k + rk[None, :] < K), other=0)
        y = tl.load(w + (k + rk[:, None]) * N + rn[None, :], mask=(k + rk[:, None] < K) & (rn[None, :] < N), other=0)
        acc = tl.dot(x, y.to(tl.float16), acc)
    acc *= tl.load(scale + rn, mask=rn < N, other=0)[None, :]
    tl.store(c + rm[:, None] * N + rn[None, :], acc.to(c.dtype.element_ty), mask=(rm[:, None] < M) & (rn[None, :] < N))


@triton.jit
def gemm_scaled(a, sa, b, sb, c, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
                FA: tl.constexpr, FB: tl.constexpr, PA: tl.constexpr, PB: tl.constexpr):
    """Microscaling product, one tile: a scale byte for every 32 elements of K; 4-bit types are packed two a byte."""
    rm = tl.arange(0, BM)
    rn = tl.arange(0, BN)
    ka = tl.arange(0, BK // PA)
    kb = tl.arange(0, BK // PB)
    ks = tl.arange(0, BK // 32)
    x = tl.load(a + rm[:, None] * (BK // PA) + ka[None, :])
    y = tl.load(b + kb[:, None] * BN + rn[None, :])
    acc = tl.dot_scaled(x, tl.load(sa + rm[:, None] * (BK // 32) + ks[None, :]), FA,
                        y, tl.load(sb + rn[:, None] * (BK // 32) + ks[None, :]), FB)
    tl.store(c + rm[:, None] * BN + rn[None, :], acc)


@triton.jit
def gemm_descriptor(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Tensor maps made on the device: tiles arrive through cp.async.bulk.tensor and leave the same way."""
    da = tl.make_tensor_descriptor(a, shape=[M, K], strides=[K, 1], block_shape=[BM, BK])
    db = tl.make_tensor_descriptor(b, shape=[N, K], strides=[K, 1], block_shape=[BN, BK])
    dc = tl.make_tensor_descriptor(c, shape=[M, N], strides=[N, 1], block_shape=[BM, BN])
    om = tl.program_id(0) * BM
    on = tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        acc = tl.dot(da.load([om, k]), db.load([on, k]).T, acc)
    dc.store([om, on], acc.to(c.dtype.element_ty))


def product(kernel, name, ta, tb, tc, m, n, k, bm, bn, bk, cap, *, trans_a=False, trans_b=False, acc="fp32",
            precision="ieee", imprecise=None, warps=4, stages=3, dist="normal"):
    """A case of `gemm`: row-major operands, or column-major under trans_*."""
    sa = (1, m) if trans_a else (k, 1)
    sb = (1, k) if trans_b else (n, 1)
    return {
        "name": name, "kernel": kernel, "capability": cap, "warps": warps, "stages": stages,
        "grid": [-(-m // bm), -(-n // bn), 1],
        "constexpr": {"BM": bm, "BN": bn, "BK": bk, "ACC": acc, "PRECISION": precision, "IMPRECISE": imprecise},
        "args": [["in", ta, [k, m] if trans_a else [m, k], {"seed": 1, "dist": dist}],
                 ["in", tb, [n, k] if trans_b else [k, n], {"seed": 2, "dist": dist}],
                 ["out", tc, [m, n]], m, n, k, *sa, *sb, n, 1],
    }


def tiles(kernel, name, cap, grid, args, *, warps=4, stages=3, **constexpr):
    return {"name": name, "kernel": kernel, "capability": cap, "warps": warps, "stages": stages, "grid": grid,
            "constexpr": constexpr, "args": args}


INT = ["integers", -8, 9]
CASES = [
    tiles(gemm_descriptor, "gemm_descriptor_f16_sm90", 90, [2, 2, 1], [arr("f16", 100, 80), arr("f16", 96, 80, seed=2),
          out("f16", 100, 96), 100, 96, 80], BM=64, BN=64, BK=64),
    tiles(gemm_descriptor, "gemm_descriptor_bf16_sm90", 90, [1, 2, 1], [arr("bf16", 128, 192), arr("bf16", 64, 192, seed=2),
          out("f32", 128, 64), 128, 64, 192], BM=128, BN=32, BK=64, warps=8),
    product(gemm, "gemm_f16_odd_sm80", "f16", "f16", "f16", 75, 53, 41, 64, 32, 32, 80),
    product(gemm, "gemm_f16_odd_sm90", "f16", "f16", "f16", 75, 53, 41, 64, 64, 32, 90),
    product(gemm, "gemm_f16_f16acc_sm80", "f16", "f16", "f16", 64, 48, 80, 64, 16, 32, 80, acc="fp16"),
    product(gemm, "gemm_f16_f16acc_sm90", "f16", "f16", "f16", 96, 64, 80, 64, 64, 32, 90, acc="fp16"),
    product(gemm, "gemm_f16_tn_sm80", "f16", "f16", "f32", 64, 96, 64, 64, 32, 32, 80, trans_a=True, trans_b=True),
    product(gemm, "gemm_f16_tn_sm90", "f16", "f16", "f32", 128, 64, 128, 64, 64, 64, 90, trans_a=True, trans_b=True),
    product(gemm, "gemm_f16_tt_sm90", "f16", "f16", "f32", 64, 96, 64, 64, 32, 64, 90, trans_a=True),
    product(gemm, "gemm_f16_warpgroups_sm90", "f16", "f16", "f16", 128, 128, 128, 128, 128, 32, 90, warps=8, stages=4),
    product(gemm, "gemm_bf16_warpgroups_sm90", "bf16", "bf16", "bf16", 130, 100, 72, 128, 64, 64, 90, warps=8),
    product(gemm, "gemm_bf16_wide_sm90", "bf16", "bf16", "f32", 64, 256, 64, 64, 256, 64, 90, trans_b=True, warps=4),
    product(gemm, "gemm_f16_bits_sm80", "f16", "f16", "f32", 32, 32, 64, 32, 32, 32, 80, dist="bits"),
    product(gemm, "gemm_bf16_bits_sm90", "bf16", "bf16", "f32", 64, 32, 64, 64, 32, 32, 90, dist="bits"),
    product(gemm, "gemm_tf32_sm80", "f32", "f32", "f32", 50, 40, 36, 64, 32, 16, 80, precision="tf32"),
    product(gemm, "gemm_tf32_sm90", "f32", "f32", "f32", 64, 64, 96, 64, 64, 32, 90, precision="tf32", trans_b=True),
    product(gemm, "gemm_tf32x3_sm80", "f32", "f32", "f32", 32, 32, 48, 32, 32, 16, 80, precision="tf32x3"),
    product(gemm, "gemm_ieee_sm80", "f32", "f32", "f32", 33, 31, 29, 32, 32, 16, 80),
    product(gemm, "gemm_e4m3_sm89", "e4m3", "e4m3", "f32", 64, 40, 100, 64, 32, 64, 89, trans_b=True),
    product(gemm, "gemm_e5m2_e4m3_sm89", "e5m2", "e4m3", "f32", 32, 64, 96, 32, 32, 32, 89, trans_b=True),
    product(gemm, "gemm_e5m2_e4m3_sm90", "e5m2", "e4m3", "f32", 64, 64, 128, 64, 64, 64, 90, trans_b=True),
    product(gemm, "gemm_e4m3_promoted_sm90", "e4m3", "e4m3", "f16", 128, 64, 256, 128, 64, 128, 90, trans_b=True, imprecise=0,
            warps=8),
    product(gemm, "gemm_e5m2_bits_sm90", "e5m2", "e5m2", "f32", 64, 32, 64, 64, 32, 32, 90, trans_b=True, dist="bits"),
    product(gemm, "gemm_s8_sm80", "s8", "s8", "s32", 48, 40, 96, 32, 32, 32, 80, acc="int32", trans_b=True, dist="bits"),
    product(gemm, "gemm_f64_sm80", "f64", "f64", "f64", 32, 32, 32, 32, 32, 16, 80, acc="fp64"),
    product(gemm, "gemm_f64_sm90", "f64", "f64", "f64", 64, 32, 32, 64, 32, 16, 90, acc="fp64"),
    tiles(gemm_grouped, "gemm_grouped_sm80", 80, [9, 1, 1], [arr("bf16", 90, 48), arr("bf16", 48, 70, seed=2),
          arr("bf16", 70, seed=3), out("bf16", 90, 70), 90, 70, 48], BM=32, BN=32, BK=32, GROUP=2),
    tiles(gemm_grouped, "gemm_grouped_sm90", 90, [4, 1, 1], [arr("f16", 128, 128), arr("f16", 128, 128, seed=2),
          arr("f16", 128, seed=3), out("f16", 128, 128), 128, 128, 128], BM=64, BN=64, BK=64, GROUP=2),
    tiles(gemm_persistent, "gemm_persistent_sm90", 90, [3, 1, 1], [arr("f16", 192, 96), arr("f16", 96, 128, seed=2),
          out("f16", 192, 128), 192, 128, 96], BM=64, BN=64, BK=32),
    tiles(gemm_split_k, "gemm_split_k_f16_sm80", 80, [2, 2, 3], [arr("f16", 40, 200, dist=INT),
          arr("f16", 200, 50, seed=2, dist=INT), out("f32", 40, 50), 40, 50, 200], BM=32, BN=32, BK=32, SPLIT=3, ACC="fp32"),
    tiles(gemm_split_k, "gemm_split_k_f16_sm90", 90, [2, 2, 2], [arr("f16", 128, 128, dist=INT),
          arr("f16", 128, 64, seed=2, dist=INT), out("f32", 128, 64), 128, 64, 128], BM=64, BN=32, BK=32, SPLIT=2, ACC="fp32"),
    tiles(gemm_split_k, "gemm_split_k_s8_sm80", 80, [2, 1, 2], [bits("s8", 48, 128), bits("s8", 128, 32, seed=2),
          out("s32", 48, 32), 48, 32, 128], BM=32, BN=32, BK=32, SPLIT=2, ACC="int32"),
    tiles(gemm_batched, "gemm_batched_sm80", 80, [2, 2, 3], [arr("f16", 3, 40, 50), arr("f16", 3, 50, 60, seed=2),
          out("f16", 3, 40, 60), 40, 60, 50], BM=32, BN=32, BK=32),
    tiles(gemm_batched, "gemm_batched_sm90", 90, [1, 2, 2], [arr("bf16", 2, 64, 64), arr("bf16", 2, 64, 64, seed=2),
          out("f32", 2, 64, 64), 64, 64, 64], BM=64, BN=32, BK=32),
    tiles(gemm_w8, "gemm_w8_sm80", 80, [1, 2, 1], [arr("f16", 32, 64), bits("s8", 64, 64, seed=2), arr("f32", 64, seed=3),
          out("f16", 32, 64), 32, 64, 64], BM=32, BN=32, BK=32),
    tiles(gemm_w8, "gemm_w8_sm90", 90, [1, 1, 1], [arr("f16", 64, 128), bits("s8", 128, 64, seed=2), arr("f32", 64, seed=3),
          out("f16", 64, 64), 64, 64, 128], BM=64, BN=64, BK=64),
    tiles(gemm_scaled, "gemm_mxfp4_sm90", 90, [1, 1, 1], [bits("u8", 64, 32),
          arr("u8", 64, 2, seed=2, dist=["integers", 120, 134]), bits("u8", 32, 64, seed=3),
          arr("u8", 64, 2, seed=4, dist=["integers", 120, 134]), out("f32", 64, 64)], BM=64, BN=64, BK=64, FA="e2m1", FB="e2m1",
          PA=2, PB=2),
    tiles(gemm_scaled, "gemm_mxfp8_sm90", 90, [1, 1, 1], [arr("e4m3", 64, 64),
          arr("u8", 64, 2, seed=2, dist=["integers", 120, 134]), arr("e5m2", 64, 32, seed=3),
          arr("u8", 32, 2, seed=4, dist=["integers", 120, 134]), out("f32", 64, 32)], BM=64, BN=32, BK=64, FA="e4m3", FB="e5m2",
          PA=1, PB=1),
]
