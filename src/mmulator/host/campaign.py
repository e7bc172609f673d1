"""A campaign: one launch under several seeds, each from the same memory.

Memory that the launch may write comes in as arrays, and is as the first seed's launch left it afterwards. Reports come from the
function that launches; the first one's and the findings of all leave. Drivers (host/driver/seeds.py) compare what the seeds
leave, jobs (host/jobs/judgement.py) look for more findings, and for a seed that shows the damage.
"""

import ctypes
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from mmulator.base.errors import ExecutionFault, MmulatorError, must_be
from mmulator.base.findings import Finding, union
from mmulator.base.rules.races import HALF_STRONG, NOT_RELEASED, REPLICATED_READ, STEADY_LATER
from mmulator.host.report import Report
from mmulator.runtime.launch.arena import pointer
from mmulator.runtime.launch.regions import Written

# Notes of races that most often do no harm; where the seed changes the result they are what may have done it.
DOUBTS = frozenset(rule.name for rule in (HALF_STRONG, NOT_RELEASED, REPLICATED_READ, STEADY_LATER))
CHUNK = 1 << 20  # bytes that are compared, and kept where they changed


@cache
def _compare() -> Callable[[int, int, int], int]:
    return ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)(("memcmp", ctypes.CDLL(None)))


def _same(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two arrays of one size have the same bytes."""
    if sys.platform == "win32":  # whose library has no such name
        return bool(np.array_equal(a, b))
    return _compare()(pointer(a), pointer(b), a.nbytes) == 0


def raised(findings: Iterable[Finding], seed: int, said: str, memory: Sequence[str]) -> tuple[Finding, ...]:
    """Findings of which DOUBTS are errors, since a seed leaves another result. said: what differs, or "". memory: words of their
    `where` that concern it.
    """
    why = f"; and seed {seed} leaves another result{said}"
    return tuple(
        replace(f, severity="error", message=f.message + why) if f.rule in DOUBTS and any(m in f.where for m in memory) else f
        for f in findings
    )


@dataclass
class Piece:
    """Up to CHUNK bytes that the kernel may write.

    owner: what the caller named the memory with.
    start: the piece's first byte in that memory.
    live: the bytes themselves, uint8 [n].
    before: a copy, from before the campaign.
    first: a copy of what the first seed left; None where it left `before`.
    """

    owner: Any
    start: int
    live: np.ndarray
    before: np.ndarray
    first: np.ndarray | None = None

    @property
    def wanted(self) -> np.ndarray:
        """The bytes as the first seed left them."""
        return self.before if self.first is None else self.first

    @property
    def difference(self) -> str:
        """How many bytes are others than the first seed left, and where the first is."""
        differs = (self.live != self.wanted).nonzero()[0]
        label = getattr(self.owner, "label", self.owner) or "memory"
        return f"{len(differs)} byte{'s' * (len(differs) != 1)} of {label}, the first is byte {self.start + int(differs[0])}"

    def write(self, data: np.ndarray) -> None:
        """Put bytes back; memory that has not changed is not written to, since it may be a file's."""
        if not _same(self.live, data):
            self.live[:] = data


class Snapshot:
    """Memory of a campaign: as it was before, and as the first seed left it."""

    def __init__(self, memory: Iterable[tuple[Any, np.ndarray]], written: Iterable[tuple[Written, int]] = ()) -> None:
        """memory: (owner, contiguous array) of all that the launch may write. written: marks of written bytes, and how many."""
        self.pieces = [
            Piece(owner, at, bytes_, bytes_.copy())
            for owner, array in memory
            for raw in [array.reshape(-1).view(np.uint8)]
            for at in range(0, raw.nbytes, CHUNK)
            for bytes_ in [raw[at : at + CHUNK]]
        ]
        self.marks = [(w, held) for w, size in written if (held := w.of(0, size)) is not None]

    def restore(self) -> None:
        """All is as it was before the campaign."""
        for piece in self.pieces:
            piece.write(piece.before)
        for written, held in self.marks:
            written.take(0, held)

    def keep(self) -> None:
        """Note that memory has now what the first seed left."""
        for piece in self.pieces:
            piece.first = None if _same(piece.live, piece.before) else piece.live.copy()

    def leave(self) -> None:
        """All is as the first seed left it."""
        for piece in self.pieces:
            piece.write(piece.wanted)

    def differing(self) -> Iterator[Piece]:
        """The pieces that are not as the first seed left them."""
        return (p for p in self.pieces if not _same(p.live, p.wanted))


def campaign(
    seeds: Sequence[int], run: Callable[[int], Report], memory: Snapshot, compare: Callable[[int], object] | None = None
) -> tuple[Report, tuple[Finding, ...]]:
    """Launch under each seed from the same memory; the first seed's report, and the findings of all seeds together.

    seeds: at least one.
    run: launches under a seed.
    memory: what the launches may write, taken before; it is as the first seed left it afterwards, whatever is raised.
    compare: is called with each seed but the first when its launch is over.

    Raises what `run` and `compare` raise, with the findings of all launches so far; a fault under a later seed says so.
    """
    report: Report | None = None
    found: list[Sequence[Finding]] = []
    try:
        for seed in seeds:
            if report is not None:
                memory.restore()
            try:
                done = run(seed)
            except ExecutionFault as fault:
                if report is not None:
                    fault.message += f", under seed {seed}; under seed {seeds[0]} the kernel ran to its end"
                raise
            found.append(done.findings)
            if report is None:
                report = done
                memory.keep()
            elif compare is not None:
                compare(seed)
    except MmulatorError as error:
        error.findings = union([*found, error.findings])
        raise
    finally:
        if report is not None:
            memory.leave()
    return must_be(report, Report), union(found) if len(found) > 1 else tuple(found[0])
