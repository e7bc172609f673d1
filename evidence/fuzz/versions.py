"""Compares the bits of random kernels under two versions of mmulator, and under four kinds of code of this one.

    python -m evidence.fuzz.versions --against /path/of/another/src --cases 1000 --seed 1
    python -m evidence.fuzz.versions --seed 1 --case 47         # the text of one case

Case N of a seed is always the same: up to twelve statements that ptxas accepts, with random bits in their registers, straight or
in a loop or under branches that lanes take differently. The kernel then writes every register that it uses. A process for each
kind of code says for each case the digest of all memory, or the sentence of the error: `before` is the other version, `stencils`
joined code, `pieces` the same of the lines of instructions one by one, `quick` and `better` LLVM's. Exit code 0: all are equal.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile
from collections import Counter
from functools import cache
from pathlib import Path

from evidence.fuzz import cases

ROOT = Path(__file__).parents[2]
KINDS = ("stencils", "pieces", "quick", "better")
THREADS = (32, 64, 100)
WINDOW = 8192  # bytes of the array that statements address; what registers had at the end lies behind
SLOTS = 250
SLOT = 16  # bytes of a register of a thread
# What waits for others, ends the kernel or jumps; and `cas`, behind whose failure another warp's turn may come
_LEFT_OUT = re.compile(
    r"(@!?\S+ )?(bar|barrier|mbarrier|bra|brx|call|ret|exit|trap|brkpt|wgmma|tcgen05|setmaxnreg|nanosleep|griddepcontrol|elect|"
    r"cp\.async\.bulk|cp\.async\.mbarrier|cp\.reduce|st\.async|red\.async|st\.bulk|multimem|tensormap|clusterlaunchcontrol|"
    r"alloca|stack\w*|atom\S*\.cas\S*|discard|tex|tld4|suld|sust|sured|txq|suq|istypep|mapa|getctarank|ld\.param|st\.param|"
    r"activemask|pmevent|applypriority|isspacep|mov\S* \S+ (smem|fixed|garr|lbuf|carr|callee|gpro)|\.)\b"
)
_SPECIAL = re.compile(r"%(clock|globaltimer|smid|nsmid|pm|warpid|nwarpid|gridid|dynamic|total|aggr|envreg|cluster|is_expl)")
_NAME = re.compile(r"(?<![\w%.])(%[a-z]\w*_\d+|uh\d|hf\d|hx\d|uc\d|sh\d|sd\d|ud\d|[pchrdfgqsu]\d+)(?![\w.])")
_STRIDE = re.compile(r"(wmma\.(?:load|store).*\], )\S+;")
_PLACE = re.compile(r"\[(?:smem|fixed|garr|lbuf|carr|d\d+|ud\d|sd\d|r\d+|u\d|s\d|f\d+|%[usb](?:32|64)_\d+)(\+-?\d+)?(?=[\],])")
_BITS = {
    "p": 1, "pred": 1, "c": 8, "uc": 8, "b8": 8, "u8": 8, "s8": 8, "h": 16, "uh": 16, "hf": 16, "sh": 16, "b16": 16, "u16": 16,
    "s16": 16, "f16": 16, "bf16": 16, "r": 32, "f": 32, "s": 32, "u": 32, "hx": 32, "b32": 32, "u32": 32, "s32": 32, "f32": 32,
    "f16x2": 32, "bf16x2": 32, "d": 64, "g": 64, "sd": 64, "ud": 64, "b64": 64, "u64": 64, "s64": 64, "f64": 64, "q": 128,
    "b128": 128,
}  # fmt: skip
_ADDRESSES = {"d1", "d4", "d5", "d6", "d7", "d8", "d9", "d10", "d11"}  # what cases.START sets to addresses
_SPACES = {".shared": ("d4", "d5", "smem", "fixed"), ".local": ("d6", "lbuf"), ".const": ("carr",), ".param": ("prm2",)}


@cache
def statements() -> list[str]:
    groups = [group for (target, _), group in cases.by_target().items() if int(re.findall(r"\d+", target)[0]) <= 90]
    found = dict.fromkeys(s for group in groups for s in group)
    every = (s for s in found if not _LEFT_OUT.match(s) and not _SPECIAL.search(s) and "\n" not in s)
    every = (s for s in every if "mma." not in s or ".aligned" in s)
    return [s for s in every if all(_bits(name) for name in _NAME.findall(s))]


def _bits(name: str) -> int:
    return _BITS.get(name[1:].partition("_")[0] if name[0] == "%" else name.rstrip("0123456789"), 0)


def _statement(rng: random.Random) -> str:
    text = rng.choice(statements())
    space = next((s for s in _SPACES if s in text), "")
    places = _SPACES.get(space, ("d1", "d1", "d7", "garr", "d11", "d8") if ".global" in text else ("d1", "d8", "d9"))
    if rng.random() < 0.95:
        text = _PLACE.sub(lambda found: f"[{rng.choice(places)}{found[1] or ''}", text)
        text = _STRIDE.sub(r"\g<1>16;", text)
    guarded = text[0] == "@" or ".sync" in text or rng.random() < 0.8
    return text if guarded else f"{rng.choice(('@p1 ', '@!p1 ', '@p2 '))}{text}"


def _first(rng: random.Random, name: str) -> str:
    """What sets a register to bits that differ between lanes."""
    mixed = f"mad.lo.u32 %w1, %w0, {rng.getrandbits(32) | 1}, {rng.choice((rng.choice(cases.VALUES), rng.getrandbits(32)))};"
    bits = _bits(name)
    if rng.random() < 0.15:
        mixed = f"mov.u32 %w1, {rng.choice(cases.VALUES)};"
    if bits == 32 and rng.random() < 0.4:  # floats of ordinary sizes
        mixed = "cvt.rn.f32.s32 %w2, %w0; mov.b32 %w1, %w2;" if rng.random() < 0.5 else f"{mixed} and.b32 %w1, %w1, 0xbfffffff;"
    if bits == 64:
        return f"{mixed} mad.lo.u32 %w3, %w0, {rng.getrandbits(32)}, 7; mov.b64 {name}, {{%w3, %w1}};"
    ends = {
        1: f"setp.lt.u32 {name}, %w1, {rng.getrandbits(32)};", 8: f"cvt.u8.u32 {name}, %w1;",
        16: f"cvt.u16.u32 %w4, %w1; mov.b16 {name}, %w4;", 32: f"mov.b32 {name}, %w1;",
        128: f"mov.b64 %w5, {{%w1, %w0}}; mov.b128 {name}, {{%w5, %w5}};",
    }  # fmt: skip
    return f"{mixed} {ends[bits]}"


def _last(number: int, name: str) -> str:
    """What writes a register."""
    at, bits = f"[%place+{number * SLOT * max(THREADS) * 2}]", _bits(name)
    if bits == 1:
        return f"selp.b32 %w1, 1, 0, {name}; st.global.b32 {at}, %w1;"
    if bits == 128:
        return f"mov.b128 {{%w5, %w6}}, {name}; st.global.v2.b64 {at}, {{%w5, %w6}};"
    return f"st.global.b{bits} {at}, {name};"


def _shaped(rng: random.Random, body: list[str]) -> list[str]:
    half = len(body) // 2
    match rng.randrange(6):
        case 0:
            return ["L2:", *body, "add.u32 %w7, %w7, 1; setp.lt.u32 %w8, %w7, 3; @%w8 bra L2;"]
        case 1:
            branches = not any(".sync" in line for line in body)
            return [f"{'@p2' if branches else '@p4'} bra L2;", *body[:half], "bra L3;", "L2:", *body[half:], "L3:"]
        case 2:
            return [*body[:half], "bar.warp.sync -1;", *body[half:]]
    return body


def case(seed: int, number: int) -> tuple[str, int]:
    """(text, threads of a block) of case `number`."""
    rng = random.Random(f"{seed}.{number}")
    body = [_statement(rng) for _ in range(rng.choice((1, 2, 3, 5, 8, 12)))]
    names = dict.fromkeys(name for line in body for name in _NAME.findall(line) if name not in _ADDRESSES)
    set_first = ("p1", "p2", "p4")
    first = [
        ".reg .b32 %w0, %w1, %w3, %w7; .reg .f32 %w2; .reg .b16 %w4; .reg .b64 %w5, %w6, %place; .reg .pred %w8; mov.u32 %w7, 0;",
        "mov.u32 %w1, %ctaid.x; mov.u32 %w3, %tid.x;"
        f"mad.lo.u32 %w0, %w1, {max(THREADS)}, %w3; ld.param.u64 %place, [out]; mad.wide.u32 %place, %w0, {SLOT}, %place;"
        f"add.u64 %place, %place, {WINDOW};",
        *[_first(rng, name) for name in names if name not in set_first],
    ]
    last = [_last(number, name) for number, name in enumerate(names)]
    text = cases.frame(rng, [*first, *_shaped(rng, body), *last, "ret;"])
    return text, rng.choice(THREADS[: 2 if ".aligned" in text else 3])


# a process for one kind of code --------------------------------------------------------------------------------------
def work(kind: str, seed: int, numbers: range) -> None:
    """Say what becomes of each case, a line of JSON each."""
    import hashlib

    import numpy as np

    import mmulator as mm
    from mmulator.errors import MmulatorError

    if kind in KINDS[1:]:
        from mmulator.base.codegen import stencils
        from mmulator.runtime import code

        stencils.chosen = lambda whole, split: split()
    if kind in ("quick", "better"):
        stencils.Records.take = lambda self, builders, natives: False  # type: ignore[method-assign]
        code.QUICK = kind == "quick"
    for number in numbers:
        text, threads = case(seed, number)
        memory = np.random.default_rng(number).integers(0, 256, WINDOW + 2 * SLOT * max(THREADS) * SLOTS, np.uint8)
        try:
            kernel = mm.Module.load(text)["k"]
            args = [bytes(range(p.size)) if p.shape else memory if p.type == "u64" else 5 for p in kernel.function.params]
            kernel.launch(2, threads, args, 4096, seed=number % 3, threads=1, timeout=20)
            said = "finished"
        except MmulatorError as error:
            said = f"{type(error).__name__}: {error}".partition(": out of bounds")[0].partition(": null pointer")[0]
            said = said.partition("\n")[0].partition(" at address")[0]
        print(json.dumps([number, said, hashlib.sha256(memory).hexdigest()]), flush=True)


def compared(against: str, seed: int, numbers: range) -> int:
    """Print what differs, and totals; the number of cases that differ."""
    sources = {**({"before": against} if against else {}), **dict.fromkeys(KINDS, str(ROOT / "src"))}
    found: dict[int, dict[str, list[str]]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for kind, src in sources.items():
            environment = {**os.environ, "PYTHONPATH": f"{src}:{ROOT}"}
            environment["MMULATOR_CACHE"] = f"{scratch}/{kind}"
            command = [sys.executable, "-m", "evidence.fuzz.versions", "--work", kind, "--seed", str(seed), "--first"]
            command += [str(numbers[0]), "--cases", str(len(numbers))]
            done = subprocess.run(command, env=environment, stdout=subprocess.PIPE)
            for line in done.stdout.decode().splitlines():
                number, *said = json.loads(line)
                found.setdefault(number, {})[kind] = said
            if done.returncode:
                print(f"{kind}: exit code {done.returncode}")
    refused = [n for n, row in found.items() if row.get("before", "-")[0].startswith(("InvalidInstruction", "Unsupported"))]
    found = {n: row for n, row in found.items() if n not in refused}
    different = {n: row for n, row in found.items() if len(row) < len(sources) or len({tuple(s) for s in row.values()}) > 1}
    for n, row in different.items():
        print(f"case {n}", *(f"  {kind:10}{digest[:16]} {said}" for kind, (said, digest) in row.items()), sep="\n")
    outcomes = Counter(row["stencils"][0].partition(":")[0] for row in found.values() if "stencils" in row)
    print(f"{len(found)} cases of seed {seed} under {', '.join(sources)}: {len(different)} differ; {dict(outcomes)}; "
          f"{len(refused)} more that the other version does not take")  # fmt: skip
    return len(different) + len(numbers) - len(found) - len(refused)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", default="")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--case", type=int)
    parser.add_argument("--work")
    o = parser.parse_args()
    numbers = range(o.first, o.first + o.cases)
    if o.work:
        work(o.work, o.seed, numbers)
    elif o.case is not None:
        print(*case(o.seed, o.case), sep="\n")
    else:
        sys.exit(bool(compared(o.against, o.seed, numbers)))


if __name__ == "__main__":
    main()
