"""mbarriers: the word as a chip has it, every form, misuse by name, and who waits for what."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from mmulator.conformance import mbarriers as sequences
from mmulator.machine.cpu import Cpu
from mmulator.numerics.mbarrier import MOST, Mbarrier, pending_count
from tests.support import rows
from tests.support.mbarriers import recorded

test_rows = rows.run_or_refused("mbarrier")


# the word -----------------------------------------------------------------------------------------------------------
def test_the_model_is_an_h200s() -> None:
    """Every result of every recorded step, and the words that mbarrier.inval brought to memory."""
    r = recorded()
    checked = 0
    for p, known in zip(r.programs, r.known):
        b = Mbarrier.init(p.count)
        for step, want in zip(p.steps, p.results):
            if not want:
                continue
            got, b = sequences.apply(r.operations[step.operation], step, b, list(p.results))
            assert {lane: got[lane] for lane in want} == want, sequences.told(p, p.steps.index(step))
            checked += len(want)
        if known:
            assert b.encode() == p.word
    assert checked > 20_000 and r.known.sum() > 100


def test_the_machine_is_an_h200() -> None:
    """The same sequences in a kernel."""
    r, cpu = recorded(), Cpu("sm_90")
    module = cpu.load(sequences.kernel("sm_90a", r.operations, r.most))
    results, words = sequences.run(cpu, module, r.programs, r.most)
    for p, got, word, known in zip(r.programs, results, words, r.known):
        for n, want in enumerate(p.results):
            assert {lane: int(got[n, lane]) for lane in want} == want
        assert not known or int(word) == p.word


@pytest.mark.parametrize("seed", range(3))
def test_random_sequences(seed: int) -> None:
    """The kernel and the model, on sequences of all forms; a difference is found."""
    cpu, found = Cpu("sm_90"), sequences.programs(seed, 400)
    module = cpu.load(sequences.kernel())
    results, words = sequences.run(cpu, module, found)
    compared, wrong, first = sequences.differences(found, results, words)
    assert compared > 8000 and not wrong, first
    words[7] ^= 1 << 43
    assert sequences.differences(found, results, words)[1] == 1


def test_words_of_small_counts() -> None:
    """All counts to 5, all arrivals and bytes: encode and decode are inverse, a phase ends with the last of both."""
    for count, pending, bytes, phase in itertools.product(range(1, 6), range(6), range(-3, 4), range(2)):
        b = Mbarrier(count, pending, bytes, phase)
        assert Mbarrier.decode(b.encode()) == b
        for arrivals, came in itertools.product(range(pending + 1), range(-3, 4)):
            after = b.change(arrivals, came)
            over = arrivals == pending and came == bytes
            assert after.phase == phase ^ over
            assert (after.pending, after.bytes) == ((count, 0) if over else (pending - arrivals, bytes - came))


def test_limits_of_the_word() -> None:
    chance = random.Random(1)
    assert Mbarrier.init(32).encode() == 0x7FFF0000_001FFFC0
    for _ in range(2000):
        b = Mbarrier(chance.randint(1, MOST), chance.randint(0, MOST), chance.randint(-MOST, MOST), chance.getrandbits(1))
        assert Mbarrier.decode(b.encode()) == b and b.encode() < 1 << 64
        assert pending_count(b.state) == (b.pending or 1 << 20)
    assert Mbarrier.init(1).legal(1, -MOST) and not Mbarrier.init(1).legal(2) and not Mbarrier.init(1).legal(0, -MOST - 1)
