"""Matrix instructions on the machine and on the GPU at hand: fresh random operands, all registers compared.

    python tools/compare_gpu.py [--tests 4096] [--seed 1] [--filter REGEX] [--out report.json]

For every legal mma form (dense and sparse) of .target sm_90a: one kernel of PTX text, run by both. Six kinds of operands
take turns: random bits; values near one; wide exponents; powers of two that cancel; subnormals; Inf and NaN sprinkled in.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from capture_gpu import Gpu

from mmulator.isa.form import Form
from mmulator.isa.matrix import matrix_forms
from mmulator.isa.targets import Target
from mmulator.isa.types import ElementType
from mmulator.layouts import sparse
from mmulator.layouts.operands import fragment
from mmulator.machine.module import Module
from test_machine_golden import mma_kernel

TARGET = Target(90, "a")


def elements(rng: np.random.Generator, t: ElementType, count: int, kind: int) -> np.ndarray:
    """Raw elements as uint64, one each."""
    sign = rng.integers(0, 2, count, dtype=np.uint64) << np.uint64(t.bits - 1)
    bits = rng.integers(0, 1 << min(t.bits, 63), count, dtype=np.uint64) | sign
    if not t.is_float or kind == 0:
        return bits
    low = 52 if t.name == "f64" else 23 if t.bits == 32 else t.mantissa
    top = (1 << t.exponent) - 1
    fraction = rng.integers(0, 1 << low, count, dtype=np.uint64)
    near = t.bias + rng.integers(-2, 3, count)
    match kind:
        case 1:
            exponent = near
        case 2:
            exponent = rng.integers(0, top, count)
        case 3:
            exponent, fraction = near + rng.integers(-4, 5, count), fraction * np.uint64(0)
        case 4:
            exponent = np.where(rng.random(count) < 0.6, 0, rng.integers(0, max(2, t.bias // 2), count))
        case _:
            exponent = np.where(rng.random(count) < 0.03, top, near)
            fraction = np.where(rng.random(count) < 0.5, fraction, fraction * np.uint64(0))
    exponent = np.clip(exponent, 0, top).astype(np.uint64)
    return sign | (exponent << np.uint64(low)) | fraction


def operand(rng: np.random.Generator, form: Form, name: str, tests: int) -> np.ndarray:
    """Registers [tests, 32, words] as uint32."""
    f = fragment(form, name)
    t = {"a": form.atype, "b": form.btype, "c": form.ctype}[name]
    assert t is not None
    shape = (tests, f.lanes, f.registers, f.per_register)
    raw = np.concatenate([elements(rng, t, int(np.prod(shape[1:])), n % 6) for n in range(tests)]).reshape(shape)
    shifts = (np.arange(f.per_register, dtype=np.uint64) * np.uint64(f.bits))[None, None, None, :]
    words = np.bitwise_or.reduce(raw << shifts, axis=-1)
    if f.register_bits == 64:
        return np.ascontiguousarray(words).view(np.uint32).reshape(tests, f.lanes, -1)
    return words.astype(np.uint32)


def metadata(rng: np.random.Generator, form: Form, tests: int) -> np.ndarray:
    """Random words whose nibbles are all allowed ones: [tests, 32, 1]."""
    allowed = np.array([4, 14] if sparse.granularity(form).chunk == 2 else [4, 8, 12, 9, 13, 14], np.uint32)
    words = np.zeros((tests, 32, 1), np.uint32)
    for n in range(8):
        words |= rng.choice(allowed, words.shape) << np.uint32(4 * n)
    return words


def compare(
    gpu: Gpu, form: Form, selector: int, tests: int, seed: int, keep: Path | None = None
) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    buffers = {n: operand(rng, form, n, tests) for n in "abc"}
    if form.sparse:
        buffers["e"] = metadata(rng, form, tests)
    d = fragment(form, "d")
    wide = d.register_bits == 64
    counts = {n: b.shape[-1] // (2 if wide and n != "e" else 1) for n, b in buffers.items()} | {"d": d.registers}
    text = mma_kernel(form, counts, wide, selector if form.sparse else None)
    out = np.zeros((tests, 32, d.registers * (2 if wide else 1)), np.uint32)
    Module.load(text)["k"].launch(tests, 32, [*buffers.values(), out], device="sm_90")
    real = run_on_gpu(gpu, text, [*buffers.values()], np.zeros_like(out), tests)
    different = out != real
    result: dict[str, Any] = {"form": form.mnemonic, "selector": selector, "tests": tests, "words": out.size}
    result["wrong"] = int(different.sum())
    if different.any():
        if keep is not None:
            np.savez_compressed(keep / f"wrong_{seed}.npz", gpu=real, model=out, **buffers)
        at = tuple(int(i) for i in np.argwhere(different)[0])
        result |= {"first": at, "model": hex(int(out[at])), "gpu": hex(int(real[at]))}
    return result


def run_on_gpu(gpu: Gpu, text: str, inputs: list[np.ndarray], out: np.ndarray, grid: int) -> np.ndarray:
    import ctypes

    module = gpu.module(text.encode())
    function = gpu.function(module, "k")
    pointers = [gpu.upload(np.ascontiguousarray(x)) for x in (*inputs, out)]
    array = (ctypes.c_void_p * len(pointers))(*(ctypes.addressof(p) for p in pointers))
    gpu.call("cuLaunchKernel", function, grid, 1, 1, 32, 1, 1, 0, None, array, None)
    gpu.call("cuCtxSynchronize")
    gpu.download(pointers[-1], out)
    for p in pointers:
        gpu.free(p)
    gpu.call("cuModuleUnload", module)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tests", type=int, default=4096)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--filter", default=".")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--keep", type=Path, help="folder for operands and results of forms that differ")
    options = parser.parse_args()
    gpu = Gpu()
    rows = []
    start = time.perf_counter()
    for form in matrix_forms("mma"):
        if form.block_scale or not form.requires.admits(TARGET) or not re.search(options.filter, form.mnemonic):
            continue
        selectors = {4: 4, 8: 2, 16: 1}[form.k // sparse.granularity(form).chunk] if form.sparse else 1
        for selector in range(selectors):
            try:
                row = compare(gpu, form, selector, options.tests, options.seed + len(rows), options.keep)
            except Exception as error:
                row = {"form": form.mnemonic, "selector": selector, "error": f"{type(error).__name__}: {error}"[:300]}
            rows.append(row)
            if options.out:
                options.out.write_text(json.dumps(rows, indent=1))
            if row.get("wrong") or "error" in row:
                print(json.dumps(row), flush=True)
    words = sum(r.get("words", 0) for r in rows)
    wrong = sum(r.get("wrong", 0) for r in rows)
    errors = sum("error" in r for r in rows)
    print(f"{len(rows)} forms, {words:,} words, {wrong} wrong, {errors} errors, {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
