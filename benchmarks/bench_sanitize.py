"""Sanitized launches against plain ones of the kernels of speed_kernels.py: processor time of one thread, in turns.

    python benchmarks/bench_sanitize.py [vadd block ...] [--rounds 5] [--against SRC]

ms: the least of all launches. block: a launch of one block of 32 threads. --against: the folder `src` of another commit, whose
launches take turns with ours (in a process of its own); ratios are to the faster of both plain launches.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from processes import Other, answer, best, processor_seconds

NAMES = ("vadd", "softmax", "layernorm", "histogram", "conv2d", "gemm512", "attention", "block")
BLOCK = """.version 8.0
.target sm_90
.address_size 64
.visible .entry increment(.param .u64 x) {
  .reg .b64 p; .reg .b32 t, v;
  ld.param.u64 p, [x]; mov.u32 t, %tid.x; mad.wide.u32 p, t, 4, p;
  ld.global.u32 v, [p]; add.u32 v, v, 1; st.global.u32 [p], v; ret; }"""


def launcher(name: str) -> tuple[Callable[..., Any], int]:
    """A function that launches with options, and how often it is called for one measurement."""
    import speed_kernels

    import mmulator as mm

    if name == "block":
        kernel, x = mm.Module.load(BLOCK)["increment"], np.zeros(32, np.uint32)
        return lambda **options: kernel.launch(1, 32, [x], threads=1, **options), 100
    case = speed_kernels.cases()[name]()
    made = mm.triton.compile(case.kernel, case.signature, case.constants, device="sm_90", num_warps=case.warps)
    return lambda **options: made.launch(case.grid, *case.arguments, threads=1, **options), 1


def cost(call: Callable[..., Any], times: int, **options: Any) -> float:
    """Seconds of the processor for one launch, the least of a few."""
    return best(lambda: call(**options), 4, times, partial(processor_seconds, resource.RUSAGE_SELF))


class Ours:
    """Answers with (seconds of a plain launch, of a sanitized one)."""

    def __init__(self) -> None:
        self.known: dict[str, tuple[Callable[..., Any], int]] = {}

    def __call__(self, name: str) -> tuple[float, float]:
        if name not in self.known:
            call, times = self.known[name] = launcher(name)
            for options in ({}, {"sanitize": True}):
                call(**options)
                time.sleep(1.5)  # better code is made meanwhile
                call(**options)
        call, times = self.known[name]
        return cost(call, times), cost(call, times, sanitize=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", default=NAMES)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--against", metavar="SRC")
    parser.add_argument("--worker", action="store_true")
    o = parser.parse_args()
    ours = Ours()
    if o.worker:
        answer(ours)
        return
    sides: dict[str, Callable[[str], tuple[float, float]]] = {"ours": ours}
    if o.against:
        sides["before"] = Other(__file__, against=o.against)
    print(f"{'ms':12}{'plain':>9}" + "".join(f"{side:>10}{'ratio':>7}" for side in sides))
    for name in o.names:
        found: dict[str, list[tuple[float, float]]] = {side: [] for side in sides}
        for _ in range(o.rounds):
            for side, ask in sides.items():
                found[side].append(ask(name))
        plain = min(row[0] for rows in found.values() for row in rows)
        least = [min(row[1] for row in rows) for rows in found.values()]
        print(f"{name:12}{plain * 1e3:9.3f}" + "".join(f"{s * 1e3:10.3f}{s / plain:7.1f}" for s in least), flush=True)


if __name__ == "__main__":
    main()
