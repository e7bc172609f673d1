"""Driver launches on memory between pages that trap, damaged caches, and sanitized launches beside plain ones; in processes that
may die.

    python -m evidence.fuzz.doors regions --seconds 300 --seed 7
    python -m evidence.fuzz.doors warm --seconds 300
    python -m evidence.fuzz.doors sanitized --seconds 300

regions: every way into global memory (tests/support/memory_ways.py), at addresses around pieces of odd lengths at odd places,
each between pages that trap or beside another. warm: a program whose code cache was damaged has the bits that it has without.
sanitized: mutated modules (cases.py), launched twice. Each raises AssertionError at what is wrong, with the seed and number.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from evidence.fuzz import cases
from mmulator.errors import ExecutionFault, LimitReached, MmulatorError
from mmulator.host.driver import Driver, Region, Settings
from mmulator.host.module import Module
from mmulator.runtime.launch.arena import EDGES, guarded
from mmulator.runtime.launch.regions import merged, pointer
from tests.support.memory_ways import TARGET, WINDOW, kernel, pattern, statements

LARGEST = 300  # bytes of a piece
ENDS = ("aligned", "none")  # accesses to which any address will do, or any that is a multiple


def regions(seconds: float, seed: int) -> int:
    """The number of launches. A fault is where an access leaves the pieces, or is not aligned, and nowhere else."""
    rng, end, launches = random.Random(seed), time.monotonic() + seconds, 0
    chosen = [s for s in statements() if s.space in ("", "global") and s.access not in ENDS]
    driver = Driver(Settings(device=TARGET.rstrip("a"), timeout=20, threads=1))
    function = driver.load(kernel(chosen)).function("k")
    memory, out = driver.memory.allocate(WINDOW), driver.memory.allocate(64 + 2 * WINDOW)
    while launches < 50 or time.monotonic() < end:
        edge, align = rng.choice(EDGES), rng.choice((1, 1, 2, 4, 16))
        block = guarded(rng.randrange(1, LARGEST), align, edge)
        cuts = sorted(rng.randrange(block.nbytes + 1) for _ in range(rng.choice((0, 0, 2, 4))))
        spans = [(0, block.nbytes)] if not cuts else list(zip(cuts[::2], cuts[1::2]))
        given = [Region(pointer(block) + a, b - a, "x", rng.random() < 0.8) for a, b in spans]
        there = merged(given)
        for _ in range(20):
            number = rng.randrange(len(chosen))
            s = chosen[number]
            place = rng.choice([n for span in spans for n in span]) + rng.randrange(-s.size - 2, s.size + 3)
            address = pointer(block) + (place - place % rng.choice((1, s.align)))
            block[:] = memory.bytes()[:] = 0xA5
            values = struct.pack("<3QI4x", memory.address, out.address, address, number) + pattern().tobytes()
            inside = [r for r in there if r.start <= address and address + s.size <= r.end]
            allowed = bool(inside) and not address % s.align and (inside[0].writable or s.access not in WRITES)
            case = f"seed {seed}, launch {launches}: {s.text} at {place} of {spans} of {block.nbytes}, {edge}"
            try:
                driver.launch(function, (1, 1, 1), (s.lanes, 1, 1), values, given)
                assert allowed or s.name.startswith("wmma"), f"{case}: no fault"
            except ExecutionFault as error:
                assert not allowed, f"{case}: {error.message}"
            outside = np.ones(block.nbytes, bool)
            for a, b in spans:
                outside[a:b] = False
            assert (block[outside] == 0xA5).all(), f"{case}: bytes beside the memory were written"
            launches += 1
    return launches


WRITES = ("write", "both", "drop", "edit", "clear", "make", "copy-write")
PROGRAM = """
import numpy as np, mmulator as mm
out = np.zeros(64, np.uint32)
mm.Module.load({text!r})["k"].launch(2, 32, [out])
print(out.tobytes().hex())
"""
ADDS = """.version 8.0
.target sm_80
.address_size 64
.global .u32 step = 3;
.visible .entry k(.param .u64 out) { .reg .b64 %rd<4>; .reg .b32 %r<4>;
  ld.param.u64 %rd1, [out]; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %tid.x; mad.lo.u32 %r1, %r1, 32, %r2; mul.wide.u32 %rd2, %r1, 4;
  add.u64 %rd1, %rd1, %rd2; ld.global.u32 %r3, [step]; mad.lo.u32 %r3, %r1, %r3, 1; st.global.u32 [%rd1], %r3; ret; }
"""


def _damage(rng: random.Random, files: list[Path]) -> str:
    """Damages one of the entries of a cache; says how."""
    file, other = rng.choice(files), rng.choice(files)
    data, how = bytearray(file.read_bytes()), rng.choice(("flip", "cut", "swap", "zero", "grow", "empty"))
    if not data:
        return f"left {file.name}"
    if how == "flip":
        for _ in range(rng.choice((1, 1, 8))):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    elif how == "zero":
        at = rng.randrange(len(data))
        data[at : at + 64] = bytes(len(data[at : at + 64]))
    others = {"cut": data[: rng.randrange(len(data))], "swap": other.read_bytes(), "grow": data + rng.randbytes(9), "empty": b""}
    file.write_bytes(others.get(how, data))
    return f"{how} {file.name}"


def warm(seconds: float, seed: int) -> int:
    """The number of processes that started with a damaged cache."""
    rng, end, rounds = random.Random(seed), time.monotonic() + seconds, 0
    folder = Path(tempfile.mkdtemp())
    environment = {**os.environ, "MMULATOR_CACHE": str(folder / "cache"), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}

    def run(what: str) -> str:
        done = subprocess.run([sys.executable, "-c", PROGRAM.format(text=ADDS)], env=environment, capture_output=True, text=True)
        assert done.returncode == 0, f"seed {seed}, round {rounds}: {what}: exit {done.returncode}: {done.stderr[-600:]}"
        return done.stdout

    try:
        wanted = run("nothing")
        assert wanted.strip() == (np.arange(64, dtype=np.uint32) * 3 + 1).tobytes().hex()
        while rounds < 2 or time.monotonic() < end:
            files = sorted(p for p in (folder / "cache").rglob("*") if p.is_file() and p.stat().st_size)
            what = ", ".join(_damage(rng, files) for _ in range(rng.choice((1, 4, 16))))
            assert run(what) == wanted, f"seed {seed}, round {rounds}: {what}: other bits"
            rounds += 1
    finally:
        shutil.rmtree(folder)
    return rounds


def _outcome(text: str, launch: Any, sanitize: bool) -> tuple[str, bytes]:
    """The fault's words, "" or "time", and the array."""
    memory = np.full(512 + 128, 0xA5, np.uint8)
    k = Module.load(text)["k"]
    args = [bytes(p.size) if p.shape else memory[64:-64] if p.type == "u64" else 1 for p in k.function.params]
    try:
        k.launch(2, launch[0], args, 2048, seed=launch[1], threads=1, timeout=4, sanitize=sanitize)
    except LimitReached:
        return "time", b""
    except ExecutionFault as error:
        return error.message, memory.tobytes()
    except MmulatorError as error:
        return "time" if "not compiled within" in error.message else error.message, b""
    return "", memory.tobytes()


def sanitized(seconds: float, seed: int) -> int:
    """The number of pairs of launches: the same fault, or the same bits."""
    end, pairs, number = time.monotonic() + seconds, 0, 0
    launched = [n for n, kind in enumerate(cases.KINDS) if kind[2]]
    while pairs < 2 or time.monotonic() < end:
        one = cases.case(seed, number // len(launched) * len(cases.KINDS) + launched[number % len(launched)])
        number += 1
        try:
            Module.load(one.text)["k"]
        except MmulatorError:
            continue
        rng = random.Random(f"{seed}/{number}")
        launch = rng.choice((1, 7, 32, 64, 128)), rng.randrange(4)
        plain, other = (_outcome(one.text, launch, on) for on in (False, True))
        if "time" not in (plain[0], other[0]):
            assert plain[0] == other[0], f"seed {seed}, case {number}: {plain[0]!r}, sanitized {other[0]!r}\n{one.text}"
            assert plain[0] or plain[1] == other[1], f"seed {seed}, case {number}: other bits when sanitized\n{one.text}"
            pairs += 1
    return pairs


WHAT = {"regions": (regions, "launches"), "warm": (warm, "starts"), "sanitized": (sanitized, "pairs")}


def child(what: str, seconds: float, seed: int) -> subprocess.CompletedProcess[str]:
    """One of them in a process of its own."""
    command = [sys.executable, "-m", "evidence.fuzz.doors", what, "--child", "--seconds", str(seconds), "--seed", str(seed)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=seconds + 600)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=WHAT)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--child", action="store_true", help="do it here")
    options = parser.parse_args()
    if options.child:
        run, name = WHAT[options.what]
        print(run(options.seconds, options.seed), name)
        return 0
    done = child(options.what, options.seconds, options.seed)
    print(options.what, done.stdout.strip(), done.stderr[-3000:], f"exit {done.returncode}")
    return abs(done.returncode)


if __name__ == "__main__":
    sys.exit(main())
