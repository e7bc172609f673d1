"""Narrow types on torch's device cuda are summed as a GPU sums them."""

from pathlib import Path

import pytest

from tests.support import forks
from tests.support.places import ROOT

PROGRAM = Path(__file__).parent / "programs" / "torch_precision.py"


def test_narrow_types_are_computed_in_f32_and_rounded_once() -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    done = forks.run([str(PROGRAM)], ROOT)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "done\n"
