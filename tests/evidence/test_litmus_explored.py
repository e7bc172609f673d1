"""Litmus tests: exploration finds ends that the axioms allow, and says so where they allow more."""

from __future__ import annotations

import random

import pytest

from evidence.judges.litmus.axioms import ends
from evidence.judges.litmus.explored import explored
from evidence.judges.litmus.program import Condition, Op, Thread
from evidence.judges.litmus.program import Test as Litmus

SEM = {"ld": ("relaxed", "acquire"), "st": ("relaxed", "release"), "atom": ("relaxed", "acq_rel"), "fence": ("acq_rel", "sc")}


def op(word: str, number: int) -> Op:
    """An instruction of words such as `st.release x`."""
    what, _, place = word.partition(" ")
    kind, sem = what.split(".")
    register = f"r{number % 10}" if kind in ("ld", "atom") else ""
    return Op(kind, sem, "gpu", register, place, () if kind in ("ld", "fence") else (number,), "exch" if kind == "atom" else "")


def litmus(name: str, *threads: str) -> Litmus:
    made = [
        Thread(n, 0, tuple(op(word.strip(), 10 * n + k + 1) for k, word in enumerate(text.split(";"))))
        for n, text in enumerate(threads)
    ]
    return Litmus(name, tuple(made), dict.fromkeys("xyz", 0), Condition(lambda _: False, frozenset()), False)


# name -> threads, whether the model allows more than interleavings
SHAPES = {
    "store buffering": (("st.relaxed x; ld.relaxed y", "st.relaxed y; ld.relaxed x"), True),
    "store buffering, released": (("st.release x; ld.acquire y", "st.release y; ld.acquire x"), True),
    "message": (("st.relaxed x; st.relaxed y", "ld.relaxed y; ld.relaxed x"), True),
    "message, released": (("st.relaxed x; st.release y", "ld.acquire y; ld.relaxed x"), False),
    "message, fences": (("st.relaxed x; fence.acq_rel; st.relaxed y", "ld.relaxed y; fence.acq_rel; ld.relaxed x"), False),
    "message, not acquired": (("st.relaxed x; st.release y", "ld.relaxed y; ld.relaxed x"), True),
    "load buffering": (("ld.relaxed x; st.relaxed y", "ld.relaxed y; st.relaxed x"), True),
    "load buffering, one side": (("ld.acquire x; st.release y", "ld.relaxed y; st.relaxed x"), True),
    "load buffering, released": (("ld.acquire x; st.release y", "ld.acquire y; st.release x"), False),
    "two stores": (("st.relaxed x; st.relaxed y", "st.relaxed y; st.relaxed x"), True),
    "one place": (("st.relaxed x; ld.relaxed x", "st.relaxed x; ld.relaxed x"), False),
    "readers": (("st.relaxed x", "st.relaxed y", "ld.acquire x; ld.acquire y", "ld.acquire y; ld.acquire x"), True),
    "atomics": (("atom.relaxed x; atom.relaxed y", "atom.relaxed y; atom.relaxed x"), True),
    "chain": (("st.relaxed x; st.release y", "atom.relaxed y", "ld.acquire y; ld.relaxed x"), False),
}


@pytest.mark.parametrize("name", SHAPES)
def test_what_the_model_allows_besides_is_said(name: str) -> None:
    threads, more = SHAPES[name]
    test = litmus(name, *threads)
    allowed, found = ends(test), explored(test)
    assert found.ends <= allowed and found.whole and not found.bad
    assert (found.ends != allowed) == more, "the axioms"
    assert found.weak == more


def test_drawn_tests_are_judged_as_by_the_axioms() -> None:
    for seed in range(8):
        chance = random.Random(seed)
        threads = []
        for _ in range(2):
            kinds = [chance.choice(("ld", "st", "ld", "st", "atom", "fence")) for _ in range(3)]
            threads.append(";".join(f"{k}.{chance.choice(SEM[k])} {'' if k == 'fence' else chance.choice('xy')}" for k in kinds))
        test = litmus(f"drawn {seed}", *threads)
        allowed, found = ends(test), explored(test)
        assert found.ends <= allowed, threads
        assert found.weak or found.ends == allowed, threads
