"""Laws over every row but the matrix ones: ptxas takes its forms, and a GPU was asked for each of its modifiers."""

import os
from pathlib import Path

import pytest

from mmulator.isa.row import Row
from mmulator.isa.targets import PTX_VERSIONS, Target
from tests.data import scalar_vectors
from tests.support import row_forms, row_statements
from tests.support.places import ROOT
from tests.support.ptxas.verdicts import Ptxas, Statement, compare
from tests.support.rows import WRITTEN
from tests.support.vectors import recorded


@pytest.mark.skipif("MMULATOR_PTXAS" not in os.environ, reason="MMULATOR_PTXAS names no ptxas")
@pytest.mark.parametrize("target", ["sm_90a", "sm_100a", "sm_103f", "sm_107a", "sm_110a", "sm_120f"])
def test_ptxas_takes_the_forms_that_we_take(target: str, tmp_path: Path) -> None:
    """Forms of every row, of those that the target lacks too."""
    ptxas = Ptxas(os.environ["MMULATOR_PTXAS"], tmp_path)
    version = next(v for v in reversed(PTX_VERSIONS) if ptxas.knows_version(v))
    made = []
    for row in row_forms.rows():
        if row.open or row.opcode in WRITTEN or row.opcode == "cvta":  # cvta.u32 is taken in modules of 64-bit addresses
            continue
        for words, form in row_forms.forms(row, 40):
            mnemonic, _, operands = row_forms.statement(row.opcode, words, form).removesuffix(";").partition(" ")
            if "b128" not in operands:
                made.append(Statement(mnemonic, (operands,) if operands else (), Target.parse(target), version))
    wrong = [f"{s.text}: here {a}, ptxas {b}" for s, a, b in compare(made, ptxas) if (a is None) != (b is None)]
    assert len(made) > 3000 and not wrong, "\n".join(wrong)


# Rows without a vector of their own: opcode or name, why, and the test that stands for it.
EXCUSES: tuple[tuple[str, str, str], ...] = (
    ("atom red", "atomic operations have vectors of their own", "data/atomic_vectors.npz"),
    ("bra brx.idx call ret exit", "no result of its own: real kernels", "kernels/test_kernels.py"),
    ("bar.sync bar.arrive barrier.sync barrier.arrive", "no result of its own: order of threads", "chapters/test_barrier.py"),
    ("barrier.cluster.arrive barrier.cluster.wait", "no result of its own: order of threads", "chapters/test_cluster.py"),
    ("membar fence griddepcontrol", "no result of its own: order of memory", "chapters/test_chapters.py"),
    ("prefetch prefetchu.L1 applypriority discard createpolicy", "no result: hints to caches", "chapters/test_memory.py"),
    ("nanosleep pmevent pmevent.mask setmaxnreg", "no result of its own", "chapters/test_chapters.py"),
    ("trap brkpt", "ends the launch", "ub/faults/control.ptx"),
    ("cp.async", "the result depends on time", "chapters/test_copies.py"),
    ("mbarrier", "words of barriers have vectors of their own", "chapters/test_mbarrier.py"),
    ("cp.reduce.async.bulk st.async red.async", "asynchronous stores have vectors of their own", "chapters/test_bulk.py"),
    ("ld.proxy::readonly", "loads of PTX 9.4 as all others", "native/test_newest.py"),
    ("tensormap", "tensor maps are made and read in kernels", "chapters/test_tensormap.py"),
    ("barrier.cluster", "no result of its own: order of threads", "chapters/test_cluster.py"),
)  # fmt: skip


def excuse_of(row: Row) -> str:
    for names, why, _ in EXCUSES:
        if any(row.name == n or row.opcode == n or row.name.startswith(n + ".") for n in names.split()):
            return why
    return ""


def test_every_row_and_operation_has_a_vector_or_an_excuse() -> None:
    """Each modifier of each row, and any two that can stand together, in a statement that a GPU was asked for."""
    have = row_statements.covered([*(c.text for c in scalar_vectors.load()), *(s.text for s in recorded())])
    missing, used = [], set()
    for row in row_forms.rows():
        if not row.status.runs:
            continue
        wanted = set(row_statements.wanted(row))
        if not wanted:  # no chip before sm_100 has it
            assert row.requires.minimum > 90 or row.requires.families or any(n.sm > 90 for n in row.needs), row_forms.row_key(row)
            continue
        gap = wanted - have.get(row, set())
        if gap and (why := excuse_of(row)):
            used.add(why)
        elif gap:
            missing.append(f"{row_forms.row_key(row)[:100]}: {sorted(gap)[:3]}")
    assert not missing, "\n".join(missing)
    assert used == {why for _, why, _ in EXCUSES}
    assert all((ROOT / "tests" / test).exists() for _, _, test in EXCUSES if not test.startswith("data/"))
