"""Litmus tests that a seed makes: a few threads with accesses to three words, fences and barriers, of any semantics and scope."""

from __future__ import annotations

import random

from evidence.judges.litmus.program import Condition, Op, Test, Thread

CTAS = ((0, 0, 0), (0, 1, 1), (0, 1, 2), (0, 0, 1))  # of the threads
SEMANTICS = {
    "ld": ("weak", "relaxed", "acquire", "volatile"), "st": ("weak", "relaxed", "release", "volatile"),
    "atom": ("relaxed", "acquire", "release", "acq_rel"), "fence": ("acq_rel", "sc"),
}  # fmt: skip


def drawn(seed: int) -> Test:
    """A test. Each write leaves a value of its own: for the sanitizer it is no race to write what is there. No thread compares
    and swaps in vain: for the sanitizer that is a write."""
    chance = random.Random(seed)
    count, ctas = chance.choice((2, 2, 3)), chance.choice(CTAS)
    meet = chance.choice((True, False))
    threads = []
    for n in range(count):
        ops = []
        for k in range(chance.choice((2, 3, 3, 4))):
            kind = chance.choice(("ld", "st", "ld", "st", "atom", "fence"))
            place = "" if kind == "fence" else chance.choice(("x", "y", "y", "z"))
            register = f"r{k}" if kind in ("ld", "atom") else ""
            operation = chance.choice(("add", "exch")) if kind == "atom" else ""
            values = (1000 + 10 * n + k,) if kind in ("st", "atom") else ()
            sem, scope = chance.choice(SEMANTICS[kind]), chance.choice(("cta", "gpu", "sys"))
            scope = "sys" if sem == "volatile" else scope
            ops.append(Op(kind, sem, scope, register, place, values, operation))
        if meet and ctas[n] == 0:
            ops.insert(chance.randrange(len(ops) + 1), Op("sync", operands=(1,)))
        threads.append(Thread(ctas[n], 0, tuple(ops)))
    return Test(f"drawn {seed}", tuple(threads), dict.fromkeys("xyz", 0), Condition(lambda _: False, frozenset()), False)
