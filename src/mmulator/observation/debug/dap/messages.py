"""The requests of the Debug Adapter Protocol that are answered, with the members of their arguments that are looked at.

Debug Adapter Protocol 1.71, "Requests" and "Types". What a client sends comes in, and leaves as it is, or with a sentence that
says what is wrong (`fault_in`). Members that are not looked at are let through. What the adapter says itself is checked with the
protocol's schema by tests. Below: what `initialize` says can be done, and answers while no launch is under control.
"""

from functools import cache
from typing import Any

from mmulator.base.rules import RULES, TOPICS
from mmulator.observation.debug.dap.client import Body, RefusedRequest

Object = dict[str, Any]  # a value of one of the protocol's types

# Members of a type, apart by blanks: `name:kind`, or `name?:kind` for one that may be left out. A kind is a word of _WORDS, a
# type in capitals, choices apart by `|`, `[kind]` for a list, or `{kind}` for an object with members of any name.
_CONDITIONS = "condition?:text hitCondition?:text"
_STEP = "threadId:int singleThread?:bool granularity?:statement|line|instruction"
TYPES = {
    "SOURCE": "name?:text path?:text sourceReference?:int presentationHint?:normal|emphasize|deemphasize origin?:text",
    "FORMAT": "hex?:bool",
    "LINE": f"line:int column?:int logMessage?:text {_CONDITIONS}",
    "FUNCTION": f"name:text {_CONDITIONS}",
    "INSTRUCTION": f"instructionReference:text offset?:int {_CONDITIONS}",
    "DATA": f"dataId:text accessType?:read|write|readWrite {_CONDITIONS}",
    "FILTER": "filterId:text condition?:text",
    "LAUNCH": "program:text args?:[text] cwd?:text env?:{text or null} device?:text seed?:int order?:int sanitize?:bool "
              "stopOnEntry?:bool stopAtEnd?:bool kernel?:text noDebug?:bool",  # all but noDebug are this adapter's own
}  # fmt: skip
# request -> members of its arguments, by who answers: the adapter's own process, or the program's
OWN = {
    "initialize": "adapterID:text clientID?:text clientName?:text linesStartAt1?:bool columnsStartAt1?:bool pathFormat?:text",
    "launch": TYPES["LAUNCH"], "configurationDone": "", "restart": "arguments?:LAUNCH", "terminate": "restart?:bool",
    "disconnect": "restart?:bool terminateDebuggee?:bool", "cancel": "requestId?:int progressId?:text",
}  # fmt: skip
SETTING = {
    "setBreakpoints": "source:SOURCE breakpoints?:[LINE] lines?:[int] sourceModified?:bool",
    "setFunctionBreakpoints": "breakpoints:[FUNCTION]", "setInstructionBreakpoints": "breakpoints:[INSTRUCTION]",
    "setDataBreakpoints": "breakpoints:[DATA]", "setExceptionBreakpoints": "filters:[text] filterOptions?:[FILTER]",
}  # fmt: skip
PROGRAM = {
    **SETTING,
    "breakpointLocations": "source:SOURCE line:int endLine?:int",
    "dataBreakpointInfo": "name:text variablesReference?:int frameId?:int bytes?:int asAddress?:bool",
    "threads": "", "stackTrace": "threadId:int startFrame?:int levels?:int", "scopes": "frameId:int",
    "variables": "variablesReference:int filter?:indexed|named start?:int count?:int format?:FORMAT",
    "evaluate": "expression:text frameId?:int context?:text format?:FORMAT",
    "completions": "text:text column:int frameId?:int line?:int",
    **dict.fromkeys(("continue", "reverseContinue"), "threadId:int singleThread?:bool"),
    **dict.fromkeys(("next", "stepIn", "stepOut", "stepBack"), _STEP),
    **dict.fromkeys(("pause", "exceptionInfo"), "threadId:int"),
    "gotoTargets": "source:SOURCE line:int column?:int", "goto": "threadId:int targetId:int", "loadedSources": "",
    "source": "sourceReference:int source?:SOURCE", "modules": "startModule?:int moduleCount?:int",
    "disassemble": "memoryReference:text instructionCount:int offset?:int instructionOffset?:int resolveSymbols?:bool",
    "readMemory": "memoryReference:text count:int offset?:int",
}  # fmt: skip
_WORDS: dict[str, tuple[str, type | tuple[type, ...]]] = {
    "text": ("a text", str), "int": ("a whole number", int), "bool": ("true or false", bool),
    "text or null": ("a text or null", (str, type(None))),
}  # fmt: skip


@cache
def members(said: str) -> dict[str, tuple[str, bool]]:
    """Member -> (kind, whether it must be there) of what the tables say."""
    pairs = (part.partition(":") for part in said.replace(" or ", "_or_").split())
    return {name.rstrip("?"): (kind.replace("_or_", " or "), name[-1] != "?") for name, _, kind in pairs}


def fault_in(value: Any, said: str, name: str) -> str:
    """The reason why a value does not have the members that a table says; "" if it has. name: of the value, for people."""
    if not isinstance(value, dict):
        return f"{name}: an object is needed, not {_shown(value)}"
    for member, (kind, required) in members(said).items():
        if value.get(member) is None:  # clients send null for what they leave out
            if required:
                return f"{name}.{member} is missing"
        elif fault := _fault(value[member], kind, f"{name}.{member}"):
            return fault
    return ""


def _fault(value: Any, kind: str, name: str) -> str:
    """The reason why a value is not of a kind."""
    if kind in TYPES:
        return fault_in(value, TYPES[kind], name)
    if kind[0] in "[{":
        needed, place = ("a list", "{}[{}]") if kind[0] == "[" else ("an object", "{}.{}")
        if not isinstance(value, list if kind[0] == "[" else dict):
            return f"{name}: {needed} is needed, not {_shown(value)}"
        parts = enumerate(value) if isinstance(value, list) else value.items()
        return next(filter(None, (_fault(v, kind[1:-1], place.format(name, n)) for n, v in parts)), "")
    if "|" in kind:
        return "" if value in kind.split("|") else f"{name}: one of {kind.replace('|', ', ')} is needed, not {_shown(value)}"
    needed, types = _WORDS[kind]
    fits = isinstance(value, types) and isinstance(value, bool) == (kind == "bool")
    return "" if fits else f"{name}: {needed} is needed, not {_shown(value)}"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


FAULTS, DEADLOCKS = "faults", "deadlocks"
# capability -> the request without which it would be untrue; None: a member of other requests' arguments
SUPPORTED: dict[str, str | None] = {
    "supportsConfigurationDoneRequest": "configurationDone", "supportsFunctionBreakpoints": "setFunctionBreakpoints",
    "supportsConditionalBreakpoints": None, "supportsHitConditionalBreakpoints": None, "supportsLogPoints": None,
    "supportsEvaluateForHovers": "evaluate", "supportsStepBack": "stepBack",
    "supportsGotoTargetsRequest": "gotoTargets", "supportsCompletionsRequest": "completions",
    "supportsModulesRequest": "modules", "supportsRestartRequest": "restart", "supportsValueFormattingOptions": None,
    "supportsExceptionInfoRequest": "exceptionInfo", "supportsDelayedStackTraceLoading": "stackTrace",
    "supportsLoadedSourcesRequest": "loadedSources", "supportsTerminateRequest": "terminate",
    "supportsDataBreakpoints": "setDataBreakpoints", "supportsDataBreakpointBytes": None,
    "supportsReadMemoryRequest": "readMemory", "supportsDisassembleRequest": "disassemble", "supportsCancelRequest": "cancel",
    "supportsBreakpointLocationsRequest": "breakpointLocations", "supportsSteppingGranularity": None,
    "supportsInstructionBreakpoints": "setInstructionBreakpoints",
}  # fmt: skip


def filters() -> list[dict[str, Any]]:
    """The filters of exceptions that a client can stop at: the ends of launches, and each topic of the sanitizer's rules."""
    ends = (
        (FAULTS, "Faults", "a launch that cannot go on: an access out of bounds, a trap, an illegal instruction"),
        (DEADLOCKS, "Deadlocks", "a launch in which no warp can go on"),
    )
    shown = [{"filter": name, "label": label, "description": text, "default": True} for name, label, text in ends]
    for topic, rules in TOPICS.items():
        names = ", ".join(r.name for r in rules[:4]) + (f" and {len(rules) - 4} more" if len(rules) > 4 else "")
        label = f"Sanitizer: {topic.replace('_', ' ')}"
        shown.append({"filter": topic, "label": label, "description": f"{names}; needs \"sanitize\": true", "default": False})
    return shown


def capabilities() -> dict[str, Any]:
    """The body of the response to `initialize`."""
    return {**dict.fromkeys(SUPPORTED, True), "exceptionBreakpointFilters": filters()}


PROGRAM_THREAD = 1  # number of the thread that stands for the program outside of launches
EXCEPTIONS = {FAULTS, DEADLOCKS, *TOPICS, *RULES}
PENDING = "set when its kernel is launched"
_EMPTY: dict[str, Body] = {
    "threads": {"threads": [{"id": PROGRAM_THREAD, "name": "the program, between launches"}]},
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
