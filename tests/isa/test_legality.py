"""Legality of matrix instructions: verdicts of ptxas, recorded and (where one is installed) fresh, and the table of
differences of docs/reference/legality.md."""

import os
import random
from pathlib import Path

import pytest

from mmulator.isa.matrix import FAMILIES
from mmulator.isa.targets import TARGETS
from mmulator.matrix.instruction.instruction import Instruction
from tests.support.places import DATA
from tests.support.ptxas import differences as differences
from tests.support.ptxas.differences import Difference
from tests.support.ptxas.mutants import matrix_statements
from tests.support.ptxas.verdicts import Ptxas, compare, judged, known, ours, packed, unpacked

VERDICTS = DATA / "matrix_verdicts.txt"
PTXAS = os.environ.get("MMULATOR_PTXAS")
needs_ptxas = pytest.mark.skipif(not PTXAS, reason="MMULATOR_PTXAS names no ptxas")
CASES = [*differences.FOLLOWED, *differences.REFUSED]
IDS = [f"{c.document[:24]}: {c.ptxas[:32]}" for c in CASES]


def test_recorded_verdicts_are_ours() -> None:
    """2,500 statements, legal and mutated, on every target: whole statements, and names on their own."""
    wrong, families, targets = [], set(), set()
    for s, accepted, mine in judged(VERDICTS):
        targets.add(s.target)
        families.add((s.mnemonic.partition(".")[0], accepted))
        if (mine is None) != accepted:
            wrong.append(f"{s.target} {s.ptx} {s.text[:200]}: here {mine or 'accepted'}")
        if accepted:  # an accepted statement has a name that Instruction.parse takes for the same target and version
            Instruction.parse(s.mnemonic, s.target, s.ptx)
    assert targets >= {t for t in TARGETS if t.number >= 70 and t.number != 101}
    assert not wrong, "\n".join(wrong)
    assert families == {(f, a) for f in FAMILIES for a in (True, False)}


def test_packing_statements_keeps_them() -> None:
    for text in ("{%b32_1, %b32_2, %b32_3}, [%b64_1]", "{%b32_3, %b32_2}, {%f32_1, %f32_2, %u32_3}", "{%r_9, %r_10, %r_11}"):
        assert unpacked(packed(text)) == text
    assert packed("{%b32_1, %b32_2, %b32_3}") == "{%b32_1..3}"


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_differences_from_the_document(case: Difference) -> None:
    """The example of every row of docs/reference/legality.md has the verdict that the row says."""
    (error,) = ours([case.statement])
    assert (error is None) == (case.accepted if case.followed else not case.accepted), error


@needs_ptxas
@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_differences_are_those_of_ptxas(case: Difference, tmp_path: Path) -> None:
    ptxas = Ptxas(PTXAS or "", tmp_path)
    s = case.statement
    if ptxas.release not in case.judge or not ptxas.knows(s.target, s.ptx):
        pytest.skip(f"stated for ptxas {case.judge}")
    (error,) = ptxas.verdicts([s], compiled=True)
    assert (error is None) == case.accepted, error
    assert case.followed or differences.refused(s)


@needs_ptxas
def test_verdicts_agree_with_ptxas(tmp_path: Path) -> None:
    ptxas = Ptxas(PTXAS or "", tmp_path)
    targets, versions = known(ptxas, 75 if ptxas.release > "13" else 70)
    legal, mutants = matrix_statements(list(FAMILIES), targets, versions, 600, seed=2)
    verdicts = list(compare([*random.Random(1).sample(legal, 600), *mutants], ptxas))
    different = [
        f"{s.what}: {s.target} {s.text}\n  here {mine}\n  ptxas {theirs}"
        for s, mine, theirs in verdicts
        if (mine is None) != (theirs is None) and not (theirs is None and differences.refused(s))
    ]
    assert not different, "\n".join(different)
