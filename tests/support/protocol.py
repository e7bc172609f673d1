"""The Debug Adapter Protocol from a client's side: its official schema, and a client that checks each message against it.

The schema comes with debugpy, from PyPI; a newer one may be named by DAP_SCHEMA.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from queue import Empty, Queue
from typing import Any, BinaryIO

import jsonschema

from mmulator.observation.debug.dap.client import encode, read
from tests.support.waiting import PATIENCE

_PLACE = "_vendored/pydevd/_pydevd_bundle/_debug_adapter/debugProtocol.json"


@cache
def schema() -> dict[str, Any]:
    """The protocol's JSON schema."""
    named = os.environ.get("DAP_SCHEMA")
    found = importlib.util.find_spec("debugpy")
    assert named or (found is not None and found.submodule_search_locations), "debugpy, which has the schema, is not installed"
    return json.loads((Path(named) if named else Path(found.submodule_search_locations[0]) / _PLACE).read_text())


@cache
def _checker(definition: str) -> Any:
    whole = schema()
    return jsonschema.Draft4Validator({"$ref": f"#/definitions/{definition}", "definitions": whole["definitions"]})


def wrong(message: dict[str, Any], command: str = "") -> list[str]:
    """What is wrong with a message by the schema. command: that a response answers."""
    kind = message["type"]
    if kind == "response" and not message["success"]:
        definition = "ErrorResponse"
    else:
        name = message["event"] if kind == "event" else command or message["command"]
        definition = name[0].upper() + name[1:] + kind.capitalize()
    if definition not in schema()["definitions"]:
        return [f"the schema has no {definition}"]
    return [f"{definition}: {e.json_path}: {e.message}" for e in _checker(definition).iter_errors(message)]


class Client:
    """A client of an adapter on two streams. All messages are kept, those of the adapter checked by the schema."""

    def __init__(self, reads: BinaryIO, writes: BinaryIO) -> None:
        self.writes, self.count = writes, 0
        self.asked: dict[int, str] = {}
        self.responses: dict[int, dict[str, Any]] = {}
        self.events: list[dict[str, Any]] = []
        self.faults: list[str] = []
        self._news: Queue[None] = Queue()
        self.taken: set[int] = set()  # events that `event` has given, by their place among all
        self.reader = threading.Thread(target=self._read, args=(reads,), daemon=True)
        self.reader.start()

    def _read(self, reads: BinaryIO) -> None:
        numbers = []
        while (message := read(reads)) is not None:
            numbers.append(message["seq"])
            if message["type"] == "response":
                self.faults += wrong(message, self.asked.get(message["request_seq"], ""))
                self.responses[message["request_seq"]] = message
            else:
                self.faults += wrong(message)
                self.events.append(message)
            self._news.put(None)
        if numbers != list(range(1, len(numbers) + 1)):
            self.faults.append(f"numbers of messages: {numbers}")
        self._news.put(None)

    def send(self, command: str, **arguments: Any) -> int:
        """Send a request; returns its number."""
        self.count += 1
        self.asked[self.count] = command
        message = {"seq": self.count, "type": "request", "command": command, "arguments": arguments}
        assert not (faults := wrong(message) if command not in OWN else []), faults
        self.writes.write(encode(message))
        self.writes.flush()
        return self.count

    def _wait(self, found: Callable[[], Any], what: str) -> Any:
        while (value := found()) is None:
            try:
                self._news.get(timeout=PATIENCE)
            except Empty:
                raise AssertionError(f"no {what}; events: {self.events[-5:]}") from None
            if not self.reader.is_alive() and found() is None:
                raise AssertionError(f"no {what}, and the adapter is gone; events: {self.events[-5:]}")
        return value

    def response(self, number: int) -> dict[str, Any]:
        """The response to a request."""
        return self._wait(lambda: self.responses.get(number), f"response to {self.asked[number]}")

    def __call__(self, command: str, **arguments: Any) -> dict[str, Any]:
        """The body of the response to a request, which must succeed."""
        found = self.response(self.send(command, **arguments))
        assert found["success"], found
        return found.get("body", {})

    def refused(self, command: str, **arguments: Any) -> str:
        """Why a request is refused."""
        found = self.response(self.send(command, **arguments))
        assert not found["success"], found
        return found["body"]["error"]["format"]

    def event(self, *names: str) -> dict[str, Any]:
        """The first event of a name that was not given yet, whenever it came: only events of one name have an order."""

        def find() -> dict[str, Any] | None:
            for n, event in enumerate(self.events):
                if event["event"] in names and n not in self.taken:
                    self.taken.add(n)
                    return event
            return None

        return self._wait(find, f"event {names}")

    def output(self, category: str = "stdout") -> str:
        """What the program has said so far."""
        said = (e["body"] for e in self.events if e["event"] == "output")
        return "".join(b["output"] for b in said if b.get("category") == category)


class Session:
    """A program under an adapter in a process of its own.

    words: further words of the adapter's command line.
    """

    def __init__(self, *words: str) -> None:
        self.process, self.client = started(words)
        self.capabilities = self.client("initialize", adapterID="mmulator")
        self.client.event("initialized")

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *error: object) -> None:
        """Disconnect: the adapter ends, and all that it said was right."""
        if error[0] is not None:
            self.process.terminate()
        elif self.process.poll() is None:
            self.client("disconnect")
        self.process.wait(PATIENCE)
        self.client.reader.join(PATIENCE)
        if error[0] is None:
            assert not self.client.faults

    def run(self, program: str | Path, **launch: Any) -> Session:
        """Launch a program, and say that all is configured."""
        self.client("launch", program=str(program), **launch)
        self.client("configurationDone")
        return self

    def stopped(self) -> dict[str, Any]:
        """The next stop; its thread is the one that is asked about from now on."""
        event = self.client.event("stopped", "terminated")
        assert event["event"] == "stopped", (event, self.client.output("stderr"))
        self.thread = event["body"]["threadId"]
        return event["body"]

    def go(self, command: str = "continue", **more: Any) -> dict[str, Any]:
        """Let the launch move, and wait for the stop."""
        self.client(command, threadId=self.thread, **more)
        return self.stopped()

    def over(self) -> int:
        """Let the program run to its end; returns its exit code."""
        self.client("continue", threadId=self.thread)
        return self.ended()

    def ended(self) -> int:
        code = self.client.event("exited")["body"]["exitCode"]
        self.client.event("terminated")
        return code

    def frames(self, thread: int | None = None) -> list[dict[str, Any]]:
        return self.client("stackTrace", threadId=thread or self.thread)["stackFrames"]

    def line(self) -> int:
        return self.frames()[0]["line"]

    def scope(self, name: str, frame: dict[str, Any] | None = None) -> dict[str, dict[str, Any]]:
        """The variables of a scope, by name."""
        scopes = self.client("scopes", frameId=(frame or self.frames()[0])["id"])["scopes"]
        return self.inside(next(s for s in scopes if s["name"] == name))

    def inside(self, variable: dict[str, Any], **page: Any) -> dict[str, dict[str, Any]]:
        """The variables in a variable, by name."""
        found = self.client("variables", variablesReference=variable["variablesReference"], **page)["variables"]
        return {v["name"]: v for v in found}

    def value(self, expression: str, **more: Any) -> str:
        """The value of an expression in the innermost frame."""
        return self.value_of(expression, frameId=self.frames()[0]["id"], **more)

    def value_of(self, expression: str, **more: Any) -> str:
        return self.client("evaluate", expression=expression, **more)["result"]

    def breakpoints(self, source: str | Path | dict[str, Any], *lines: int | dict[str, Any]) -> list[dict[str, Any]]:
        """Set breakpoints in a source."""
        given = [{"line": line} if isinstance(line, int) else line for line in lines]
        where = source if isinstance(source, dict) else {"path": str(source)}
        return self.client("setBreakpoints", source=where, breakpoints=given)["breakpoints"]


OWN = ("launch", "restart", "nonsense")  # requests whose arguments are an adapter's own, or that there are not


def started(words: Sequence[str] = (), **more: Any) -> tuple[subprocess.Popen[bytes], Client]:
    """An adapter in a process of its own, and its client."""
    process = subprocess.Popen(
        [sys.executable, "-m", "mmulator", "debug", "--dap", *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, **more
    )
    assert process.stdin is not None and process.stdout is not None
    return process, Client(process.stdout, process.stdin)
