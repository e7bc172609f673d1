"""Tensor maps against CUDA's driver and an NVIDIA H200: every byte of a map, every refusal, every byte that a copy moves."""

import hashlib
import zlib
from collections import Counter

import pytest

from mmulator.matrix.layouts.tensormap import places
from mmulator.matrix.layouts.tensormap.rules import begins_wrong, refusals
from tests.data import tensormap_vectors as vectors
from tests.support.tensor_bytes import load, store

ENCODINGS, COPIES = list(vectors.encodings()), list(vectors.copies())


def of_sm_100(e: vectors.Encoding) -> bool:
    """What a driver refuses for this chip alone."""
    return e.fields.type.elements > 1 or e.fields.mode.driver > 3


def test_every_byte_of_a_map_is_the_drivers() -> None:
    legal = [e for e in ENCODINGS if e.crc is not None]
    assert len(legal) > 9000
    different = [e for e in legal if zlib.crc32(e.fields.encode()) != e.crc]
    assert different == []


def test_what_the_driver_refuses_is_refused_and_nothing_else() -> None:
    asked = [e for e in ENCODINGS if not of_sm_100(e)]
    assert Counter(e.crc is None for e in asked).most_common()[1][1] > 5000
    different = [e for e in asked if (e.crc is None) != any(refusals(e.fields))]
    assert different == []
    assert all(e.crc is None for e in ENCODINGS if of_sm_100(e))


def _digest(case: vectors.Copied) -> str:
    """The bytes after a copy."""
    m, address = case.fields, vectors.SHARED + case.shared
    where = places(m, case.coordinates, case.offsets, shared=address, mode="im2col" if m.im2col else "tile", store=case.store)
    if case.store:
        after = vectors.before_a_store(case.kind)
        store(where, after[case.offset :], vectors.stored_from(case.kind), vectors.SHARED)
    else:
        after = vectors.before_a_load()
        load(m, where, vectors.loaded_from(case.kind)[case.offset :], after, vectors.SHARED)
    return hashlib.sha256(after.tobytes()).hexdigest()[:16]


@pytest.mark.parametrize("interleave", ["none", "16B", "32B"])
@pytest.mark.parametrize("what", ["load", "store", "im2col"])
def test_every_byte_that_is_copied_is_the_chips(what: str, interleave: str) -> None:
    def asked(c: vectors.Copied) -> bool:
        return c.fields.interleave == interleave and ("im2col" if c.fields.im2col else "store" if c.store else "load") == what

    cases = [c for c in COPIES if c.digest and asked(c)]
    assert len(cases) >= 8
    different = [c for c in cases if _digest(c) != c.digest]
    assert different == []


def test_what_the_chip_refuses_begins_wrong_and_nothing_else() -> None:
    assert sum(c.digest is None for c in COPIES) > 500
    different = [c for c in COPIES if (c.digest is None) != any(begins_wrong(c.fields, c.coordinates, c.store))]
    assert different == []
