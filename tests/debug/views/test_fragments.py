"""Matrices of mma, wmma and wgmma at a stop: what is gathered from registers and shared memory is what the machine multiplies.

The matrices before the instruction go through the exact model; the result is D behind the instruction, bit
for bit, for every shape and all types.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mmulator.evaluation.conformance.subjects import Subject, subjects
from mmulator.isa.form import Form
from mmulator.isa.matrix import matrix_forms
from mmulator.matrix.numerics.profiles import dot_key
from mmulator.observation.debug.views import MatrixView, Scene, matrices
from mmulator.observation.debug.views.instruction_matrices import accumulator, computed_so_far
from mmulator.observation.debug.views.matrix import gathered
from tests.support.matrix_model import model_matmul
from tests.support.scenes import of_subject, texts_fit

CHIPS = (("sm_90a", "sm_90"), ("sm_120a", "sm_120"), ("sm_100a", "sm_100"), ("sm_80", "sm_80"))


def chosen(family: str) -> list[Form]:
    """A form for each way in which operands lie: shape, widths of types, order, sparsity, scales."""
    found: dict[Any, Form] = {}
    for f in matrix_forms(family):
        few = family == "wgmma" and not (f.n in (8, 24) or (f.n == 256 and f.atype.name == "f16" and not f.sparse))
        if f.atype and f.btype and f.dtype and f.op in ("mma", "mma_async") and not few:
            key = (f.shape, f.atype.bits, f.btype.bits, f.atype.kind, f.dtype.bits, f.ctype.bits, f.kind, f.alayout, f.blayout,
                   f.sparse, f.block_scale, f.scale_vec)  # fmt: skip
            found.setdefault(key, f)
    return list(found.values())


def every() -> Iterator[Any]:
    for family in ("mma", "wmma", "wgmma"):
        for form in chosen(family):
            yield pytest.param(form, id=str(form))


def chip_of(form: Form) -> tuple[str, str]:
    from mmulator.isa.targets import Target

    return next((t, d) for t, d in CHIPS if form.requires.admits(Target.parse(t)))


def expected(form: Form, device: str, seen: dict[str, MatrixView], signs: int, adds: bool) -> np.ndarray:
    """D by the exact model. signs: 1 or -1."""
    a, b = seen["A"].raw, seen["B"].raw
    indices = None
    if form.sparse:
        dense = seen["A dense"]
        assert dense.left_out is not None
        indices = np.nonzero(~dense.left_out)[1].reshape(form.m, form.k // 2)
        a = np.take_along_axis(dense.raw, indices, 1)
    scales = {f"scale_{x.lower()}": seen[f"scale {x}"].raw for x in "AB"} if form.block_scale else {}
    c = seen.get("C", seen["D"]).raw if adds else None
    return model_matmul(dot_key(form), device, a, b, c, imm_scale_a=signs, indices=indices, **scales)


def rows_of(scene: Scene) -> slice:
    """Rows of a warp in the matrices of its warpgroup."""
    return slice(16 * scene.place.warp, 16 * scene.place.warp + 16)


def joined(known: MatrixView | None, view: MatrixView, scene: Scene) -> MatrixView:
    """A matrix of a warpgroup with the rows that the warp has when it issues; matrices in shared memory are the same for all."""
    if known is None or view.what.startswith("at "):
        return view
    raw, left_out = known.raw.copy(), known.left_out
    raw[rows_of(scene)] = view.raw[rows_of(scene)]
    if left_out is not None and view.left_out is not None:
        left_out = left_out.copy()
        left_out[rows_of(scene)] = view.left_out[rows_of(scene)]
    return replace(known, raw=raw, left_out=left_out)


def look_at(subject: Subject) -> None:
    form = subject.form
    target, device = chip_of(form)
    before: dict[str, MatrixView] = {}
    after: dict[str, np.ndarray] = {}
    parts: dict[int, np.ndarray] = {}
    so_far: dict[int, np.ndarray] = {}
    signs = int(np.prod([v for k, v in subject.immediates if k.startswith("imm_scale")] or [1]))
    adds = [True]
    operand: list[Any] = []

    def look(scene: Scene) -> None:
        ins = scene.instruction
        assert ins is not None
        if ins.form.atype and ins.form.family == form.family and not ins.form.is_move and ins.form.op in ("mma", "mma_async"):
            found = matrices(scene)
            names = [v.name for v in found]
            assert len(set(names)) == len(names)
            for view in found:
                assert texts_fit(view.text()), view.text()
                assert view.as_dict()["rows"] == view.shape[0]
            for view in found:
                before[view.name] = joined(before.get(view.name), view, scene) if form.family == "wgmma" else view
            operand[:] = [scene.operands["d"]]
            scale = scene.operands.get("scale-d")
            adds[0] = scale is None or bool(scene.value(scale))
        elif operand and ins.form.name == "wgmma.wait_group":
            for view in computed_so_far(scene, form, operand[0]):
                if not any("issued" in n for n in view.notes) and (view.unread is None or not view.unread[rows_of(scene)].any()):
                    so_far[scene.place.warp] = view.raw[rows_of(scene)]
        elif operand and ins.opcode == "ld":
            if form.family != "wgmma":
                after.update({v.name: v.raw for v in gathered(scene, form, "d", operand[0])})
            elif scene.place.warp not in parts:
                view, rows = accumulator(scene, form, operand[0]), rows_of(scene)
                assert view.unread is None or not view.unread[rows].any()
                parts[scene.place.warp] = view.raw[rows]

    of_subject(subject, target, device, look)
    seen = before
    if parts:
        after["D"] = np.concatenate([parts[n] for n in range(4)])
        assert all(np.array_equal(rows, parts[n]) for n, rows in so_far.items())
    if form.shape == "m8n8k4" and form.atype.name == "f16":
        for n in range(4):
            part = {x: seen[f"{x}{n}"] for x in "ABCD"}
            assert np.array_equal(after[f"D{n}"], expected(form, device, part, 1, True))
        return
    want = expected(form, device, seen, signs, adds[0])
    assert np.array_equal(after["D"], want)


@pytest.mark.parametrize("form", list(every()))
def test_operands_give_the_result(form: Form) -> None:
    for subject in subjects(form)[:2]:
        look_at(subject)
