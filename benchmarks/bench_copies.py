"""Tensor and bulk copies of 64 MB against NumPy's copy of the same bytes, on one thread: to shared memory, and back as well.

    python benchmarks/bench_copies.py [--megabytes 64] [--runs 7]

Each block loops over its share of the matrix: a box is loaded (an mbarrier counts its bytes) and waited for; where it is stored,
too, that is to the same place of another matrix. Times of the processor are the least of several runs, in turns with NumPy's copy
of the whole and, for boxes that are loaded, NumPy's copies of one box after the other.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

import mmulator as mm

HEAD = """.version 8.0
.target sm_90a
.address_size 64
.visible .entry copy({parameters}, .param .u32 boxes)
{{
    .reg .b32 %i, %n, %end, %x, %y, %parity, %at;
    .reg .b64 %from, %to, %step;
    .reg .pred %p;
    .shared .align 1024 .b8 box[{bytes}];
    .shared .align 8 .b64 full;
    mbarrier.init.shared.b64 [full], 1;
    {begin}
    mov.u32 %i, %ctaid.x;
    mov.u32 %n, %nctaid.x;
    ld.param.u32 %end, [boxes];
    mov.u32 %parity, 0;
NEXT:
    setp.ge.u32 %p, %i, %end;
    @%p bra DONE;
    mbarrier.arrive.expect_tx.shared.b64 _, [full], {bytes};
    {load}
WAIT:
    mbarrier.try_wait.parity.shared.b64 %p, [full], %parity;
    @!%p bra WAIT;
    xor.b32 %parity, %parity, 1;
    {store}
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0;
    add.u32 %i, %i, %n;
    bra NEXT;
DONE:
    ret;
}}
"""
MAPS = ".param .align 64 .b8 a[128], .param .align 64 .b8 b[128]"
ROWS = 64  # of a box
TENSOR = {
    "begin": "mov.b64 %from, a; cvta.param.u64 %from, %from; mov.b64 %to, b; cvta.param.u64 %to, %to;",
    "load": "and.b32 %x, %i, {mask}; shl.b32 %x, %x, 6; shr.u32 %y, %i, {shift}; shl.b32 %y, %y, 6;\n"
    "    cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [box], [%from, {{%x, %y}}], [full];",
    "store": "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%to, {{%x, %y}}], [box];",
}
BULK = {
    "begin": "ld.param.u64 %from, [a]; ld.param.u64 %to, [b];",
    "load": "mul.wide.u32 %step, %i, {bytes}; add.u64 %step, %from, %step;\n"
    "    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [box], [%step], {bytes}, [full];",
    "store": "mul.wide.u32 %step, %i, {bytes}; add.u64 %step, %to, %step;\n"
    "    cp.async.bulk.global.shared::cta.bulk_group [%step], [box], {bytes};",
}


def kernel(parts: dict[str, str], parameters: str, bytes: int, boxes_across: int, back: bool) -> mm.Kernel:
    known = {"bytes": bytes, "mask": boxes_across - 1, "shift": boxes_across.bit_length() - 1}
    filled = {name: text.format(**known) if back or name != "store" else "" for name, text in parts.items()}
    return mm.Module.load(HEAD.format(parameters=parameters, bytes=bytes, **filled))["copy"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=64)
    parser.add_argument("--runs", type=int, default=7)
    options = parser.parse_args()
    a = np.random.default_rng(1).integers(0, 1 << 16, (options.megabytes << 19) // 4096 * 4096, np.uint16).view(np.float16)
    b = np.zeros_like(a)
    ways: dict[str, tuple[mm.Kernel, list[Any], bool]] = {}
    matrices: dict[str, Any] = {}
    for back in (False, True):
        what = "load and store" if back else "load"
        for swizzle in ("none", "128B"):
            for columns in (4096, 64):
                shape = (a.size // columns, columns)
                maps = [mm.TensorMap.tiled(x.reshape(shape), (ROWS, 64), swizzle=swizzle) for x in (a, b)]
                made = kernel(TENSOR, MAPS, ROWS * 128, columns // 64, back)
                name = f"{what}, box 64 x 64, swizzle {swizzle}, of {shape[0]} x {columns}"
                ways[name] = made, [*maps, a.nbytes // (ROWS * 128)], back
                matrices[name] = a.reshape(shape)
        for bytes in (8192, 32768):
            made = kernel(BULK, ".param .u64 a, .param .u64 b", bytes, 1, back)
            ways[f"{what}, {bytes} bytes"] = made, [a, b, a.nbytes // bytes], back
    tile = np.zeros((ROWS, 64), np.float16)

    def boxes(matrix: Any) -> None:
        for row in range(0, matrix.shape[0], ROWS):
            for column in range(0, matrix.shape[1], 64):
                tile[...] = matrix[row : row + ROWS, column : column + 64]

    for name, (made, args, back) in ways.items():
        least, numpy_least, boxes_least = 1e9, 1e9, 1e9
        for _ in range(options.runs):
            b[:] = 0
            started = time.process_time()
            made.launch(8, 1, args, threads=1)
            least = min(least, time.process_time() - started)
            assert not back or np.array_equal(a.view(np.uint16), b.view(np.uint16))
            started = time.process_time()
            np.copyto(b, a)
            numpy_least = min(numpy_least, time.process_time() - started)
            if name in matrices and not back:
                started = time.process_time()
                boxes(matrices[name])
                boxes_least = min(boxes_least, time.process_time() - started)
        more = f"  by boxes {1e3 * boxes_least:5.1f} ms" if boxes_least < 1e9 else ""
        whole = f"numpy {1e3 * numpy_least:5.1f} ms  ratio {numpy_least / least:.2f}"
        print(f"{name:62} {1e3 * least:6.1f} ms  {whole}{more}", flush=True)


if __name__ == "__main__":
    main()
