"""Scalar speed of the machine: lane-instructions per second of one core, compile time per PTX instruction.

    python benchmarks/bench_scalar.py
"""

from __future__ import annotations

import os
import tempfile
import time

import numpy as np

BODY = 64
TRIPS = 20000


def kernel() -> str:
    """A loop of integer and f32 arithmetic, as index and epilogue code has it."""
    lines = []
    for n in range(BODY // 8):
        a, b = f"%r{4 + n % 4}", f"%r{4 + (n + 1) % 4}"
        f, g = f"%f{1 + n % 4}", f"%f{1 + (n + 1) % 4}"
        lines += [
            f"mad.lo.s32 {a}, {a}, {b}, %r3;",
            f"xor.b32 {b}, {b}, {a};",
            f"shl.b32 {a}, {a}, 3;",
            f"add.s32 {b}, {b}, {a};",
            f"fma.rn.f32 {f}, {f}, {g}, 0f3F000000;",
            f"mul.rn.f32 {g}, {g}, 0f3F7FFFFE;",
            f"add.rn.f32 {f}, {f}, {g};",
            f"max.f32 {g}, {g}, {f};",
        ]
    body = "\n".join(lines)
    return f"""
.version 8.0
.target sm_90
.address_size 64
.visible .entry loop(.param .u64 out, .param .u32 trips)
{{
.reg .pred %p<2>; .reg .b32 %r<10>; .reg .f32 %f<6>; .reg .b64 %rd<4>;
ld.param.u64 %rd1, [out];
ld.param.u32 %r1, [trips];
mov.u32 %r2, 0;
mov.u32 %r3, %tid.x;
mov.u32 %r4, 1; mov.u32 %r5, 2; mov.u32 %r6, 3; mov.u32 %r7, 4;
mov.f32 %f1, 0f3F800000; mov.f32 %f2, 0f3F000000; mov.f32 %f3, 0f3E800000; mov.f32 %f4, 0f3E000000;
L:
{body}
add.u32 %r2, %r2, 1;
setp.lt.u32 %p1, %r2, %r1;
@%p1 bra L;
xor.b32 %r4, %r4, %r5;
xor.b32 %r4, %r4, %r6;
mul.wide.u32 %rd2, %r3, 4;
add.s64 %rd3, %rd1, %rd2;
st.global.u32 [%rd3], %r4;
ret;
}}
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["MMULATOR_CACHE"] = folder
        from mmulator.host.module import Module

        module = Module.load(kernel())
        k = module["loop"]
        out = np.zeros(32, np.uint32)
        start = time.perf_counter()
        k.launch(1, 32, [out, 1])
        warm = time.perf_counter() - start
        fresh = Module.load(kernel().replace("%r4, 1;", "%r4, 5;"))["loop"]
        start = time.perf_counter()
        compiled = fresh.compile("sm_90")
        seconds = time.perf_counter() - start
        report = k.launch(1, 32, [out, TRIPS], threads=1)
        lanes = report.total_instructions * 32
        print(f"first launch, runtime functions included: {warm:.2f} s")
        print(f"compile: {seconds / compiled.instructions * 1e3:.2f} ms a PTX instruction ({compiled.instructions})")
        print(f"run: {lanes / report.seconds['run'] / 1e9:.2f} G lane-instructions/s on one core")


if __name__ == "__main__":
    main()
