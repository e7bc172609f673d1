"""Lanes whose accesses are checked and recorded at once have the findings of lanes that are taken place by place, on a busy
machine too."""

import random
from functools import cache
from threading import Event, Thread
from types import FunctionType

import numpy as np
import pytest

import mmulator as mm
from mmulator.base.codegen.chains import chained
from mmulator.base.codegen.lang import Instrument, Native, native
from mmulator.base.codegen.types import boolean, ptr_to, u32, u64
from mmulator.sanitizer import instrument
from mmulator.sanitizer.diagnostics.sanitizer import Sanitizer
from mmulator.sanitizer.shadow import races
from mmulator.sanitizer.shadow.records import Actor, Pattern
from tests.support import breaches

PROGRAMS, PARTS = 96, 2
HEAD = """.version 8.3
.target sm_90a
.address_size 64
.visible .entry drawn(.param .u64 words) {
  .reg .b32 %t, %b, %n, %v; .reg .b16 %h; .reg .b64 %d, %a, %w; .reg .pred %p<4>; .shared .align 16 .b8 tile[1024];
  mov.u32 %t, %tid.x; mov.u32 %b, %ctaid.x; cvt.u16.u32 %h, %t; cvt.u64.u32 %w, %t; mov.u32 %v, %t;
  setp.eq.u32 %p0, %t, 0; setp.ne.u32 %p1, %t, 5; setp.lt.u32 %p2, %t, 40; setp.ge.u32 %p3, %t, 32;
"""
# Numbers of the lanes' places: their own, a neighbour's, those of two or four lanes, of a few, one, of the other warp.
PLACES = (
    "mov.u32 %n, %t;", "add.u32 %n, %t, 1; and.b32 %n, %n, 63;", "shr.u32 %n, %t, 1;", "shr.u32 %n, %t, 2;", "min.u32 %n, %t, 3;",
    "mov.u32 %n, 0;", "xor.b32 %n, %t, 32;", "xor.b32 %n, %t, 1;",
)  # fmt: skip
MEMORY = (
    ("shared", "mov.u64 %d, tile;"), ("global", "ld.param.u64 %d, [words];"),
    ("global", "ld.param.u64 %d, [words]; mad.wide.u32 %d, %b, 1024, %d;"),
)  # fmt: skip
ACCESSES = (
    "st.{space}.u32 [%a], %t;", "ld.{space}.u32 %v, [%a];", "st.{space}.u16 [%a], %h;", "ld.{space}.u64 %w, [%a];",
    "st.{space}.u64 [%a], %w;", "st.relaxed.gpu.{space}.u32 [%a], %t;", "ld.relaxed.gpu.{space}.u32 %v, [%a];",
    "red.relaxed.gpu.{space}.add.u32 [%a], 1;", "red.relaxed.cta.{space}.add.u32 [%a], 1;", "ld.{space}.u16 %h, [%a];",
    "st.{space}.v2.u32 [%a], {{%t, %v}};", "atom.relaxed.gpu.{space}.add.u32 %v, [%a], 1;", "ld.global.nc.u32 %v, [%a];",
)  # fmt: skip
ORDER = "bar.sync 0;", "bar.sync 0;", "bar.warp.sync -1;", "fence.acq_rel.gpu;"


def drawn(seed: int) -> str:
    """Accesses of two warps, in a few blocks."""
    chance = random.Random(seed)
    steps = []
    for _ in range(chance.randrange(3, 10)):
        space, base = chance.choice(MEMORY)
        place, guard = chance.choice(PLACES), chance.choice(("", "", "@%p0 ", "@%p1 ", "@%p2 ", "@%p3 "))
        access = chance.choice(ACCESSES[: len(ACCESSES) - (space == "shared")]).format(space=space)
        address = f"{base} {place} mad.wide.u32 %a, %n, {chance.choice((8, 8, 16))}, %d;"
        steps += [address, guard + access]
        steps += [chance.choice(ORDER)] * (chance.random() < 0.6)
    return HEAD + "\n".join(steps) + "\nret; }\n"


def findings(seed: int, threads: int = 1) -> str:
    """The text of all findings of a drawn program."""
    kernel = mm.Module.load(drawn(seed), name="drawn.ptx")["drawn"]
    report = kernel.launch(3, 64, [np.zeros(4096, np.uint8)], sanitize="strict", seed=seed, threads=threads, timeout=600)
    assert report.threads == 1
    return breaches.said(report)


@native
def never(
    a: ptr_to(Actor), p: ptr_to(Pattern), leaders: u32, entries: ptr_to(u32), at: ptr_to(u64), base: u64, bytes: u32
) -> boolean:
    return False


@native
def never_atomics(a: ptr_to(Actor), p: ptr_to(Pattern), at: ptr_to(u64), base: u64, bytes: u32, since: u32) -> boolean:
    return False


@cache
def one_by_one() -> Instrument:
    """The sanitizer, with a check that takes each place by itself."""
    hook = races.race_lanes.function
    apart = FunctionType(hook.__code__, {**hook.__globals__, "all_at_once": never, "atomics_at_once": never_atomics})
    apart.__annotations__ = hook.__annotations__
    check = {**races.HOOKS, "accessed": Native(apart, "race_lanes_one_by_one")}
    topics = [check if hooks is races.HOOKS else hooks for hooks in instrument.TOPICS]
    return Instrument("one_by_one", chained("one_by_one", topics), waits=True)


@pytest.mark.full
@pytest.mark.parametrize("part", range(PARTS))
def test_lanes_at_once_find_what_places_one_by_one_do(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    seeds = range(part, PROGRAMS, PARTS)
    at_once = [findings(seed) for seed in seeds]
    monkeypatch.setattr(Sanitizer, "instrument", property(lambda self: one_by_one()))
    for seed, said in zip(seeds, at_once):
        assert said == findings(seed), drawn(seed)
    assert sum(map(bool, at_once)) > PROGRAMS // PARTS // 3
    assert not all(at_once)


@pytest.mark.full
def test_findings_depend_on_program_inputs_and_seed_alone() -> None:
    """Not on what else the machine does: other launches of this process take cores and time away."""
    over, other = Event(), mm.Module.load(drawn(1))["drawn"]

    def work() -> None:
        while not over.is_set():
            other.launch(64, 64, [np.zeros(1 << 17, np.uint8)], timeout=600)

    alone, workers = [findings(seed) for seed in range(12)], [Thread(target=work, daemon=True) for _ in range(2)]
    for worker in workers:
        worker.start()
    try:
        assert [findings(seed, threads=5) for seed in range(12)] == alone
    finally:
        over.set()
        for worker in workers:
            worker.join()
