"""The debugger in a terminal: reads commands, from a user or a script, and shows where launches stand."""

from __future__ import annotations

import json
import os
import sys
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

from mmulator.base.errors import MmulatorError
from mmulator.base.schemas import document
from mmulator.observation.debug import terminal_commands as terminal_commands
from mmulator.observation.debug import terminal_texts as texts
from mmulator.observation.debug.machine import extent_text
from mmulator.observation.debug.stops import DebugError, Reason, StepScope
from mmulator.observation.debug.terminal_commands import COMMANDS, Console, find
from mmulator.observation.debug.terminal_looks import INFOS

if TYPE_CHECKING:
    from mmulator.observation.debug.program import Debugger
    from mmulator.observation.debug.session import Session

PROMPT = "(mmulator) "
REPEATED = ("step", "next", "stepi", "nexti", "continue", "goto", "list", "x", "finish")  # by an empty line, and back as well


class DebugTerminal(Console):
    """The front end of a terminal.

    debugger: whose sessions it shows.
    commands: that are carried out first.
    batch: nobody types: where the commands end, the program goes on without the debugger.
    as_json: each command's output is a line of JSON.
    kernel: part of the name of kernels whose first launch is stopped at its first instruction; "" for any.
    source, sink: where commands are typed, and what is shown is written.
    """

    def __init__(
        self, debugger: Debugger, commands: Iterable[str] = (), batch: bool = False, as_json: bool = False, kernel: str = "",
        source: TextIO | None = None, sink: TextIO | None = None, end: Callable[[int], NoReturn] = os._exit,
    ) -> None:  # fmt: skip
        super().__init__(debugger)
        self.batch, self.as_json, self.kernel = batch, as_json, kernel
        self.commands = deque(commands)
        self.source, self.sink, self.end = source or sys.stdin, sink or sys.stdout, end
        self.seen, self.last = False, ""
        self._reader: Callable[[str], str] | None = None

    # what the debugger calls --------------------------------------------------------------------------------------------------
    def wants(self, kernel: str, number: int) -> bool:
        """Whether a launch is to come under control."""
        if self.detached:
            return False
        if not self.seen and self.kernel in kernel:
            return True
        return any(b.enabled for b in self.breakpoints)

    def launched(self, session: Session) -> None:
        """Show a launch, and carry commands out until the program is to go on."""
        self.running, self.leave = session, False
        session.scope = self.scope
        self.breakpoints.file = self._file(session)
        try:
            if not self.seen and self.kernel in session.kernel_name:
                self.seen = True
                extents = f"<<<{extent_text(session.grid)}, {extent_text(session.block)}>>>"
                self.say(f"[launch {session.number}: {session.kernel_name}{extents} on {session.device}, seed {session.seed}]")
                self.show_stop()
            else:
                if session.stop.reason is not Reason.BREAKPOINT:
                    session.go()
                if session.stop.reason is Reason.EXITED:
                    return
                self.show_stop()
            self._flush("")
            self.loop()
        finally:
            self.running = None

    def ended(self) -> None:
        """The program's process ends: commands are left."""
        if not self.detached and not self.batch:
            self.say("[the program has ended]")
            self._flush("")

    # commands -----------------------------------------------------------------------------------------------------------------
    def loop(self) -> None:
        """Carry out commands until the program is to go on."""
        while not self.leave:
            line = self.read()
            if line is None:
                self.detached = True
                return
            self.do(line)

    def read(self) -> str | None:
        """The next command; None where there are no more."""
        if self.commands:
            line = self.commands.popleft()
            if not self.as_json:
                self._write(f"{PROMPT}{line}\n")
            return line
        if self.batch:
            return None
        while True:
            try:
                return self._typed()
            except KeyboardInterrupt:
                self._write("\n")
            except EOFError:
                self._write("\n")
                return None

    def _typed(self) -> str:
        if self._reader is None:
            self._reader = self._make_reader()
        return self._reader("" if self.as_json else PROMPT)

    def _make_reader(self) -> Callable[[str], str]:
        """Python's `input` with readline, where the terminal is the process's own; else plain lines."""
        try:
            own = self.source.isatty() and sys.stdin.isatty() and sys.stdout.isatty()
        except (ValueError, AttributeError):
            own = False
        if own:
            self._with_readline()
            return input

        def line(prompt: str) -> str:
            self._write(prompt)
            text = self.source.readline()
            if not text:
                raise EOFError
            return text.rstrip("\n")

        return line

    def _with_readline(self) -> None:
        try:
            import atexit
            import readline
        except ImportError:
            return
        history = Path(os.environ.get("XDG_STATE_HOME", Path.home() / ".local" / "state")) / "mmulator" / "debug_history"
        try:
            history.parent.mkdir(parents=True, exist_ok=True)
            if history.exists():
                readline.read_history_file(history)
            atexit.register(readline.write_history_file, history)
        except OSError:
            pass
        readline.set_history_length(1000)
        readline.set_completer_delims(" \t")
        readline.set_completer(self.complete)
        readline.parse_and_bind("tab: complete")

    def complete(self, text: str, state: int) -> str | None:
        """The possible endings of a word, one after the other, as readline wants them."""
        import readline

        before = readline.get_line_buffer()[: readline.get_begidx()].split()
        found = self.endings(before, text)
        return found[state] if state < len(found) else None

    def endings(self, before: list[str], text: str) -> list[str]:
        """Words that begin with a text, behind the words before it."""
        if not before:
            return sorted(f"{c.names[0]} " for c in COMMANDS if c.names[0].startswith(text))
        words: Iterable[str] = ()
        try:
            name = find(before[0]).names[0]
        except DebugError:
            return []
        if name == "info" and before[-1] == "cuda":
            words = ("kernels", "blocks", "warps", "threads", "lanes")
        elif name == "info" and len(before) == 1:
            words = ("cuda", *INFOS)
        elif name == "cuda":
            words = ("block", "thread", "warp", "lane")
        elif name == "set":
            words = ("scope",) if len(before) == 1 else [s.value for s in StepScope]
        elif name in ("print", "info", "x") and self.running is not None and text[:1] in ("%", "$"):
            with_mark = self._registers()
            words = with_mark if text[:1] == "%" else ["$" + r[1:] for r in with_mark]
        elif name in ("print", "watch", "why") and self.running is not None:
            words = [f"{a.name}[" for a in self.running.names.arrays]
        elif name in ("break", "tbreak"):
            words = ("ptx:", "mbarrier", "rule", *(self.running.files if self.running is not None else ()))
        elif name == "help":
            words = [c.names[0] for c in COMMANDS]
        return sorted(w for w in words if w.startswith(text))

    def _registers(self) -> list[str]:
        try:
            machine, focus = self.session.machine, self.session.focus
            return [*machine.types(machine.warp(focus.block, focus.warp))]
        except DebugError:
            return []

    def do(self, line: str) -> None:
        """Carry out a command; what goes wrong is shown."""
        line = line.strip()
        if line.startswith("#"):
            return
        if not line:
            line = self.last
        if not line:
            return
        word = line.split()[0].partition("/")[0]
        rest = line[len(word) :].strip()
        failed = ""
        try:
            known = find(word)
            again = known.names[0].removeprefix("reverse-") in REPEATED
            self.last = line if again and not self.commands else ""
            if known.running:
                _ = self.session
            known.act(self, rest)
        except MmulatorError as error:
            failed = error.message + (f"\n  hint: {error.hint}" if error.hint else "")
            if not self.as_json:
                self.say(*texts.filled(failed, "    "))
        self._flush(line, failed)

    # showing ------------------------------------------------------------------------------------------------------------------
    def _flush(self, line: str, failed: str = "") -> None:
        said, self.said = self.said, []
        if self.as_json:
            wrong = {"error": failed} if failed else {}
            self._write(json.dumps(document("debug", {"command": line, "output": said, **wrong, **self._state()})) + "\n")
        elif said:
            self._write("\n".join(said) + "\n")

    def _state(self) -> dict[str, Any]:
        """Where the launch stands, as JSON can hold it."""
        session = self.running
        if session is None:
            return {}
        stop, at = session.stop, session.stop.location
        return {
            "stop": {
                "reason": stop.reason.value, "step": stop.step, "launch": session.number, "kernel": session.kernel_name,
                "block": session.focus.block, "warp": session.focus.warp, "lane": session.focus.lane, "lanes": stop.lanes,
                "site": stop.site, "ptx_line": stop.ptx_line, "file": at.file if at else None, "line": at.line if at else None,
                "breakpoints": list(stop.hits), "text": stop.text,
            }
        }  # fmt: skip

    def _write(self, text: str) -> None:
        self.sink.write(text)
        self.sink.flush()

    # small things ---------------------------------------------------------------------------------------------------------
    def _file(self, session: Session) -> str:
        """The file that a line without a file is in."""
        files = session.files
        return PurePath(files[0]).name if files else "ptx"

    def quit(self) -> None:
        """End the program's process."""
        self._flush("quit")
        sys.stdout.flush()
        sys.stderr.flush()
        self.end(0)


def front(debugger: Debugger, settings: dict[str, Any]) -> DebugTerminal:
    """The terminal of a program's process. settings: what `mmulator debug` says (cli/debug.py)."""
    source = sink = None
    try:
        if "input" in settings:
            source = os.fdopen(os.dup(settings["input"]), "r", encoding="utf-8", errors="replace")
            sink = os.fdopen(os.dup(settings["output"]), "w", encoding="utf-8", errors="replace")
    except OSError:  # a process that the program started, without its files: it runs as without a debugger
        settings = {**settings, "detached": True}
    made = DebugTerminal(
        debugger, settings.get("commands", ()), bool(settings.get("batch")), bool(settings.get("json")),
        str(settings.get("kernel", "")), source, sink,
    )  # fmt: skip
    made.detached = bool(settings.get("detached"))
    return made
