"""`Instruction.execute`: one instruction at a time, and 10,000 in a call, against `matmul` of the same form.

    python benchmarks/bench_execute.py [--device sm_90]

us: the fastest of many calls. G/s: multiply-accumulates a second, on all cores. --cpu-time: of processor time, which a busy
machine disturbs less; then a rate is that of one core.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

import mmulator as mm
from mmulator.matrix.numerics.formats import container, from_raw, numpy_dtype

FORMS = (
    "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
    "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32",
    "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32",
    "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32",
    "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32",
    "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32",
    "wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32",
)


CLOCK = [time.perf_counter]


def fastest(call: Any, seconds: float = 1.0) -> float:
    times = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 3:
        start = CLOCK[0]()
        call()
        times.append(CLOCK[0]() - start)
    return min(times)


def elements(rng: np.random.Generator, element: Any, shape: tuple[int, ...]) -> Any:
    """Standard normal numbers of a type, or uniform integers."""
    if element.is_float:
        return rng.standard_normal(shape).astype(numpy_dtype(element))
    return from_raw(element, rng.integers(0, 1 << min(element.bits, 8), shape).astype(container(element)))


def registers(rng: np.random.Generator, i: mm.Instruction, name: str, batch: tuple[int, ...]) -> Any:
    layout = i.layout(name)
    return layout.to_registers(elements(rng, layout.element_type, (*batch, *layout.shape)))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="sm_90")
    parser.add_argument("--cpu-time", action="store_true")
    parser.add_argument("--batch", type=int, default=10_000)
    o = parser.parse_args()
    if o.cpu_time:
        CLOCK[0] = time.process_time
    rng = np.random.default_rng(0)
    print(f"{'':72} one, us   {o.batch}, G/s   matmul, G/s")
    for text in FORMS:
        i = mm.Instruction.parse(text)
        form = i.form
        macs = form.m * form.n * form.k // (2 if form.sparse else 1)

        def operands(batch: tuple[int, ...], i: Any = i) -> dict[str, Any]:
            given: dict[str, Any] = {n: registers(rng, i, n, batch) for n in "abc"}
            if i.form.sparse:
                given |= {"e": np.full((*batch, 32), 0x44444444, np.uint32), "f": 0}
            return given

        one, many = operands(()), operands((o.batch,))
        single = fastest(lambda i=i, one=one: i.execute(device=o.device, **one))
        batched = fastest(lambda i=i, many=many: i.execute(device=o.device, **many), 2.0)
        rate = matmul_rate(i, o.device)
        print(f"{text:72} {1e6 * single:7.1f}   {o.batch * macs / batched / 1e9:8.2f}   {rate:10.2f}")


def matmul_rate(i: Any, device: str) -> float:
    rng = np.random.default_rng(1)
    form = i.form
    size = 1024

    a, b = (elements(rng, t, (size, size)) for t in (form.atype, form.btype))
    if form.sparse:
        a = mm.sparse.compress(mm.sparse.prune(a, i), i)
    macs = size**3 // (2 if form.sparse else 1)
    return macs / fastest(lambda: mm.matmul(a, b, instruction=i, device=device), 1.0) / 1e9


if __name__ == "__main__":
    main()
