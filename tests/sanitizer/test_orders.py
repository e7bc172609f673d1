"""The order of threads, who knows of whom: what has no room counts as known, is never a finding and never a crash, and is
said. The ways of ordering are kernels of the corpus, kernels/races/order_*."""

from pathlib import Path

import pytest

import mmulator as mm
from mmulator.sanitizer.diagnostics.findings import orders
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
