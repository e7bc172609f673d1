"""Sequences of mbarrier operations that an H200 ran: tests/data/mbarrier_h200.npz as programs of the conformance suite."""

import re
from dataclasses import dataclass
from functools import cache

import numpy as np

from mmulator.evaluation.conformance.mbarriers import MbarrierProgram, MbarrierStep, Operation
from tests.support.places import DATA

_DOES = (("arrive_drop", "drop"), ("arrive", "arrive"), ("expect_tx", "expect"), ("complete_tx", "complete"),
         ("test_wait", "look"), ("try_wait", "look"), ("pending_count", "count"))  # fmt: skip


@dataclass(frozen=True)
class Recorded:
    """programs: as the GPU ran them. known: whether the word at the end of each is, which mbarrier.inval brought to memory."""

    operations: tuple[Operation, ...]
    programs: list[MbarrierProgram]
    known: np.ndarray

    @property
    def most(self) -> int:
        return max(len(p.steps) for p in self.programs)


def _operation(text: str) -> tuple[Operation, int]:
    """An operation of the kernel, and the count that its text has."""
    does = next(what for name, what in _DOES if name in text)
    literal = re.search(r", (\d+);", text)
    if does in ("look", "count"):
        return Operation(text, does, "parity" if ".parity" in text else "state"), 0
    takes = "bytes" if "_tx" in text else "arrivals" if ", n;" in text or literal else ""
    how = " staying" if "noComplete" in text else " silently" if " _," in text else ""
    return Operation(text, does + how, takes), int(literal[1]) if literal else 0


@cache
def recorded() -> Recorded:
    with np.load(DATA / "mbarrier_h200.npz") as data:
        texts, counts, lengths, steps, values, words, ended = (
            data[n] for n in ("texts", "counts", "lengths", "steps", "results", "words", "ended")
        )
    found = [_operation(str(t)) for t in texts]
    programs, at, value = [], 0, 0
    for count, length, word in zip(counts, lengths, words):
        given, results = [], []
        for number, mask, n, source in steps[at : at + length].tolist():
            lanes = [lane for lane in range(32) if mask >> lane & 1]
            results.append(dict(zip(lanes, map(int, values[value : value + len(lanes)]))))
            value += len(lanes)
            given.append(MbarrierStep(number, mask, found[number][1] or n, source))
        programs.append(MbarrierProgram(int(count), tuple(given), tuple(results), int(word)))
        at += int(length)
    return Recorded(tuple(o for o, _ in found), programs, ended)
