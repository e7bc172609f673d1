"""The tool that tries versions of other software (tools/matrix)."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tools.matrix import __main__ as matrix
from tools.matrix.doors import Door, try_door


def test_what_was_not_run_is_never_said_to_work(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert {"oldest", "pinned", "newest", "torch-2.10"} <= matrix.rows().keys() and "torch==2.13.0" in matrix.pins()
    monkeypatch.setattr(matrix, "find_python", lambda minor: None)
    row = matrix.Row("oldest", tmp_path / "oldest")
    row.go(matrix.rows()["oldest"], ["torch", "Numba"], 1)
    assert [how for how, _ in row.doors.values()] == ["not run", "not run"] and row.versions == {}
    text = matrix.table([row], ["torch", "Numba"])
    assert "| not run | not run |" in text and "- oldest, torch: not run: no Python that mmulator works with is on" in text
    door = Door("", "python -c print(1)", says="2")
    assert try_door(door, Path(sys.executable), dict(os.environ), 60) == ("fails", "exit code 0: 1")
