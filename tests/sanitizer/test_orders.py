"""Who knows of whom: what has no room counts as known, is never a finding and never a crash, and is said; and what is found does
not depend on which core runs which block. The ways of ordering are kernels of the corpus, kernels/races/order_*."""

from __future__ import annotations

from pathlib import Path

import pytest

import mmulator as mm
from mmulator.diagnostics.findings import orders
from tests.support import breaches

KERNELS = [file for file in breaches.files("races") if file.stem.startswith("order_")]
BLOCKS = [file for file in KERNELS if file.stem in ("order_last_block", "order_semaphore", "order_volatile", "order_grid")]
NO_ROOM = "orders had no room"


def named(file: Path) -> str:
    return file.stem


def clean(file: Path, **more: object) -> list[str]:
    """The notes of a launch in which nothing may be found."""
    result = breaches.launch(file, **more)
    assert not isinstance(result, mm.errors.ExecutionFault), result
    assert not result.findings, "\n".join(map(str, result.findings))
    assert [note for note in result.notes if NO_ROOM in note] == [f"sanitizer: {said}" for said in result.refused]
    return result.notes


@pytest.mark.parametrize("file", KERNELS, ids=named)
def test_without_room_for_views_nothing_is_found_that_is_not_there(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orders, "MOST_VIEWS", 1)
    monkeypatch.setattr(orders, "LEAST_VIEWS", 4)
    assert any(NO_ROOM in note for note in clean(file))


@pytest.mark.parametrize("limit", ["MOST_SNAPSHOTS", "MOST_ROWS", "MOST_CLUSTERS"])
@pytest.mark.parametrize("file", BLOCKS, ids=named)
def test_without_room_for_what_blocks_release_nothing_is_found(file: Path, limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orders, limit, 1)
    assert any(NO_ROOM in note for note in clean(file))


@pytest.mark.parametrize("file", KERNELS, ids=named)
def test_there_is_room_for_what_kernels_do(file: Path) -> None:
    assert not any(NO_ROOM in note for note in clean(file))


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("change", [c for file in BLOCKS for c in breaches.changes(file)], ids=str)
def test_races_of_blocks_are_found_on_any_number_of_cores(change: breaches.Change, threads: int) -> None:
    result = breaches.launch(change.file, change.name, threads=threads)
    assert breaches.rules_found(result) == change.rules


def test_a_thousand_blocks_that_count_themselves() -> None:
    """The last block reads what all have written: each of them is known to it."""
    file = breaches.ROOT / "races" / "order_last_block.ptx"
    blocks = 1000
    text = breaches.text(file).replace(", 5;", f", {blocks - 1};").replace("%r5, 6;", f"%r5, {blocks};")
    assert text.count(str(blocks)) == 1 and text.count(str(blocks - 1)) == 1
    import numpy as np

    parts, count, out = np.zeros(64 * blocks, np.uint32), np.zeros(1, np.uint32), np.zeros(64, np.uint32)
    report = mm.Module.load(text)["last_block"].launch(blocks, 64, [parts, count, out], sanitize=True, timeout=120)
    assert not report.findings and out[1] == sum(range(1, 64 * blocks, 64))
    assert not any(NO_ROOM in note for note in report.notes)


def test_a_lock_without_a_fence_in_one_block_shows_where_that_block_has_it_second() -> None:
    """The first block orders nothing by its acquire, so the order in which blocks begin decides what a run shows."""
    text = breaches.text(breaches.ROOT / "races" / "order_lock.ptx")
    take = "atom.acquire.gpu.global.cas.b32 %r3, [%rd2], 0, 1;"
    assert text.count(take) == 1
    weak = f"mov.u32 %r5, %ctaid.x; setp.ne.u32 %q, %r5, 0; @%q {take} @!%q {take.replace('acquire', 'relaxed')}"
    import numpy as np

    kernel = mm.Module.load(text.replace(take, weak))["lock"]
    found = [
        {f.rule for f in kernel.launch(
            2, 32, [np.zeros(1, np.uint32), np.zeros(1, np.uint32)], sanitize=True, threads=1, seed=seed, order=seed or None
        ).findings}
        for seed in range(8)
    ]  # fmt: skip
    assert not found[0] and {"race-between-blocks"} in found and all(rules <= {"race-between-blocks"} for rules in found)


def test_strong_stores_to_many_words_take_no_room_from_releases() -> None:
    """A word that nothing was released at needs no place among the locations of the grid."""
    import numpy as np

    text = """.version 8.3
.target sm_90
.address_size 64
.visible .entry many(.param .u64 flags, .param .u64 out) {
    .reg .b32 %r<4>; .reg .b64 %rd<6>;
    ld.param.u64 %rd1, [flags];
    ld.param.u64 %rd2, [out];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, %ctaid.x;
    mad.lo.u32 %r3, %r2, 128, %r1;
    mul.wide.u32 %rd3, %r3, 4;
    add.u64 %rd3, %rd3, %rd2;
    red.release.gpu.global.add.u32 [%rd1], 1;
    st.relaxed.gpu.global.u32 [%rd3], %r3;
    mul.wide.u32 %rd4, %r2, 4;
    add.u64 %rd4, %rd4, %rd1;
    red.release.gpu.global.add.u32 [%rd4+4], 1;
    ret;
}
"""
    blocks = 160  # 20,480 words: more than there is room for
    arrays = [np.zeros(blocks + 1, np.uint32), np.zeros(128 * blocks, np.uint32)]
    report = mm.Module.load(text)["many"].launch(blocks, 128, arrays, sanitize=True, timeout=120)
    assert not report.findings and not any(NO_ROOM in note for note in report.notes)
