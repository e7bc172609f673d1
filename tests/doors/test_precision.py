"""Narrow types on torch's device cuda are summed as a GPU sums them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "programs" / "torch_precision.py"


def test_narrow_types_are_computed_in_f32_and_rounded_once() -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    done = subprocess.run([sys.executable, str(PROGRAM)], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "done\n"
