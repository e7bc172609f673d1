"""The approximate functions of a GPU: check them against the model over all inputs, or capture them to solve tables.

    python -m evidence.capture.sfu check [FORM ...] [--tables FILE] [--out FILE.json]
    python -m evidence.capture.sfu capture FOLDER      # then: python -m evidence.study.solve_sfu solve FOLDER ...
    python -m evidence.capture.sfu underflow           # how FMUL.FTZ treats products just below 2**-126

`check` runs every form (`ex2.ftz.f32`, `div.full.f32`, ...) on the GPU: all 2**32 inputs of the f32 forms and of the
packed pairs, all 2**16 of the half types, all 2**32 high words of the f64 forms with scattered low words, and 2**32
scattered pairs for the divisions, half of them with quotients about the smallest normal number. The compiled twin
computes the same blocks on all cores; any difference is counted and the first ones are shown. The driver compiles the
kernels: nothing is needed but it, this package and its extra `gpu`. With `capture --twin` the twin takes the place of the GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import zlib
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmulator.isa.targets import DEVICES
from mmulator.matrix.numerics.sfu.tables import Tables, parse_tables, tables_for
from mmulator.matrix.twin.sfu.arrays import array_function
from mmulator.matrix.twin.sfu.native import BINARY, KEYS, Key, word_of
from tests.support.sfu import FUNCTIONS, encode

Array = NDArray[Any]
BLOCK = 1 << 24
THREADS = 256

# Binades that show every row at every x: function, signs, exponents.
BINADES: list[tuple[str, str, tuple[int, ...]]] = [
    ("rcp", "p", (0,)),
    ("rsq", "p", (0, 1)),
    ("sqrt", "p", (0, 1)),
    ("lg2", "p", (-2, -1, 0, 1, 2, 7)),
    ("ex2", "p", (-10, -4, -2, -1, 0, 2)),
    ("ex2", "n", (-4, -2, -1, 0)),
    ("sin.ptx", "p", tuple(range(-6, 4))),
    ("cos.ptx", "p", tuple(range(-6, 4))),
    ("tanh", "p", tuple(range(-8, 4))),
]


def form_name(key: Key) -> str:
    name, ty, ftz = key
    return f"{name}{'.ftz' if ftz else ''}.{ty}"


def instruction(key: Key) -> str:
    """`ex2.approx.ftz.f32`; the divisions carry .approx or .full in their name."""
    name, ty, ftz = key
    return f"{name}{'' if key in BINARY else '.approx'}{'.ftz' if ftz else ''}.{ty}"


# kernels -------------------------------------------------------------------------------------------------------------
# a scattered word of an index: xorshift and multiply; the registers are %x (in and out) and %t
_SCATTER = """
    shr.u32 %t, %x, 16; xor.b32 %x, %x, %t; mul.lo.u32 %x, %x, 0x7feb352d;
    shr.u32 %t, %x, 15; xor.b32 %x, %x, %t; mul.lo.u32 %x, %x, 0x846ca68b;
    shr.u32 %t, %x, 16; xor.b32 %x, %x, %t;"""


def kernel(key: Key, from_memory: bool, target: str) -> str:
    """PTX of entry `k(dst, base, src)`: thread i writes the result for index base + i, or for src[i]."""
    bits = word_of(key).bits
    if from_memory:
        operand = f"mad.wide.u32 %a, %i, {bits // 8}, %src; ld.global.b{bits} %w0, [%a];"
    elif key in BINARY:
        operand = f"""mov.u32 %x, %n; {_SCATTER}
    mov.b32 %w0, %x; add.u32 %x, %x, 0x9e3779b9; {_SCATTER}
    mov.b32 %w1, %x;
    shr.u32 %x, %w0, 23; and.b32 %t, %n, 6; shr.u32 %t, %t, 1; add.u32 %x, %x, %t; add.u32 %x, %x, 125;
    and.b32 %x, %x, 255; shl.b32 %x, %x, 23; and.b32 %t, %w1, 0x807fffff; or.b32 %x, %x, %t;
    and.b32 %t, %n, 1; setp.ne.u32 %p, %t, 0; @%p mov.b32 %w1, %x;"""
    elif bits == 64:
        operand = "mul.lo.u32 %x, %n, 0x9e3779b1; mov.b64 %w0, {%x, %n};"
    else:
        operand = f"cvt.u{bits}.u32 %w0, %n;"
    sources = "%w0, %w1" if key in BINARY else "%w0"
    return f""".version {"7.8" if int(target[3:]) < 100 else "8.7"}
.target {target}
.address_size 64
.visible .entry k(.param .u64 dst, .param .u32 base, .param .u64 src)
{{
    .reg .pred %p; .reg .b32 %i, %n, %x, %t; .reg .b64 %a, %dst, %src; .reg .b{bits} %w<3>;
    ld.param.u64 %dst, [dst]; ld.param.u32 %n, [base]; ld.param.u64 %src, [src];
    mov.u32 %i, %ctaid.x; mov.u32 %x, %ntid.x; mov.u32 %t, %tid.x; mad.lo.u32 %i, %i, %x, %t; add.u32 %n, %n, %i;
    {operand}
    {instruction(key)} %w2, {sources};
    mad.wide.u32 %a, %i, {bits // 8}, %dst; st.global.b{bits} [%a], %w2;
    ret;
}}
"""


def scattered(x: Array) -> Array:
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        x = (x ^ x >> np.uint32(shift)) * np.uint32(factor)
    result: Array = x ^ x >> np.uint32(16)
    return result


def operands(key: Key, base: int, count: int) -> tuple[Array, ...]:
    """What the threads of a kernel compute on: the same as in its PTX."""
    n = np.arange(base, base + count, dtype=np.uint32)
    if key in BINARY:
        a = scattered(n)
        b = scattered(a + np.uint32(0x9E3779B9))
        e = (a >> np.uint32(23)) + (n >> np.uint32(1) & np.uint32(3)) + np.uint32(125) & np.uint32(255)
        return a, np.where(n & np.uint32(1), e << np.uint32(23) | b & np.uint32(0x807FFFFF), b)
    bits = word_of(key).bits
    if bits == 64:
        return (n.astype(np.uint64) << np.uint64(32) | (n * np.uint32(0x9E3779B1)).astype(np.uint64),)
    return (n.astype(f"u{bits // 8}"),)


class Device:
    """The forms on GPU 0."""

    def __init__(self) -> None:
        import ctypes

        from evidence.capture.gpu import Gpu

        self.c, self.gpu = ctypes, Gpu(limit_s=60.0)
        self.target, self.product = self.gpu.chip.device, self.gpu.chip.name
        self.result = self.gpu.upload(np.empty(8 * BLOCK, np.uint8))
        self.source = self.gpu.upload(np.empty(8 * BLOCK, np.uint8))
        self.functions: dict[tuple[Key, bool], Any] = {}

    def run(self, key: Key, base: int, count: int, source: Array | None = None) -> Array:
        """Results for `count` (a multiple of 256, at most 2**24) indices from base on, or for the words of `source`."""
        slot = (key, source is not None)
        if slot not in self.functions:
            text = kernel(key, source is not None, self.target)
            self.functions[slot] = self.gpu.function(self.gpu.module(text.encode()), "k")
        if source is not None:
            self.gpu.write_to(self.source, np.ascontiguousarray(source))
        cells = [self.result, self.c.c_uint32(base), self.source]
        self.gpu.start(self.functions[slot], count // THREADS, THREADS, cells)
        words: Array = self.gpu.download(self.result, np.empty(count, f"u{word_of(key).size}"))
        return words


# check ---------------------------------------------------------------------------------------------------------------
def compare(key: Key, base: int, got: Array, tables: Tables) -> tuple[int, list[list[str]]]:
    sources = operands(key, base, len(got))
    want = array_function(*key, tables)(*sources)
    wrong = np.flatnonzero(got != want)
    shown = [[hex(v) for v in (*(int(s[i]) for s in sources), int(got[i]), int(want[i]))] for i in wrong[:4]]
    return len(wrong), shown


def check(device: Device, wanted: list[str], tables: Tables, out: Path | None) -> int:
    keys = [key for key in KEYS if not wanted or form_name(key) in wanted]
    record: dict[str, Any] = {"device": device.target, "product": device.product, "tables": tables.device, "forms": {}}
    workers = max(1, len(os.sched_getaffinity(0)) - 1)
    with ThreadPoolExecutor(workers) as pool:
        for key in keys:
            record["forms"][form_name(key)] = entry = check_form(device, key, tables, pool, workers)
            print(f"{form_name(key):18} {entry}", flush=True)
            if out:
                out.write_text(json.dumps(record, indent=1) + "\n")
    bad = [name for name, entry in record["forms"].items() if entry.get("mismatches") or "error" in entry]
    print(f"{len(keys) - len(bad)} of {len(keys)} forms without a mismatch on {device.product}")
    return 1 if bad else 0


def check_form(device: Device, key: Key, tables: Tables, pool: ThreadPoolExecutor, workers: int) -> dict[str, Any]:
    start, mismatches, shown = time.monotonic(), 0, list[list[str]]()
    total = 1 << 16 if word_of(key).bits == 16 else 1 << 32
    size = min(total, BLOCK)
    array_function(*key, tables)  # compile once
    waiting: deque[Future[tuple[int, list[list[str]]]]] = deque()

    def collect() -> None:
        nonlocal mismatches
        count, examples = waiting.popleft().result()
        mismatches += count
        shown.extend(examples[: max(0, 4 - len(shown))])

    try:
        for base in range(0, total, size):
            got = device.run(key, base, size)
            if len(waiting) >= 2 * workers:
                collect()
            waiting.append(pool.submit(compare, key, base, got, tables))
    except Exception as error:
        return {"error": str(error).splitlines()[0]}
    while waiting:
        collect()
    entry = {"inputs": total, "mismatches": mismatches, "seconds": round(time.monotonic() - start, 1)}
    return entry | ({"operands, GPU, model": shown} if shown else {})


# capture -------------------------------------------------------------------------------------------------------------
def key_of(kind: str) -> Key:
    """The instruction behind a name of a capture."""
    function = FUNCTIONS[kind]
    if function.endswith("64h"):
        return function.removesuffix("64h"), "f64", True
    return function, "f32", function != "tanh"


def capture(run: Callable[[Key, Array], Array], folder: Path) -> None:
    """The files that `evidence/study/solve_sfu.py` reads."""
    folder.mkdir(parents=True, exist_ok=True)
    files: dict[str, dict[str, Array]] = {}
    for kind, sign, exponents in BINADES:
        for exponent in exponents:
            first = (sign == "n") << 31 | exponent + 127 << 23
            words = run(key_of(kind), np.arange(first, first + (1 << 23), dtype=np.uint32))
            files.setdefault(kind, {})[f"{kind}_{sign}{exponent}"] = encode(words)
    sweep = files.setdefault("exponents", {})
    for kind, exponents in (("rcp64", (0,)), ("rsq64", (0, 1))):
        for exponent in exponents:
            first = exponent + 1023 << 20
            highs = np.arange(first, first + (1 << 20), dtype=np.uint64) << np.uint64(32)
            sweep[f"{kind}_{exponent}"] = encode((run(key_of(kind), highs) >> np.uint64(32)).astype(np.uint32))
    rng = np.random.default_rng(0)
    edge = np.arange(4)
    fractions = np.concatenate([edge, (1 << 23) - 1 - edge, rng.integers(0, 1 << 23, 504)]).astype(np.uint32)
    sweep["xs_man"] = fractions
    inputs = (np.arange(512, dtype=np.uint32)[:, None] << np.uint32(23) | fractions).ravel()
    for key in KEYS:
        if key[1] == "f32" and key not in BINARY:
            sweep[f"xs_{instruction(key)}"] = pressed(run(key, inputs))
        elif key[1] in ("f16", "bf16"):
            sweep[instruction(key)] = pressed(run(key, np.arange(1 << 16, dtype=np.uint16)))
    for name, arrays in files.items():
        np.savez(folder / f"{name}.npz", allow_pickle=False, **arrays)
    print(f"{folder}: {sum(len(a) for a in files.values())} arrays")


def pressed(words: Array) -> Array:
    return np.frombuffer(zlib.compress(words.tobytes(), 9), np.uint8)


def capture_on(device: Device, folder: Path) -> None:
    def run(key: Key, inputs: Array) -> Array:
        return device.run(key, 0, len(inputs), inputs)

    capture(run, folder)
    (folder / "device.json").write_text(json.dumps({"device": device.target, "product": device.product}) + "\n")


# underflow -----------------------------------------------------------------------------------------------------------
# 2**-126 times 1 - 2**-24 (which has 24 bits), 1 - 2**-46 and 1 - 2**-44 (which have more)
BELOW = ((0x3F7FFFFF, 0x00800000), (0x3F7FFFFE, 0x00800001), (0x3F7FFFFC, 0x00800002))
RULES = {(0, 0, 0): "before rounding", (0, 1, 1): "after rounding to 24 bits", (1, 1, 1): "after rounding to 2**-149"}


def underflow(device: Device) -> None:
    """When is a product found to be below 2**-126 and flushed?"""
    text = kernel(("div.approx", "f32", True), False, device.target).replace("div.approx.ftz.f32", "mul.ftz.f32")
    pick = "mov.u32 %w0, 0; mov.u32 %w1, 0;"
    for i, (a, b) in enumerate(BELOW):
        pick += f" setp.eq.u32 %p, %n, {i}; @%p mov.u32 %w0, {a}; @%p mov.u32 %w1, {b};"
    start, end = text.index("mov.u32 %x, %n;"), text.index("mul.ftz")
    function = device.gpu.function(device.gpu.module((text[:start] + pick + "\n    " + text[end:]).encode()), "k")
    device.gpu.start(function, 1, THREADS, [device.result, device.c.c_uint32(0), device.source])
    x, y, z = device.gpu.download(device.result, np.empty(3, np.uint32)).tolist()
    rule = RULES.get((int(x != 0), int(y != 0), int(z != 0)), "in another way")
    print(f"mul.ftz.f32: {x:#x} {y:#x} {z:#x}: flushed {rule}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    checking = commands.add_parser("check", help="the GPU against the model, all inputs")
    checking.add_argument("forms", nargs="*", metavar="FORM", help=", ".join(map(form_name, KEYS)))
    checking.add_argument("--tables", type=Path, help="tables to check; those of the GPU's architecture unless told")
    checking.add_argument("--out", type=Path, help="a JSON record")
    capturing = commands.add_parser("capture", help="captures to solve tables from")
    capturing.add_argument("folder", type=Path)
    capturing.add_argument("--twin", action="store_true", help="capture the compiled twin of sm_90 instead of a GPU")
    commands.add_parser("underflow", help="the rule of FMUL.FTZ")
    args = parser.parse_args()
    if args.command == "capture" and args.twin:
        capture(lambda key, inputs: array_function(*key, tables_for("sm_90")[0])(inputs), args.folder)
        return
    device = Device()
    print(f"{device.product}, {device.target}")
    match args.command:
        case "check":
            known, measured = tables_for(device.target if device.target in DEVICES else "sm_90")
            tables = parse_tables(args.tables.read_text()) if args.tables else known
            print(f"tables of {tables.device}" + ("" if measured or args.tables else ", which is not this chip"))
            sys.exit(check(device, args.forms, tables, args.out))
        case "capture":
            capture_on(device, args.folder)
        case _:
            underflow(device)


if __name__ == "__main__":
    main()
