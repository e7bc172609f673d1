"""Answers to the requests of a client while a launch is under control."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from mmulator.base.errors import MmulatorError
from mmulator.observation.debug.dap.client import RefusedRequest
from mmulator.observation.debug.dap.messages import Object
from mmulator.observation.debug.dap.scopes import data_of, evaluated, parse_address, scopes_of
from mmulator.observation.debug.dap.standing import LanesFrame, Standing
from mmulator.observation.debug.dap.variables import VariableNode
from mmulator.observation.debug.stops import DebugError, Reason, Stopped
from mmulator.observation.debug.terminal import DebugTerminal
from mmulator.observation.debug.terminal_commands import COMMANDS, find

if TYPE_CHECKING:
    from mmulator.observation.debug.session import Session

MOVING = (
    "continue", "reverse-continue", "step", "next", "stepi", "nexti", "reverse-step", "reverse-next", "reverse-stepi",
    "reverse-nexti", "finish", "reverse-finish", "goto", "run",
)  # fmt: skip
_OTHERS = ("quit", "detach", "kill")  # of which a client has its own


def word_of(text: str) -> str | None:
    """The full name of the command in a line; None if it has none. Raises Refused for one that the client has itself."""
    words = text.split()
    try:
        name = find(words[0].partition("/")[0]).names[0] if words else ""
    except DebugError:
        return None
    if name in _OTHERS:
        raise RefusedRequest(f"{name}: here the buttons of the debugger end the program")
    return name or None


def said_by(at: Standing, text: str) -> str:
    """The text that a command of the terminal says."""
    def end(code: int) -> NoReturn:
        raise RefusedRequest("the buttons of the debugger end the program")

    sink = io.StringIO()
    terminal = DebugTerminal(at.debugger, source=io.StringIO(), sink=sink, end=end)
    terminal.running = at.session
    terminal.do(text)
    return sink.getvalue().rstrip("\n")


def carry_out(at: Standing, text: str, session: Session) -> Stopped:
    """Carry out a command that moves the launch; what it says is shown in the console. Returns the stop."""
    at.client.output(said_by(at, text) + "\n")
    return session.stop


def completions(at: Standing, text: str, column: int, frame: LanesFrame | None) -> list[Object]:
    """Names that begin as the word before a column does."""
    before, _, word = text[: max(0, column - 1)].rpartition(" ")
    names = [*at.machine.types(frame.warp, frame.at.frame)] if frame is not None else []
    names += [a.name for a in at.session.names.arrays] + list(at.machine.kernel.shared.addresses)
    names += [] if before else [c.names[0] for c in COMMANDS]
    start = max(0, column - 1) - len(word)
    found = [name for name in dict.fromkeys(names) if word and name.startswith(word)]
    return [Object(label=name, start=start, length=len(word)) for name in found[:100]]


Motion = Callable[["Session"], Stopped]


@dataclass(frozen=True)
class Moves:
    """An answer behind which the launch moves. motion: how. body: of the response."""

    motion: Motion
    body: Mapping[str, Any] | None = None


Answer = Mapping[str, Any] | None | Moves
MOST_BYTES = 1 << 20  # of memory at once


# where the launch goes -----------------------------------------------------------------------------------------------------
def going(session: Session) -> Stopped:
    return session.go()


def going_back(session: Session) -> Stopped:
    return session.go(back=True)


def leave(session: Session) -> Stopped:
    """The motion of a launch that is over: the program goes on behind it."""
    return session.stop


def _moves(at: Standing, given: Any, motion: Motion, back: bool = False) -> Moves:
    if at.session.stop.over and not back:
        return Moves(leave)
    if not at.session.stop.over:
        at.aim(given["threadId"])
    return Moves(motion)


def _continue(at: Standing, given: Any) -> Answer:
    return replace(_moves(at, given, going), body={"allThreadsContinued": True})


def _step(at: Standing, given: Any, over: bool, back: bool) -> Answer:
    lines = given.get("granularity") != "instruction"
    return _moves(at, given, lambda session: session.step(lines=lines, over=over, back=back), back)


def _goto_targets(at: Standing, given: Any) -> Answer:
    line = at.places.from_line(given["source"], given["line"])
    if line is None:
        return {"targets": []}
    place = {"line": line.line, "instructionPointerReference": at.places.address(at.places.lines[line][0])}
    ways = ((False, "the next time that it is reached"), (True, "the last time that it was reached"))
    return {"targets": [{"id": at.show((line, b)), "label": f"line {line.line}: {text}", **place} for b, text in ways]}


def _goto(at: Standing, given: Any) -> Answer:
    line, back = at.shown(given["targetId"], tuple)

    def goto(session: Session) -> Stopped:
        once = session.breakpoints.add(line.place, temporary=True)
        try:
            return session.go(back=back)
        finally:
            if any(b is once for b in session.breakpoints):
                session.breakpoints.delete(once.number)

    return _moves(at, given, goto, back)


# what there is to see -----------------------------------------------------------------------------------------------------
def _stack_trace(at: Standing, given: Any) -> Answer:
    frames = at.stack(given["threadId"])
    start, levels = given.get("startFrame") or 0, given.get("levels") or len(frames)
    return {"stackFrames": [make() for make in frames[start : start + levels]], "totalFrames": len(frames)}


def _variables(at: Standing, given: Any) -> Answer:
    node: VariableNode = at.shown(given["variablesReference"], VariableNode)
    start, count = given.get("start") or 0, given.get("count") or 0
    if start < 0 or count < 0:
        raise RefusedRequest("variables: start and count are not negative")
    at.hex = bool((given.get("format") or {}).get("hex"))
    return {"variables": [child.shown(at) for child in node.children(given.get("filter"), start, count)]}


def _evaluate(at: Standing, given: Any) -> Answer:
    frame = at.top(given.get("frameId"))
    at.hex = bool((given.get("format") or {}).get("hex"))
    text = given["expression"]
    if given.get("context") != "repl":
        return value_of(evaluated(at, text, frame), at)
    word = word_of(text)
    try:
        return value_of(evaluated(at, text, frame), at)
    except (MmulatorError, RefusedRequest):
        if word is None:
            raise
    if word in MOVING:
        return Moves(partial(carry_out, at, text), {"result": "", "variablesReference": 0})
    return {"result": said_by(at, text), "variablesReference": 0}


def value_of(node: VariableNode, at: Standing) -> dict[str, Any]:
    """A variable as the result of an evaluation."""
    shown = node.shown(at)
    return {"result": shown["value"], **{k: v for k, v in shown.items() if k not in ("name", "value", "evaluateName")}}


def _data_breakpoint_info(at: Standing, given: Any) -> Answer:
    frame = at.top(given.get("frameId"))
    if given.get("asAddress"):
        address = parse_address(given["name"])
        data, about = f"0x{address:x}:b{8 * (given.get('bytes') or 4)}", f"{given.get('bytes') or 4} bytes at 0x{address:x}"
    else:
        number = given.get("variablesReference")
        parent = at.shown(number, VariableNode) if number else None
        data, about = data_of(at, given["name"], parent, frame)
    if not data:
        return {"dataId": None, "description": about}
    return {"dataId": data, "description": about, "accessTypes": ["write"], "canPersist": True}


def _exception_info(at: Standing, given: Any) -> Answer:
    stop = at.session.stop
    if stop.reason not in (Reason.FAULT, Reason.DEADLOCK, Reason.FINDING):
        raise RefusedRequest("the launch did not stop at an exception")
    name, text = stop.reason.value, stop.text
    return {"exceptionId": name, "description": text, "breakMode": "always", "details": {"message": text, "typeName": name}}


# code ---------------------------------------------------------------------------------------------------------------------
def _source(at: Standing, given: Any) -> Answer:
    number = (given.get("source") or {}).get("sourceReference") or given["sourceReference"]
    return {"content": at.texts.text(number), "mimeType": "text/x-ptx"}


def _modules(at: Standing, given: Any) -> Answer:
    start, most = given.get("startModule") or 0, given.get("moduleCount") or None
    return {"modules": [at.module()][start:][:most], "totalModules": 1}


def _disassemble(at: Standing, given: Any) -> Answer:
    if not 0 <= given["instructionCount"] <= 1 << 16:
        raise RefusedRequest("disassemble: instructionCount is at most 65536")
    rank = at.places.rank(given["memoryReference"], given.get("offset") or 0) + (given.get("instructionOffset") or 0)
    return {"instructions": at.places.disassembled(rank, given["instructionCount"])}


def _breakpoint_locations(at: Standing, given: Any) -> Answer:
    last = given.get("endLine") or given["line"]
    return {"breakpoints": [{"line": n.line} for n in at.places.in_source(given["source"]) if given["line"] <= n.line <= last]}


def _read_memory(at: Standing, given: Any) -> Answer:
    address = parse_address(given["memoryReference"]) + (given.get("offset") or 0)
    count, block = given["count"], at.session.focus.block
    if not 0 <= count <= MOST_BYTES:
        raise RefusedRequest(f"readMemory: count is at most {MOST_BYTES}")
    data = readable(at, address, count, block)
    return {"address": f"0x{address:x}", "data": base64.b64encode(data).decode(), "unreadableBytes": count - len(data)}


def readable(at: Standing, address: int, count: int, block: int) -> bytes:
    """The bytes from an address on, `count` of them or as many as there are."""
    low, high = 0, count + 1  # `low` bytes can be read, `high` cannot
    while high - low > 1:
        size = high - 1 if not low else (low + high) // 2
        try:
            at.machine.read(address, size, block)
            low = size
        except DebugError:
            high = size
            if not low:
                try:
                    at.machine.read(address, 1, block)
                    low = 1
                except DebugError:
                    return b""
    return at.machine.read(address, low, block) if low else b""


ANSWERS: dict[str, Callable[[Standing, Any], Answer]] = {
    "continue": _continue, "reverseContinue": lambda at, given: _moves(at, given, going_back, back=True),
    "stepOut": lambda at, given: _moves(at, given, lambda session: session.finish()),
    "gotoTargets": _goto_targets, "goto": _goto,
    "next": partial(_step, over=True, back=False), "stepIn": partial(_step, over=False, back=False),
    "stepBack": partial(_step, over=True, back=True),
    "threads": lambda at, given: {"threads": at.threads()}, "stackTrace": _stack_trace,
    "scopes": lambda at, given: {"scopes": scopes_of(at, at.shown(given["frameId"], LanesFrame))}, "variables": _variables,
    "evaluate": _evaluate, "dataBreakpointInfo": _data_breakpoint_info, "exceptionInfo": _exception_info,
    "loadedSources": lambda at, given: {"sources": at.sources()}, "source": _source, "modules": _modules,
    "disassemble": _disassemble, "breakpointLocations": _breakpoint_locations, "readMemory": _read_memory,
    "completions": lambda at, given: {"targets": completions(at, given["text"], given["column"], at.top(given.get("frameId")))},
}  # fmt: skip
