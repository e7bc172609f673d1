"""Samples of the clusters of a launch: evenly spread, and the first and the last are among them."""

import numpy as np
import pytest

from mmulator.runtime.launch import sample


@pytest.mark.parametrize("clusters", [1, 263, 527, 528, 529, 2111, 2112, 4099, 100_000, 9_999_999])
def test_samples(clusters: int) -> None:
    found = sample.numbers(clusters)
    if clusters < 2 * sample.LEAST:
        assert found is None
        return
    assert found is not None
    count = max(clusters // sample.OF, sample.LEAST)
    assert len(found) == count and found[0] == 0 and found[-1] == clusters - 1
    piece = found.astype(np.int64) * count // clusters
    assert (np.abs(piece - np.arange(count)) <= 1).all() and (np.diff(found.astype(np.int64)) > 0).all()


@pytest.mark.parametrize("period", [2, 3, 7, 8, 16, 32, 64, 100])
def test_what_blocks_do_in_turn_has_its_part(period: int) -> None:
    """Work that grows with the place in a period, as a causal kernel's does with the row."""
    clusters = 64 * 1000
    found = sample.numbers(clusters)
    assert found is not None
    work = np.arange(clusters) % period + 1.0
    assert work[found.astype(np.int64)].mean() == pytest.approx(work.mean(), rel=0.01)


def test_counts_are_scaled() -> None:
    counts = np.array([0, 1, 10, 2**40], np.uint64)
    found = sample.Sample(np.arange(3), 24).scaled(counts)
    assert found.tolist() == [0, 8, 80, 2**43] and found.dtype == np.uint64
