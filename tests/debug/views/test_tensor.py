"""Matrices of tcgen05 at a stop: operands from shared and tensor memory, through the model, give the words that the machine
leaves; loads and stores show cells and registers at the same places.
"""

import re
from typing import Any

import numpy as np
import pytest

from mmulator.matrix.layouts.instruction_descriptor import Variant
from mmulator.matrix.twin.matrices import twin_matmul
from mmulator.observation.debug.views import MatrixView, Scene, allocations, matrices, tensor_memory
from mmulator.runtime.launch.tensor_tables import key_of
from tests.support.scenes import texts_fit, watched
from tests.support.tensor_cases import COLUMNS, draw, make
from tests.support.tensor_kernels import LANES, SHARED, cells, prepared


@pytest.mark.parametrize("seed", range(60))
def test_operands_give_the_result(seed: int) -> None:
    rng = np.random.default_rng(seed)
    d = draw(rng)
    vec = {"mxf8f6f4": 1, "mxf4": 2, "mxf4nvf4": 4 if d.stype == "ue4m3" else 2}.get(d.kind, 0)
    if d.kind == "mxf4nvf4" and d.scale_a_id % vec + d.scale_b_id % vec:
        vec = 2
    case = make(rng, d, vec, in_cells=bool(rng.integers(2)) and not d.transpose_a and d.kind != "mxf4nvf4")
    seen: dict[str, MatrixView] = {}

    def look(scene: Scene) -> None:
        assert scene.instruction is not None
        if scene.instruction.form.name in ("tcgen05.mma", "tcgen05.mma.ws"):
            for view in matrices(scene):
                assert view.unread is None and texts_fit(view.text()), view.text()
                seen[view.name] = view

    kernel, arguments, out = prepared(case.product, case.before)
    watched(kernel, len(case.before), LANES, arguments, look, shared=SHARED, device="sm_100")
    assert np.array_equal(out, case.behind)
    more: dict[str, Any] = {}
    if vec:
        more |= {"scale_a": seen["scale A"].raw, "scale_b": seen["scale B"].raw}
    if d.sparse:
        dense = seen["A dense"]
        assert dense.left_out is not None
        more["indices"] = np.nonzero(~dense.left_out)[1].reshape(d.m, -1).astype(np.int32)
        assert np.array_equal(np.take_along_axis(dense.raw, more["indices"], 1), seen["A"].raw)
    variant = Variant(d.kind, d.pair, d.ws, d.sparse, vec)
    want = twin_matmul(
        key_of(d, variant), "sm_100", seen["A"].raw, np.ascontiguousarray(seen["B"].raw),
        seen["D"].raw if case.product.adds else None, imm_scale_a=-1 if d.negate_a else 1,
        imm_scale_b=-1 if d.negate_b else 1, **more,
    )  # fmt: skip
    rows, (lane, column) = d.m // len(out), cells(d)
    mask = 0xFFFF if d.dtype == "f16" else 0xFFFFFFFF
    for rank in range(len(out)):
        assert np.array_equal(out[rank, lane, column] & mask, want[rank * rows : (rank + 1) * rows])


def test_loads_and_stores() -> None:
    """The registers of a store are what is in its cells behind it, those of a load are what it reads, for a lane each."""
    rng = np.random.default_rng(0)
    case = make(rng, draw(rng, kind="f16", m=128, pair=False, ws=False, sparse=False), 0)
    stored: list[Any] = []
    loaded: list[Any] = []

    def look(scene: Scene) -> None:
        assert scene.instruction is not None
        name = scene.instruction.form.name
        if name == "tcgen05.st":
            registers, memory = matrices(scene)
            quarter = 32 * (scene.place.warp % 4)
            at = int(re.search(r"columns (\d+)", memory.what)[1])  # type: ignore[index]
            assert np.array_equal(registers.raw, case.before[0, quarter : quarter + 32, at : at + 32])
            stored.append((scene.place.warp, at))
        if name == "tcgen05.ld":
            assert allocations(scene) == [(0, COLUMNS)]
            memory, registers = matrices(scene)
            quarter = 32 * (scene.place.warp % 4)
            view = tensor_memory(scene, range(quarter, quarter + 32), range(32), "f32")
            loaded.append(np.array_equal(memory.raw, view.raw) or "columns 0" not in memory.what)

    kernel, arguments, _ = prepared(case.product, case.before)
    watched(kernel, 1, LANES, arguments, look, shared=SHARED, device="sm_100")
    assert len(stored) == 4 * COLUMNS // 32 and len(loaded) == 4 * COLUMNS // 32 and all(loaded)
