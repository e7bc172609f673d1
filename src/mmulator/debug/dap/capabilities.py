"""The capabilities of the adapter, as `initialize` says them."""

from typing import Any

from mmulator.rules import TOPICS

FAULTS, DEADLOCKS = "faults", "deadlocks"
# capability -> the request without which it would be untrue; None: a member of other requests' arguments
SUPPORTED: dict[str, str | None] = {
    "supportsConfigurationDoneRequest": "configurationDone",
    "supportsFunctionBreakpoints": "setFunctionBreakpoints",
    "supportsConditionalBreakpoints": None,
    "supportsHitConditionalBreakpoints": None,
    "supportsLogPoints": None,
    "supportsEvaluateForHovers": "evaluate",
    "supportsStepBack": "stepBack",
    "supportsSetVariable": "setVariable",
    "supportsGotoTargetsRequest": "gotoTargets",
    "supportsCompletionsRequest": "completions",
    "supportsModulesRequest": "modules",
    "supportsRestartRequest": "restart",
    "supportsValueFormattingOptions": None,
    "supportsExceptionInfoRequest": "exceptionInfo",
    "supportsDelayedStackTraceLoading": "stackTrace",
    "supportsLoadedSourcesRequest": "loadedSources",
    "supportsTerminateRequest": "terminate",
    "supportsDataBreakpoints": "setDataBreakpoints",
    "supportsDataBreakpointBytes": None,
    "supportsReadMemoryRequest": "readMemory",
    "supportsDisassembleRequest": "disassemble",
    "supportsCancelRequest": "cancel",
    "supportsBreakpointLocationsRequest": "breakpointLocations",
    "supportsSteppingGranularity": None,
    "supportsInstructionBreakpoints": "setInstructionBreakpoints",
}


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
