"""Slices of the fuzzers (evidence/fuzz/: modules, transfers, tensor, memory), and that they find what they are there for."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from evidence.fuzz import memory, versions
from tests.support.places import ROOT


def fuzz(out: Path, *arguments: str, plant: str = "", what: str = "modules") -> tuple[int, dict[str, Any]]:
    command = [sys.executable, "-m", f"evidence.fuzz.{what}", "--jobs", "2", "--quiet", "--out", str(out), *arguments]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=600,
        cwd=ROOT,
        check=False,
        env={**os.environ, "MMULATOR_FUZZ_PLANT": plant},
    )
    assert done.returncode in (0, 1), done.stderr
    return done.returncode, json.loads(done.stdout)


@pytest.mark.full
def test_a_slice_finds_nothing(tmp_path: Path) -> None:
    """A slice of 250 modules, the same each time, finds nothing; docs/developers/testing.md has a larger one."""
    code, found = fuzz(tmp_path, "--modules", "250", "--launches", "40", "--seed", "7")
    assert (code, found["failures"]) == (0, [])
    assert found["modules"] >= 250 and found["loaded"] > 50 and found["refused"] > 100
    assert found["launched"] >= 40 and found["finished"] > 10 and found["fault"] > 10


def test_a_slice_of_transfers_finds_nothing(tmp_path: Path) -> None:
    """Four modules of a fixed seed, one of them sanitized, between pages that trap, with 25 launches each."""
    code, found = fuzz(tmp_path, "--modules", "4", "--launches", "0", "--seed", "3", what="transfers")
    assert (code, found["failures"]) == (0, [])
    assert found["loaded"] == 4 and found["launched"] > 80 and found["finished"] > 10 and found["fault"] > 50


def test_a_slice_of_tensor_memory_finds_nothing(tmp_path: Path) -> None:
    """Twelve modules of tcgen05, whose launches finish more often than not."""
    code, found = fuzz(tmp_path, "--modules", "12", "--launches", "0", "--seed", "1", what="tensor")
    assert (code, found["failures"]) == (0, [])
    assert found["loaded"] == 12 and found["launched"] > 100 and found["fault"] > 10
    assert found["finished"] > found["launched"] // 2


@pytest.mark.parametrize("edge", ["left", "right"])
def test_pages_around_every_window(edge: str) -> None:
    """A child process in which an access by one byte too far ends everything."""
    done = memory.guarded(edge, seconds=0.6, seed=1)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "launches" in done.stdout


@pytest.mark.full
def test_it_finds_crashes_hangs_and_errors_and_goes_on(tmp_path: Path) -> None:
    plant = "crash=3,hang=10,error=17"
    code, found = fuzz(tmp_path, "--modules", "24", "--launches", "0", "--hang", "4", plant=plant)
    assert code == 1 and found["modules"] == 24
    assert sorted((f["kind"], f["module"]) for f in found["failures"]) == [("crash", 3), ("error", 17), ("hang", 10)]
    assert (found["crashes"], found["hangs"], found["errors outside the family"]) == (1, 1, 1)
    kept = sorted(p.name for p in tmp_path.glob("*-*.*"))
    assert kept == [f"{name}.{end}" for name in ("crash-3", "error-17", "hang-10") for end in ("ptx", "txt")]
    assert "ValueError: planted" in (tmp_path / "error-17.txt").read_text()
    _, late = fuzz(tmp_path, "--modules", "30", "--launches", "0", "--seconds", "0")
    assert late["modules"] == 24
    again, more = fuzz(tmp_path, "--modules", "30", "--launches", "0")  # it goes on: 6 modules, and what was found stays
    assert again == 1 and more["modules"] == 30 and more["failures"] == found["failures"]


@pytest.mark.full
def test_stencils_have_the_bits_of_llvm(capfd: pytest.CaptureFixture[str]) -> None:
    assert versions.compared("", 7, range(3)) == 0, capfd.readouterr().out
    assert capfd.readouterr().out.startswith("3 cases")
