"""Cases of tensor copies: legal, spread over what there is, the same on the machine as in the model; a difference is told."""

from collections import Counter

import numpy as np
import pytest

from mmulator.evaluation.conformance import tensors
from mmulator.evaluation.conformance.suites import SUITES
from mmulator.host.cpu import Cpu
from mmulator.matrix.layouts.tensormap import places
from mmulator.ptx.program.addresses import SHARED_BASE
from tests.support.tensor_bytes import load, store


def expected(b: tensors.TensorBatch) -> tuple[np.ndarray, np.ndarray]:
    """Tensors and shared memory after the copies of a batch, as layouts/ has them."""
    memory, window = b.tensors.copy(), b.window.copy()
    for n, c in enumerate(b.cases):
        region, own = memory[n * tensors.REGION :][: tensors.REGION], window[n * tensors.WINDOW :][: tensors.WINDOW]
        tensor, m = region[c.fields.address :], c.fields
        mode = b.mode if b.op == "load" or b.mode == "tile" else "im2col_no_offs"
        where = places(m, c.coordinates, c.offsets, shared=SHARED_BASE + c.box, mode=mode, store=b.op != "load")
        if b.op == "load":
            load(m, where, tensor, own, SHARED_BASE)
        else:
            store(where, tensor, own, SHARED_BASE)
    return memory, window


MOVES = [kind for what in tensors.SUITES if "reductions" not in what for kind in tensors.kinds(what)]


@pytest.mark.parametrize(("op", "mode", "rank"), MOVES)
def test_the_machine_is_the_model(op: str, mode: str, rank: int) -> None:
    b = tensors.batch(3, op, mode, rank, 60)
    compared, wrong, said = tensors.differences(b, tensors.run(Cpu("sm_90"), b), expected(b))
    assert not wrong, said
    assert compared == 60 * (tensors.REGION + tensors.WINDOW)


def test_cases_are_spread() -> None:
    b = tensors.batch(1, "load", "tile", 3, 600)
    for what in ("interleave", "swizzle", "oob_fill"):
        assert min(Counter(getattr(c.fields, what) for c in b.cases).values()) > 30
    assert len({c.fields.type.name for c in b.cases}) == 13
    inside = [places(c.fields, c.coordinates).inside for c in b.cases]
    assert min(sum(i.all() for i in inside), sum(i.any() and not i.all() for i in inside), sum(not i.any() for i in inside)) > 30


def test_the_same_seed_makes_the_same_cases() -> None:
    a, b = (tensors.batch(5, "add", "tile", 2, 20) for _ in range(2))
    assert a.cases == b.cases
    assert (a.tensors == b.tensors).all()


def test_a_difference_is_told() -> None:
    b = tensors.batch(1, "store", "tile", 2, 4)
    got = tensors.run(Cpu("sm_90"), b)
    got[0][2 * tensors.REGION + 5] ^= 1
    compared, wrong, said = tensors.differences(b, got, tensors.model(b, "sm_90"))
    assert (wrong, compared) == (1, 4 * (tensors.REGION + tensors.WINDOW))
    assert f"tensor store tile 2d: {b.cases[2]}: byte 5 of the tensor" in said


@pytest.mark.parametrize("what", tensors.SUITES)
def test_suites_run(what: str) -> None:
    rows = list(SUITES[f"tensor {what}"].run(Cpu("sm_90"), 1, 8))
    assert len(rows) == len(list(tensors.kinds(what)))
    assert not any(r.wrong or r.first for r in rows)
    assert all(r.words and r.cases for r in rows)
