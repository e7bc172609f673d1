"""What `profile=` counts, against definitions in plain Python and numbers made by hand."""

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import mmulator as mm
from mmulator.host.jobs.job import load_job, run_job
from mmulator.observation.record.profile.data import Traffic, added_up, lcov, unreached
from mmulator.observation.record.profile.launch import LaunchProfile
from mmulator.observation.record.profile.views import annotated, never, runs, written
from tests.support.places import ROOT

HEAD = ".version 8.0\n.target sm_90\n.address_size 64\n"


def profile_of(text: str, block: int, args: Sequence[Any] = (), grid: int = 1, **options: Any) -> LaunchProfile:
    (kernel,) = mm.Module.load(HEAD + text).values()
    found = kernel.launch(grid, block, list(args), profile=True, **options).profile
    assert found is not None
    return found


def work(profile: LaunchProfile, text: str) -> Any:
    (found,) = [i.work for i in profile.instructions if text in i.text]
    return found


# definitions ----------------------------------------------------------------------------------------------------------
def sectors(addresses: dict[int, int], size: int) -> int:
    """Sectors of 32 bytes that lanes touch."""
    return len({byte // 32 for at in addresses.values() for byte in range(at, at + size)})


def wavefronts(addresses: dict[int, int], size: int, load: bool) -> tuple[int, int]:
    """Wavefronts of an access to shared memory, and how many there would be without conflicts. addresses: of the lanes."""
    together = {1: 32, 2: 32, 4: 32, 8: 16, 16: 8}[size]
    for step in (1, 2):
        if load and together < 32 and all(addresses.get(lane ^ step, at) == at for lane, at in addresses.items()):
            together *= 2
            break
    total = ideal = 0
    for first in range(0, 32, together):
        words: dict[int, set[int]] = {}
        for lane in range(first, first + together):
            if lane in addresses:
                for byte in range(addresses[lane], addresses[lane] + size):
                    words.setdefault(byte // 4 % 32, set()).add(byte // 4)
        if words:
            total += max(map(len, words.values()))
            ideal += 1
    return total, ideal


# random addresses -----------------------------------------------------------------------------------------------------
TYPES = {1: ("u8", "r"), 2: ("u16", "r"), 4: ("u32", "r"), 8: ("v2.u32", "{r, s}"), 16: ("v4.u32", "{r, s, t, u}")}


def access(space: str, size: int, store: bool) -> str:
    """A kernel whose lanes below `n` access the bytes at offsets of an array."""
    type_, value = TYPES[size]
    line = f"st.{space}.{type_} [p], {value};" if store else f"ld.{space}.{type_} {value}, [p];"
    base = "mov.u64 q, own;" if space == "shared" else ""
    return f""".visible .entry k(.param .u64 at, .param .u64 data, .param .u64 mask) {{
      .reg .b64 o, q, p, m; .reg .b32 lane, r, s, t, u, bits; .reg .pred on;
      .shared .align 128 .b8 own[8192];
      ld.param.u64 o, [at]; ld.param.u64 q, [data]; ld.param.u64 m, [mask];
      mov.u32 lane, %tid.x; mad.wide.u32 o, lane, 8, o; ld.global.u64 p, [o];
      ld.global.u32 bits, [m]; shr.u32 bits, bits, lane; and.b32 bits, bits, 1; setp.ne.u32 on, bits, 0;
      mov.u32 r, 1; mov.u32 s, 2; mov.u32 t, 3; mov.u32 u, 4;
      {base} add.u64 p, p, q;
      @on {line}
      ret; }}"""


def patterns(seed: int, size: int) -> list[int]:
    """Offsets of 32 lanes: some random, some regular, some with broadcasts."""
    rng = random.Random(seed)
    step = rng.choice((0, 1, 1, 2, 4, 8, 17, 32, 33))
    regular = [(rng.randrange(4) + lane * step) % (4096 // size) * size for lane in range(32)]
    few = [rng.randrange(4096 // size) * size for _ in range(rng.choice((1, 2, 4, 8, 16)))]
    pairs = rng.choice((1, 2))
    return rng.choice((
        regular, [rng.choice(few) for _ in range(32)], [rng.randrange(4096 // size) * size for _ in range(32)],
        [few[(lane & ~pairs) % len(few)] for lane in range(32)],
        [(lane // 8 * 512 + (lane % 8 ^ lane // 8) * 16) // size * size for lane in range(32)],
    ))  # fmt: skip


@pytest.mark.parametrize("store", [False, True], ids=["ld", "st"])
@pytest.mark.parametrize("size", [*TYPES])
def test_random_accesses_are_weighed_as_defined(size: int, store: bool) -> None:
    kernels = {space: mm.Module.load(HEAD + access(space, size, store))["k"] for space in ("global", "shared")}
    for seed in range(25):
        offsets = patterns(seed, size)
        mask = random.Random(seed).choice((0xFFFFFFFF, 0xFFFFFFFF, 1, 0x55555555, random.Random(seed).getrandbits(32) | 4))
        lanes = {lane: at for lane, at in enumerate(offsets) if mask >> lane & 1}
        for space, kernel in kernels.items():
            data, at = np.zeros(8192, np.uint8), np.array(offsets, np.uint64)
            profile = kernel.launch(1, 32, [at, data, np.array([mask], np.uint32)], profile=True).profile
            assert profile is not None
            found = work(profile, "@on").traffic[space]
            units, ideal = (sectors(lanes, size), 0) if space == "global" else wavefronts(lanes, size, not store)
            assert found == Traffic(1, len(lanes), len(lanes) * size, units, ideal), (seed, space)


def test_memory_that_begins_anywhere_on_the_host_begins_a_sector() -> None:
    memory = np.zeros(4096, np.uint8)
    text = """.visible .entry k(.param .u64 x) { .reg .b64 p; .reg .b32 t; ld.param.u64 p, [x]; mov.u32 t, %tid.x;
      mad.wide.u32 p, t, 4, p; ld.global.u32 t, [p]; ret; }"""
    for begin in (0, 4, 16, 20):
        x = memory[begin : begin + 128].view(np.uint32)
        assert work(profile_of(text, 32, [x]), "ld.global").traffic["global"].units == 4


def test_rows_of_ldmatrix_are_served_matrix_by_matrix() -> None:
    text = """.visible .entry k() { .reg .b32 t, a<4>, at; .shared .align 128 .b8 s[8192];
      mov.u32 at, s; mov.u32 t, %tid.x; mad.lo.u32 at, t, STRIDE, at;
      ldmatrix.sync.aligned.m8n8.x4.shared.b16 {a0, a1, a2, a3}, [at]; ret; }"""
    for stride, conflicts in ((16, 1), (144, 1), (32, 2), (64, 4), (128, 8)):
        found = work(profile_of(text.replace("STRIDE", f"{stride}"), 32), "ldmatrix").traffic["shared"]
        assert (found.units, found.ideal) == (4 * conflicts, 4)


def test_local_memory_of_a_warp_lies_side_by_side() -> None:
    text = """.visible .entry k() { .reg .b32 t; .reg .b64 w; .local .align 16 .b8 own[64];
      mov.u32 t, %tid.x; st.local.u32 [own], t; st.local.v4.u32 [own+16], {t, t, t, t}; st.local.u64 [own+8], w; ret; }"""
    profile = profile_of(text, 32)
    assert [work(profile, f"st.local.{t}").traffic["local"].units for t in ("u32", "v4", "u64")] == [4, 16, 8]


def test_copies_count_on_both_sides() -> None:
    text = """.visible .entry k(.param .u64 x) { .reg .b64 p; .reg .b32 t, s0; .shared .align 128 .b8 s[512];
      ld.param.u64 p, [x]; mov.u32 t, %tid.x; mad.wide.u32 p, t, 16, p;
      mov.u32 s0, s; mad.lo.u32 s0, t, 16, s0;
      cp.async.cg.shared.global [s0], [p], 16; cp.async.wait_all; ret; }"""
    found = work(profile_of(text, 32, [np.zeros(128, np.uint32)]), "cp.async.cg").traffic
    assert (found["global"].units, found["shared"].units, found["global"].bytes) == (16, 4, 512)


# executions -------------------------------------------------------------------------------------------------------------
LOOP = """.visible .entry k(.param .u64 x) {
  .reg .b64 p; .reg .b32 t, n, v; .reg .pred q, odd, never;
  ld.param.u64 p, [x];
  mov.u32 t, %tid.x;
  mad.wide.u32 p, t, 4, p;
  and.b32 n, t, 3;
  setp.eq.u32 odd, n, 1;
  mov.u32 v, 0;
again:
  add.u32 v, v, n;
  @odd add.u32 v, v, 100;
  sub.u32 n, n, 1;
  setp.ge.s32 q, n, 0;
  @q bra again;
  st.global.u32 [p], v;
  setp.gt.u32 never, t, 99;
  @!never bra end;
  st.global.u32 [p], t;
end:
  ret;
}"""


def test_a_loop_that_lanes_leave_at_different_times() -> None:
    profile = profile_of(LOOP, 48, [np.zeros(48, np.uint32)])
    add = work(profile, "add.u32 v, v, n")
    assert (add.executions, add.lanes) == (2 * 4, 48 // 4 * (1 + 2 + 3 + 4))
    odd = work(profile, "@odd")
    assert (odd.executions, odd.lanes, odd.lanes - odd.off) == (8, 120, 12 * 2)
    back = work(profile, "bra again")
    assert (back.executions, back.taken, back.passed, back.parted) == (8, 6, 8, 6)
    assert work(profile, "st.global.u32 [p], v").lanes == 48
    assert work(profile, "st.global.u32 [p], t").executions == 0
    missed = unreached([profile])
    assert missed.lines == (("<ptx>", 21),) and missed.branches == (("<ptx>", 20, "not taken"),)
    twice = replace(missed, branches=missed.branches * 2)
    assert never(missed)[1:] == ["<ptx>:20: branch taken by all warps that came here"]
    assert never(twice)[1:] == ["<ptx>:20: 2 branches taken by all warps that came here"]
    assert "DA:21,0\n" in lcov([profile]) and "BRDA:17,0,0,6\nBRDA:17,0,1,8\n" in lcov([profile])


WAITS = """.visible .entry k(.param .u64 x) {
  .reg .b64 p; .reg .b32 t, b, s; .reg .b64 state; .reg .pred one, done;
  .shared .align 8 .b64 bar;
  ld.param.u64 p, [x]; mov.u32 t, %tid.x; mov.u32 b, bar;
  setp.eq.u32 one, t, 0;
  @one mbarrier.init.shared.b64 [b], 32;
  bar.sync 0;
  setp.ge.u32 one, t, 32;
  @one bra wait;
  mbarrier.arrive.shared.b64 state, [b];
wait:
  mbarrier.try_wait.parity.shared.b64 done, [b], 0;
  @!done bra wait;
  ret;
}"""


MEETINGS = """.visible .entry k() {
  .reg .b32 t, v; .reg .pred p;
  mov.u32 t, %tid.x;
  setp.lt.u32 p, t, 12;
  @p bra other;
  bar.warp.sync -1;
  bra end;
other:
  bar.warp.sync 0xffffffff;
end:
  shfl.sync.bfly.b32 v, t, 1, 31, -1;
  vote.sync.any.pred p, p, -1;
  ret;
}"""


def test_lanes_that_wait_for_each_other_count_once() -> None:
    profile = profile_of(MEETINGS, 64)
    lanes = {i.text: i.work.lanes for i in profile.instructions if ".sync" in i.text}
    assert [*lanes.values()] == [20 + 32, 12, 64, 64]
    assert work(profile, "shfl").executions == 2


@pytest.mark.parametrize("seed", range(4))
def test_waits_are_met_once_and_lanes_add_up(seed: int) -> None:
    profile = profile_of(WAITS, 70, [np.zeros(1, np.uint32)], seed=seed)
    wait = work(profile, "try_wait")
    assert wait.lanes >= 70 and wait.executions == wait.met + wait.polls and wait.met >= 3
    assert work(profile, "ret;").lanes == 70 and work(profile, "bar.sync").lanes == 70
    init = work(profile, "mbarrier.init")
    assert (init.executions, init.lanes - init.off) == (3, 1)


def test_what_ptxas_makes_one_counts_as_two() -> None:
    text = """.visible .entry k(.param .u64 x) { .reg .b64 p; .reg .f32 a, b;
      ld.param.u64 p, [x]; ld.global.f32 a, [p]; mul.f32 b, a, a; add.f32 b, b, a; st.global.f32 [p], b; ret; }"""
    profile = profile_of(text, 64, [np.zeros(1, np.float32)])
    assert work(profile, "mul.f32").executions == work(profile, "add.f32").executions == 2


def test_matrix_work_is_the_reports() -> None:
    text = """.visible .entry k() { .reg .b32 a<4>, b<2>; .reg .f32 c<4>;
      mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {c0,c1,c2,c3}, {a0,a1,a2,a3}, {b0,b1}, {c0,c1,c2,c3}; ret; }"""
    (kernel,) = mm.Module.load(HEAD + text).values()
    report = kernel.launch(3, 64, profile=True)
    assert report.profile is not None and report.profile.total.macs == report.macs == 6 * 16 * 8 * 16


def test_threads_of_the_host_and_repetitions_change_nothing() -> None:
    one, two = (profile_of(LOOP, 48, [np.zeros(48, np.uint32)], grid=40, threads=n) for n in (1, 3))
    assert one == two
    (both,) = added_up([one, two])
    assert both.launches == 2 and both.total.lanes == 2 * one.total.lanes


def test_it_goes_with_the_sanitizer_and_watch() -> None:
    alone = profile_of(LOOP, 48, [np.zeros(48, np.uint32)])
    (kernel,) = mm.Module.load(HEAD + LOOP).values()
    report = kernel.launch(1, 48, [np.zeros(48, np.uint32)], profile=True, sanitize=True, watch=[(0, 5)])
    assert report.profile == alone and len(report.stores) == 1 and not report.findings


def test_without_the_option_there_is_none() -> None:
    (kernel,) = mm.Module.load(HEAD + LOOP).values()
    report = kernel.launch(1, 48, [np.zeros(48, np.uint32)])
    assert report.profile is None and "profile" not in report.as_dict()
    with pytest.raises(mm.errors.LaunchError, match="profile is of type str"):
        kernel.launch(1, 48, [np.zeros(48, np.uint32)], profile="yes")  # type: ignore[arg-type]


# occupancy --------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("block", "shared", "device", "blocks", "limit"), [
    (1024, 0, "sm_90", 2, "threads"), (32, 0, "sm_90", 32, "blocks"), (128, 100 << 10, "sm_90", 2, "shared memory"),
    (256, 48 << 10, "sm_89", 2, "shared memory"), (512, 0, "sm_86", 3, "threads"), (128, 115712, "sm_90", 2, "shared memory"),
])  # fmt: skip
def test_occupancy(block: int, shared: int, device: str, blocks: int, limit: str) -> None:
    (kernel,) = mm.Module.load((HEAD + ".visible .entry k() { ret; }").replace("sm_90", "sm_80")).values()
    found = kernel.launch(1, block, shared=shared, device=device, profile=True).profile
    assert found is not None and (found.occupancy.blocks, found.occupancy.limit) == (blocks, limit)
    assert found.occupancy.registers * blocks * block <= 65536


# how it is shown --------------------------------------------------------------------------------------------------------
def test_what_is_shown() -> None:
    profile = profile_of(LOOP, 48, [np.zeros(48, np.uint32)])
    text = str(profile)
    assert "not reached in <ptx>: line 21" in text and "<ptx>:20: branch taken by all warps" in text
    assert max(map(len, text.splitlines())) <= 80
    assert LaunchProfile.of(json.loads(json.dumps(profile.as_dict()))) == profile
    assert json.loads(written([profile], "p.json"))["profiles"][0]["total"]["lanes"] == profile.total.lanes
    page = written([profile], "p.html")
    assert "add.u32 v, v, n;" in page and "<script" not in page and page.count("<tr") == page.count("</tr>")
    assert len(annotated(profile).splitlines()) == 2 + len(profile.instructions)
    assert written([profile], "p.txt").endswith(f"{annotated(profile)}\n")
    assert runs([1, 2, 3, 7, 9, 10]) == "1-3, 7, 9-10"


def test_products_in_tensor_memory_count() -> None:
    result = run_job(load_job(ROOT / "examples" / "blackwell_gemm" / "launch.toml"), profile=True)
    assert result.report.profile is not None and result.report.profile.total.macs == result.report.macs > 0
