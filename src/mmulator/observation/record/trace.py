"""The observer of `trace=`, and its trace of a launch in the format of Chrome and Perfetto: a process for each block, a track for
each warp.

Time is steps of the machine: PTX instructions that the warps of a cluster have executed, one microsecond of the format each."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mmulator.base.errors import LimitReached
from mmulator.ptx.program.addresses import SHARED_BASE
from mmulator.ptx.tree import Instruction
from mmulator.runtime.launch.arena import pointer
from mmulator.runtime.launch.events import Logs
from mmulator.runtime.launch.observers import Observer
from mmulator.runtime.native.hooks.timeline import Happened

if TYPE_CHECKING:
    from mmulator.base.codegen.lang import Instrument
    from mmulator.base.errors import ExecutionFault
    from mmulator.runtime.launch.grid import Grid
    from mmulator.runtime.launch.launch import Ran
    from mmulator.runtime.launch.resident import Resident

Event = dict[str, Any]
TRACKS = 64  # of a warp, at most: the first is the warp, the others are for lanes that wait while others run
ARRIVE = 1  # of the operations of bar (runtime/native/threads/barrier.py)
HALF = 0.5  # a moment in the last step of a slice


class Entry(NamedTuple):
    """A TimelineEntry."""

    time: int
    value: int
    cluster: int
    order: int
    resident: int
    kind: int
    cta: int
    warp: int
    mask: int
    site: int


@dataclass
class Wait:
    """Lanes of a warp that wait. end: None while they do."""

    warp: tuple[int, int]
    lanes: int
    begin: int
    name: str
    site: str
    key: tuple[str, int] = ("", 0)  # what they wait for
    end: int | None = None


@dataclass
class Slice:
    """An interval on a track of a warp."""

    begin: int
    end: int
    name: str
    arguments: dict[str, Any] = field(default_factory=dict)


class ClusterTrace:
    """The events of one cluster. Clusters have clocks of their own, which begin at 0."""

    def __init__(self, grid: Grid, entries: list[Entry], shared: list[list[int]], flows: Iterable[int]) -> None:
        self.grid, self.sites, self.entries, self.shared = grid, grid.kernel.sites, entries, shared
        self.flow_numbers = iter(flows)
        self.names = {at: name for name, at in grid.kernel.shared.addresses.items()}
        self.slices: dict[tuple[int, int], list[Slice]] = {}
        self.waits: list[Wait] = []
        self.open: list[Wait] = []
        self.others: list[Event] = []  # asynchronous slices and flows
        self.running: tuple[tuple[int, int], int] | None = None
        self.arrived: dict[tuple[str, int], tuple[tuple[int, int], float]] = {}  # who arrived last at what, and when
        self.issued: dict[int, tuple[tuple[int, int], float, str]] = {}  # bulk operations under way
        self.places: dict[int, tuple[tuple[int, int], float]] = {}  # where each was issued
        self.groups: dict[tuple[str, tuple[int, int]], list[tuple[int, int, str]]] = {}
        self.end = entries[-1].time

    # names ----------------------------------------------------------------------------------------------------------
    def instruction(self, site: int) -> tuple[str, str]:
        """(mnemonic, line) of a site."""
        return self._said(self.sites[site])

    @staticmethod
    def _said(ins: Instruction) -> tuple[str, str]:
        return ins.mnemonic, ins.span.place + (f" ({ins.span.brief})" if ins.span.brief else "")

    def mbarrier(self, host: int, resident: int) -> str:
        """The name of an mbarrier: of the variable that it lies in, or its place in shared memory."""
        size = self.grid.shared
        for rank, start in enumerate(self.shared[resident]):
            if start <= host < start + size:
                at = host - start + SHARED_BASE
                found = max((a for a in self.names if a <= at), default=None)
                name = f"mbarrier at {host - start}" if found is None else self.names[found] + f"+{at - found}" * (at != found)
                return name + f" of rank {rank}" * (len(self.shared[resident]) > 1)
        return "mbarrier"

    # events in order ------------------------------------------------------------------------------------------------
    def run(self) -> None:
        """Read all entries."""
        for e in self.entries:
            warp = e.cta, e.warp
            _READERS[Happened(e.kind)](self, e, warp, e.time)
        self._stop(self.end)
        for wait in self.open:
            wait.end = self.end
        for (cat, warp), groups in self.groups.items():
            for _, number, _ in groups:
                self._async("e", cat, warp, self.end, cat, number)
        for number, (warp, _, name) in self.issued.items():
            self._async("e", "bulk", warp, self.end, name, number)

    def _slice(self, warp: tuple[int, int], begin: int, end: int, name: str, **arguments: Any) -> None:
        self.slices.setdefault(warp, []).append(Slice(begin, end, name, arguments))

    def _stop(self, time: int) -> None:
        if self.running is not None and time > self.running[1]:
            self._slice(self.running[0], self.running[1], time, "runs")

    def _turn(self, e: Entry, warp: tuple[int, int], time: int) -> None:
        self._stop(time)
        self.running = warp, time

    def _act(self, e: Entry, warp: tuple[int, int], time: int, name: str) -> tuple[tuple[int, int], float]:
        """A slice of the step in which a warp does something; where a flow may begin."""
        _, line = self.instruction(e.site)
        self._slice(warp, max(time - 1, 0), max(time, 1), name, line=line, lanes=f"{e.mask:#010x}")
        return warp, max(time, 1) - HALF

    def _wait(self, warp: tuple[int, int], e: Entry, name: str, line: str, key: tuple[str, int]) -> None:
        wait = Wait(warp, e.mask, e.time, name, line, key)
        self.waits.append(wait)
        self.open.append(wait)

    def _block_waits(self, e: Entry, warp: tuple[int, int], time: int) -> None:
        block = self.grid.kernel.program.blocks[e.value]
        ins = block.body[0] if block.body else block.last
        name, line = self._said(ins.original) if ins is not None else ("wait", "")
        self._wait(warp, e, f"wait at {name}", line, ("cluster", 0) if name.startswith("barrier.cluster") else ("", 0))

    def _sleeps(self, e: Entry, warp: tuple[int, int], time: int) -> None:
        """Name the wait that lanes have just begun."""
        host = e.value
        for wait in reversed(self.open):
            if wait.warp == warp and wait.lanes & e.mask:
                wait.name, wait.key = f"wait for {self.mbarrier(host, e.resident)}", ("mbarrier", host)
                return

    def _resumes(self, e: Entry, warp: tuple[int, int], time: int) -> None:
        for wait in [w for w in self.open if w.warp == warp and w.lanes & e.mask]:
            self._ends(wait, time)

    def _ends(self, wait: Wait, time: int) -> None:
        wait.end = time
        self.open.remove(wait)

    def _released(self, key: tuple[str, int], time: int, source: tuple[tuple[int, int], float] | None) -> None:
        """All that wait for something go on, each with a flow from what let them."""
        for wait in [w for w in self.open if w.key == key]:
            self._ends(wait, time)
            if source is not None and time > wait.begin and source[0] != wait.warp:
                self._flow(source, wait, time)

    def _flow(self, source: tuple[tuple[int, int], float], wait: Wait, time: int) -> None:
        number = next(self.flow_numbers)
        (cta, warp), at = source
        common = {"name": wait.name, "cat": "wait", "id": number}
        self.others.append({"ph": "s", "pid": cta, "tid": warp * TRACKS, "ts": at, **common})
        self.others.append({"ph": "f", "bp": "e", "pid": wait.warp[0], "tid": 0, "ts": time - HALF, **common, "wait": wait})

    def _arrives(self, e: Entry, warp: tuple[int, int], time: int) -> None:
        name = f"arrive at {self.mbarrier(e.value, e.resident)}"
        self.arrived["mbarrier", e.value] = self._act(e, warp, time, name)

    def _over(self, e: Entry, warp: tuple[int, int], time: int) -> None:
        key = "mbarrier", e.value
        transfer = e.site
        self._released(key, time, self.places.get(transfer - 1) if transfer else self.arrived.get(key))

    def _at_barrier(self, e: Entry, warp: tuple[int, int], time: int) -> None:
        number, operation = e.value & 0xFFFFFFFF, e.value >> 32
        key = f"barrier of {warp[0]}", number
        if operation == ARRIVE:
            self.arrived[key] = self._act(e, warp, time, f"arrive at barrier {number}")
        else:
            self.arrived[key] = self._act(e, warp, time, f"reach barrier {number}")
            self._wait(warp, e, f"wait for barrier {number}", self.instruction(e.site)[1], key)

    def _barrier_over(self, e: Entry, warp: tuple[int, int], time: int) -> None:
        key = f"barrier of {warp[0]}", e.value
        self._released(key, time, self.arrived.get(key))

    def _at_cluster(self, e: Entry, warp: tuple[int, int], time: int) -> None:
        self.arrived["cluster", 0] = self._act(e, warp, time, "arrive at barrier.cluster")

    def _cluster_over(self, e: Entry, warp: tuple[int, int], time: int) -> None:
        self._released(("cluster", 0), time, self.arrived.get(("cluster", 0)))

    # asynchronous -----------------------------------------------------------------------------------------------------
    def _async(self, phase: str, cat: str, warp: tuple[int, int], time: int, name: str, number: int, **arguments: Any) -> None:
        event = {"ph": phase, "cat": cat, "name": name, "pid": warp[0], "tid": warp[1] * TRACKS, "ts": time}
        self.others.append({**event, "id": f"{cat}.{warp[0]}.{warp[1]}.{number}", **({"args": arguments} if arguments else {})})

    def _issues(self, e: Entry, warp: tuple[int, int], time: int) -> None:
        name, line = self.instruction(e.site)
        self.places[e.value] = self._act(e, warp, time, name)
        self.issued[e.value] = warp, time, name
        self._async("b", "bulk", warp, time, name, e.value, line=line)

    def _done(self, e: Entry, warp: tuple[int, int], time: int) -> None:
        warp, _, name = self.issued.pop(e.value, (warp, 0, ""))
        if name:
            self._async("e", "bulk", warp, time, name, e.value)

    def _group(self, e: Entry, warp: tuple[int, int], time: int) -> None:
        cat = _GROUPS[Happened(e.kind)]
        groups = self.groups.setdefault((cat, warp), [])
        number, line = e.order, self.instruction(e.site)[1]
        groups.append((e.value, number, line))
        self._async("b", cat, warp, time, cat, number, line=line)

    def _groups_done(self, e: Entry, warp: tuple[int, int], time: int) -> None:
        cat = _GROUPS[Happened(e.kind - 1)]
        groups = self.groups.get((cat, warp), [])
        while groups and groups[0][0] <= e.value:
            self._async("e", cat, warp, time, cat, groups.pop(0)[1])

    # the events -------------------------------------------------------------------------------------------------------
    def events(self) -> list[Event]:
        """All events. Slices of a track nest: a wait of lanes while others of the warp run has a track of its own."""
        out: list[Event] = []
        rows: dict[int, int] = {}  # tracks of waits, by id
        waits: dict[tuple[int, int], list[Wait]] = {}
        for wait in sorted(self.waits, key=lambda w: (w.begin, -(w.end or 0))):
            if wait.end is not None and wait.end > wait.begin:
                waits.setdefault(wait.warp, []).append(wait)
        for warp in sorted({*self.slices, *waits}):
            own = self.slices.get(warp, [])
            tracks = Tracks([(s.begin, s.end) for s in own if s.end - s.begin > 1])
            placed = [(0, s) for s in own]
            for wait in waits.get(warp, ()):
                rows[id(wait)] = row = tracks.place(wait.begin, wait.end or 0)
                said = {"line": wait.site, "lanes": f"{wait.lanes:#010x}"}
                placed.append((row, Slice(wait.begin, wait.end or 0, wait.name, said)))
            out += _names(warp, len(tracks.ends))
            out += [_complete(s, warp, n) for n, s in sorted(placed, key=lambda p: (p[0], p[1].begin, -p[1].end))]
        for event in self.others:
            wait = event.pop("wait", None)
            if wait is not None:
                event["tid"] = wait.warp[1] * TRACKS + rows[id(wait)]
            out.append(event)
        return out


class Tracks:
    """The tracks of one warp's slices, in which intervals nest. Intervals are placed by their beginning, longer ones first."""

    def __init__(self, runs: list[tuple[int, int]]) -> None:
        """runs: disjoint intervals in the first track, in order."""
        self.runs, self.begins = runs, [begin for begin, _ in runs]
        self.ends: list[list[int]] = [[]]  # of each track the ends of intervals that are open, the innermost last

    def place(self, begin: int, end: int) -> int:
        """The track of an interval: the first in which it nests."""
        for row, ends in enumerate(self.ends):
            while ends and ends[-1] <= begin:
                ends.pop()
            if (row or self._nests(begin, end)) and (not ends or end <= ends[-1]):
                ends.append(end)
                return row
        self.ends.append([end])
        return len(self.ends) - 1

    def _nests(self, begin: int, end: int) -> bool:
        """Whether an interval nests with the runs."""
        run = self._around(begin)
        if run is not None:
            return end <= run[1]
        return self._around(end) is None

    def _around(self, moment: int) -> tuple[int, int] | None:
        """The run that a moment is inside of."""
        at = bisect_left(self.begins, moment) - 1
        return self.runs[at] if at >= 0 and moment < self.runs[at][1] else None


def _names(warp: tuple[int, int], rows: int) -> list[Event]:
    cta, number = warp
    names = [f"warp {number}" + ", other lanes" * (n > 0) for n in range(rows)]
    common = {"ph": "M", "name": "thread_name", "pid": cta}
    return [{**common, "tid": number * TRACKS + n, "args": {"name": name}} for n, name in enumerate(names)]


def _complete(s: Slice, warp: tuple[int, int], row: int) -> Event:
    event = {"ph": "X", "name": s.name, "pid": warp[0], "tid": warp[1] * TRACKS + row, "ts": s.begin, "dur": s.end - s.begin}
    return {**event, "args": s.arguments} if s.arguments else event


_GROUPS = {Happened.COPIES: "cp.async group", Happened.WGMMA: "wgmma group"}
_Reader = Callable[[ClusterTrace, Any, tuple[int, int], int], None]
_READERS: dict[Happened, _Reader] = {
    Happened.RUN: ClusterTrace._turn, Happened.RESUME: ClusterTrace._resumes, Happened.WAIT: ClusterTrace._block_waits,
    Happened.SLEEP: ClusterTrace._sleeps, Happened.ARRIVE: ClusterTrace._arrives, Happened.OVER: ClusterTrace._over,
    Happened.BARRIER: ClusterTrace._at_barrier, Happened.BARRIER_OVER: ClusterTrace._barrier_over,
    Happened.CLUSTER: ClusterTrace._at_cluster, Happened.CLUSTER_OVER: ClusterTrace._cluster_over,
    Happened.ISSUE: ClusterTrace._issues, Happened.DONE: ClusterTrace._done, Happened.COPIES: ClusterTrace._group,
    Happened.COPIES_DONE: ClusterTrace._groups_done, Happened.WGMMA: ClusterTrace._group,
    Happened.WGMMA_DONE: ClusterTrace._groups_done,
}  # fmt: skip


def events_of(grid: Grid, entries: np.ndarray, shared: list[list[int]], most: int) -> list[Event]:
    """The events of a launch. entries: by cluster, in order. most: entries of a cluster; what came later is left out."""
    out: list[Event] = []
    flows = iter(range(1, 1 << 62))
    for _, group in groupby(map(Entry._make, entries.tolist()), key=lambda e: e.cluster):
        trace = ClusterTrace(grid, list(group), shared, flows)
        trace.run()
        own = trace.events()
        for cta in sorted({e["pid"] for e in own}):
            name = f"{grid.kernel.name}, block {grid.shape.block_at(cta)}"
            cut = f", the first {most:,} entries" * (len(trace.entries) >= most)
            out.append({"ph": "M", "name": "process_name", "pid": cta, "args": {"name": name + cut}})
        out += own
    return out


def text_of(events: list[Event]) -> str:
    """The text of a trace file."""
    said = "PTX instructions that the warps of a cluster have executed; a microsecond here is one, and each cluster begins at 0"
    head = {"displayTimeUnit": "ns", "otherData": {"time": said, "made by": "mmulator"}}
    rows = ",\n".join(json.dumps(event, separators=(",", ":")) for event in events)
    return f'{json.dumps(head)[:-1]}, "traceEvents": [\n{rows}\n]}}\n'


def write(file: str, events: list[Event]) -> None:
    """Write a trace. Raises LaunchError where it cannot be written."""
    from mmulator.base.errors import LaunchError
    from mmulator.base.files import write

    write(file, text_of(events), LaunchError)


BLOCKS = 64  # blocks of a launch that are recorded: those with the lowest numbers
ENTRIES = 400_000  # of a launch, shared evenly by its clusters
LATE = 20_000  # of a launch whose time is over: a trace of more takes seconds to make
ROOM = 1 << 14  # of a worker's log
MEMORY = "timeline"  # of a resident cluster: its Timeline


class Moments(Observer):
    """The observer that records what happens when. file: where the trace is written when the launch is over; "" for nowhere."""

    calls = True  # when a log is full

    def __init__(self, file: str = "") -> None:
        self.file = file
        self.events: list[dict[str, Any]] = []  # of the trace, when the launch is over

    @property
    def instrument(self) -> Instrument:
        from mmulator.runtime.native.hooks.timeline import TIMELINE

        return TIMELINE

    def begin(self, grid: Grid) -> None:
        from mmulator.runtime.native.hooks.timeline import TimelineEntry

        self.grid = grid
        self.logs = Logs(TimelineEntry, grid.workers, ROOM)
        self.shared: list[list[int]] = []  # of each resident cluster where the shared memory of its blocks is on the host
        self.clusters = min(grid.shape.clusters, max(1, BLOCKS // grid.shape.cluster_size))
        self.most = ENTRIES // self.clusters
        self.kept: list[np.ndarray] = []

    def attach(self, resident: Resident) -> None:
        from mmulator.runtime.native.hooks.timeline import Timeline

        state = np.zeros(1, Timeline.numpy_dtype())
        state["most"], state["clusters"], state["resident"] = self.most, self.clusters, len(self.shared)
        self.shared.append([resident.shared_at(rank) for rank in range(resident.size)])
        self.kept.append(state)
        resident.observed[MEMORY] = state
        resident.cluster["timeline"] = pointer(state)

    def take(self, resident: Resident, worker: int) -> None:
        resident.observed[MEMORY]["log"] = self.logs.address(worker)

    def failed(self, fault: ExecutionFault) -> None:
        self._finish(min(self.most, LATE // self.clusters) if isinstance(fault, LimitReached) else self.most)

    def tell(self, ran: Ran, grid: Grid) -> None:
        self._finish(self.most)
        if self.clusters < grid.shape.clusters:
            size = grid.shape.cluster_size
            ran.notes.append(f"the trace has the first {self.clusters * size} of {grid.shape.ctas} blocks")

    def _finish(self, most: int) -> None:
        """Make the trace. most: entries of a cluster that it has."""
        entries = self.logs.all()
        entries = entries[entries["order"] < most]
        entries = entries[np.lexsort((entries["order"], entries["cluster"]))]
        self.events = events_of(self.grid, entries, self.shared, most)
        if self.file:
            write(self.file, self.events)
