"""Nanoseconds of a warp's loads and atomics in a loop, with hot caches, on one thread: five words of each lane, lanes so many
bytes apart; atomics of lanes side by side.

    python benchmarks/bench_memory.py [--against SRC] [--rounds 7]

--against: the folder `src` of another commit, in turns, in a process of its own.
"""

from __future__ import annotations

import argparse
import time
from functools import cache
from typing import Any

import numpy as np
from processes import Other, answer, best

TRIPS = 20000
FIVE = range(5)
LOADS = "".join(f"ld.global.u32 %a{i}, [%p+{4 * i}]; xor.b32 %s{i}, %s{i}, %a{i}; add.u32 %s{i}, %s{i}, %i;\n" for i in FIVE)
# name: statements of the loop; bytes between lanes
CASES = {f"five words, lanes {apart} bytes apart": (LOADS, apart) for apart in (0, 4, 20, 48)} | {
    "atom.add.u32 in a row": ("atom.global.add.u32 %a0, [%p], %i; xor.b32 %s0, %s0, %a0;\n", 4),
    "atom.max.s32 in a row": ("atom.global.max.s32 %a0, [%p], %i; xor.b32 %s0, %s0, %a0;\n", 4),
    "red.add.f32 in a row": ("red.global.add.f32 [%p], 0f3F800000;\n", 4),
    "red.add.u64 in a row": ("red.global.add.u64 [%p], 3;\n", 8),
    "atom.add.u32, lanes 48 bytes apart": ("atom.global.add.u32 %a0, [%p], %i; xor.b32 %s0, %s0, %a0;\n", 48),
}


def text(body: str) -> str:
    return f"""
.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 p, .param .u64 out, .param .u32 n, .param .u32 apart)
{{
.reg .pred %q; .reg .b32 %a<5>, %s<5>, %t, %i, %n, %apart; .reg .b64 %p, %o;
ld.param.u64 %p, [p]; ld.param.u64 %o, [out]; ld.param.u32 %n, [n]; ld.param.u32 %apart, [apart];
mov.u32 %t, %tid.x; mad.wide.u32 %p, %t, %apart, %p; mad.wide.u32 %o, %t, 4, %o; mov.u32 %i, 0;
{"".join(f"mov.u32 %s{i}, 0; " for i in FIVE)}
L:
{body}
add.u32 %i, %i, 1; setp.lt.u32 %q, %i, %n; @%q bra L;
{"".join(f"st.global.u32 [%o+{128 * i}], %s{i};" for i in FIVE)}
ret;
}}
"""


def launches(name: str) -> Any:
    """A function that launches the loop."""
    import mmulator as mm

    body, apart = CASES[name]
    kernel = mm.Module.load(text(body))["k"]
    data, out = np.arange(4096, dtype=np.uint32), np.zeros((5, 32), np.uint32)

    def launch() -> None:
        kernel.launch(1, 32, [data, out, TRIPS, apart], device="sm_90", threads=1)

    begin = time.perf_counter()
    while time.perf_counter() < begin + 0.5:
        launch()
    time.sleep(1)  # until better code is there
    return launch


def measured(launch: Any) -> float:
    """Nanoseconds of processor time of one round of the loop."""
    return best(launch, 1, 1, time.process_time) / TRIPS * 1e9


def worker() -> None:
    known = cache(launches)
    answer(lambda name: measured(known(name)))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--against", metavar="SRC")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--worker", action="store_true")
    o = parser.parse_args()
    if o.worker:
        worker()
        return
    before = Other(__file__, against=o.against) if o.against else None
    for name in CASES:
        launch = launches(name)
        pairs = [(measured(launch), before(name) if before else 0.0) for _ in range(o.rounds)]
        now, then = (min(times) for times in zip(*pairs))
        print(f"{name:40}{now:8.1f} ns" + (f"{then:8.1f} before{then / now:8.2f} times" if before else ""), flush=True)


if __name__ == "__main__":
    main()
