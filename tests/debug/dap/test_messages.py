"""Messages: their bytes, their types against the official schema, and malformed ones."""

import io
import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree
from zipfile import ZipFile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmulator.observation.debug.dap import vscode
from mmulator.observation.debug.dap.adapter import Adapter
from mmulator.observation.debug.dap.answers import ANSWERS
from mmulator.observation.debug.dap.client import Garbled, encode, read
from mmulator.observation.debug.dap.messages import OWN, PROGRAM, SETTING, SUPPORTED, TYPES, capabilities, fault_in, members
from tests.support import protocol

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
LEAVES = st.none() | st.booleans() | st.integers() | TEXTS
VALUES = st.recursive(LEAVES, lambda v: st.lists(v) | st.dictionaries(TEXTS, v), max_leaves=8)
NEWER = {"bytes", "asAddress"}  # members of DataBreakpointInfoArguments that debugpy's schema is too old for
SPECS = {
    "SOURCE": "Source", "FORMAT": "ValueFormat", "LINE": "SourceBreakpoint", "FUNCTION": "FunctionBreakpoint",
    "INSTRUCTION": "InstructionBreakpoint", "DATA": "DataBreakpoint", "FILTER": "ExceptionFilterOptions"}
WORDS = {"text": "string", "int": "integer", "bool": "boolean"}


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


def test_types_are_the_specifications() -> None:
    ours = [(SPECS[name], said) for name, said in TYPES.items() if name != "LAUNCH"]
    for command, said in (OWN | PROGRAM).items():
        request = protocol.schema()["definitions"][f"{command[0].upper()}{command[1:]}Request"]
        arguments = request["allOf"][1]["properties"].get("arguments", {}).get("$ref", "").rpartition("/")[2]
        ours += [(arguments, said)] if said and command != "launch" else []
    assert len(ours) > 30
    wrong = []
    for spec, said in ours:
        known, required = definition(spec)
        for member, (kind, needed) in members(said).items():
            if member in NEWER and member not in known:
                continue
            if member not in known:
                wrong.append(f"{spec}.{member} is not in the specification")
                continue
            of = "array" if kind[0] == "[" else "object" if kind in TYPES else WORDS.get(kind, "string")
            if of not in kinds(known[member]) or needed != (member in required):
                wrong.append(f"{spec}.{member}: {kind}, {needed}; in the specification {kinds(known[member])}, {required}")
            elif "|" in kind and not set(kind.split("|")) <= set(words(known[member]) or kind.split("|")):
                wrong.append(f"{spec}.{member}: {kind}")
            elif kind[0] == "[" and kind[1:-1] in SPECS:
                assert known[member]["items"]["$ref"].endswith(f"/{SPECS[kind[1:-1]]}"), member
        wrong += [f"{spec}.{m} is required" for m in required if m not in members(said)]
    assert not wrong


def words(schema: dict[str, Any]) -> list[str]:
    if "$ref" in schema:
        return words(protocol.schema()["definitions"][schema["$ref"].rpartition("/")[2]])
    return schema.get("enum", [])


def test_capabilities_are_what_there_is() -> None:
    answered = OWN.keys() | PROGRAM.keys()
    assert not {request for request in SUPPORTED.values() if request} - answered
    # what answers: the adapter's methods; the program's table, its breakpoints, and `pause`, which is no answer of a stop
    assert not [request for request in OWN if not hasattr(Adapter, f"_{request}")]
    assert PROGRAM.keys() == ANSWERS.keys() | SETTING.keys() | {"pause"}
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
        (PROGRAM["setBreakpoints"], {}, "arguments.source is missing"),
        (PROGRAM["setBreakpoints"], {"source": None}, "arguments.source is missing"),
        (PROGRAM["setBreakpoints"], {"source": 3}, "arguments.source: an object is needed, not 3"),
        (PROGRAM["setBreakpoints"], {"source": {}, "breakpoints": [{"line": 1}, {"line": "2"}]},
         "arguments.breakpoints[1].line: a whole number is needed, not '2'"),
        (PROGRAM["setBreakpoints"], {"source": {}, "breakpoints": [{"line": True}]},
         "arguments.breakpoints[0].line: a whole number is needed, not True"),
        (PROGRAM["setBreakpoints"], [], "arguments: an object is needed, not []"),
        (OWN["launch"], {"program": "x", "env": {"A": 3}}, "arguments.env.A: a text or null is needed, not 3"),
        (PROGRAM["next"], {"threadId": 1, "granularity": "byte"},
         "arguments.granularity: one of statement, line, instruction is needed, not 'byte'"),
        (PROGRAM["next"], {"threadId": 1, "granularity": None, "unknown": 1}, ""),
    ],
)  # fmt: skip
def test_faults_in_arguments_name_their_place(kind: str, value: Any, told: str) -> None:
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
    types, ours = {**WORDS, "[text]": "array", "{text or null}": "object"}, members(OWN["launch"])
    assert {n: p["type"] for n, p in launch["properties"].items()} == {n: types[kind] for n, (kind, _) in ours.items()}
    assert launch["required"] == [n for n, (_, required) in ours.items() if required]
    assert all(p["description"].endswith(".") for p in launch["properties"].values())
    assert Path(debugger["program"]).is_file()


@given(VALUES)
def test_any_json_is_checked_without_an_error(value: Any) -> None:
    for t in (OWN | PROGRAM).values():
        json.dumps(fault_in(value, t, "arguments"))
