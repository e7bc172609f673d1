"""Memory that is used again: zeros each time, and nobody has what somebody else has."""

import random
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from mmulator.runtime.launch import pages

SIZES = (1, 4096, 5000, 1 << 18, pages._SHARED, pages._SHARED + 1, 10_000_000, 11_000_000)


def _try(seed: int) -> None:
    chosen = random.Random(seed)
    held: list[tuple[np.ndarray, int]] = []
    for _ in range(400):
        if held and chosen.random() < 0.5:
            array, mark = held.pop(chosen.randrange(len(held)))
            assert (array[:: max(array.size // 50, 1)] == mark).all()
            del array
        else:
            size, mark = chosen.choice(SIZES), chosen.randrange(1, 256)
            array = pages.blank(size, np.dtype(np.uint8))
            assert array.size == size and not array.any()
            array[:: max(size // 50, 1)] = mark
            held.append((array, mark))


def test_zeros_for_one_alone() -> None:
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(_try, range(6))) == [None] * 6


def test_what_is_given_back_is_used_again() -> None:
    for size in (1 << 20, 20_000_000):
        at = set()
        for _ in range(5):
            array = pages.untouched(size)
            assert array is not None and not array.any()
            array[size // 2] = 1
            at.add(array.ctypes.data)
            del array
        assert len(at) <= 2


def test_what_is_kept_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "_MOST", 1 << 20)
    pages._kept.clear()
    for number in range(6):
        array = pages.untouched(20_000_000 + number * 5_000_000)
        assert array is not None
        array[: 1 << 19] = 1
        del array
    assert 0 < pages.kept_bytes() <= 1 << 20
    array = pages.untouched(90_000_000)
    assert array is not None
    array[: 1 << 21] = 1
    del array
    assert 0 < pages.kept_bytes() <= 1 << 20


def test_what_is_stale_is_used_again_and_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "_MOST", 1 << 21)
    pages._forget()
    for number in range(9):
        array = pages.stale(20_000_000)
        assert array is not None and array.size >= 20_000_000 and array[number] == (number > 0)
        array[: number + 2] = 1
        del array
    assert pages.kept_bytes() == 4096
    for number in range(6):
        array = pages.stale(30_000_000 + number * 10_000_000)
        assert array is not None
        array[: 1 << 19] = 1
        del array
    assert 0 < pages.kept_bytes() <= 1 << 21
