"""Operators of torch's device cuda have a GPU's bits where CUDA computes with exact operations, or cuBLAS's order is known."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support import forks
from tests.support.places import DATA, ROOT

PROGRAMS = Path(__file__).parent / "programs"


def digests(program: str) -> Any:
    """The JSON that a program of the folder prints."""
    pytest.importorskip("torch", reason="torch is not installed")
    done = forks.run([str(PROGRAMS / program)], ROOT)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_operators_have_the_bits_of_an_h100() -> None:
    """The file has what torch 2.11 computed on an NVIDIA H100, of the operators whose results do not depend on a library."""
    wanted = json.loads((DATA / "torch_steps_sm_90.json").read_text())
    found = digests("torch_steps.py")
    known = [(kind, name) for kind, of in wanted.items() for name in of]
    assert [f"{kind} {name}" for kind, name in known if found[kind][name] != wanted[kind][name]] == []
    assert len(known) > 150


def test_products_have_the_bits_of_an_h200() -> None:
    """The file has what torch 2.11 (CUDA 13.0) computed on an NVIDIA H200."""
    wanted, found = json.loads((DATA / "torch_products_sm_90.json").read_text()), digests("torch_products.py")
    assert found.keys() == wanted.keys() and len(wanted) > 250
    assert [name for name in wanted if found[name] != wanted[name]] == []
