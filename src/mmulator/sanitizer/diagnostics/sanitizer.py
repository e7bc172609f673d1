"""The sanitizer on the Python side of a launch: it gives native code its memory and turns the entries into findings
afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mmulator.base.errors import must_be
from mmulator.base.findings import ordered
from mmulator.base.rules import Severity
from mmulator.runtime.launch.arena import pointer
from mmulator.runtime.launch.observers import Observer
from mmulator.runtime.launch.work import Work
from mmulator.runtime.native.state import Log
from mmulator.sanitizer.diagnostics.findings.shadows import keep_readers, leave
from mmulator.sanitizer.diagnostics.findings.topics import OF_CLUSTER, OF_LAUNCH, RENEWED, Memory, findings_of, of_the_end
from mmulator.sanitizer.diagnostics.stillness import Quiescence
from mmulator.sanitizer.state import ROOM, Doubt, Found, SanitizedCluster, SanitizedLaunch

if TYPE_CHECKING:
    from mmulator.base.codegen.lang import Instrument
    from mmulator.base.errors import ExecutionFault
    from mmulator.base.findings import Finding
    from mmulator.runtime.launch.grid import Grid
    from mmulator.runtime.launch.launch import Ran
    from mmulator.runtime.launch.resident import Resident

LOST = {"lost": ("findings", ""), "forgotten": ("orders", ", races may be missed")}  # by field: what had no room, and so
FOUND, LOG = Found.numpy_dtype(), Log.numpy_dtype()


MEMORY = "sanitizer"  # of a resident cluster: its topics' arrays; of a grid: tables and logs without an entry


def _tables(workers: int) -> tuple[np.ndarray, np.ndarray]:
    """For each worker a table of entries, and the struct that native code knows the table by."""
    tables, logs = np.zeros((workers, ROOM), FOUND), np.zeros(workers, LOG)
    logs["entries"] = pointer(tables) + np.arange(workers) * tables.strides[0]
    logs["entry_bytes"], logs["room"] = FOUND.itemsize, ROOM
    return tables, logs


def _point(state: np.ndarray, name: str, memory: Memory) -> None:
    """Store the address of a topic's first array in a struct."""
    if memory is not None:
        state[name] = pointer(memory if isinstance(memory, np.ndarray) else memory[0])


class Sanitizer(Observer):
    """The observer that looks for undefined behaviour. Findings that have no room in a worker's table are counted."""

    ordered = True

    def __init__(self, rules: frozenset[str] | None = None, strict: bool = False, certify: bool = False) -> None:
        """rules: names of the rules to report; None for all rules. strict: whether None includes rules of severity note. certify:
        whether the run is to be evidence for a certificate (sanitizer/diagnostics/certificates/evidence.py).
        """
        self.rules, self.strict, self.certify = rules, strict, certify
        self.said: tuple[bytes, tuple[Finding, ...]] | None = None  # entries, and the findings that they are
        self.last: np.ndarray | None = None  # the entries of a launch that is over
        self.kept: list[Any] = []  # memory that native code has the addresses of

    @property
    def instrument(self) -> Instrument:
        from mmulator.sanitizer.instrument import SANITIZE

        return SANITIZE

    def begin(self, grid: Grid) -> None:
        self.grid, self.calm, self.livelock = grid, Quiescence(), False
        kept: tuple[np.ndarray, np.ndarray] | None = grid.observed.pop(MEMORY, None)
        self.tables, self.logs = kept or _tables(grid.workers)
        if len(self.logs) != grid.workers:
            self.tables, self.logs = _tables(grid.workers)
        self.counts = self.logs["count"]
        self.state = np.zeros(1, SanitizedLaunch.numpy_dtype())
        self.state["certifies"] = self.certify
        for name, make in OF_LAUNCH.items():
            self.kept.append(make(grid))
            _point(self.state, name, self.kept[-1])
        grid.launch["sanitizer"] = pointer(self.state)

    def attach(self, resident: Resident) -> None:
        races: Any = self._topics(resident)["races"]
        keep_readers(races, self.certify)

    def _topics(self, resident: Resident) -> dict[str, Memory]:
        """The memory of the topics for a cluster, new or renewed."""
        topics: dict[str, Memory] | None = resident.observed.get(MEMORY)
        if topics is not None:  # of an earlier launch, all of whose clusters are over
            for name, renew in RENEWED.items():
                renew(topics[name])
            return topics
        topics = {}
        self.kept.append(topics)
        turns = any(o.turns for o in self.grid.observers)
        if self.grid.shape.clusters == 1 or turns:  # to make it takes most of the time of such launches; of others it is too much
            # to keep
            resident.observed[MEMORY] = topics
        state = np.zeros(1, SanitizedCluster.numpy_dtype())
        for name, make in OF_CLUSTER.items():
            topics[name] = make(resident)
            _point(state, name, topics[name])
        if turns:
            state["waits"] = 0  # threads stand still while others have their turn
        topics[""] = state
        resident.cluster["sanitizer"] = pointer(state)
        return topics

    def take(self, resident: Resident, worker: int) -> None:
        resident.cluster["log"] = pointer(self.logs) + worker * LOG.itemsize

    def settle(self, cluster: int) -> None:
        self.calm.look(cluster)

    def stalled(self, residents: Sequence[Resident], over: int) -> bool:
        self.livelock = self.livelock or self.calm.for_ever(residents, over)
        return self.livelock

    def stopped(self, error: ExecutionFault, residents: Sequence[Resident]) -> None:
        error.findings = of_the_end(self.grid, residents, error, self.livelock)

    def failed(self, fault: ExecutionFault) -> None:
        fault.findings = self.with_the_end(fault.findings)

    def tell(self, ran: Ran, grid: Grid) -> None:
        if not self.counts.any():
            grid.observed[MEMORY] = self.tables, self.logs
        self.last = self._used()
        if self.counts.any() or any(self.state[field][0] for field in LOST):
            ran.findings, ran.held, ran.refused = self.findings(), self.held, self.lost
            ran.notes.extend(self.notes)
        if self.certify:
            from mmulator.sanitizer.diagnostics.certificates.evidence import evidence

            ran.evidence = evidence(grid, must_be(ran.work, Work), self._all(), self._entries(True), self.lost)
        leave(grid)

    def findings(self) -> tuple[Finding, ...]:
        """The findings so far."""
        return tuple(ordered(f for f in self._all() if self._tells(f)))

    def _used(self) -> np.ndarray:
        tables = self.tables[self.counts != 0] if not self.counts.all() else self.tables  # the others were never touched
        found: np.ndarray = tables[tables["rule"] != 0]
        return found

    def _entries(self, doubts: bool) -> np.ndarray:
        """The entries that are findings, or those that are doubts."""
        used = self._used() if self.last is None else self.last
        found: np.ndarray = used[(used["rule"] >= int(Doubt.SAME_VALUE)) == doubts]
        return found

    def _all(self) -> tuple[Finding, ...]:
        found = self._entries(False)
        raw = found.tobytes()
        if self.said is None or self.said[0] != raw:
            self.said = raw, findings_of(self.grid, found)
        return self.said[1]

    def _tells(self, finding: Finding) -> bool:
        if self.rules is not None:
            return finding.rule in self.rules
        return self.strict or finding.severity != Severity.NOTE

    def with_the_end(self, last: tuple[Finding, ...]) -> tuple[Finding, ...]:
        """The findings so far, and those of the fault or deadlock that ended the run. A finding with the rule and place of an
        earlier one is left out.
        """
        found = self.findings()
        known = {(f.rule, f.location) for f in found}
        new = filter(self._tells, last)
        return (*found, *(f for f in new if (f.rule, f.location) not in known))

    @property
    def notes(self) -> list[str]:
        """Sentences that a reader of the findings should know."""
        from mmulator.base.findings import at_places, places

        notes = [f'{at_places(rule, n)}; sanitize="strict" tells where' for rule, n in places(self.held).items()]
        return [f"sanitizer: {note}" for note in (*self.lost, *notes)]

    @property
    def held(self) -> tuple[Finding, ...]:
        """Findings of severity note that this launch does not tell."""
        return tuple(f for f in self._all() if f.severity == Severity.NOTE and not self._tells(f))

    @property
    def lost(self) -> tuple[str, ...]:
        """Sentences about findings and orders that had no room: the launch was not looked at as a whole."""
        found = ((int(self.state[field][0]), what, so) for field, (what, so) in LOST.items())
        return tuple(f"{n} {what} had no room{so}" for n, what, so in found if n)
