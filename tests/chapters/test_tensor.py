"""Copies of tensors: every byte as an NVIDIA H200 moves it, every form, the edges of windows, and faults by name."""

from __future__ import annotations

import hashlib
from collections import Counter

import pytest

from mmulator.errors import ExecutionFault
from tests.data import tensormap_vectors as vectors
from tests.support import rows
from tests.support import tensor_copies as copies

test_rows = rows.run_or_refused("tensor")

COPIES, REDUCTIONS = list(vectors.copies()), list(vectors.reductions())


# an H200's ------------------------------------------------------------------------------------------------------------
def done(copied: vectors.Copied, op: str, times: int, seed: int) -> str | None:
    """The digest of the bytes afterwards; None if there was a fault about the map or the place."""
    try:
        after = copies.store(copied, op, seed, times) if copied.store else copies.load(copied, seed)
    except ExecutionFault as error:
        assert "tensor" in error.message
        return None
    return hashlib.sha256(after.tobytes()).hexdigest()[:16]


@pytest.mark.parametrize("store", [False, True], ids=["loads", "stores"])
def test_every_byte_is_an_h200s(store: bool) -> None:
    """All types, swizzles, interleaves, ranks, fills, element strides, places; what the chip finds illegal is a fault. Seeds
    decide which rows are copied when."""
    asked = [(seed, c) for seed, c in enumerate(COPIES) if c.store == store]
    different = [(seed, c) for seed, c in asked if done(c, "", 1, seed) != c.digest]
    assert not different, (len(different), different[:2])
    assert len(asked) > (200 if store else 4800)


def test_every_reduction_is_an_h200s() -> None:
    """All operations with all types, of which those with a meaning are bit for bit, and the others faults."""
    different = [(op, c) for seed, (op, times, c) in enumerate(REDUCTIONS) if done(c, op, times, seed) != c.digest]
    assert not different, (len(different), different[:2])
    said = Counter(c.digest is None for _, _, c in REDUCTIONS)
    assert min(said.values()) > 100
