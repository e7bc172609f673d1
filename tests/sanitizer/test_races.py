"""Races: the same findings whatever the seed and the workers, none when records run out, a sentence that says what is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from mmulator.diagnostics.findings import shadows
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


def test_blocks_race_on_one_worker_and_on_several() -> None:
    one, several = (found("histogram.ptx", "stored", threads=n) for n in (1, 3))
    assert one == several and {rule for rule, _, _ in one} == {"race-between-blocks"}


@pytest.mark.parametrize("file", sorted(FOLDER.glob("[a-nr-z]*.ptx")), ids=lambda f: f.stem)
def test_no_room_makes_no_false_alarm(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With room for a few records only, of shared memory all is forgotten again and again, of global memory no more is kept."""
    monkeypatch.setattr(shadows, "SHARED_RECORDS", 80)
    monkeypatch.setattr(shadows, "LEAST_RECORDS", 1024)
    monkeypatch.setattr(shadows, "LEAST_NODES", 1100)
    assert not found(file.name, None)


def test_the_sentence() -> None:
    (finding,) = breaches.launch(FOLDER / "transpose.ptx", "used_again").findings
    said = "ld.shared.f32 reads bytes that st.shared.f32 writes, and no barrier lies between"
    assert finding.message.removeprefix("buffer overwritten while it may still be read: ") == said
    assert finding.severity == "error" and "tile" in finding.where and finding.conflict is not None
    assert finding.conflict.instruction == "st.shared.f32"
