"""One `wgmma` m64n256k16 f32.f16.f16 beside PyPI `mmasim` (torch), which models the same instruction, in one process.

    pip install mmasim
    python benchmarks/bench_mmasim.py [--shape m64n256k16] [--json]

Both get the same operands, and their results are compared bit for bit first. `execute` takes A and D in registers and B
in shared memory, `compute` and `mmasim` take matrices. Times are the best of their rounds: one call at a time, and an
instruction's share of a call with a batch, which mmasim does not take. mmasim has the number of torch threads that suits
it best.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from processes import best


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--shape", default="m64n256k16")
    parser.add_argument("--rounds", type=int, default=30, help="of mmasim, for each number of threads")
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    missing = [name for name in ("mmasim", "torch") if find_spec(name) is None]
    if missing:
        print(f"not installed: {', '.join(missing)}; nothing to compare with (pip install mmasim)", file=sys.stderr)
        return 1
    row = measure(arguments.shape, arguments.rounds, arguments.batch)
    if arguments.json:
        print(json.dumps(row, indent=1))
        return 0
    print(f"{row['instruction']}, {row['macs']} MACs")
    for name, seconds in row["seconds"].items():
        times = row["seconds"]["mmasim"] / seconds
        print(f"  {name:<24} {1e6 * seconds:12.1f} us  {row['macs'] / seconds / 1e9:9.4f} GMAC/s  {times:9.0f} x mmasim")
    return 0


def measure(shape: str, rounds: int, batch: int) -> dict[str, Any]:
    import numpy as np
    import torch  # type: ignore[import-not-found]
    from mmasim.nv_ptx import WGMMA  # type: ignore[import-not-found]

    import mmulator as mm
    from mmulator.matrix.layouts import operand_addresses

    i = mm.Instruction.parse(f"wgmma.mma_async.sync.aligned.{shape}.f32.f16.f16")
    m, n, k = (int(x) for x in re.findall(r"\d+", shape))
    rng = np.random.default_rng(0)
    A, B = rng.standard_normal((m, k)).astype(np.float16), rng.standard_normal((k, n)).astype(np.float16)
    C = rng.standard_normal((m, n)).astype(np.float32)
    descriptor = mm.MatrixDescriptor(0, 128, 256, 0, "none")  # B: k-major core matrices of 8 rows and 16 bytes
    image = np.zeros(n * k * 2, np.uint8)
    raw = np.ascontiguousarray(B.T).view(np.uint8).reshape(n, k, 2)
    image[operand_addresses(descriptor, n, k, 16)[..., None] + np.arange(2)] = raw
    a, d = i.layout("a").to_registers(A), i.layout("d").to_registers(C)

    theirs = WGMMA("Hopper", f"{shape}.f32.f16.f16")
    tensors = [torch.from_numpy(x) for x in (A, B, C)]
    many = [np.repeat(x[None], batch, 0) for x in (A, B, C, a, d, image)]
    calls: dict[str, tuple[Callable[[], Any], int]] = {
        "compute": (lambda: i.compute(A, B, C), 1),
        "execute": (lambda: i.execute(d=d, a=a, b_desc=descriptor, shared=image), 1),
        f"compute, batch of {batch}": (lambda: i.compute(*many[:3]), batch),
        f"execute, batch of {batch}": (
            lambda: i.execute(d=many[4], a=many[3], b_desc=descriptor, shared=many[5]), batch
        ),
    }  # fmt: skip
    ours = i.compute(A, B, C).view(np.uint32)
    for name, other in (("execute", i.layout("d").to_matrix(calls["execute"][0]())), ("mmasim", theirs(*tensors).numpy())):
        if not np.array_equal(np.ascontiguousarray(other).view(np.uint32), ours):
            raise SystemExit(f"{name} and compute differ")
    times = []
    for threads in {1, os.cpu_count() or 1}:
        torch.set_num_threads(threads)
        times.append(best(lambda: theirs(*tensors), rounds))
    seconds = {"mmasim": min(times)} | {name: best(call, 300 // count + 5) / count for name, (call, count) in calls.items()}
    return {"instruction": str(i), "macs": m * n * k, "seconds": seconds}


if __name__ == "__main__":
    sys.exit(main())
