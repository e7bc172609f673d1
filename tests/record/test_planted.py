"""Planted bugs: the documented command names each, and says nothing of it for the right kernel."""

from __future__ import annotations

import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from mmulator.cli.app import run
from tests.support import places
from tests.support.planted import PLANTED, Planted

PROGRAMS = find_spec("triton") is not None and find_spec("torch") is not None


def told(bug: Planted, folder: Path, broken: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> str:
    """What the command prints, without breaks of lines."""
    bug.write(folder, broken)
    words = shlex.split(bug.command)
    if words[0] == "exec":
        ran = subprocess.run([sys.executable, "-m", "mmulator", *words], cwd=folder, capture_output=True, text=True, check=False)
        return " ".join((ran.stdout + ran.stderr).split())
    monkeypatch.chdir(folder)
    run(words)
    return " ".join("".join(capsys.readouterr()).split())


@pytest.mark.parametrize("bug", PLANTED, ids=lambda bug: bug.name.replace(" ", "-"))
def test_a_command_names_it(
    bug: Planted, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if bug.command.startswith("exec") and not PROGRAMS:
        pytest.skip("Triton or torch is not installed")
    said = [told(bug, tmp_path, broken, capsys, monkeypatch) for broken in (True, False)]
    missing = [words for words in bug.said if words.strip() not in said[0]]
    assert not missing, said[0]
    assert not all(words.strip() in said[1] for words in bug.said), said[1]


def test_the_table_is_in_the_page() -> None:
    """docs/debugging.md has a row for each: its kernel, its command, and what is seen."""
    page = (places.ROOT / "docs" / "debugging.md").read_text()
    assert len(PLANTED) == 20 and not [bug.row for bug in PLANTED if bug.row not in page]
