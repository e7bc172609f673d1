"""A launch that stands still, as a client sees it: warps as threads, lanes and inlined lines as stack frames."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, Any

from mmulator.base.demangle import base_name
from mmulator.base.lazy import cached_property
from mmulator.observation.debug.dap.client import Client, RefusedRequest
from mmulator.observation.debug.dap.messages import PROGRAM_THREAD, Object
from mmulator.observation.debug.dap.places import KernelPlaces, Texts
from mmulator.observation.debug.machine import extent_in, first_lane
from mmulator.observation.debug.stops import Focus, Reason, Stopped
from mmulator.sanitizer.diagnostics.whereabouts import lanes_text

if TYPE_CHECKING:
    from mmulator.observation.debug.machine import LanesAt, Machine, WarpState
    from mmulator.observation.debug.program import Debugger
    from mmulator.observation.debug.session import Session

MOST_THREADS = 512  # threads that a client is told of
_FIRST = PROGRAM_THREAD + 1
_LONG = 40  # characters of a list of lanes that becomes a mask


@dataclass(frozen=True)
class LanesFrame:
    """A frame of a stack: lanes of a warp at a place, in a function or where code was inlined.

    warp: the warp.
    at: its lanes, and where they stand.
    top: whether registers are those of the lanes now: not so for a function that has called another one.
    """

    warp: WarpState
    at: LanesAt
    top: bool = True


class Standing:
    """One launch under control.

    session: the motor.
    debugger: of the process.
    places: of its kernel.
    texts: PTX without a file.
    client: who sees it.
    """

    def __init__(self, session: Session, debugger: Debugger, texts: Texts, client: Client) -> None:
        self.session, self.debugger, self.texts, self.client = session, debugger, texts, client
        self.places = KernelPlaces(session.machine.kernel, session.kernel_name, texts)
        self.hex = False  # whether a client wants hexadecimal numbers
        self._numbers = count(1000)  # never twice in a launch: a client may still ask for what it saw before
        self._shown: dict[int, Any] = {}

    # numbers of what was shown ---------------------------------------------------------------------------------------------
    def forget(self) -> None:
        """The launch moves: what was shown is out of date."""
        self._shown.clear()
        self.__dict__.pop("warps", None)

    def show(self, what: Any) -> int:
        """A number for a frame or for variables, by which a client asks for more."""
        number = next(self._numbers)
        self._shown[number] = what
        return number

    def shown(self, number: int, kind: type) -> Any:
        """The thing that was shown under a number. Raises Refused."""
        found = self._shown.get(number)
        if not isinstance(found, kind):
            raise RefusedRequest(f"{number}: shown at an earlier stop, or never")
        return found

    # warps ----------------------------------------------------------------------------------------------------------------
    @property
    def machine(self) -> Machine:
        return self.session.machine

    @cached_property
    def warps(self) -> dict[int, WarpState]:
        """Thread -> warp with lanes that have not exited, of blocks that have begun; those of the block in focus first."""
        if self.session.stop.over and self.session.stop.reason is Reason.EXITED:
            return {}
        focus = self.session.stop.focus
        found = sorted((w for w in self.machine.warps() if w.live), key=lambda w: focus is not None and w.block != focus.block)
        return {self.thread_of(Focus(w.block, w.warp)): w for w in found}

    def thread_of(self, focus: Focus | None) -> int:
        """The number of a warp's thread; of the program for None."""
        if focus is None:
            return PROGRAM_THREAD
        x, y, z = self.session.block
        return _FIRST + focus.block * -(-x * y * z // 32) + focus.warp

    def threads(self) -> list[Object]:
        """The warps that are on the machine; the launch itself if there are none."""
        if not self.warps:
            return [{"id": PROGRAM_THREAD, "name": f"launch {self.session.number} of {self.session.kernel_name}, over"}]
        names = ((number, f"block {extent_in(self.session.grid, w.block)} warp {w.warp}") for number, w in self.warps.items())
        return [{"id": number, "name": name} for (number, name), _ in zip(names, range(MOST_THREADS))]

    def warp(self, thread: int) -> WarpState | None:
        """The warp of a thread; None for the launch itself. Raises Refused."""
        if thread == PROGRAM_THREAD:
            return None
        if thread not in self.warps:
            raise RefusedRequest(f"thread {thread}: no warp of this number has lanes that run")
        return self.warps[thread]

    def aim(self, thread: int) -> None:
        """Commands are about this thread from now on. Raises Refused."""
        warp = self.warp(thread)
        focus = self.session.focus
        if warp is not None and (focus.block, focus.warp) != (warp.block, warp.warp):
            first = warp.places[0].lanes if warp.places else warp.live
            self.session.focus = Focus(warp.block, warp.warp, first_lane(first))

    # frames ---------------------------------------------------------------------------------------------------------------
    def stack(self, thread: int) -> list[Callable[[], Object]]:
        """The frames of a warp, innermost first: those of the lanes in focus, then those of lanes that are elsewhere."""
        warp = self.warp(thread)
        if warp is None:
            return []
        focus = self.session.stop.focus
        places = list(warp.places)
        if focus is not None and (focus.block, focus.warp) == (warp.block, warp.warp):
            places.sort(key=lambda p: not p.lanes >> focus.lane & 1)
        several = len(places) > 1
        return [
            shown for at in places for frame in (LanesFrame(warp, at), *self._callers(warp, at))
            for shown in self._frames(frame, several and frame.top)
        ]  # fmt: skip

    def _callers(self, warp: WarpState, at: LanesAt) -> Iterator[LanesFrame]:
        """The frames of the functions that have called the one that lanes execute, innermost first."""
        for caller in self.machine.callers(warp, at, first_lane(at.lanes)):
            yield LanesFrame(replace(warp, places=(caller,)), caller, False)

    def _frames(self, frame: LanesFrame, several: bool) -> Iterator[Callable[[], Object]]:
        """A frame as the client sees it: the line of the program, those where it was inlined, and the line of PTX."""
        at = frame.at
        text = lanes_text(at.lanes)
        lanes = "" if not several else f" [{text if len(text) < _LONG else f'lanes 0x{at.lanes:08x}'}]"
        waits = f": {at.waits_for.removeprefix(text + ' ')}" if at.waits_for else ""
        if at.instruction is None:
            yield lambda: self._frame(frame, f"{at.function}{lanes}{waits}", None, 0)
            return
        span = at.instruction.span
        location, kernel = span.location, base_name(at.function)
        for n, place in enumerate(location.chain if location is not None else ()):
            source = self.places.source(place)
            if source is not None:
                name = (place.function or kernel) + (lanes + waits if not n else "")
                yield lambda name=name, source=source, line=place.line: self._frame(frame, name, source, line)  # type: ignore[misc]
                lanes = waits = ""
        if not frame.top and not (lanes or waits) and location is not None:
            return  # of callers the PTX is in the disassembly alone
        name = f"{kernel}, PTX{lanes}{waits}"
        yield lambda: self._frame(frame, name, self.places.ptx, span.line)

    def _frame(self, frame: LanesFrame, name: str, source: Object | None, line: int) -> Object:
        shown: Object = {"id": self.show(frame), "name": name, "line": line, "column": 1 if line else 0}
        shown["moduleId"] = self.session.number
        if source is not None:
            shown["source"] = source
        if frame.at.site >= 0:
            shown["instructionPointerReference"] = self.places.address(frame.at.site)
        return shown

    # the launch -----------------------------------------------------------------------------------------------------------
    def module(self) -> Object:
        """The launch as a module: its kernel, where it was compiled from, and the device."""
        s = self.session
        known = any(not line.ptx for line in self.places.lines)
        return {
            "id": s.number, "name": s.kernel_name, "path": self.places.ptx.get("path", self.places.text.name),
            "symbolStatus": "lines of the program and of PTX" if known else "lines of PTX alone",
            "version": f"{s.device}, seed {s.seed}, grid {s.grid}, block {s.block}",
        }  # fmt: skip

    def sources(self) -> list[Object]:
        """The PTX, and the files that it was compiled from."""
        paths = sorted({line.path for line in self.places.lines if not line.ptx})
        return [self.places.ptx, *({"name": path.rpartition("/")[2], "path": path} for path in paths)]

    def description(self, stop: Stopped) -> str:
        """A stop in a few words."""
        where = "" if stop.focus is None else f", block {extent_in(self.session.grid, stop.focus.block)} warp {stop.focus.warp}"
        what = {
            Reason.BEGIN: "the launch's first instruction", Reason.EXITED: "the launch is over; step back from here",
            Reason.MBARRIER: "a phase of an mbarrier is complete", Reason.FINDING: "the sanitizer found a rule broken",
            Reason.FAULT: "the launch cannot go on", Reason.DEADLOCK: "no warp can go on",
        }.get(stop.reason, f"step {stop.step}")  # fmt: skip
        return f"{what} of {self.session.kernel_name}{where}" if what.startswith("step") else f"{what}{where}"

    def top(self, number: int | None = None) -> LanesFrame | None:
        """A frame that was shown; without a number the innermost one of the lane in focus. Raises Refused."""
        if number is not None:
            found: LanesFrame = self.shown(number, LanesFrame)
            return found
        focus = self.session.stop.focus
        warp = self.warps.get(self.thread_of(focus)) if focus is not None else None
        if warp is None or focus is None or not warp.places:
            return None
        return LanesFrame(warp, warp.at(focus.lane) or warp.places[0])
