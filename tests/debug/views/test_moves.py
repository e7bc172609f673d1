"""Matrix moves at a stop: a load puts in registers what is shown of memory, a store puts in memory what is shown of registers."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mmulator.evaluation.conformance.subjects import Subject, subjects
from mmulator.isa.form import Form
from mmulator.isa.matrix import matrix_forms
from mmulator.isa.targets import Target
from mmulator.observation.debug.views import MatrixView, Scene, matrices
from mmulator.observation.debug.views.matrix import gathered
from tests.support.scenes import of_subject, texts_fit

CHIPS = (("sm_90a", "sm_90"), ("sm_120a", "sm_120"))


def moves() -> list[Form]:
    """Forms that move, one for each shape, type, number, transposition and operand."""
    found: dict[Any, Form] = {}
    for family in ("ldmatrix", "stmatrix", "wmma", "movmatrix"):
        for f in matrix_forms(family):
            if f.is_move or f.op != "mma":
                known = next((c for c in CHIPS if f.requires.admits(Target.parse(c[0]))), None)
                if known:
                    found.setdefault((f.family, f.op, f.shape, str(f.type), f.num, bool(f.trans), f.src_fmt, f.layout), f)
    return list(found.values())


@pytest.mark.parametrize("form", [pytest.param(f, id=str(f)) for f in moves()])
def test_moves(form: Form) -> None:
    target, device = next(c for c in CHIPS if form.requires.admits(Target.parse(c[0])))
    for subject in subjects(form)[:2]:
        look_at(subject, target, device)


def look_at(subject: Subject, target: str, device: str) -> None:
    form = subject.form
    before: dict[str, MatrixView] = {}
    after: list[np.ndarray] = []
    operand: list[Any] = []
    site: list[int] = []

    def look(scene: Scene) -> None:
        assert scene.instruction is not None
        if scene.instruction.form == form:
            for view in matrices(scene):
                assert texts_fit(view.text()) and view.unread is None
                before[view.name] = view
            site[:] = [scene.site]
            operand[:] = [scene.operands["r" if "r" in scene.operands else "d"]]
        elif operand and not after and (form.family == "stmatrix" or form.op.startswith("store")):
            behind = matrices(replace(scene, site=site[0], lanes=(1 << 32) - 1))  # the same instruction, once more
            after.extend(v.raw for v in behind if v.name.startswith("memory"))
        elif operand and not after:
            after.extend(v.raw for v in gathered(scene, form, "d" if form.family == "movmatrix" else "r", operand[0]))

    of_subject(subject, target, device, look)
    memory = [v for name, v in before.items() if name.startswith("memory")]
    if form.family == "movmatrix":
        assert np.array_equal(after[0], before["A"].raw.T)
    elif form.type and (form.type.bits < 8 and form.family == "wmma"):
        assert not memory  # elements of less than a byte: only registers are shown
    elif form.family == "ldmatrix" or form.op.startswith("load"):
        assert len(memory) == len(after) and all(np.array_equal(m.raw, a & (1 << m.type.bits) - 1) for m, a in zip(memory, after))
    else:
        registers = [v for name, v in before.items() if name.startswith("R")]
        assert len(memory) == len(after) and all(np.array_equal(r.raw, a) for r, a in zip(registers, after))
