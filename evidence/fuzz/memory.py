"""Random addresses in every way into memory, between pages that trap, in a process that may die.

    python -m evidence.fuzz.memory --seconds 600 --seed 7 --jobs 16     # half of them at each edge

The statements and what they may do are in tests/support/memory_ways.py. `guarded` runs one
child; `fuzz` is what it does: it raises
AssertionError when an access is allowed that should not be, or the reverse, or changes another byte than its own.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from mmulator.errors import ExecutionFault
from mmulator.host.module import Module
from mmulator.runtime.launch.arena import EDGES, GUARD
from tests.support.memory_ways import Walk, statements

# Instructions that take addresses otherwise than as [address]: matrix descriptors, and pointers that printf follows.
DESCRIPTORS = """
.version 8.3
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 a, .param .u64 b)
{
  .reg .b64 %rd<4>; .reg .b32 %r<16>; .reg .pred %p;
  ld.param.u64 %rd0, [a]; ld.param.u64 %rd1, [b]; setp.eq.u32 %p, 0, 0;
  wgmma.fence.sync.aligned;
  wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%r0, %r1, %r2, %r3}, %rd0, %rd1, %p, 1, 1, 0, 1;
  wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;
  ret;
}
"""
PRINT = """
.version 8.3
.target sm_90
.address_size 64
.extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b);
.global .align 1 .b8 text[20] = {91, 37, 115, 32, 37, 108, 108, 100, 32, 37, 102, 37, 99, 32, 37, 42, 100, 93, 10, 0};
.visible .entry k(.param .u64 format, .param .u64 values, .param .u64 out)
{
  .reg .b64 %rd<4>; .reg .b32 %r<4>; .local .align 8 .b8 own[64]; .shared .align 8 .b8 cells[64];
  ld.param.u64 %rd0, [format]; ld.param.u64 %rd1, [values]; ld.param.u64 %rd2, [out];
  st.local.u64 [own], %rd0; mov.u64 %rd3, cells; st.shared.u64 [%rd3], %rd1;
  call (%r0), vprintf, (%rd0, %rd1);
  st.global.u32 [%rd2], %r0;
  ret;
}
"""


def _address(rng: random.Random, walk: Walk, number: int) -> int:
    """Mostly a little beside an edge."""
    edge = rng.choice(walk.edges(number))
    kind = rng.random()
    if kind < 0.7:
        return edge + rng.choice((-1, 1)) * rng.randrange(64)
    if kind < 0.85:
        return edge + rng.choice((-1, 1)) * (1 << rng.randrange(64))
    return rng.getrandbits(64) if kind < 0.9 else walk.base(walk.statements[number].space) + rng.randrange(2048)


def _descriptor(rng: random.Random) -> int:
    start, leading, stride = (rng.choice((0, 64, 128, 256, rng.getrandbits(14))) for _ in range(3))
    return start | leading << 16 | stride << 32 | rng.randrange(8) << 49 | rng.randrange(4) << 62


def fuzz(seconds: float, seed: int, every: bool = False) -> int:
    """Launch until the time is over; the number of launches."""
    rng, end, launches = random.Random(seed), time.monotonic() + seconds, 0
    walk = Walk(statements(every))
    wgmma, printing = Module.load(DESCRIPTORS)["k"], Module.load(PRINT)["k"]
    out = np.zeros(1, np.uint32)
    while launches < 50 or time.monotonic() < end:
        number = rng.randrange(len(walk.statements))
        wrong = walk.problem(number, _address(rng, walk, number))
        assert wrong is None, wrong
        if launches % 8 == 0:
            text = printing.module.image.addresses["text"]
            pointers = [rng.choice((text, text + rng.randrange(30), _address(rng, walk, number))) for _ in range(2)]
            printing.launch(1, rng.choice((1, 32)), [*(p & (1 << 64) - 1 for p in pointers), out], timeout=20)
            try:
                wgmma.launch(1, 128, [_descriptor(rng), _descriptor(rng)], rng.choice((0, 1024, 4096)), seed=rng.randrange(4))
            except ExecutionFault as error:
                assert "descriptor" in error.message, error
        launches += 1
    return launches


def guarded(edge: str, seconds: float, seed: int, every: bool = False) -> subprocess.CompletedProcess[str]:
    """`fuzz` in a child process whose windows lie between pages that trap."""
    command = [sys.executable, "-m", "evidence.fuzz.memory", "--child", "--seconds", str(seconds), "--seed", str(seed)]
    environment = {**os.environ, GUARD: edge, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.run(
        [*command, *(["--every"] if every else [])], env=environment, capture_output=True, text=True, timeout=seconds + 600
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=len(EDGES), help="processes, each of a seed of its own")
    parser.add_argument("--every", action="store_true", help="all types and vectors")
    parser.add_argument("--child", action="store_true", help="do it here, with the environment as it is")
    options = parser.parse_args()
    if options.child:
        print(fuzz(options.seconds, options.seed, options.every), "launches")
        return 0
    edges = [EDGES[job % len(EDGES)] for job in range(options.jobs)]
    with ThreadPoolExecutor(options.jobs) as pool:
        seeds = range(options.seed, options.seed + options.jobs)
        done = list(pool.map(lambda edge, seed: guarded(edge, options.seconds, seed, options.every), edges, seeds))
    launches = Counter[str]()
    for edge, seed, one in zip(edges, seeds, done):
        if one.returncode:
            print(f"seed {seed}, {edge}: exit {one.returncode}\n{one.stdout}{one.stderr[-2000:]}", file=sys.stderr)
        else:
            launches[edge] += int(one.stdout.split()[-2])
    failed = sum(one.returncode != 0 for one in done)
    print(json.dumps({"seeds": [*seeds], "launches": launches, "processes": len(done), "failed": failed}, indent=1))
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
