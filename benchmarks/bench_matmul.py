"""Matrix products with a device's bits, beside NumPy's float32 product of the same shape in the same run.

    python benchmarks/bench_matmul.py [--size 1024] [--threads 2] [--cpu-time] [--json]

Both use the same number of threads and take turns; each figure is the best of its rounds, operands packed each time. integers:
how much faster small integers are than normal numbers of the same type, since their sums are exact.
With --cpu-time the processor time of all threads is measured (use one thread), which a busy machine disturbs less.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from processes import best

CASES = [  # family, A, B, C/D, k, device, options
    ("wgmma", "f16", "f32", 16, "sm_90", {}),
    ("wgmma", "bf16", "f32", 16, "sm_90", {}),
    ("wgmma", "tf32", "f32", 8, "sm_90", {}),
    ("wgmma", "e4m3", "f32", 32, "sm_90", {}),
    ("wgmma", "e5m2", "f32", 32, "sm_90", {}),
    ("wgmma", "f16", "f16", 16, "sm_90", {}),
    ("wgmma", "f16", "f32", 32, "sm_90", {"sparse": True}),
    ("mma", "f16", "f32", 16, "sm_80", {}),
    ("wmma", "f16", "f32", 16, "sm_70", {}),
    ("mma", "e4m3", "f32", 32, "sm_90", {}),
    ("mma", "e4m3", "f32", 32, "sm_89", {}),
    ("mma", "e4m3", "f32", 32, "sm_120", {}),
    ("mma", "e4m3", "f32", 32, "sm_120", {"kind": "mxf8f6f4", "scale_vec": "1X", "stype": "ue8m0"}),
    ("mma", "e2m1", "f32", 64, "sm_120", {"kind": "mxf4nvf4", "scale_vec": "4X", "stype": "ue4m3"}),
    ("wgmma", "s8", "s32", 32, "sm_90", {}),
    ("wgmma", "u8", "s32", 32, "sm_90", {"satfinite": True}),
    ("mma", "s4", "s32", 64, "sm_90", {}),
    ("mma", "b1", "s32", 256, "sm_90", {"bit_op": "xor"}),
    ("mma", "f64", "f64", 16, "sm_90", {}),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cpu-time", action="store_true")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(arguments.threads)  # before NumPy is imported
    clock = time.process_time if arguments.cpu_time else time.perf_counter
    rows = [measure(case, arguments.size, arguments.threads, arguments.rounds, clock) for case in CASES]
    if arguments.json:
        print(json.dumps(rows, indent=1))
        return
    print(f"{arguments.size}^3, {arguments.threads} threads; GMAC/s")
    for r in rows:
        ratio = f"numpy {r['numpy']:7.1f}  ratio {r['ratio']:.3f}"
        print(f"{r['instruction']:<52} {r['device']:<7} {r['gmacs']:8.2f}  {ratio}  integers {r['integers']:.2f}")


def measure(case: tuple[Any, ...], size: int, threads: int, rounds: int, clock: Callable[[], float]) -> dict[str, Any]:
    import numpy as np

    from mmulator.matrix.numerics import DotKey
    from mmulator.matrix.twin.matrices import twin_matmul
    from mmulator.matrix.twin.twin import twin_for

    family, t, d, k, device, options = case
    key = DotKey(family, t, t, d, d, k, **options)
    rng = np.random.default_rng(0)
    deep = -(-size // k) * k  # whole instructions
    columns = deep // 2 if key.sparse else deep
    A, B, A_whole, B_whole = (operand(t, s, rng, whole) for whole in (False, True) for s in ((size, columns), (deep, size)))
    extra: dict[str, Any] = {}
    if key.sparse:
        extra["indices"] = 2 * np.arange(columns) + rng.integers(0, 2, (size, columns))
    if key.scale_blocks:
        blocks = deep // k * key.scale_blocks
        low, high = (120, 134) if key.stype == "ue8m0" else (40, 80)
        extra["scale_a"] = rng.integers(low, high, (size, blocks), dtype=np.uint8)
        extra["scale_b"] = rng.integers(low, high, (blocks, size), dtype=np.uint8)
    x, y = (rng.standard_normal((size, size), dtype=np.float32) for _ in range(2))
    twin_for(key, device).dot  # noqa: B018  compile
    product = partial(twin_matmul, key, device, threads=threads, **extra)
    ours = whole = theirs = float("inf")
    for _ in range(rounds):
        for _ in range(2):
            ours = min(ours, best(lambda: product(A, B, None), 1, 1, clock))
            whole = min(whole, best(lambda: product(A_whole, B_whole, None), 1, 1, clock))
        theirs = min(theirs, best(lambda: x @ y, 6, 1, clock))  # its threads take a while to wake up
    macs = size * size * columns / 1e9
    words = [f"{family}{'.sp' if key.sparse else ''} k{k} {d}.{t}.{t}", *(str(v) for v in options.values())]
    name = " ".join(w for w in words if w != "True") + (f" (K = {deep})" if deep != size else "")
    reference = size**3 / 1e9 / theirs
    return {
        "instruction": name, "device": device, "gmacs": round(macs / ours, 3), "numpy": round(reference, 2),
        "ratio": round(macs / ours / reference, 4), "integers": round(ours / whole, 2),
    }  # fmt: skip


def operand(t: str, shape: tuple[int, int], rng: Any, whole: bool) -> Any:
    """Raw elements: standard normal numbers, or integers up to 8 if `whole`; uniform integers of integer types."""
    import numpy as np

    from mmulator.matrix.numerics.formats import container, element_type, numpy_dtype

    e = element_type(t)
    if not e.is_float:
        return rng.integers(0, 1 << e.bits, shape, dtype=np.uint8)
    values = rng.integers(-8, 9, shape) if whole else rng.standard_normal(shape)
    return values.astype(numpy_dtype(e)).view(container(e)) & container(e).type((1 << e.bits) - 1)


if __name__ == "__main__":
    main()
