"""Types of the Debug Adapter Protocol that the adapter reads and writes, with the names of the specification.

Debug Adapter Protocol 1.71, "Types". Members that the adapter never looks at are left out: what a client sends more is let
through. `fault_in` checks what a client sent against a type.
"""

import types
from functools import cache
from typing import Any, Literal, NotRequired, TypedDict, get_args, get_origin, get_type_hints, is_typeddict


# what the adapter is asked -----------------------------------------------------------------------------------------------
class SourceFile(TypedDict):
    name: NotRequired[str]
    path: NotRequired[str]
    sourceReference: NotRequired[int]
    presentationHint: NotRequired[Literal["normal", "emphasize", "deemphasize"]]
    origin: NotRequired[str]


class ValueFormat(TypedDict):
    hex: NotRequired[bool]


class InitializeRequestArguments(TypedDict):
    adapterID: str
    clientID: NotRequired[str]
    clientName: NotRequired[str]
    linesStartAt1: NotRequired[bool]
    columnsStartAt1: NotRequired[bool]
    pathFormat: NotRequired[str]


class LaunchRequestArguments(TypedDict):
    """Members other than noDebug are this adapter's own."""

    program: str
    args: NotRequired[list[str]]
    cwd: NotRequired[str]
    env: NotRequired[dict[str, str | None]]
    device: NotRequired[str]
    seed: NotRequired[int]
    sanitize: NotRequired[bool]
    stopOnEntry: NotRequired[bool]
    stopAtEnd: NotRequired[bool]
    kernel: NotRequired[str]
    noDebug: NotRequired[bool]


class Nothing(TypedDict):
    pass


class SourceBreakpoint(TypedDict):
    line: int
    column: NotRequired[int]
    condition: NotRequired[str]
    hitCondition: NotRequired[str]
    logMessage: NotRequired[str]


class SetBreakpointsArguments(TypedDict):
    source: SourceFile
    breakpoints: NotRequired[list[SourceBreakpoint]]
    lines: NotRequired[list[int]]
    sourceModified: NotRequired[bool]


class FunctionBreakpoint(TypedDict):
    name: str
    condition: NotRequired[str]
    hitCondition: NotRequired[str]


class SetFunctionBreakpointsArguments(TypedDict):
    breakpoints: list[FunctionBreakpoint]


class InstructionBreakpoint(TypedDict):
    instructionReference: str
    offset: NotRequired[int]
    condition: NotRequired[str]
    hitCondition: NotRequired[str]


class SetInstructionBreakpointsArguments(TypedDict):
    breakpoints: list[InstructionBreakpoint]


class DataBreakpointInfoArguments(TypedDict):
    name: str
    variablesReference: NotRequired[int]
    frameId: NotRequired[int]
    bytes: NotRequired[int]
    asAddress: NotRequired[bool]


class DataBreakpoint(TypedDict):
    dataId: str
    accessType: NotRequired[Literal["read", "write", "readWrite"]]
    condition: NotRequired[str]
    hitCondition: NotRequired[str]


class SetDataBreakpointsArguments(TypedDict):
    breakpoints: list[DataBreakpoint]


class ExceptionFilterOptions(TypedDict):
    filterId: str
    condition: NotRequired[str]


class SetExceptionBreakpointsArguments(TypedDict):
    filters: list[str]
    filterOptions: NotRequired[list[ExceptionFilterOptions]]


class BreakpointLocationsArguments(TypedDict):
    source: SourceFile
    line: int
    endLine: NotRequired[int]


class ThreadOnly(TypedDict):
    """pause, exceptionInfo."""

    threadId: int


class ContinueArguments(ThreadOnly):
    """continue, reverseContinue."""

    singleThread: NotRequired[bool]


class StepArguments(ContinueArguments):
    """next, stepIn, stepOut, stepBack."""

    granularity: NotRequired[Literal["statement", "line", "instruction"]]


class StackTraceArguments(TypedDict):
    threadId: int
    startFrame: NotRequired[int]
    levels: NotRequired[int]


class ScopesArguments(TypedDict):
    frameId: int


class VariablesArguments(TypedDict):
    variablesReference: int
    filter: NotRequired[Literal["indexed", "named"]]
    start: NotRequired[int]
    count: NotRequired[int]
    format: NotRequired[ValueFormat]


class SetVariableArguments(TypedDict):
    variablesReference: int
    name: str
    value: str
    format: NotRequired[ValueFormat]


class EvaluateArguments(TypedDict):
    expression: str
    frameId: NotRequired[int]
    context: NotRequired[str]
    format: NotRequired[ValueFormat]


class CompletionsArguments(TypedDict):
    text: str
    column: int
    frameId: NotRequired[int]
    line: NotRequired[int]


class SourceArguments(TypedDict):
    sourceReference: int
    source: NotRequired[SourceFile]


class ModulesArguments(TypedDict):
    startModule: NotRequired[int]
    moduleCount: NotRequired[int]


class DisassembleArguments(TypedDict):
    memoryReference: str
    instructionCount: int
    offset: NotRequired[int]
    instructionOffset: NotRequired[int]
    resolveSymbols: NotRequired[bool]


class ReadMemoryArguments(TypedDict):
    memoryReference: str
    count: int
    offset: NotRequired[int]


class GotoTargetsArguments(TypedDict):
    source: SourceFile
    line: int
    column: NotRequired[int]


class GotoArguments(TypedDict):
    threadId: int
    targetId: int


class CancelArguments(TypedDict):
    requestId: NotRequired[int]
    progressId: NotRequired[str]


class DisconnectArguments(TypedDict):
    restart: NotRequired[bool]
    terminateDebuggee: NotRequired[bool]


class TerminateArguments(TypedDict):
    restart: NotRequired[bool]


class RestartArguments(TypedDict):
    arguments: NotRequired[LaunchRequestArguments]


# request -> type of its arguments, by who answers: the adapter's own process, or the program's
OWN: dict[str, type] = {
    "initialize": InitializeRequestArguments, "launch": LaunchRequestArguments, "configurationDone": Nothing,
    "restart": RestartArguments, "terminate": TerminateArguments, "disconnect": DisconnectArguments, "cancel": CancelArguments,
}  # fmt: skip
SETTING: dict[str, type] = {
    "setBreakpoints": SetBreakpointsArguments, "setFunctionBreakpoints": SetFunctionBreakpointsArguments,
    "setInstructionBreakpoints": SetInstructionBreakpointsArguments, "setDataBreakpoints": SetDataBreakpointsArguments,
    "setExceptionBreakpoints": SetExceptionBreakpointsArguments,
}  # fmt: skip
PROGRAM: dict[str, type] = {
    **SETTING,
    "breakpointLocations": BreakpointLocationsArguments, "dataBreakpointInfo": DataBreakpointInfoArguments,
    "threads": Nothing, "stackTrace": StackTraceArguments, "scopes": ScopesArguments, "variables": VariablesArguments,
    "setVariable": SetVariableArguments, "evaluate": EvaluateArguments, "completions": CompletionsArguments,
    "continue": ContinueArguments, "reverseContinue": ContinueArguments, "next": StepArguments, "stepIn": StepArguments,
    "stepOut": StepArguments, "stepBack": StepArguments, "pause": ThreadOnly, "gotoTargets": GotoTargetsArguments,
    "goto": GotoArguments, "exceptionInfo": ThreadOnly, "loadedSources": Nothing, "source": SourceArguments,
    "modules": ModulesArguments, "disassemble": DisassembleArguments, "readMemory": ReadMemoryArguments,
}  # fmt: skip


# what the adapter says ---------------------------------------------------------------------------------------------------
class ShownBreakpoint(TypedDict):
    id: int
    verified: bool
    message: NotRequired[str]
    reason: NotRequired[Literal["pending", "failed"]]
    source: NotRequired[SourceFile]
    line: NotRequired[int]
    instructionReference: NotRequired[str]


class Thread(TypedDict):
    id: int
    name: str


class StackFrame(TypedDict):
    id: int
    name: str
    line: int
    column: int
    source: NotRequired[SourceFile]
    instructionPointerReference: NotRequired[str]
    moduleId: NotRequired[int | str]
    presentationHint: NotRequired[Literal["normal", "label", "subtle"]]


class ShownScope(TypedDict):
    name: str
    variablesReference: int
    expensive: bool
    presentationHint: NotRequired[str]
    namedVariables: NotRequired[int]
    indexedVariables: NotRequired[int]


class Hint(TypedDict):
    """VariablePresentationHint."""

    kind: NotRequired[str]
    attributes: NotRequired[list[str]]
    lazy: NotRequired[bool]


class ShownVariable(TypedDict):
    name: str
    value: str
    variablesReference: int
    type: NotRequired[str]
    evaluateName: NotRequired[str]
    presentationHint: NotRequired[Hint]
    namedVariables: NotRequired[int]
    indexedVariables: NotRequired[int]
    memoryReference: NotRequired[str]


class DisassembledInstruction(TypedDict):
    address: str
    instruction: str
    symbol: NotRequired[str]
    location: NotRequired[SourceFile]
    line: NotRequired[int]
    presentationHint: NotRequired[Literal["normal", "invalid"]]


class ShownModule(TypedDict):
    id: int | str
    name: str
    path: NotRequired[str]
    symbolStatus: NotRequired[str]
    version: NotRequired[str]


class CompletionItem(TypedDict):
    label: str
    type: NotRequired[str]
    start: NotRequired[int]
    length: NotRequired[int]


# is a value of a type? ---------------------------------------------------------------------------------------------------
_WORDS = {str: "a text", int: "a whole number", bool: "true or false", float: "a number", type(None): "null", dict: "an object"}


def fault_in(value: Any, kind: Any, name: str) -> str:
    """The reason why a value is not of a type of the protocol; "" if it is. name: of the value, for people."""
    origin, parts = get_origin(kind), get_args(kind)
    if kind is Any:
        return ""
    if is_typeddict(kind):
        return _fault_in_object(value, kind, name)
    if origin is Literal:
        return "" if value in parts else f"{name}: one of {', '.join(map(str, parts))} is needed, not {_shown(value)}"
    if origin is types.UnionType:
        return "" if any(not fault_in(value, part, name) for part in parts) else _needed(name, kind, value)
    if origin is list:
        if not isinstance(value, list):
            return f"{name}: a list is needed, not {_shown(value)}"
        return next(filter(None, (fault_in(v, parts[0], f"{name}[{i}]") for i, v in enumerate(value))), "")
    if origin is dict:
        if not isinstance(value, dict):
            return f"{name}: an object is needed, not {_shown(value)}"
        return next(filter(None, (fault_in(v, parts[1], f"{name}.{key}") for key, v in value.items())), "")
    return "" if isinstance(value, kind) and isinstance(value, bool) == (kind is bool) else _needed(name, kind, value)


def _fault_in_object(value: Any, kind: Any, name: str) -> str:
    if not isinstance(value, dict):
        return f"{name}: an object is needed, not {_shown(value)}"
    for member, needed in _members(kind).items():
        if value.get(member) is None:  # clients send null for what they leave out
            if member in kind.__required_keys__:
                return f"{name}.{member} is missing"
        elif fault := fault_in(value[member], needed, f"{name}.{member}"):
            return fault
    return ""


_members = cache(get_type_hints)  # member of an object's type -> its type


def _needed(name: str, kind: Any, value: Any) -> str:
    kinds = get_args(kind) or (kind,)
    return f"{name}: {' or '.join(_WORDS[k] for k in kinds)} is needed, not {_shown(value)}"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
