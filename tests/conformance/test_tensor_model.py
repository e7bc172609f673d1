"""Copies of tensors as the machine makes them against the model in layouts/tensormap, on cases that no chip was asked for yet."""

from __future__ import annotations

import numpy as np
import pytest

from mmulator.conformance import tensors
from mmulator.layouts.tensormap import places
from mmulator.layouts.tensormap.copies import load, store

SHARED = 1024  # address of the first byte of dynamic shared memory


@pytest.mark.parametrize("what", ["loads", "loads of images", "stores", "stores of images"])
def test_machine_and_model_are_one(what: str) -> None:
    for op, mode, rank in tensors.kinds(what):
        b = tensors.batch(77, op, mode, rank, 60)
        memories, windows = tensors.model(b, "sm_90")
        for n, c in enumerate(b.cases):
            of, held = (slice(n * size, (n + 1) * size) for size in (tensors.REGION, tensors.WINDOW))
            memory, shared = b.tensors[of].copy(), b.window[held].copy()
            where = places(c.fields, c.coordinates, c.offsets, shared=SHARED + c.box, store=op == "store")
            if op == "load":
                load(c.fields, where, memory[c.fields.address :], shared, SHARED)
            else:
                store(where, memory[c.fields.address :], shared, SHARED)
            assert np.array_equal(memory, memories[of]), c
            assert np.array_equal(shared, windows[held]), c
