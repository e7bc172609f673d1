"""The debugger inside the program: a front end whose user is a client of the Debug Adapter Protocol, behind a socket.

A thread reads what the client asks. While a launch is under control the program's thread answers, since it alone may use the
session; a request that comes while the launch runs interrupts it for the time of the answer. Between launches the reading
thread answers.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from mmulator.base.errors import MmulatorError
from mmulator.observation.debug.dap.answers import ANSWERS, Motion, Moves, going, going_back, leave
from mmulator.observation.debug.dap.book import Book
from mmulator.observation.debug.dap.client import Client, Message, RefusedRequest, listen
from mmulator.observation.debug.dap.messages import DEADLOCKS, FAULTS, SETTING, idle
from mmulator.observation.debug.dap.places import Texts
from mmulator.observation.debug.dap.scopes import logged
from mmulator.observation.debug.dap.standing import Standing
from mmulator.observation.debug.stops import DebugError, Reason, Stopped

if TYPE_CHECKING:
    from mmulator.observation.debug.program import Debugger
    from mmulator.observation.debug.session import Session


AGAIN = 0.05  # seconds after which a launch that did not notice is interrupted anew


class Agent:
    """The front end of one process of a program.

    debugger: of the process.
    address: path of the adapter's socket.
    """

    def __init__(self, debugger: Debugger, address: str) -> None:
        self.debugger = debugger
        self.line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.line.connect(address)
        self.client = Client(self.line.makefile("wb"))
        self.book = Book(debugger.breakpoints, False)
        self.texts = Texts()
        self.settings: dict[str, Any] = {}
        self.standing: Standing | None = None  # while a launch is under control
        self.moving = self.going = self.pausing = self.closed = False
        self._waits = threading.Event()  # somebody waits for the launch to stand still
        self._mail: SimpleQueue[Message] = SimpleQueue()
        self._cancelled: set[int] = set()
        self._guard = threading.RLock()
        self._begun = threading.Event()
        threading.Thread(target=self._listen, daemon=True, name="debugger reads").start()
        threading.Thread(target=self._interrupt, daemon=True, name="debugger interrupts").start()
        self._begun.wait()

    # the thread that reads ------------------------------------------------------------------------------------------------
    def _listen(self) -> None:
        with self.line.makefile("rb") as stream:
            listen(stream, self.client, self.take)
        self._begun.set()
        with self._guard:
            self.closed = True
        if self.settings:  # the adapter is gone, and with it whoever wants to see this program
            os.kill(os.getpid(), signal.SIGKILL)

    def take(self, request: Message) -> None:
        """Answer a request, or give it to the program's thread."""
        command = request["command"]
        with self._guard:
            if command == "begin":
                self._begin(request["arguments"])
            elif command == "cancel":
                self._cancelled.add(request["arguments"]["requestId"])  # of one that waits its turn
            elif command == "pause":
                self.pausing = self.standing is None or self.moving
                self.client.respond(request)
                self._waits.set()
            elif self.standing is None:
                self.answer(request)
            else:
                self._mail.put(request)
                self._waits.set()

    def _interrupt(self) -> None:
        """Interrupt the launch while somebody waits: for a pause, or for an answer while it goes on to the next stop. A step is
        not worth that.
        """
        while True:
            self._waits.wait()
            self._waits.clear()
            while (standing := self.standing) is not None and self._is_urgent:
                standing.session.interrupt()
                time.sleep(AGAIN)

    @property
    def _is_urgent(self) -> bool:
        return self.moving and (self.pausing or (self.going and not self._mail.empty()))

    def _begin(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.pausing = bool(settings["pause"] or settings["launch"].get("stopOnEntry"))
        self.book.sanitized = bool(settings["launch"].get("sanitize"))
        self.texts.named({"path": settings["launch"]["program"]})
        self._begun.set()

    # answers --------------------------------------------------------------------------------------------------------------
    def cancelled(self, request: Message) -> bool:
        return request["seq"] in self._cancelled

    def answer(self, request: Message) -> Motion | None:
        """Answer a request; returns what the launch shall do next, if the request moves it."""
        command, given, numbers = request["command"], request["arguments"], request.get("numbers", [])
        try:
            if self.cancelled(request):
                raise RefusedRequest("the request was cancelled", "cancelled")
            self.texts.named(given.get("source"))
            if command in SETTING:
                places = self.standing.places if self.standing is not None else None
                self.client.respond(request, {"breakpoints": self.book.set(command, given, numbers, places)})
                return None
            if self.standing is None:
                self.client.respond(request, idle(command, given, numbers))
                return None
            body = ANSWERS[command](self.standing, given)
        except RefusedRequest as error:
            self.client.refuse(request, error)
        except MmulatorError as error:
            self.client.refuse(request, RefusedRequest(str(error)))
        except Exception as error:
            if os.environ.get("MMULATOR_TRACEBACK"):
                raise
            self.client.refuse(request, RefusedRequest(f"mmulator has a bug: {type(error).__name__}: {error}"))
        else:
            if not isinstance(body, Moves):
                self.client.respond(request, body)
                return None
            self.client.respond(request, body.body)
            return body.motion
        finally:
            self._cancelled.discard(request["seq"])
        return None

    # the program's thread -------------------------------------------------------------------------------------------------
    def wants(self, kernel: str, number: int) -> bool:
        """Whether a launch comes under control."""
        return not self.closed and (self.settings["launch"].get("kernel") or "") in kernel

    def launched(self, session: Session) -> None:
        """A launch stands before its first instruction: show it as long as the client wants."""
        standing = Standing(session, self.debugger, self.texts, self.client)
        with self._guard:
            self.standing, entered, self.pausing = standing, self.pausing, False
        try:
            self._introduce(standing)
            begins = any(session.stop.site in b.sites for b in self.debugger.breakpoints)
            stop = session.start() if begins else session.stop  # breakpoints at the first instruction are known only now
            entered |= stop.reason is Reason.BREAKPOINT and self._is_for_people(standing, stop)
            motion: Motion | None = None if entered else going
            if entered:
                self._tell(standing, stop)
            while motion is not leave:
                if motion is not None:
                    stop = self._move(standing, motion)
                    if stop.over and not self._shows_end(stop):
                        break
                    self._tell(standing, stop, "goto" if name_of(motion) == "goto" else "")
                motion = self.answer(self._mail.get())
        finally:
            with self._guard:
                self.standing = None
                while not self._mail.empty():
                    self.answer(self._mail.get())

    def ended(self) -> None:
        """The program's process ends: there is nothing to show."""

    def _introduce(self, standing: Standing) -> None:
        for told in self.book.place(standing.places):
            self.client.event("breakpoint", {"reason": "changed", "breakpoint": told})
        self.client.event("module", {"reason": "new", "module": standing.module()})
        for source in standing.sources():
            self.client.event("loadedSource", {"reason": "new", "source": source})

    def _move(self, standing: Standing, motion: Motion) -> Stopped:
        """Let the launch move until it stops for people; requests that come meanwhile are answered."""
        self.moving = True
        try:
            while True:
                while not self._mail.empty():
                    self.answer(self._mail.get())
                self.going = motion is going
                try:
                    stop = motion(standing.session)
                except DebugError as error:
                    self.client.output(f"{error}\n")
                    return standing.session.stop
                standing.forget()
                with self._guard:
                    paused, self.pausing = self.pausing, False
                if stop.reason is Reason.INTERRUPTED and not paused:
                    continue
                if stop.over or self._is_for_people(standing, stop):
                    return stop
                motion = going_back if motion is going_back else going
        finally:
            self.moving = False

    def _is_for_people(self, standing: Standing, stop: Stopped) -> bool:
        """Whether a stop is shown: not where a hit condition does not hold yet, or the breakpoint only says a text."""
        mine = self.book.of(stop.hits)
        if not stop.hits or sum(len(w.motor) for w in mine) < len(stop.hits):  # one that was set by a command
            return True
        hit = [w for w in mine if w.hit(stop.step)]
        for wanted in hit:
            if wanted.log:
                self.client.event("output", logged(standing, wanted.log))
        return any(not w.log for w in hit)

    def _shows_end(self, stop: Stopped) -> bool:
        if stop.reason is Reason.EXITED:
            return bool(self.settings["launch"].get("stopAtEnd"))
        return (FAULTS if stop.reason is Reason.FAULT else DEADLOCKS) in self.book.filters

    def _tell(self, standing: Standing, stop: Stopped, reason: str = "") -> None:
        """Tell the client that the launch stands still."""
        mine = self.book.of(stop.hits)
        kinds = {w.kind for w in mine}
        named = next((name for kind, name in _HIT_REASONS.items() if kinds == {kind}), "")
        body = {
            "reason": reason or named or REASONS[stop.reason], "description": standing.description(stop), "text": stop.text,
            "threadId": standing.thread_of(stop.focus), "allThreadsStopped": True, "hitBreakpointIds": [w.number for w in mine],
        }  # fmt: skip
        self.client.event("stopped", {name: value for name, value in body.items() if value or name != "text"})


def name_of(motion: Motion) -> str:
    return getattr(motion, "__name__", "")


REASONS = {
    Reason.ENTRY: "entry", Reason.STEP: "step", Reason.BREAKPOINT: "breakpoint", Reason.WATCHPOINT: "data breakpoint",
    Reason.MBARRIER: "breakpoint", Reason.FINDING: "exception", Reason.FAULT: "exception", Reason.DEADLOCK: "exception",
    Reason.INTERRUPTED: "pause", Reason.BEGIN: "step", Reason.EXITED: "step",
}  # fmt: skip
_HIT_REASONS = {
    "setFunctionBreakpoints": "function breakpoint", "setInstructionBreakpoints": "instruction breakpoint",
    "setDataBreakpoints": "data breakpoint",
}  # fmt: skip
