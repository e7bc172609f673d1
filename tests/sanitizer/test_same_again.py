"""Findings depend on program, inputs and seed alone: not on the number of threads, nor on what else the machine does."""

import random
from collections.abc import Iterator
from threading import Event, Thread

import numpy as np
import pytest

import mmulator as mm
from tests.support import breaches

PROGRAMS = 20
HEAD = """.version 8.3
.target sm_90a
.address_size 64
.visible .entry drawn(.param .u64 words, .param .u64 turn) {
  .reg .b32 %t, %b, %v, %w; .reg .b64 %d, %l, %a; .reg .pred %p, %q; .shared .align 16 .b8 tile[256];
  ld.param.u64 %d, [words]; ld.param.u64 %l, [turn]; mov.u32 %t, %tid.x; mov.u32 %b, %ctaid.x; mov.u32 %v, %b;
  mov.u32 %w, tile; mad.lo.u32 %w, %t, 4, %w; setp.eq.u32 %p, %t, 0; mul.wide.u32 %a, %b, 4; add.u64 %a, %d, %a;
"""
# Steps of drawn programs; blocks meet at eight words, at words of their own, and at a turn that each gives to the next.
STEPS = (
    "@%p st.global.u32 [%d + {at}], %v;", "@%p ld.global.u32 %v, [%d + {at}];",
    "@%p red.relaxed.gpu.global.add.u32 [%d + {at}], 1;",
    "@%p atom.acq_rel.gpu.global.add.u32 %v, [%d + {at}], 1;", "@%p atom.relaxed.cta.global.add.u32 %v, [%d + {at}], 1;",
    "@%p st.release.gpu.global.u32 [%d + {at}], %v;", "@%p ld.acquire.gpu.global.u32 %v, [%d + {at}];", "fence.acq_rel.gpu;",
    "bar.sync 0;", "st.shared.u32 [%w], %v;", "ld.shared.u32 %v, [%w];", "@%p st.shared.u32 [tile + {at}], %v;",
    "@%p st.global.u32 [%a], %v;", "st.global.u32 [%a], %b;",
    "W{n}: @%p ld.acquire.gpu.global.u32 %v, [%l]; setp.lt.and.u32 %q, %v, %b, %p; @%q bra W{n};",
    "W{n}: @%p ld.relaxed.gpu.global.u32 %v, [%l]; setp.lt.and.u32 %q, %v, %b, %p; @%q bra W{n};",
    "bar.sync 0; add.u32 %v, %b, 1; fence.acq_rel.gpu; @%p st.relaxed.gpu.global.u32 [%l], %v;", "@%p st.global.u32 [%l], %b;",
)  # fmt: skip


def drawn(seed: int) -> str:
    chance = random.Random(seed)
    steps = [chance.choice(STEPS[:14]).format(at=4 * chance.randrange(8), n=n) for n in range(chance.randrange(4, 14))]
    if chance.random() < 0.5:  # blocks take turns, in the right way or another
        first, behind = sorted(chance.sample(range(len(steps) + 1), 2))
        steps.insert(behind, STEPS[16])
        steps.insert(first, chance.choice(STEPS[14:16]).format(n=99))
    return HEAD + "\n".join(steps) + "\nret; }\n"


@pytest.fixture
def busy() -> Iterator[None]:
    """Other launches in this process, which take cores and time away."""
    over = Event()
    other = mm.Module.load(drawn(1))["drawn"]

    def work() -> None:
        while not over.is_set():
            other.launch(64, 64, [np.zeros(64, np.uint32), np.zeros(1, np.uint32)], timeout=600)

    workers = [Thread(target=work, daemon=True) for _ in range(2)]
    for worker in workers:
        worker.start()
    yield
    over.set()
    for worker in workers:
        worker.join()


@pytest.mark.full
def test_drawn_programs(busy: None) -> None:
    """Programs whose blocks race, pass things on, and take turns: each text is the same, on the one core of such a launch."""
    found = 0
    for seed in range(PROGRAMS):
        kernel = mm.Module.load(drawn(seed), name="drawn.ptx")["drawn"]
        said = set()
        for threads in (1, 5, 5):
            arguments = [np.zeros(64, np.uint32), np.zeros(1, np.uint32)]
            report = kernel.launch(12, 64, arguments, sanitize="strict", seed=seed % 3, threads=threads, timeout=600)
            said.add((breaches.said(report), arguments[0].tobytes(), report.threads))
            found += bool(report.findings)
        assert len(said) == 1 and report.threads == 1, drawn(seed)
    assert found > PROGRAMS
