"""Verdicts of an installed ptxas (optional, its path in MMULATOR_PTXAS) against those of the tables."""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))
import ptxas_compare as tool

from mmulator.isa.tables import FAMILIES
from mmulator.isa.targets import PTX_VERSIONS, TARGETS


def test_verdicts_agree_with_ptxas(tmp_path: Path) -> None:
    path = os.environ.get("MMULATOR_PTXAS")
    if not path:
        pytest.skip("MMULATOR_PTXAS names no ptxas")
    ptxas = tool.Ptxas(path, tmp_path)
    targets = [t for t in sorted(TARGETS) if t.number >= 80 and ptxas.knows(t, max(TARGETS[t], (9, 0)))]
    versions = [v for v in PTX_VERSIONS if v <= (9, 0)]
    chance = random.Random(2)
    legal = list(tool.legal(list(FAMILIES), targets, (9, 0), chance))
    # types of registers are left as they are: ptxas is not consistent in them
    ways = [w for w in tool.WAYS if w.__name__ != "_changed_type"]
    mutants = [tool.mutant(chance.choice(legal), targets, versions, chance, ways) for _ in range(400)]
    different = tool.compare(chance.sample(legal, 400) + mutants, ptxas)
    shown = "\n".join(
        f"{s.what}: {s.target} {s.text}\n  here {mine}\n  ptxas {theirs}" for s, mine, theirs in different
    )
    assert not different, shown
