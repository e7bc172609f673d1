"""Breakpoints as a client sets them, and as the motor of the debugger has them in the launch at hand."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NotRequired, TypedDict

from mmulator.base.errors import MmulatorError
from mmulator.observation.debug.dap.client import RefusedRequest
from mmulator.observation.debug.dap.messages import DEADLOCKS, FAULTS, PENDING, Object, wanted_of
from mmulator.observation.debug.dap.places import KernelPlaces

if TYPE_CHECKING:
    from mmulator.observation.debug.breakpoints import Breakpoint as MotorBreakpoint
    from mmulator.observation.debug.breakpoints import Breakpoints

_HIT = re.compile(r"\s*(?P<how>==?|>=?|<=?|%)?\s*(?P<count>\d{1,9})\s*")


def _multiple(hits: int, count: int) -> bool:
    return count > 0 and hits % count == 0


HITS: dict[str, Callable[[int, int], bool]] = {
    "": operator.ge, "=": operator.eq, "==": operator.eq, ">": operator.gt, ">=": operator.ge, "<": operator.lt,
    "<=": operator.le, "%": _multiple,
}  # fmt: skip


class PlacedAt(TypedDict):
    """The place of a breakpoint, as far as it is known."""

    verified: bool
    message: NotRequired[str]
    reason: NotRequired[Literal["pending", "failed"]]
    line: NotRequired[int]
    instructionReference: NotRequired[str]


@dataclass
class Wanted:
    """A breakpoint of a client.

    number: as the client is told.
    kind: the request that set it.
    given: the object in the request.
    source: in which it is, of a line.
    told: what the client was told last.
    motor: numbers of the motor's breakpoints that stand for it in the launch at hand.
    steps: numbers of the steps at which it was hit in the launch at hand.
    """

    number: int
    kind: str
    given: Mapping[str, Any]
    source: Object | None = None
    told: Object | None = None
    motor: tuple[int, ...] = ()
    steps: set[int] = field(default_factory=set)

    def hit(self, step: int) -> bool:
        """Whether a stop at a step is one for people: its hit condition holds. A step is one hit however often it is done."""
        self.steps.add(step)
        found = _HIT.fullmatch(self.given.get("hitCondition") or ">=1")
        hits = sum(s <= step for s in self.steps)
        return found is None or HITS[found["how"] or ""](hits, int(found["count"]))

    @property
    def condition(self) -> str:
        """The condition over lanes under which it stops, or ""."""
        return self.given.get("condition") or ""

    @property
    def log(self) -> str:
        """The text that is said in place of a stop, or ""."""
        return self.given.get("logMessage") or ""


class Book:
    """All breakpoints of a client.

    motor: those of the motor.
    sanitized: whether launches are sanitized, so that rules can stop them.
    """

    def __init__(self, motor: Breakpoints, sanitized: bool) -> None:
        self.motor, self.sanitized = motor, sanitized
        self.filters = {FAULTS, DEADLOCKS}  # until a client chooses
        self._sets: dict[str, list[Wanted]] = {}

    def all(self) -> list[Wanted]:
        return [w for wanted in self._sets.values() for w in wanted]

    def set(self, kind: str, given: Any, numbers: list[int], places: KernelPlaces | None) -> list[Object]:
        """Take a request that sets breakpoints in place of those that the same request set before.

        kind: the request.
        given: its arguments.
        numbers: of the breakpoints.
        places: of the kernel at hand; None if there is none.
        """
        source: Object | None = given.get("source")
        key = f"{kind} {source and (source.get('path') or source.get('sourceReference'))}"
        for old in self._sets.get(key, ()):
            self._remove(old)
        if kind == "setExceptionBreakpoints":
            self.filters = {w["filterId"] for w in wanted_of(given)}
        known = {w.number: w for w in self._sets.get(key, ())}
        self._sets[key] = new = [Wanted(n, kind, g, source) for n, g in zip(numbers, wanted_of(given))]
        for wanted in new:
            if wanted.number in known:
                wanted.steps = known[wanted.number].steps
            wanted.told = self._place(wanted, places)
        return [w.told for w in new if w.told is not None]

    def place(self, places: KernelPlaces) -> list[Object]:
        """Place all breakpoints in a launch that begins; returns those of which a client must be told anew."""
        news = []
        for wanted in self.all():
            wanted.steps.clear()
            if wanted.kind == "setExceptionBreakpoints":
                continue
            self._remove(wanted)
            told = self._place(wanted, places)
            if told != wanted.told:
                news.append(told)
            wanted.told = told
        return news

    def of(self, numbers: tuple[int, ...]) -> list[Wanted]:
        """The client's breakpoints of the motor's."""
        return [w for w in self.all() if set(w.motor) & set(numbers)]

    def _remove(self, wanted: Wanted) -> None:
        for number in wanted.motor:
            self.motor.delete(number)
        wanted.motor = ()

    def _place(self, wanted: Wanted, places: KernelPlaces | None) -> Object:
        at: Object = {"id": wanted.number, "verified": False}
        if wanted.source is not None:
            at["source"], at["line"] = wanted.source, wanted.given["line"]
        hit = wanted.given.get("hitCondition")
        if hit and not _HIT.fullmatch(hit):
            wrong = f"hit condition {hit!r}: a number is needed, behind ==, >, >=, <, <= or %"
            return {**at, "reason": "failed", "message": wrong}
        try:
            if wanted.kind == "setExceptionBreakpoints":
                return {**at, **self._exception(wanted, places is not None)}
            if places is None:
                return {**at, "reason": "pending", "message": PENDING}
            return {**at, **_PLACERS[wanted.kind](self, wanted, places)}
        except (MmulatorError, RefusedRequest) as error:
            return {**at, "reason": "failed", "message": str(error)}

    def _take(self, wanted: Wanted, found: MotorBreakpoint, places: KernelPlaces | None) -> PlacedAt:
        wanted.motor = (*wanted.motor, found.number)
        if places is not None:
            found.bind(places.kernel, places.name)
        return {"verified": False, "reason": "pending", "message": found.problem} if found.problem else {"verified": True}

    def _line(self, wanted: Wanted, places: KernelPlaces) -> PlacedAt:
        line, source = wanted.given["line"], wanted.source or {}
        found = places.from_line(source, line)
        if found is None:
            known = places.in_source(source)
            where = f"line {line} or behind it; the last is line {known[-1].line}" if known else "this file"
            why = f"no instruction of {places.name} was compiled from {where}"
            return {"verified": False, "reason": "pending", "message": why}
        told = self._take(wanted, self.motor.add(found.place, wanted.condition), places)
        if found.line != line and told["verified"]:
            told["message"] = f"moved from line {line}, of which there is no instruction"
        return {**told, "line": found.line, "instructionReference": places.address(places.lines[found][0])}

    def _function(self, wanted: Wanted, places: KernelPlaces) -> PlacedAt:
        return self._take(wanted, self.motor.add(wanted.given["name"], wanted.condition), places)

    def _instruction(self, wanted: Wanted, places: KernelPlaces) -> PlacedAt:
        reference = wanted.given["instructionReference"]
        rank = places.rank(reference, wanted.given.get("offset") or 0)
        if not 0 <= rank < len(places.order):
            return {"verified": False, "reason": "failed", "message": f"{reference}: the kernel has no such instruction"}
        site = places.order[rank]
        told = self._take(wanted, self.motor.add(f"*{site}", wanted.condition), places)
        return {**told, "instructionReference": places.address(site)}

    def _data(self, wanted: Wanted, places: KernelPlaces) -> PlacedAt:
        return self._take(wanted, self.motor.watch(wanted.given["dataId"], wanted.condition), places)

    def _exception(self, wanted: Wanted, launched: bool) -> PlacedAt:
        name = wanted.given["filterId"]
        if name in (FAULTS, DEADLOCKS):
            return {"verified": True}
        told = self._take(wanted, self.motor.rule(name), None)
        if launched and not self.sanitized:
            later = 'counts from the next launch on; with "sanitize": true in the configuration it always does'
            return {"verified": False, "reason": "pending", "message": later}
        return told


_PLACERS = {
    "setBreakpoints": Book._line, "setFunctionBreakpoints": Book._function, "setInstructionBreakpoints": Book._instruction,
    "setDataBreakpoints": Book._data,
}  # fmt: skip
