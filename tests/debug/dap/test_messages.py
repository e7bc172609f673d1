"""Messages: their bytes, their types against the official schema, and malformed ones."""

from __future__ import annotations

import io
import json
import types
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints, is_typeddict
from xml.etree import ElementTree
from zipfile import ZipFile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmulator.debug.dap import messages, vscode
from mmulator.debug.dap.capabilities import SUPPORTED, capabilities
from mmulator.debug.dap.framing import Garbled, encode, read
from mmulator.debug.dap.messages import OWN, PROGRAM, fault_in
from tests.support import protocol

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
LEAVES = st.none() | st.booleans() | st.integers() | TEXTS
VALUES = st.recursive(LEAVES, lambda v: st.lists(v) | st.dictionaries(TEXTS, v), max_leaves=8)
NEWER = {"bytes", "asAddress"}  # members of DataBreakpointInfoArguments that debugpy's schema is too old for
SPECS = {
    "SourceFile": "Source", "ShownVariable": "Variable", "ShownBreakpoint": "Breakpoint", "ShownScope": "Scope",
    "ShownModule": "Module", "Hint": "VariablePresentationHint", "StepArguments": "NextArguments", "ThreadOnly": "PauseArguments"}


@given(st.lists(st.dictionaries(TEXTS, VALUES), max_size=4))
def test_what_is_written_is_read(said: list[dict[str, Any]]) -> None:
    stream = io.BytesIO(b"".join(map(encode, said)))
    assert [read(stream) for _ in said] == said and read(stream) is None


GARBLED = [
    (b"POST / HTTP/1.1\r\n\r\n", True),
    (b"Content-Length: 2\r\n", True),
    (b"Content-Length: -2\r\n\r\n{}", True),
    (b"Content-Length: 99999999999999999999\r\n\r\n{}", True),
    (b"Content-Length: 999999999\r\n\r\n{}", True),
    (b"Content-Type: text\r\n\r\n{}", True),
    (b"Content-Length: 10\r\n\r\n{}", True),
    (b"x" * 5000, True),
    (b"Content-Length: 2\r\n\r\n{]", False),
    (b"Content-Length: 2\r\n\r\n[]", False),
    (b"Content-Length: 2\r\n\r\n\xff\xff", False),
    (b"Content-Length: 100000\r\n\r\n" + b"[" * 100000, False),
]


@pytest.mark.parametrize(("data", "over"), GARBLED)
def test_what_is_no_message_is_told(data: bytes, over: bool) -> None:
    with pytest.raises(Garbled) as error:
        read(io.BytesIO(data))
    assert error.value.over is over


def test_other_headers_and_line_ends_are_read() -> None:
    assert read(io.BytesIO(b"Content-Type: x\ncontent-length:2\n\n{}")) == {}


# types ---------------------------------------------------------------------------------------------------------------------
def definition(name: str) -> tuple[dict[str, Any], list[str]]:
    """(members, required ones) of a type of the schema, or of the body of a response."""
    found = protocol.schema()["definitions"][name]
    assert "properties" in found, name
    return found["properties"], found.get("required", [])


def kinds(schema: dict[str, Any]) -> set[str]:
    """JSON types that a member may have."""
    if "$ref" in schema:
        return kinds(protocol.schema()["definitions"][schema["$ref"].rpartition("/")[2]])
    found = schema.get("type", "object")
    return set(found) if isinstance(found, list) else {found}


def kinds_of(hint: Any) -> set[str]:
    origin = get_origin(hint)
    if origin is types.UnionType:
        return set().union(*map(kinds_of, get_args(hint)))
    if origin is Literal or hint is str:
        return {"string"}
    if origin is list:
        return {"array"}
    if origin is dict or is_typeddict(hint):
        return {"object"}
    return {{int: "integer", bool: "boolean", float: "number", type(None): "null"}[hint]}


def test_types_are_the_specifications() -> None:
    ours = {name: t for name, t in vars(messages).items() if is_typeddict(t)}
    assert len(ours) > 40
    wrong = []
    for name, t in ours.items():
        spec = SPECS.get(name, name)
        if spec in ("Nothing", "LaunchRequestArguments"):
            continue
        members, required = definition(spec)
        for member, hint in get_type_hints(t).items():
            if member in NEWER and member not in members:
                continue
            if member not in members:
                wrong.append(f"{name}.{member} is not in the specification")
            elif not kinds_of(hint) <= kinds(members[member]):
                wrong.append(f"{name}.{member}: {kinds_of(hint)}, in the specification {kinds(members[member])}")
            elif get_origin(hint) is Literal and not set(get_args(hint)) <= set(words(members[member]) or get_args(hint)):
                wrong.append(f"{name}.{member}: {hint}")
        wrong += [f"{name}.{m} is required" for m in required if m not in t.__required_keys__]
        if name in {k.__name__ for k in (OWN | PROGRAM).values()}:  # a client may leave out what the specification lets it
            wrong += [f"{name}.{m} is not required" for m in t.__required_keys__ if m not in required]
    assert not wrong


def words(schema: dict[str, Any]) -> list[str]:
    if "$ref" in schema:
        return words(protocol.schema()["definitions"][schema["$ref"].rpartition("/")[2]])
    return schema.get("enum", [])


def test_arguments_are_of_the_requests_type() -> None:
    for command, t in (OWN | PROGRAM).items():
        request = command[0].upper() + command[1:] + "Request"
        parts = protocol.schema()["definitions"][request]["allOf"][1]["properties"]
        spec = parts.get("arguments", {}).get("$ref", "").rpartition("/")[2]
        if t is messages.Nothing or command in ("launch", "pause", "exceptionInfo"):
            continue
        assert get_type_hints(t).keys() - NEWER <= definition(spec)[0].keys(), command


def test_capabilities_are_what_there_is() -> None:
    answered = OWN.keys() | PROGRAM.keys()
    assert not {request for request in SUPPORTED.values() if request} - answered
    message = {"seq": 1, "type": "response", "request_seq": 1, "success": True, "command": "initialize", "body": capabilities()}
    assert not protocol.wrong(message)
    # each request that a capability announces is announced, if it is answered
    known = protocol.schema()["definitions"]["Capabilities"]["properties"]
    for request in answered:
        for name in (f"supports{request[0].upper()}{request[1:]}Request", f"supports{request[3:]}"):
            assert name not in known or name in SUPPORTED, f"{request} is answered, and {name} not said"


@pytest.mark.parametrize(
    ("kind", "value", "told"),
    [
        (messages.SetBreakpointsArguments, {}, "arguments.source is missing"),
        (messages.SetBreakpointsArguments, {"source": None}, "arguments.source is missing"),
        (messages.SetBreakpointsArguments, {"source": 3}, "arguments.source: an object is needed, not 3"),
        (messages.SetBreakpointsArguments, {"source": {}, "breakpoints": [{"line": 1}, {"line": "2"}]},
         "arguments.breakpoints[1].line: a whole number is needed, not '2'"),
        (messages.SetBreakpointsArguments, {"source": {}, "breakpoints": [{"line": True}]},
         "arguments.breakpoints[0].line: a whole number is needed, not True"),
        (messages.SetBreakpointsArguments, [], "arguments: an object is needed, not []"),
        (messages.LaunchRequestArguments, {"program": "x", "env": {"A": 3}}, "arguments.env.A: a text or null is needed, not 3"),
        (messages.StepArguments, {"threadId": 1, "granularity": "byte"},
         "arguments.granularity: one of statement, line, instruction is needed, not 'byte'"),
        (messages.StepArguments, {"threadId": 1, "granularity": None, "unknown": 1}, ""),
    ],
)  # fmt: skip
def test_faults_in_arguments_name_their_place(kind: type, value: Any, told: str) -> None:
    assert fault_in(value, kind, "arguments") == told


def test_the_extension_says_what_a_launch_may_have(tmp_path: Path) -> None:
    vscode.write(tmp_path / "a.vsix")
    with ZipFile(tmp_path / "a.vsix") as made:
        assert sorted(made.namelist()) == ["[Content_Types].xml", "extension.vsixmanifest", "extension/package.json"]
        package = json.loads(made.read("extension/package.json"))
        for name in ("[Content_Types].xml", "extension.vsixmanifest"):
            ElementTree.fromstring(made.read(name))
    (debugger,) = package["contributes"]["debuggers"]
    launch = debugger["configurationAttributes"]["launch"]
    words = {"string": str, "integer": int, "boolean": bool, "array": list, "object": dict}
    hints = get_type_hints(messages.LaunchRequestArguments)
    assert {n: words[p["type"]] for n, p in launch["properties"].items()} == {n: get_origin(t) or t for n, t in hints.items()}
    assert set(launch["required"]) == messages.LaunchRequestArguments.__required_keys__
    assert all(p["description"].endswith(".") for p in launch["properties"].values())
    assert Path(debugger["program"]).is_file()


@given(VALUES)
def test_any_json_is_checked_without_an_error(value: Any) -> None:
    for t in (OWN | PROGRAM).values():
        json.dumps(fault_in(value, t, "arguments"))
