"""Attention: two chained products with a running softmax between them."""

import triton
import triton.language as tl

from tests.kernels.arguments import arr, out


@triton.jit
def attention(q, k, v, o, lse, T, scale, CAUSAL: tl.constexpr, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """One block of queries of one head; the log of the row sums is kept for a backward pass."""
    start = tl.program_id(0) * BM
    head = tl.program_id(1)
    rm = start + tl.arange(0, BM)
    rn = tl.arange(0, BN)
    rd = tl.arange(0, D)
    q += head * T * D
    k += head * T * D
    v += head * T * D
    x = tl.load(q + rm[:, None] * D + rd[None, :], mask=rm[:, None] < T, other=0)
    m = tl.full((BM,), float("-inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    end = tl.minimum(start + BM, T) if CAUSAL else T
    for n in range(0, end, BN):
        keys = tl.load(k + (n + rn[:, None]) * D + rd[None, :], mask=n + rn[:, None] < T, other=0)
        s = tl.dot(x, tl.trans(keys)) * scale
        keep = (n + rn[None, :] < T) & (rm[:, None] >= n + rn[None, :]) if CAUSAL else n + rn[None, :] < T
        s = tl.where(keep, s, float("-inf"))
        new = tl.maximum(m, tl.max(s, 1))
        p = tl.math.exp2(s - new[:, None])
        fade = tl.math.exp2(m - new)
        total = total * fade + tl.sum(p, 1)
        values = tl.load(v + (n + rn[:, None]) * D + rd[None, :], mask=n + rn[:, None] < T, other=0)
        acc = tl.dot(p.to(values.dtype), values, acc * fade[:, None])
        m = new
    tl.store(o + head * T * D + rm[:, None] * D + rd[None, :], (acc / total[:, None]).to(o.dtype.element_ty),
             mask=rm[:, None] < T)
    tl.store(lse + head * T + rm, m + tl.math.log2(total), mask=rm < T)


def case(name, cap, dtype, heads, t, d, bm, bn, causal, warps=4, stages=2):
    shape = heads, t, d
    return {"name": name, "kernel": attention, "capability": cap, "warps": warps, "stages": stages,
            "grid": [-(-t // bm), heads, 1], "constexpr": {"CAUSAL": causal, "D": d, "BM": bm, "BN": bn},
            "args": [*(arr(dtype, *shape, seed=seed) for seed in (1, 2, 3)), out(dtype, *shape), out("f32", heads, t), t,
                     {"f32": 0.18033688}]}  # fmt: skip


CASES = [
    case("attention_causal_sm80", 80, "f16", 2, 64, 32, 32, 32, True),
    case("attention_causal_sm90", 90, "f16", 2, 128, 64, 64, 64, True),
    case("attention_odd_sm80", 80, "bf16", 1, 50, 64, 32, 16, False),
    case("attention_warpgroups_sm90", 90, "bf16", 1, 128, 64, 128, 64, True, warps=8),
]
