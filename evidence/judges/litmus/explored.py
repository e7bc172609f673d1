"""Litmus tests under the exploration of interleavings (src/mmulator/host/exploration.py): the ends that it finds, and whether
it says that the memory model allows others.

The published verdict on a test, or the axioms (axioms.py), say which ends the model allows. Of a test without a race an
exploration that says nothing must have found all of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

import mmulator as mm
from evidence.judges.litmus.kernel import ENDED, STRIDE, Way, kernel
from evidence.judges.litmus.program import Test
from mmulator.host.exploration import Redundant, Tree
from mmulator.host.exploring import RUNS
from mmulator.host.module import observing
from mmulator.host.weakness import Weakness
from mmulator.runtime.launch.launch import How


@dataclass
class Explored:
    """ends: the final values of each execution, by name. bad: a race or a deadlock was found. weak: the model allows more, in
    the words of the exploration. whole: it came to its end."""

    ends: set[frozenset[tuple[str, int]]]
    bad: bool = False
    weak: bool = False
    whole: bool = True
    count: int = 0


def explored(test: Test, most: int = RUNS) -> Explored:
    """Explore a test: all threads of a CTA are warps of one."""
    made = kernel(test, Way(), pauses=False)
    entry: Any = mm.Module.load(made.ptx, name=f"{test.name}.ptx")["litmus"]
    memory, left = np.zeros(STRIDE * max(1, len(test.places)), np.uint32), np.zeros(max(1, len(made.names)), np.uint32)
    launch = entry.prepared(made.ctas, made.block, [memory, left, 0, 0], 0, "sm_90")
    tree, weak, found = Tree(), Weakness(), Explored(set())
    for _ in range(most):
        memory[:] = 0
        memory[::STRIDE][: len(test.places)] = [value & 0xFFFFFFFF for value in test.places.values()]
        left[:] = 0
        turns = tree.begin()
        try:
            report = entry.run(launch, How(threads=1), [*observing(True, certify=True), turns])
        except Redundant:
            tree.derive()
            if not tree.next():
                return found
            continue
        except mm.errors.ExecutionFault:
            if not turns.learned:
                found.bad = True
                return found
        if turns.learned:
            if not tree.forget():
                return found
            continue
        found.count += 1
        found.bad |= any(f.is_error for f in report.findings)
        values = {name: int(left[n]) for n, name in enumerate(made.names) if not name.endswith(f":{ENDED}")}
        values |= {name: int(memory[n * STRIDE]) for n, name in enumerate(test.places)}
        found.ends.add(frozenset(values.items()))
        weak.look(turns.steps, tree.known)
        found.weak = bool(weak.older or weak.mixed or list(weak.circles()))
        tree.derive()
        if not tree.next():
            return found
    found.whole = False
    return found


def reached(test: Test, ends: Iterable[frozenset[tuple[str, int]]]) -> bool:
    """Whether an execution had the outcome that a test asks for."""
    return any(bool(test.outcome(dict(end))) for end in ends)
