"""wgmma of each type, dense and sparse, A in shared memory and in registers: multiply-accumulates a second of one thread.

    python benchmarks/bench_wgmma.py [f16 e4m3 ...] [--rounds 5] [--against SRC]

A warpgroup goes over stages in shared memory, each four k-steps of m64n128 that add to one accumulator, as a GEMM does. An
operand is packed once for each of its products and never again, so this is products, packing and accumulators together. Of
sparse forms the products that are made are counted, half of K. --against: the folder `src` of another commit, in turns.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
from processes import Other, answer

N, STEPS = 128, 4
K = {"f16": 16, "bf16": 16, "tf32": 8, "e4m3": 32, "e5m2": 32, "s8": 32, "b1": 256}
TYPES = {"s8": "s32.s8.s8", "b1": "s32.b1.b1", "half": "f16.f16.f16"}
ROOM = 196608  # bytes of stages
PRODUCTS = 4e8  # of a launch


def cases() -> list[str]:
    return [f"{t}{kind}" for kind in ("", " sparse", " registers") for t in (*K, "half") if not (t == "b1" and kind == " sparse")]


def ptx(case: str) -> tuple[str, int, int]:
    """Text, stages, and products of one stage."""
    name, _, kind = case.partition(" ")
    own = "f16" if name == "half" else name
    sparse, registers = kind == "sparse", kind == "registers"
    k = K[own] * (1 + sparse)
    line_b = 32 * (1 + sparse)  # bytes of a column of B in a step
    size_a, size_b = 64 * 32, N * line_b
    stages = ROOM // (STEPS * (size_a + size_b)) // 3 * 3
    d = N // 4 if name == "half" else N // 2
    types = TYPES.get(name, f"f32.{own}.{own}")
    regs = ", ".join(f"%d{n}" for n in range(d))
    rest = "" if own in ("s8", "b1") else ", 1, 1"
    if own in ("f16", "bf16"):
        rest += ", 0" if registers else ", 0, 0"
    what = f"wgmma.mma_async{'.sp' if sparse else ''}.sync.aligned.m64n{N}k{k}.{types}{'.and.popc' if own == 'b1' else ''}"
    body = []
    for step in range(STEPS):
        a = "{%a0, %a1, %a2, %a3}" if registers else f"%rd{10 + step}"
        meta = ", %r9, 0" if sparse else ""
        body.append(f"  {what} {{{regs}}}, {a}, %rd{20 + step}{meta}, 1{rest};\n")
    descs = []
    for step in range(STEPS):
        # no swizzle: eight lines of 16 bytes, 128 bytes from one such to the next along k, and all of them of eight lines along m
        for at, offset, line in ((10 + step, step * size_a, 32), (20 + step, STEPS * size_a + step * size_b, line_b)):
            desc = (8 * line >> 4) << 32 | (128 >> 4) << 16
            descs.append(f"  add.u32 %r5, %r4, {offset}; shr.u32 %r5, %r5, 4; cvt.u64.u32 %rd{at}, %r5; "
                         f"or.b64 %rd{at}, %rd{at}, {desc:#x};\n")  # fmt: skip
    zero = "".join(f"  mov.b32 %d{n}, 0;\n" for n in range(d))
    total = "".join(f"  xor.b32 %r6, %r6, %d{n};\n" for n in range(d))
    loads = "".join(f"  ld.shared.b32 %a{n}, [%r1+{n * 512}];\n" for n in range(4)) if registers else ""
    text = f""".version 8.7
.target sm_90a
.address_size 64
.extern .shared .align 1024 .b8 tile[];
.visible .entry k(.param .u64 data, .param .u64 out, .param .u32 rounds)
{{
  .reg .b64 %rd<32>; .reg .pred %p<4>; .reg .b32 %r<16>; .reg .b32 %t<4>; .reg .b32 %d<{N // 2}>; .reg .b32 %a<4>;
  ld.param.u64 %rd0, [data]; ld.param.u64 %rd1, [out]; ld.param.u32 %r10, [rounds];
  mov.u32 %r0, %tid.x; mov.u32 %r1, tile; mov.u32 %r2, %r0;
FILL:
  mad.wide.u32 %rd3, %r2, 16, %rd0;
  ld.global.v4.b32 {{%t0, %t1, %t2, %t3}}, [%rd3];
  mad.lo.u32 %r3, %r2, 16, %r1;
  st.shared.v4.b32 [%r3], {{%t0, %t1, %t2, %t3}};
  add.u32 %r2, %r2, 128; setp.lt.u32 %p1, %r2, {ROOM // 16};
  @%p1 bra FILL;
  fence.proxy.async;
  bar.sync 0;
  mad.lo.u32 %r1, %r0, 4, %r1;
  mov.b32 %r9, 0x4E4EE44E; mov.u32 %r7, 0;
{zero}{loads}ROUND:
  mov.u32 %r4, tile; mov.u32 %r8, 0;
STAGE:
{"".join(descs)}  wgmma.fence.sync.aligned;
{"".join(body)}  wgmma.commit_group.sync.aligned;
  wgmma.wait_group.sync.aligned 1;
  add.u32 %r4, %r4, {STEPS * (size_a + size_b)}; add.u32 %r8, %r8, 1; setp.lt.u32 %p2, %r8, {stages};
  @%p2 bra STAGE;
  add.u32 %r7, %r7, 1; setp.lt.u32 %p3, %r7, %r10;
  @%p3 bra ROUND;
  wgmma.wait_group.sync.aligned 0;
  mov.b32 %r6, 0;
{total}  mad.wide.u32 %rd2, %r0, 4, %rd1; st.global.b32 [%rd2], %r6;
  ret;
}}
"""
    return text, stages, STEPS * 64 * N * (k // 2 if sparse else k)


def data(case: str) -> Any:
    """Bytes whose values are ordinary numbers of the type."""
    import ml_dtypes

    rng = np.random.default_rng(1)
    name = case.split()[0]
    if name in ("s8", "b1"):
        return rng.integers(0, 256, ROOM).astype(np.uint8)
    ty = {"f16": np.float16, "half": np.float16, "bf16": ml_dtypes.bfloat16, "tf32": np.float32}.get(name)
    if ty is None:
        ty = {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}[name]
    return (rng.standard_normal(ROOM) / 4).astype(ty).view(np.uint8)[:ROOM].copy()


def prepared(case: str) -> Any:
    """A function that launches and says how many seconds it took; how many products that were, and what it computed."""
    import mmulator as mm

    text, stages, products = ptx(case)
    given, out = data(case), np.zeros(128, np.uint32)
    kernel = mm.Module.load(text)["k"]
    rounds = max(1, int(PRODUCTS * (8 if case.startswith("b1") else 1) / (products * stages)))

    def launch() -> float:
        start = time.process_time()
        kernel.launch(1, 128, [given, out, rounds], ROOM, device="sm_90", threads=1)
        return time.process_time() - start

    return launch, products * stages * rounds, out


def worker() -> None:
    known: dict[str, Any] = {}

    def rate(case: str) -> tuple[float, str]:
        if case not in known:
            known[case] = prepared(case)
            for _ in range(10):
                known[case][0]()
        launch, products, out = known[case]
        return max(products / launch() for _ in range(3)), out.tobytes().hex()

    answer(rate)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--against", metavar="SRC")
    parser.add_argument("--worker", action="store_true")
    o = parser.parse_args()
    if o.worker:
        worker()
        return
    workers = [Other(__file__)]
    if o.against:
        workers.append(Other(__file__, against=o.against))
    print(f"{'m64n128, G/s':20}{'now':>8}" + (f"{'before':>8}{'ratio':>8}" if o.against else ""))
    for case in cases():
        if o.names and case.split()[0] not in o.names:
            continue
        rates: list[float] = [0.0 for _ in workers]
        for _ in range(o.rounds):
            results = []
            for n, other in enumerate(workers):
                rate, result = other(case)
                rates[n] = max(rates[n], rate)
                results.append(result)
            assert len(set(results)) == 1, f"{case}: other bits than before"
        print(f"{case:20}" + "".join(f"{r / 1e9:8.2f}" for r in rates) + (f"{rates[0] / rates[1]:8.2f}" if o.against else ""),
              flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
