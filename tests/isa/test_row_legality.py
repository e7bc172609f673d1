"""Legality of mbarriers, bulk and tensor copies, clusters, multimem and fences: verdicts of ptxas, recorded and (where one is
installed) fresh."""

import os
import random
from pathlib import Path

import numpy as np
import pytest

import mmulator as mm
from mmulator.base.source import Source
from mmulator.isa.row import Row
from mmulator.ptx.parser import parse_module
from mmulator.ptx.program.uses import uses_and_defs
from mmulator.ptx.tree import Address
from tests.support.places import DATA
from tests.support.ptx_text import STORE_R1, kernel
from tests.support.ptxas import rows as row_statements
from tests.support.ptxas import tensor_memory
from tests.support.ptxas.mutants import World
from tests.support.ptxas.row_differences import DIFFERENCES, listed
from tests.support.ptxas.verdicts import Ptxas, compare, judged, known

VERDICTS = DATA / "row_verdicts.txt", DATA / "tcgen05_verdicts.txt"
PTXAS = os.environ.get("MMULATOR_PTXAS")


def test_recorded_verdicts_are_ours() -> None:
    """Statements and mutants of them, on targets from sm_80 on, and accesses to every state space, also of clusters."""
    wrong, families, targets = [], set(), set()
    for s, accepted, mine in (verdict for file in VERDICTS for verdict in judged(file)):
        targets.add(s.target)
        families.add((s.mnemonic.partition(".")[0], accepted))
        if (mine is None) != accepted:
            wrong.append(f"{s.target} {s.ptx} {s.text[:200]}: here {mine or 'accepted'}")
    assert {*map(str, targets)} >= {"sm_80", "sm_90", "sm_90a", "sm_100a", "sm_103f", "sm_120a"}
    assert not wrong, "\n".join(wrong)
    assert families >= {(row.opcode, accepted) for row in row_statements.ROWS for accepted in (True, False)}


def test_every_difference_has_a_reason_of_its_own() -> None:
    assert len({d.reason for d in DIFFERENCES}) == len(DIFFERENCES)


@pytest.mark.skipif(not PTXAS, reason="MMULATOR_PTXAS names no ptxas")
@pytest.mark.parametrize("seed", [1, 2])
def test_verdicts_agree_with_ptxas(seed: int, tmp_path: Path) -> None:
    """Fresh statements of every row; the differences are those of tests/support/ptxas/row_differences.py."""
    ptxas = Ptxas(PTXAS or "", tmp_path)
    targets, versions = known(ptxas, 80)
    chance = random.Random(seed)
    legal = list(row_statements.legal(targets, versions[-1], chance, 10))
    made = list(row_statements.mutants(legal, 2000, World(targets, versions, (), chance)))
    made += tensor_memory.statements(targets, versions, 2000, seed)
    different = [
        f"{s.what}: {s.target} {s.text}\n  here {mine}\n  ptxas {theirs}"
        for s, mine, theirs in compare([*legal, *made], ptxas)
        if (mine is None) != (theirs is None) and not listed(s, theirs is None)
    ]
    asked: set[Row] = {row for row in row_statements.ROWS if any(row.requires.admits(t) for t in targets)}
    assert len(legal) > 5 * len(asked) and not different, "\n".join(different)


def test_coordinates_of_a_tensor_are_in_the_tree() -> None:
    """Fastest dimension first, as written; other addresses have none."""
    text = ".version 8.0\n.target sm_90\n.visible .entry k() { .reg .b64 %m; .reg .b32 %x, %y; .shared .b64 b, s[8];\n"
    body = "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [s], [%m, {%x, 5, %y}], [b]; ret; }\n"
    (function,) = parse_module(Source("t.ptx", text + body)).functions
    copy = function.instructions[0]
    to, at, barrier = copy.operands
    assert isinstance(to, Address) and isinstance(at, Address) and isinstance(barrier, Address)
    assert [o.span.text for o in at.coordinates] == ["%x", "5", "%y"] and at.base.span.text == "%m"
    assert to.coordinates == barrier.coordinates == ()
    assert [(o.name, o.kind, o.count, o.space) for o in copy.form.operands] == [
        ("dstMem", "addr", 1, "shared::cluster"), ("tensorMap", "tensor", 3, "space"), ("mbar", "addr", 1, "shared"),
    ]  # fmt: skip
    assert copy.form["mode"] == "tile" and uses_and_defs(copy) == ({"%m", "%x", "%y"}, set())


def test_volatile_local_memory() -> None:
    """nvcc writes it of a volatile array of a thread's, and ptxas takes it; the other strong accesses are refused there."""
    text = kernel(".local .b32 x; st.volatile.local.u32 [x], 7; ld.volatile.local.u32 %r1, [x];" + STORE_R1)
    out = np.zeros(1, np.uint32)
    assert not mm.Module.load(text)["k"].launch(1, 1, [out], sanitize="strict").findings and out[0] == 7
    with pytest.raises(mm.errors.InvalidInstructionError, match=r"\.relaxed cannot access \.local"):
        mm.Module.load(text.replace("st.volatile.local", "st.relaxed.gpu.local"))
