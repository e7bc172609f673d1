"""Races: the same findings whatever the seed, and none when records run out."""

from pathlib import Path

import numpy as np
import pytest

import mmulator as mm
from mmulator.ptx.program.addresses import SLOT_SHIFT
from mmulator.sanitizer.diagnostics.findings import shadows
from tests.support import breaches

FOLDER = breaches.ROOT / "races"


def found(name: str, change: str | None, **more: object) -> set[tuple[str, str, str]]:
    return {f.key for f in breaches.launch(FOLDER / name, change, **more).findings}


CHANGES = [("reverse.ptx", "no_barrier"), ("transpose.ptx", "used_again"), ("halo.ptx", "of_block")]


@pytest.mark.parametrize("name, change", CHANGES)
def test_findings_do_not_depend_on_the_order_of_warps(name: str, change: str) -> None:
    """Places too: a read is reported against the write, whichever came first."""
    seeds = [found(name, change, seed=seed) for seed in range(6)]
    assert seeds[0] and all(s == seeds[0] for s in seeds)


@pytest.mark.parametrize("file", sorted(FOLDER.glob("[a-nr-z]*.ptx")), ids=lambda f: f.stem)
def test_no_room_makes_no_false_alarm(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With room for a few records only, of shared memory all is forgotten again and again, of global memory no more is kept."""
    true = found(file.name, None)
    monkeypatch.setattr(shadows, "SHARED_RECORDS", 80)
    monkeypatch.setattr(shadows, "LEAST_RECORDS", 1024)
    monkeypatch.setattr(shadows, "LEAST_NODES", 1100)
    assert found(file.name, None) <= true


SHIFTED = """.version 8.0
.target sm_90
.address_size 64
.visible .entry shifted(.param .u64 x, .param .u64 y) {
  .reg .b64 p, q, o; .reg .b32 t, c, v;
  ld.param.u64 p, [x]; ld.param.u64 q, [y];
  mov.u32 t, %tid.x; mov.u32 c, %ctaid.x; mad.lo.u32 t, c, 32, t; mul.wide.u32 o, t, 4;
  add.u64 p, p, o; add.u64 q, q, o;
  ld.global.b32 v, [p + 4]; st.global.b32 [q], v; ret; }
"""


def test_what_is_only_read_has_no_shadow() -> None:
    """Memory counts as written if a store goes there through another argument. Launches do not see each other."""
    kernel, x, y = mm.Module.load(SHIFTED)["shifted"], np.zeros(300, np.int32), np.zeros(300, np.int32)
    for args, racy in [([x, y], False), ([x, x], True), ([y, x], False), ([x, x], True), ([x, y], False)]:
        found = kernel.launch(8, 32, args, sanitize=True).findings
        assert {f.rule for f in found} == ({"race-between-blocks", "race-within-warp"} if racy else set())
    # one block's store that leaves the array of its pointer, for the one that other blocks read afterwards
    text = SHIFTED.replace("mad.lo.u32 t, c, 32, t;", "setp.eq.u32 one, c, 0;").replace(".reg .b64", ".reg .pred one; .reg .b64")
    text = text.replace("st.global.b32 [q], v", "").replace("ld.global.b32 v, [p + 4]", "@!one ld.global.b32 v, [q + 4]")
    text = text.replace("@!one", f"add.u64 p, p, {2 << SLOT_SHIFT}; @one st.global.b32 [p], t; @!one")
    kernel = mm.Module.load(text)["shifted"]
    assert {f.rule for f in kernel.launch(8, 32, [x, y], sanitize=True).findings} == {"race-between-blocks"}


GIVEN_ON = """.version 8.0
.target sm_90
.address_size 64
.visible .entry given_on(.param .u64 x) {
  .reg .b64 p; .reg .b32 t, c; .reg .pred first;
  ld.param.u64 p, [x]; mov.u32 t, %tid.x; mov.u32 c, %ctaid.x; mad.wide.u32 p, t, 4, p; setp.eq.u32 first, c, 0;
  @first st.global.u32 [p], t;
  bar.sync 0;
  red.relaxed.gpu.global.add.u32 [p], 1; ret; }
"""


def test_what_a_block_knew_the_next_one_on_its_worker_does_not() -> None:
    """The first block's barrier orders its own additions after its stores, and no other block's."""
    report = mm.Module.load(GIVEN_ON)["given_on"].launch(4, 64, [np.zeros(64, np.int32)], sanitize=True)
    assert {f.rule for f in report.findings} == {"race-between-blocks"}
