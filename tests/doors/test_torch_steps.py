"""Elementwise operators of torch's device cuda have the bits of a GPU where CUDA's kernels compute with exact operations."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support import forks
from tests.support.places import DATA, ROOT

PROGRAM = Path(__file__).parent / "programs" / "torch_steps.py"


def test_operators_have_the_bits_of_an_h100() -> None:
    """The file has what torch 2.11 computed on an NVIDIA H100, of the operators whose results do not depend on a library."""
    pytest.importorskip("torch", reason="torch is not installed")
    wanted = json.loads((DATA / "torch_steps_sm_90.json").read_text())
    done = forks.run([str(PROGRAM)], ROOT)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    known = [(kind, name) for kind, of in wanted.items() for name in of]
    assert [f"{kind} {name}" for kind, name in known if found[kind][name] != wanted[kind][name]] == []
    assert len(known) > 150
