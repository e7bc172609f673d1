"""A launch under control: its executions, what stops them, and what there is to see meanwhile.

`Session` (session.py) adds the directions: forwards, backwards, to the end.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from mmulator.base.errors import LaunchError
from mmulator.base.rules.choice import chosen
from mmulator.host.campaign import Snapshot
from mmulator.host.report import Report
from mmulator.isa.effects import MemoryEffect
from mmulator.observation.debug.breakpoints import MBARRIER, RULE, WATCH, Breakpoint, Breakpoints, question_of
from mmulator.observation.debug.execution import STEPS, STOPS, Checkpoints, Ended, Execution, Failed, History, Parked
from mmulator.observation.debug.expressions import number_of
from mmulator.observation.debug.machine import Machine, block_of, extent_in
from mmulator.observation.debug.stops import DebugError, Focus, Reason
from mmulator.observation.debug.watching import Hit, WatchedWord, WatchedWords, phase_of
from mmulator.observation.record.names import Asked, DeviceNames, element_of
from mmulator.observation.record.steps import NEVER, WarpPlace
from mmulator.runtime.launch.grid import Grid
from mmulator.runtime.launch.launch import How
from mmulator.runtime.launch.observers import Observer
from mmulator.runtime.launch.resident import Resident
from mmulator.runtime.launch.shape import LaunchShape
from mmulator.runtime.native.state import Warp

ALL = (1 << 32) - 1
Run = Callable[[How, Sequence["Observer"]], "Report"]


@dataclass(frozen=True)
class Controlled:
    """A launch that the debugger can run, again and again.

    name: of the kernel, as people write it.
    run: launches with a How and observers.
    how: of the launch.
    shape: of the launch.
    device: whose arithmetic it has.
    names: of the arrays that it was given.
    memory: what it may write, as (address, array).
    observers: makes further observers, new ones for each run.
    stored: gives the PTX type in which the kernel stores, where that is not known from an array; "" for none.
    """

    name: str
    run: Run
    how: How
    shape: LaunchShape
    device: str
    names: DeviceNames
    memory: Sequence[tuple[int, np.ndarray]]
    observers: Callable[[], list[Observer]] = list
    stored: Callable[[], str] = str


@dataclass
class Goal:
    """The aim of a run.

    until: number of the step before which it stops in any case.
    marks: sites that stop warps in range; None for none.
    low, high: addresses of the warps in range.
    lanes: of which one takes part.
    deepest: greatest frame.
    block: number of the block of these warps; -1 for any.
    breaks: breakpoints stop it.
    searching: breakpoints do not stop it, and the last hit is kept.
    hits: what stopped it.
    found: step and hits of the last stop that was searched.
    gone: all warps in range have exited.
    """

    until: int = NEVER
    marks: np.ndarray | None = None
    low: int = 0
    high: int = 0
    lanes: int = ALL
    deepest: int = ALL
    block: int = -1
    breaks: bool = True
    searching: bool = False
    hits: list[Hit] = field(default_factory=list)
    found: tuple[int, list[Hit]] | None = None
    gone: bool = False


class Control:
    """A launch with its executions, one after the other.

    launch: it.
    breakpoints: where it stops.
    focus: the lane that commands are about.
    history: its newest steps.
    total: steps of the whole launch, when that is known.
    """

    def __init__(self, launch: Controlled, breakpoints: Breakpoints) -> None:
        self.launch, self.breakpoints = launch, breakpoints
        self.focus = Focus(0, 0)
        self.history = History()
        self.total: int | None = None
        self._memory = Snapshot(launch.memory)
        self.checkpoints = Checkpoints(launch.memory)
        self._execution: Execution | None = None
        self._began = 0  # step at which the execution began
        self._goal = Goal()
        self._asked = False
        self._bound = -1  # changes of the breakpoints that the execution knows
        self._report: Report | None = None
        self._sanitizer: Any = None

    # runs -----------------------------------------------------------------------------------------------------------------
    def _begin(self, step: int = 0) -> None:
        """Run the launch anew, from the last checkpoint before a step: to the first step from there."""
        self._drop()
        others, self._sanitizer = self.launch.observers(), None
        for observer in others:
            if hasattr(observer, "logs"):
                self._sanitizer = observer
        if self.breakpoints.sanitized and self._sanitizer is None:
            from mmulator.sanitizer.diagnostics.sanitizer import Sanitizer

            self._sanitizer = Sanitizer(strict=True)
            others.append(self._sanitizer)
        self._goal, self._bound, self._report = Goal(until=0, breaks=False), -1, None
        self._told = 0
        mine = None if others or self.launch.shape.cooperative else self.checkpoints  # others have a memory of their own
        begin = mine.before(step) if mine is not None else None
        (begin.memory if begin is not None else self._memory).restore()
        self._began = begin.step if begin is not None else 0
        self._execution = Execution(
            self.launch.run, self.launch.how, others, self.history, self._judge, self._arrived, self._ready, mine, begin
        )
        self._words = WatchedWords(self.element, self._execution.watcher, self._sanitizer)
        self._landed(self._execution.wait(self.interrupt))

    def _ready(self, grid: Grid) -> np.ndarray:
        """A mark for each site. The launch is about to run."""
        self._marks = np.zeros(len(grid.kernel.executed) + 1, np.uint8)
        return self._marks

    def _arrived(self, resident: Resident) -> None:
        if self._execution is not None and self._bound >= 0:
            self._words.arrived(resident)

    def interrupt(self) -> None:
        """Stop at the next step. The only method for other threads."""
        self._asked = True
        execution = self._execution
        if execution is not None:
            execution.watcher.memory["next"] = 0

    def _drop(self) -> None:
        if self._execution is not None:
            self._execution.drop()
            self._execution = None

    def _run(self, goal: Goal) -> None:
        """Go on until the goal, or something else, stops the launch."""
        self._goal, self._asked = goal, False
        self._bind()
        marks = self._marks
        marks[:] = 0
        if goal.breaks or goal.searching:
            for b in self._active():
                marks[list(b.sites)] |= STOPS
        if goal.marks is not None:
            marks[:-1][goal.marks] |= STEPS
        self._words.follow(goal.low, goal.high)
        row = self._running.watcher.memory
        row["next"], row["low"], row["high"] = goal.until, goal.low, goal.high
        row["lanes"], row["deepest"] = goal.lanes, goal.deepest
        self._landed(self._running.resume(self.interrupt))

    def _landed(self, at: Parked | Failed | Ended) -> None:
        """Note the steps that were run."""
        step = self._running.step
        self.history.ran(self._began, step)
        if isinstance(at, Ended):
            self.total = step
            self._report = at.report
            if at.error is not None:
                raise at.error

    def _active(self) -> list[Breakpoint]:
        return [b for b in self.breakpoints if b.enabled]

    def _bind(self) -> None:
        """Find out what the breakpoints are in this launch, where that has changed."""
        if self._bound != self.breakpoints.changes:
            watcher = self._running.watcher
            for b in self.breakpoints:
                b.bind(watcher.kernel, self.launch.name)
            machine = Machine(watcher.grid, watcher.residents)
            self._words.arm(watcher.grid, self._active(), machine.host, watcher.residents)
            self._bound = self.breakpoints.changes

    # what stops a run, in its thread ----------------------------------------------------------------------------------------
    def _judge(self, place: WarpPlace, lanes: int, site: int) -> bool:
        execution = self._execution
        if execution is None:  # its first step
            return True
        goal, step = self._goal, execution.step - 1
        hits = [hit for word in self._words.changes() for hit in self._changed(word, step)] if self._bound >= 0 else []
        if self._marks[site] & STOPS:
            hits += self._at_site(place, lanes, site)
        if goal.searching:
            behind = [h for h in hits if h.behind or step < goal.until]
            if behind:
                goal.found = step - behind[0].behind, behind
            return step >= goal.until or self._asked
        if goal.breaks and hits:
            goal.hits = hits
            return True
        inside = goal.low <= place.address < goal.high
        if goal.block >= 0 and (self._words.left or (inside and place.block != goal.block)):
            goal.gone = True
            return True
        if self._marks[site] & STEPS and inside and place.frame <= goal.deepest:
            live = int(place.resident.warps["live"][(place.address - place.resident.arena.at("warps")) // Warp.size])
            if lanes & goal.lanes or not live & goal.lanes:
                return True
        return step >= goal.until or self._asked

    def _changed(self, word: WatchedWord, step: int) -> list[Hit]:
        """The hits that a change of a watched word makes."""
        b: Breakpoint = word.breakpoint
        if b.kind == RULE:
            return self._new_findings()
        before, word.before = word.before, word.read()
        where = f" in block {extent_in(self.launch.shape.grid, block_of(word.cta))}" if word.cta is not None else ""
        phase = phase_of(word) if b.kind == MBARRIER else None
        if b.kind == MBARRIER and phase is None:  # other data, or an mbarrier that was initialised just now
            return []
        if b.kind == WATCH:
            text = f"{word.name}{where}: {before} -> {word.before}; {self._storing(step)}"
            return [Hit(b, Reason.WATCHPOINT, text, True)]
        return [Hit(b, Reason.MBARRIER, f"mbarrier {word.name}{where}: phase {phase} is complete; {self._storing(step)}", True)]

    def _storing(self, step: int) -> str:
        """The step that came last, in words."""
        entry = self.history.entries(step - 1, step)[0]
        ins = self._execution.watcher.kernel.sites[int(entry["site"])] if self._execution is not None else None
        place = extent_in(self.launch.shape.grid, int(entry["block"]))
        text = " ".join(ins.span.text.split()) if ins is not None else ""
        line = ins.span.row if ins is not None else ""
        here = f"step {step - 1}, block {place} warp {int(entry['warp'])} at {line}: {text}"
        plain = ins is not None and ins.effects.memory is MemoryEffect.NONE
        return f"by an operation in flight, seen after {here}" if plain else f"after {here}"

    def _new_findings(self) -> list[Hit]:
        found = self._sanitizer.findings()
        new, self._told = found[self._told :], len(found)
        hits = []
        for finding in new:
            for b in self._active():
                if b.kind == RULE and finding.rule in _rules(b.place):
                    hits.append(Hit(b, Reason.FINDING, str(finding), True))
        return hits

    def _at_site(self, place: WarpPlace, lanes: int, site: int) -> list[Hit]:
        hits = []
        for b in self._active():
            if site not in b.sites or (b.once and self._execution is not None and self._execution.step > 1):
                continue
            test, mine = b.test, lanes
            if test is not None:
                machine = self._machine_at(place, lanes, site)
                mine &= test.mask(machine, machine.warp(place.block, place.warp), self.value_of)
            if mine:
                hits.append(Hit(b, Reason.BREAKPOINT, "", lanes=mine))
        return hits

    def _to(self, step: int) -> None:
        """Stand before a step, or at the end where there is no such step."""
        execution = self._execution
        near = self.checkpoints.before(step)
        behind = near is not None and near.step > self._position() + self.checkpoints.apart  # far ahead
        if execution is None or self._position() > step or execution.over or behind:
            self._begin(step)
        if self._position() < step:
            self._run(Goal(until=step, breaks=False))

    @property
    def _at(self) -> Parked | Failed | Ended | None:
        """Where the execution stands; None if there is none."""
        return self._execution.at if self._execution is not None else None

    @property
    def _running(self) -> Execution:
        """The execution, which there is."""
        assert self._execution is not None
        return self._execution

    def _position(self) -> int:
        at = self._at
        return at.step if isinstance(at, Parked | Failed) else NEVER

    # what there is to see ---------------------------------------------------------------------------------------------------
    def _machine_at(self, place: WarpPlace, lanes: int, site: int) -> Machine:
        watcher = self._running.watcher
        return Machine(watcher.grid, watcher.residents, (place.block, place.warp), (lanes, site, place.frame))

    @property
    def machine(self) -> Machine:
        """The machine at this stop. Raises DebugError when the launch is over and has no blocks any more."""
        at = self._at
        if isinstance(at, Parked):
            return self._machine_at(at.place, at.lanes, at.site)
        if isinstance(at, Failed):
            last = self.history.entries(at.step - 1, at.step)[0]
            running = int(last["block"]), int(last["warp"])
            faulted = any(cta.state["fault"] for r in at.residents for cta in r.each() if block_of(cta) == running[0])
            where = int(last["lanes"]), int(last["site"]), int(last["frame"])
            return Machine(self._running.watcher.grid, at.residents, running if faulted else None, where)
        raise DebugError("the launch is over: no block is on the machine", hint="reverse-continue or goto go back into it")

    def element(self, text: str) -> Asked:
        """An element of the launch: `C[3,5]`, `KERNEL:C[3,5]`, `0x7f00:f32`. Raises DebugError."""
        asked: Any = question_of(text)
        if asked.kernel and asked.kernel not in self.launch.name:
            raise DebugError(f"{text}: this launch is of {self.launch.name}")
        try:
            return element_of(replace(asked, launch=0), self.launch.names, self.launch.stored)
        except LaunchError as error:
            raise DebugError(error.message.removeprefix("why: "), hint=error.hint) from None

    def value(self, text: str) -> tuple[Asked, int]:
        """An element, and its bits now. Raises DebugError."""
        asked = self.element(text)
        return asked, int.from_bytes(self.read(asked.start, asked.size), "little")

    def value_of(self, text: str) -> Any:
        """An element as an int, float or bool. Raises DebugError."""
        asked, bits = self.value(text)
        return number_of(bits, asked.type)

    def read(self, address: int, size: int) -> bytes:
        """Bytes at a generic address, also when the launch is over. Raises DebugError."""
        if isinstance(self._at, Parked | Failed):
            return self.machine.read(address, size, self.focus.block)
        for start, array in self.launch.memory:
            raw = array.reshape(-1).view(np.uint8)
            if start <= address and address + size <= start + raw.nbytes:
                return raw[address - start : address - start + size].tobytes()
        raise DebugError(f"there is no memory at 0x{address:x} ({size} bytes)")


def _rules(text: str) -> frozenset[str]:
    return chosen("" if text == "all" else text, strict=True)
