"""No access goes round the windows: every way into memory, in every space, at every edge; and under pages that trap."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

import pytest

import memory_ways
from memory_ways import Walk, statements

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))
import fuzz_memory

KINDS = sorted({s.name.partition(".")[0] for s in statements()})


@cache
def walk() -> Walk:
    return Walk(statements())


def test_every_row_with_an_address_is_walked() -> None:
    assert not memory_ways.unknown(), "say in memory_ways.ACCESS what these do with the bytes at their address"


@pytest.mark.parametrize("kind", KINDS)
def test_edges_of_the_windows(kind: str) -> None:
    numbers = [n for n, s in enumerate(walk().statements) if s.name.partition(".")[0] == kind]
    found = [walk().problem(n, a) for n in numbers for a in walk().edges(n)]
    assert not any(found), "\n".join(p for p in found if p)


@pytest.mark.parametrize("edge", ["left", "right"])
def test_pages_around_every_window(edge: str) -> None:
    """A child process in which an access by one byte too far ends everything."""
    done = fuzz_memory.guarded(edge, seconds=1, seed=1)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "launches" in done.stdout
