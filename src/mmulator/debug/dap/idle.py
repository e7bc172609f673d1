"""Answers to requests while no launch is under control: the program has not begun, or runs between two launches."""

from typing import Any

from mmulator.debug.dap.capabilities import DEADLOCKS, FAULTS
from mmulator.debug.dap.client import Body, RefusedRequest
from mmulator.debug.dap.messages import SETTING
from mmulator.rules import RULES, TOPICS

PROGRAM = 1  # number of the thread that stands for the program outside of launches
EXCEPTIONS = {FAULTS, DEADLOCKS, *TOPICS, *RULES}
PENDING = "set when its kernel is launched"
_EMPTY: dict[str, Body] = {
    "threads": {"threads": [{"id": PROGRAM, "name": "the program, between launches"}]},
    "stackTrace": {"stackFrames": [], "totalFrames": 0},
    "loadedSources": {"sources": []},
    "modules": {"modules": [], "totalModules": 0},
    "completions": {"targets": []},
    "breakpointLocations": {"breakpoints": []},
    "gotoTargets": {"targets": []},
    "dataBreakpointInfo": {"dataId": None, "description": "no launch is under control, whose arrays could be watched"},
}
NOT_STOPPED = "no launch stands still: wait for a stop, or pause"


def idle(command: str, given: Any, numbers: list[int]) -> Body:
    """The body of the response to a request of the program's. Raises Refused for what needs a launch.

    command: name of the request.
    given: its arguments.
    numbers: of the breakpoints that are in it.
    """
    if command in SETTING:
        return {"breakpoints": [pending(number, given, i) for i, number in enumerate(numbers)]}
    if command in _EMPTY:
        return _EMPTY[command]
    raise RefusedRequest(NOT_STOPPED, "notStopped")


def pending(number: int, given: Any, index: int) -> dict[str, Any]:
    """A breakpoint whose place is not known yet; exceptions have none, and are known by their names."""
    wanted = wanted_of(given)[index]
    if wanted.get("filterId") in EXCEPTIONS:
        return {"id": number, "verified": True}
    place = {"source": given["source"]} if "source" in given else {}
    line = {"line": wanted["line"]} if "line" in wanted else {}
    return {"id": number, "verified": False, "message": PENDING, "reason": "pending", **place, **line}


def wanted_of(given: Any) -> list[dict[str, Any]]:
    """The breakpoints that a request sets, as objects."""
    if "filters" in given:
        options = given.get("filterOptions") or []
        return [{"filterId": name} for name in given["filters"]] + list(options)
    if given.get("breakpoints") is not None:
        return list(given["breakpoints"])
    return [{"line": line} for line in given.get("lines") or []]
