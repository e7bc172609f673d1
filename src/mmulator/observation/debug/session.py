"""The motor of the debugger: one launch under control.

The launch runs on one thread of the host, in steps: one instruction that one warp executes, or tries. Steps are numbered, and a
launch has the same steps in each run under one seed. So going back is: restore the memory, and run to an earlier step. All
methods are called by one thread, which waits for the launch meanwhile; `interrupt` may be called by any.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from mmulator.base.demangle import demangle
from mmulator.observation.debug.breakpoints import Breakpoints, SiteLines, lines_of
from mmulator.observation.debug.control import ALL, Control, Controlled, Goal
from mmulator.observation.debug.execution import Ended, Failed, Parked
from mmulator.observation.debug.machine import block_of, extent_in, first_lane
from mmulator.observation.debug.stops import DebugError, Focus, Reason, StepScope, Stopped
from mmulator.observation.debug.watching import Hit
from mmulator.ptx.program.uses import uses_and_defs
from mmulator.runtime.native.state import LANES

if TYPE_CHECKING:
    from mmulator.base.location import Location
    from mmulator.host.report import Report
    from mmulator.observation.debug.machine import LanesAt
    from mmulator.observation.debug.views import Scene
    from mmulator.ptx.tree import Instruction
    from mmulator.runtime.launch.resident import ResidentCta

NEAR = 8192  # steps that are looked through for the one that faulted


class Session(Control):
    """One launch under control.

    kernel_name: as people write it (demangled).
    number: of the launch in the program, from 1 on.
    grid, block, cluster: extents of the launch, (x, y, z) each.
    device: whose arithmetic it has.
    seed: of the scheduler's choices.
    names: of the arrays that it was given.
    breakpoints: where it stops; shared by all launches of a program.
    scope: whose instructions count as steps.
    focus: the lane that commands are about; a stop sets it, and a user may.
    stop: where the launch stands.
    """

    def __init__(self, launch: Controlled, breakpoints: Breakpoints | None = None, number: int = 1) -> None:
        super().__init__(launch, breakpoints or Breakpoints())
        self.kernel_name, self.number = launch.name, number
        self.device, self.seed, self.names = launch.device, launch.how.seed, launch.names
        self.grid, self.block, self.cluster = launch.shape.grid, launch.shape.block, launch.shape.cluster
        self.scope = StepScope.WARP
        self.stop = Stopped(Reason.ENTRY, 0)

    # stops ------------------------------------------------------------------------------------------------------------------
    def _stopped(self, reason: Reason, hits: Sequence[Hit] = (), text: str = "") -> Stopped:
        """The stop where the launch stands."""
        execution, at = self._running, self._at
        if hits:
            reason = hits[0].reason
            text = "\n".join(dict.fromkeys(h.text for h in hits if h.text))
        numbers = tuple(dict.fromkeys(h.breakpoint.number for h in hits))
        if isinstance(at, Ended):
            self.stop = Stopped(Reason.EXITED, execution.step)
            return self.stop
        if isinstance(at, Failed):
            self.stop = self._failed(at)
            return self.stop
        assert isinstance(at, Parked)
        place, lanes = at.place, at.lanes
        if self._goal.gone and not hits:
            text = f"all threads of the {self._scope_text} have exited"
        if self._asked and not hits and reason is not Reason.STEP:
            reason = Reason.INTERRUPTED
        old = self.focus
        mine = next((h.lanes for h in hits if h.lanes), lanes)
        same = (old.block, old.warp) == (place.block, place.warp) and mine >> old.lane & 1
        lane = old.lane if same else first_lane(mine)
        self.focus = Focus(place.block, place.warp, lane)
        ins = execution.watcher.kernel.sites[at.site]
        self.stop = Stopped(reason, at.step, self.focus, lanes, at.site, ins, numbers, text)
        for h in hits:
            h.breakpoint.hits += 1
            if h.breakpoint.temporary and h.breakpoint in self.breakpoints.items:
                self.breakpoints.delete(h.breakpoint.number)
        return self.stop

    def _failed(self, at: Failed) -> Stopped:
        """The stop at a fault or a deadlock."""
        error = at.error
        for resident in at.residents:
            for cta in resident.each():
                if cta.state["fault"]:
                    return self._faulted(at, cta)
        machine = self.machine
        here = next((w for w in machine.warps() if (w.block, w.warp) == (self.focus.block, self.focus.warp) and w.places), None)
        here = here or next((w for w in machine.warps() if w.places), None)
        if here is None:
            return Stopped(Reason.DEADLOCK, at.step, text=str(error), error=error)
        first = here.places[0]
        self.focus = Focus(here.block, here.warp, first_lane(first.lanes))
        return Stopped(
            Reason.DEADLOCK, at.step, self.focus, first.lanes, first.site, first.instruction, text=str(error), error=error
        )  # fmt: skip

    def _faulted(self, at: Failed, cta: ResidentCta) -> Stopped:
        """The stop at a fault: before the instruction, since what stands behind it in its block of code has run, too."""
        kernel, state = self._running.watcher.kernel, cta.state
        site, warp, lane = int(state["fault_site"]), int(state["fault_warp"]), int(state["fault_lane"]) % LANES
        self.focus = focus = Focus(block_of(cta), warp, lane)
        ins = kernel.sites[site] if site < len(kernel.sites) else None
        low = max(self.history.low, at.step - NEAR)
        part = self.history.entries(low, at.step)
        mine = np.nonzero((part["block"] == focus.block) & (part["warp"] == warp))[0]
        its = [int(n) for n in mine if kernel.sites[int(part["site"][n])] is ins]
        step, lanes = at.step, 1 << lane
        if its:
            step, lanes, site = low + its[-1], int(part["lanes"][its[-1]]), int(part["site"][its[-1]])
            self._to(step)
        return Stopped(Reason.FAULT, step, focus, lanes, site, ins, text=str(at.error), error=at.error)

    # going on and back; each returns the new `stop`, and raises DebugError where a direction has no way on --------------------
    def start(self) -> Stopped:
        """Run to the first instruction, also when the launch has begun already. The reason may be a breakpoint there."""
        self._begin()
        self._bind()
        return self._stopped(Reason.ENTRY, self._first_hits())

    def go(self, back: bool = False) -> Stopped:
        """Continue to the next stop. back: to the one before."""
        if back:
            return self._go_back()
        self._forward()
        hits = self._travel(Goal())
        return self._stopped(Reason.BREAKPOINT, hits)

    def _travel(self, goal: Goal) -> list[Hit]:
        """Run to a stop; breakpoints that are to be ignored are."""
        while True:
            self._run(goal)
            ignored = [h for h in goal.hits if h.breakpoint.ignore > 0]
            if not ignored or len(ignored) < len(goal.hits):
                return goal.hits
            for h in ignored:
                h.breakpoint.ignore -= 1
                h.breakpoint.hits += 1
            goal.hits = []

    def _forward(self) -> None:
        """Raises DebugError where the launch cannot go on."""
        if self._execution is None:
            self.start()
        if self.stop.over:
            what = {Reason.EXITED: "is over", Reason.FAULT: "has faulted", Reason.DEADLOCK: "hangs"}[self.stop.reason]
            raise DebugError(f"the launch {what}", hint="reverse-continue, reverse-stepi or goto go back; run starts over")

    def _go_back(self) -> Stopped:
        here = self.stop.step
        if here == 0:
            raise DebugError("this is the launch's first step: there is nothing before it")
        goal = self._search(here)
        if goal.found is None:
            return self._back_to(0, Reason.BEGIN)
        step, hits = goal.found
        return self._back_to(step, Reason.BREAKPOINT, hits)

    def _search(self, here: int) -> Goal:
        """The last breakpoint before a step: the launch is run from one checkpoint to the next, the last ones first."""
        end = here
        while True:
            self._begin(end - 1)
            goal = Goal(until=end, searching=True, breaks=False)
            self._bind()
            first = self._first_hits()
            if first and self._began < end:
                goal.found = self._began, first
            if self._position() < end:
                self._run(goal)
            if goal.found is not None or not self._began:
                return goal
            end = self._began

    def _first_hits(self) -> list[Hit]:
        at = self._at
        return self._at_site(at.place, at.lanes, at.site) if isinstance(at, Parked) else []

    def _back_to(self, step: int, reason: Reason, hits: Sequence[Hit] = ()) -> Stopped:
        self._to(step)
        return self._stopped(reason, hits)

    def goto(self, step: int) -> Stopped:
        """Stand before the step of a number. Breakpoints do not stop it."""
        if step < 0:
            raise DebugError(f"there is no step {step}", hint="the first is 0")
        if self.total is not None and step > self.total:
            raise DebugError(f"there is no step {step}: the launch has {self.total}")
        if self.stop.over and self._execution is not None and step == self.stop.step:
            return self.stop
        self._to(step)
        return self._stopped(Reason.STEP)

    def step(self, count: int = 1, *, lines: bool = True, over: bool = False, back: bool = False) -> Stopped:
        """Go on by lines of the program, or by instructions, of the warps in `scope` around `focus`.

        Forwards, breakpoints stop it.

        count: how many.
        lines: by lines of the source, or of the PTX where no source is known; False: by PTX instructions.
        over: a call of a function is one line or instruction.
        back: into the past.
        """
        if not back:
            self._forward()
        for _ in range(count):
            stop = self._step_back(lines, over) if back else self._step_on(lines, over)
            if stop.reason is not Reason.STEP:
                break
        return self.stop

    def _range(self) -> tuple[int, int]:
        """First warp of the scope, and the one behind its last."""
        if self.scope is StepScope.WARP:
            return self.focus.warp, self.focus.warp + 1
        if self.scope is StepScope.WARPGROUP:
            return self.focus.warp // 4 * 4, self.focus.warp // 4 * 4 + 4
        return 0, self.launch.shape.warps

    @property
    def _scope_text(self) -> str:
        block = extent_in(self.grid, self.focus.block)
        first, _ = self._range()
        if self.scope is StepScope.BLOCK:
            return f"block {block}"
        return f"warp {first} of block {block}" if self.scope is StepScope.WARP else f"warpgroup {first // 4} of block {block}"

    def _lanes(self) -> int:
        return 1 << self.focus.lane if self.scope is StepScope.WARP else ALL

    @property
    def _lines(self) -> SiteLines:
        return lines_of(self._running.watcher.kernel)

    def _within(self, goal: Goal) -> Goal:
        """A goal for the warps of the scope."""
        cta = self.machine.cta(self.focus.block)
        first, behind = self._range()
        goal.low, goal.high = cta.warp(first), cta.warp(min(behind, len(cta.warps)))
        goal.lanes, goal.block = self._lanes(), self.focus.block
        return goal

    def _step_on(self, lines: bool, over: bool) -> Stopped:
        at = self._at
        assert isinstance(at, Parked)
        begun = self._in_scope(at)
        every = np.ones(len(self._marks) - 1, bool)
        if not begun:  # first to the instruction that the warp in focus stands before
            hits = self._travel(self._within(Goal(marks=every)))
            at = self._at
            if hits or not isinstance(at, Parked) or self._asked:
                return self._stopped(Reason.BREAKPOINT, hits)
        goal = self._within(Goal(marks=every))
        if over:
            goal.deepest = at.place.frame
        if lines:
            keys = self._lines.keys(len(self._lines.chains[at.site]) if over else 0)
            goal.marks = (keys != keys[at.site]) & (keys >= 0)
        hits = self._travel(goal)
        return self._stopped(Reason.STEP, hits)

    def _in_scope(self, at: Parked) -> bool:
        first, behind = self._range()
        mine = at.place.block == self.focus.block and first <= at.place.warp < behind
        return bool(mine and (at.lanes & self._lanes() or self.scope is not StepScope.WARP))

    def _step_back(self, lines: bool, over: bool) -> Stopped:
        found = self._earlier(lines, over)
        if found is None:
            if self.stop.step == 0:
                raise DebugError("this is the launch's first step: there is nothing before it")
            return self._back_to(0, Reason.BEGIN)
        focus = self.focus
        self._to(found)
        self.focus = focus
        return self._stopped(Reason.STEP)

    def _earlier(self, lines: bool, over: bool) -> int | None:
        """The step at which the line, or the instruction, before this stop begins; None if there is none."""
        history, end = self.history, self.stop.step
        first, behind = self._range()
        lanes, steps, sites = self._lanes(), np.zeros(0, np.int64), np.zeros(0, np.int64)
        keys = None
        while end > 0:
            if not history.low < end <= history.high:
                self._to(end)
            begin = history.low
            part = history.entries(begin, end)
            mine = (part["block"] == self.focus.block) & (part["warp"] >= first) & (part["warp"] < behind)
            mine &= (part["lanes"] & lanes) != 0
            if over:
                mine &= part["frame"] <= self._frame_here(part, mine)
            here = np.nonzero(mine)[0]
            steps, sites = np.concatenate([here + begin, steps]), np.concatenate([part["site"][here].astype(np.int64), sites])
            if len(steps) and not lines:
                return int(steps[-1])
            if len(steps):
                if keys is None:
                    depth = len(self._lines.chains[int(sites[-1])]) if over else 0
                    keys = self._lines.keys(depth)
                mine_keys = keys[sites]
                other = np.nonzero((mine_keys != mine_keys[-1]) & (mine_keys >= 0))[0]
                if len(other):
                    return int(steps[other[-1] + 1])
            end = begin
        return int(steps[0]) if len(steps) else None

    def _frame_here(self, part: np.ndarray, mine: np.ndarray) -> int:
        """Frame of the function that the warp in focus executes."""
        if self.stop.over or self._execution is None:
            there = part["frame"][mine]
            return int(there[-1]) if len(there) else ALL
        state = self.machine.warp(self.focus.block, self.focus.warp)
        place = state.at(self.focus.lane)
        return place.frame if place is not None else ALL

    def finish(self, back: bool = False) -> Stopped:
        """Run until the function in focus has returned, also an inlined one. back: to the call of it."""
        if not back:
            self._forward()
        at = self._at
        if not isinstance(at, Parked):
            raise DebugError("the launch is over", hint="reverse-stepi goes back into it")
        depth, frame = len(self._lines.chains[at.site]), at.place.frame
        lengths = np.array([len(c) for c in self._lines.chains], np.int64)
        outer = (lengths < depth) & (lengths > 0) if depth > 1 else np.zeros(len(lengths), bool)
        if not frame and depth <= 1:
            raise DebugError("this is the kernel itself, which no function has called", hint="continue runs on")
        if back:
            return self._finish_back(outer, frame)
        goal = self._within(Goal(marks=np.ones(len(outer), bool) if not outer.any() else outer))
        goal.deepest = frame if outer.any() else frame - 1
        return self._stopped(Reason.STEP, self._travel(goal))

    def _finish_back(self, outer: np.ndarray, frame: int) -> Stopped:
        here = self.stop.step
        if not self.history.low < here <= self.history.high:
            self._to(here)
        part = self.history.entries(self.history.low, here)
        mine = (part["block"] == self.focus.block) & (part["warp"] == self.focus.warp) & ((part["lanes"] & self._lanes()) != 0)
        mine &= outer[part["site"]] & (part["frame"] <= frame) if outer.any() else part["frame"] < frame
        found = np.nonzero(mine)[0]
        if not len(found):
            return self._back_to(0, Reason.BEGIN)
        return self._back_to(self.history.low + int(found[-1]), Reason.STEP)

    # the end --------------------------------------------------------------------------------------------------------------
    def finished(self) -> Report:
        """Run to the end without stops, and leave the launch's results in memory.

        Raises what the launch raises: ExecutionFault for a fault or a deadlock.
        """
        if self._execution is None:
            self._begin()
        if self._report is None:
            while not isinstance(self._at, Ended):
                self._run(Goal(breaks=False))
            self._stopped(Reason.EXITED)
        assert self._report is not None
        return self._report

    def end(self) -> None:
        """Give the launch up where it stands: its thread ends, and memory keeps what was stored until then."""
        self._drop()

    def close(self) -> None:
        """Give the launch up: its thread ends, and memory is as before the launch."""
        self._drop()
        self._memory.restore()

    # what there is to see ---------------------------------------------------------------------------------------------------
    @property
    def files(self) -> list[str]:
        """Files of the program that the kernel has lines of, its own first."""
        return self._lines.files() if self._execution is not None else []

    @property
    def ptx_lines(self) -> list[int]:
        """Line of the PTX of each site."""
        return self._lines.ptx

    def instructions(self, sites: Sequence[int]) -> int:
        """Number of instructions of some sites: an instruction may have several."""
        return len({self._lines.twins(n)[0] for n in sites})

    def bind(self) -> None:
        """Find out what the breakpoints are in this launch, where they have changed. Where one wants the sanitizer, the launch
        comes to this step again, under the sanitizer.
        """
        if self._execution is None or self._execution.over:
            return
        if self.breakpoints.sanitized and self._sanitizer is None:
            focus = self.focus
            self._begin()
            self._to(self.stop.step)
            self.focus = focus
        self._bind()

    def calls(self, place: LanesAt) -> list[tuple[str, Instruction | None, Location | None]]:
        """The functions that lanes are in, the innermost first: (name, next instruction, its line of the program)."""
        machine = self.machine
        warp = machine.warp(self.focus.block, self.focus.warp)
        places = (place, *islice(machine.callers(warp, place, self.focus.lane), 63))
        spans = [(p.function, p.instruction, p.instruction.span if p.instruction is not None else None) for p in places]
        return [(demangle(name), ins, span.location if span is not None else None) for name, ins, span in spans]

    def line_registers(self, place: LanesAt) -> list[str]:
        """Registers that the instructions of a lane's line name."""
        lines, kernel = self._lines, self.machine.kernel
        keys = lines.keys(0)
        if place.site < 0:
            return []
        sites = [n for n in lines.order if keys[n] == keys[place.site] and lines.functions[n] == place.function]
        known = kernel.frames[place.function].slots
        return [r for r in dict.fromkeys(r for n in sites for r in _registers(kernel.executed[n])) if r in known]

    def scene(self, focus: Focus | None = None) -> Scene:
        """The scene of the views (observation/debug/views/): the machine, from a lane of a warp. focus: the lane; None: that in
        focus.

        Raises DebugError where its warp is not on the machine.
        """
        from mmulator.observation.debug.views import Scene

        return Scene.of(self.machine, focus or self.focus, self.stop.step)

    def why(self, element: str) -> str:
        """Why an element (`C[3,5]`) has the value that it has now: its store and what is behind it, in words."""
        from mmulator.observation.debug.asking import why

        asked, stop, focus = self.element(element), self.stop, self.focus
        self._drop()
        try:
            return why(self.launch, self._memory, asked, stop.step)
        finally:
            self._to(stop.step)
            if stop.reason is not Reason.EXITED:
                self.focus = focus


def _registers(ins: Instruction) -> list[str]:
    uses, defs = uses_and_defs(ins)
    return sorted(uses | defs)
