"""Instructions that lanes of a warp execute together."""

from __future__ import annotations

from itertools import product

import numpy as np

from tests.support import rows, vectors
from tests.support.one_block import LANES, launch

test_vectors = vectors.replay("warp")
test_rows = rows.run_or_refused("warp")


def test_redux_of_numbers() -> None:
    """-0 is below +0; NaN counts only with .NaN, or where there is nothing else."""
    rng = np.random.default_rng(1)
    plain = rng.integers(0, 1 << 32, LANES, dtype=np.uint32) & 0xBFFFFFFF
    zeros = np.where(np.arange(LANES) % 2, 0x80000000, 0).astype(np.uint32)
    some = np.where(np.arange(LANES) == 7, 0xFFC01234, plain).astype(np.uint32)
    nans = np.full(LANES, 0x7F800001, np.uint32)
    body = "ld.global.b32 f1, [in0]; redux.sync.{m}.f32 f2, f1, -1; st.global.b32 [out], f2;"
    for source in (plain, zeros, some, nans):
        nan = (source & 0x7FFFFFFF) > 0x7F800000
        for op, size, quiet in product(("min", "max"), ("", ".abs"), ("", ".NaN")):
            bits = source & 0x7FFFFFFF if size else source
            keys = [int(v) ^ (0x7FFFFFFF if v >> 31 else 0) for v in bits[~nan].tolist()]
            ordered = sorted(zip([k - (1 << 32) if k >> 31 else k for k in keys], bits[~nan].tolist()))
            want = 0x7FFFFFFF if nan.all() or (quiet and nan.any()) else ordered[0 if op == "min" else -1][1]
            got, _ = launch(body.replace("{m}", op + size + quiet), source, target="sm_100a")
            assert (got[:, 0] == want).all(), (op, size, quiet)
