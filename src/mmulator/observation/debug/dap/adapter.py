"""The adapter as a client meets it: it starts the program, keeps what was set, and passes requests on to the debugger that runs
inside the program (agent.py). The program is a process of its own: its output, its end, and the line to that debugger.
"""

import codecs
import ctypes
import json
import os
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from mmulator.base.errors import MmulatorError
from mmulator.observation.debug.dap.client import Body, Client, Garbled, Message, RefusedRequest, listen, read
from mmulator.observation.debug.dap.messages import OWN, PROGRAM, SETTING, Object, capabilities, fault_in, idle, wanted_of

Start = Callable[[Object], tuple[Sequence[str], Mapping[str, str]]]
_SETTERS = tuple(SETTING)
_LAST_WORDS = 2.0  # seconds in which the answers of a process that has ended are waited for


@dataclass
class AgentLink:
    """The line to the debugger in a process of the program.

    process: what is said to it.
    waiting: number of a request -> the request, until it is answered.
    heard: is set when all that it said was passed on.
    """

    process: Client
    line: socket.socket
    waiting: dict[int, Message] = field(default_factory=dict)
    heard: threading.Event = field(default_factory=threading.Event)

    def close(self) -> None:
        with suppress(OSError):
            self.line.shutdown(socket.SHUT_RDWR)
        self.line.close()


class Adapter:
    """One client, and the program that it debugs.

    reads, writes: the client's streams.
    start: gives the words and the environment with which a program starts, or raises MmulatorError.
    """

    def __init__(self, reads: BinaryIO, writes: BinaryIO, start: Start) -> None:
        self.reads, self.client, self.start = reads, Client(writes), start
        self.launch: Object | None = None
        self.command: tuple[Sequence[str], Mapping[str, str]] = ((), {})
        self.initialized = self.configured = self.ended = self.pausing = False
        self.child: ProgramProcess | None = None
        self.link: AgentLink | None = None
        self._kept: dict[str, Message] = {}  # what a client set, newest; programs that are started later get it, too
        self._numbers: dict[str, int] = {}  # breakpoint, as JSON -> its number
        self._guard = threading.RLock()  # of all that stands here

    def serve(self) -> None:
        """Answer the client until it disconnects or goes away; then nothing of the program is left."""
        try:
            listen(_Until(self.reads, lambda: self.ended), self.client, self.take)
        finally:
            self.end()

    def end(self) -> None:
        """End the program."""
        with self._guard:
            self.ended = True
            child, self.child = self.child, None
        if child is not None:
            child.kill()
        self._unlink("the program was ended")

    # requests -------------------------------------------------------------------------------------------------------------
    def take(self, request: Message) -> None:
        """Answer a request, or pass it on."""
        command = request["command"]
        given = request["arguments"] = request.get("arguments") or {}
        try:
            takes = OWN.get(command, PROGRAM.get(command))
            if takes is None:
                raise RefusedRequest(f"{command}: no request of this adapter; `initialize` says what it can do")
            if fault := fault_in(given, takes, "arguments"):
                raise RefusedRequest(f"{command}: {fault}")
            if not self.initialized and command != "initialize":
                raise RefusedRequest(f"{command}: `initialize` comes first")
            if command in PROGRAM:
                self._pass_on(request)
                return
            body: Body = getattr(self, f"_{command}")(given)
        except RefusedRequest as error:
            self.client.refuse(request, error)
        except MmulatorError as error:
            self.client.refuse(request, RefusedRequest(" ".join(filter(None, (error.message, error.hint and f"({error.hint})")))))
        else:
            self.client.respond(request, body)
            self._behind(command)

    def _behind(self, command: str) -> None:
        """The event or the run that follows the response to a request."""
        if command == "initialize":
            self.client.event("initialized")
        elif command in ("launch", "configurationDone", "restart") and self.launch is not None and self.configured:
            self._begin()

    def _initialize(self, given: Any) -> Body:
        if self.initialized:
            raise RefusedRequest("initialize: it was called before")
        if given.get("pathFormat", "path") != "path":
            raise RefusedRequest("initialize: pathFormat is path; this adapter knows no URIs")
        self.initialized, self.link_settings = True, given
        return capabilities()

    def _launch(self, given: Object) -> Body:
        if self.launch is not None:
            raise RefusedRequest("launch: a program is under this adapter already; `restart` starts it anew")
        self.command = self.start(given)  # what cannot be started is told here
        self.launch = given
        return None

    def _configurationDone(self, given: Any) -> Body:
        self.configured = True
        return None

    def _restart(self, given: Any) -> Body:
        wanted = given.get("arguments") or self.launch
        if self.launch is None or wanted is None:
            raise RefusedRequest("restart: nothing was launched")
        self.command, self.launch = self.start(wanted), wanted
        with self._guard:
            child, self.child = self.child, None
        if child is not None:
            child.kill()
        self._unlink("the program was started anew")
        return None

    def _terminate(self, given: Any) -> Body:
        if self.child is not None:
            self.child.terminate()
        return None

    def _disconnect(self, given: Any) -> Body:
        self.end()
        return None

    def _cancel(self, given: Any) -> Body:
        with self._guard:
            if self.link is not None and given.get("requestId") in self.link.waiting:
                self.link.process.ask({"type": "request", "command": "cancel", "seq": 0, "arguments": given})
        return None

    # the program ----------------------------------------------------------------------------------------------------------
    def _begin(self) -> None:
        if self.launch is None:
            return
        words, environment = self.command
        environment = {**environment, "PYTHONUNBUFFERED": environment.get("PYTHONUNBUFFERED", "1")}
        try:
            child = ProgramProcess(words, environment, self.launch.get("cwd"), self.client.output, self._join, self._over)
        except OSError as error:
            self.client.output(f"mmulator: cannot start {words[0]}: {error.strerror}\n", "stderr")
            self.client.event("terminated")
            return
        with self._guard:
            self.child = child
        about = {"name": self.launch["program"], "systemProcessId": child.process.pid, "isLocalProcess": True}
        self.client.event("process", {**about, "startMethod": "launch", "pointerSize": 64})

    def _over(self, code: int) -> None:
        link = self.link
        if link is not None:  # its last answers may still be on the line, which a child of the program may hold open
            link.heard.wait(_LAST_WORDS)
        self._unlink("the program has ended")
        with self._guard:
            self.child = None
        self.client.event("exited", {"exitCode": code})
        self.client.event("terminated")

    def _join(self, line: socket.socket) -> None:
        """A process of the program asks for its debugger. While one is under control, others run without."""
        with self._guard:
            if self.link is not None or self.launch is None or self.launch.get("noDebug"):
                line.close()
                return
            self.link = link = AgentLink(Client(line.makefile("wb")), line)
            settings = {"launch": self.launch, "client": self.link_settings, "pause": self.pausing}
            self.pausing = False
            for request in self._kept.values():
                link.process.ask({**request, "internal": True})
            link.process.ask({"type": "request", "seq": 0, "command": "begin", "arguments": settings})
        threading.Thread(target=self._hear, args=(link,), daemon=True).start()

    def _hear(self, link: AgentLink) -> None:
        """Pass on what the debugger in the program says."""
        with suppress(Garbled, OSError, ValueError), link.line.makefile("rb") as stream:
            while (message := read(stream)) is not None:
                if message["type"] == "response":
                    with self._guard:
                        known = link.waiting.pop(message["request_seq"], None)
                    if known is None:
                        continue
                self.client.say(message)
        link.heard.set()
        self._unlink("the program has ended", link)

    def _unlink(self, why: str, link: AgentLink | None = None) -> None:
        with self._guard:
            if self.link is None or (link is not None and link is not self.link):
                return
            gone, self.link = self.link, None
            waiting = list(gone.waiting.values())
            gone.waiting.clear()
        gone.close()
        for request in waiting:
            self.client.refuse(request, RefusedRequest(why))

    def _pass_on(self, request: Message) -> None:
        command, given = request["command"], request["arguments"]
        numbers = [self._number(command, given, wanted) for wanted in wanted_of(given)] if command in _SETTERS else []
        request["numbers"] = numbers
        with self._guard:
            if command in _SETTERS:
                self._kept[command + json.dumps(given.get("source", {}).get("path"))] = request
            if self.link is not None:
                self.link.waiting[request["seq"]] = request
                self.link.process.ask(request)
                return
            if command == "pause":
                self.pausing = True
                self.client.respond(request)
                return
        self.client.respond(request, idle(command, given, numbers))

    def _number(self, command: str, given: Any, wanted: Mapping[str, Any]) -> int:
        """The number of a breakpoint, which stays while a client sets the same one again."""
        place = given.get("source", {})
        name = json.dumps([command, place.get("path"), place.get("sourceReference"), wanted], sort_keys=True)
        return self._numbers.setdefault(name, len(self._numbers) + 1)


class _Until:
    """A stream that ends when a condition holds."""

    def __init__(self, stream: BinaryIO, ended: Callable[[], bool]) -> None:
        self.stream, self.ended = stream, ended

    def readline(self, size: int) -> bytes:
        return b"" if self.ended() else self.stream.readline(size)

    def read(self, size: int) -> bytes:
        return self.stream.read(size)


_PATIENCE = 2.0  # seconds that a program has to end by itself, and that its last output may take
_PR_SET_PDEATHSIG = 1  # prctl(2)


class ProgramProcess:
    """A started program.

    words, environment, folder: of the process.
    heard: is called with a text and `stdout` or `stderr`.
    joined: is called with a connected socket for each process of the program that launches kernels.
    over: is called with the exit code when the process has ended and its output was told; not after `kill`.
    """

    def __init__(
        self, words: Sequence[str], environment: Mapping[str, str], folder: str | None, heard: Callable[[str, str], None],
        joined: Callable[[socket.socket], None], over: Callable[[int], None],
    ) -> None:  # fmt: skip
        self._heard, self._joined, self._over, self.killed = heard, joined, over, False
        self._folder = tempfile.TemporaryDirectory(prefix="mmulator-debug-")
        self._door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            address = str(Path(self._folder.name) / "door")
            self._door.bind(address)
            self._door.listen()
            debug = {"MMULATOR_DEBUG": json.dumps({"front": "dap", "address": address})}  # observation/debug/program.py
            self.process = subprocess.Popen(
                list(words), env={**environment, **debug}, cwd=folder, stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True, preexec_fn=_dies_with_us,
            )  # fmt: skip
        except BaseException:
            self._close()
            raise
        self._listeners = [
            self._thread(self._listen, getattr(self.process, name), name) for name in ("stdout", "stderr")
        ]  # fmt: skip
        self._thread(self._welcome)
        self._thread(self._wait)

    def kill(self) -> None:
        """End the program and all processes of its group, softly at first; returns when it has ended."""
        self.killed = True
        for number in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, number)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(_PATIENCE)
        self._close()

    def terminate(self) -> None:
        """Ask the program to end. `over` is told."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGTERM)

    def _thread(self, run: Callable[..., None], *given: Any) -> threading.Thread:
        thread = threading.Thread(target=run, args=given, daemon=True)
        thread.start()
        return thread

    def _listen(self, stream: Any, name: str) -> None:
        decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        with stream:
            while data := os.read(stream.fileno(), 1 << 16):
                if text := decode(data):
                    self._heard(text, name)

    def _welcome(self) -> None:
        with suppress(OSError):
            while True:
                self._joined(self._door.accept()[0])

    def _wait(self) -> None:
        code = self.process.wait()
        for listener in self._listeners:  # a process that was left behind may hold the pipes open
            listener.join(_PATIENCE)
        if not self.killed:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self._close()
            self._over(code if code >= 0 else 128 - code)  # as a shell has it

    def _close(self) -> None:
        with suppress(OSError):
            self._door.shutdown(socket.SHUT_RDWR)
        self._door.close()
        self._folder.cleanup()


def _dies_with_us() -> None:
    """Between fork and exec: let the kernel end the program when the adapter dies, however that happens."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
