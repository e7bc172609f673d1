"""The table of the terminal's commands: what they work on, their names, and how a word finds its command."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from inspect import cleandoc
from typing import TYPE_CHECKING

from mmulator.debug import terminal_texts as texts
from mmulator.debug.stops import DebugError, StepScope
from mmulator.errors import shown

if TYPE_CHECKING:
    from mmulator.debug.breakpoints import Breakpoints
    from mmulator.debug.machine import LanesAt, WarpState
    from mmulator.debug.program import Debugger
    from mmulator.debug.session import Session
    from mmulator.ptx.tree import Instruction


class Console:
    """The debugger as commands see it.

    debugger: whose sessions it shows.
    running: the launch at hand, or None.
    scope: whose instructions are steps.
    leave: the program is to go on.
    detached: and without the debugger.
    said: lines that the command at hand shows.
    """

    def __init__(self, debugger: Debugger) -> None:
        self.debugger = debugger
        self.running: Session | None = None
        self.scope = StepScope.WARP
        self.detached = self.leave = False
        self.said: list[str] = []

    @property
    def breakpoints(self) -> Breakpoints:
        return self.debugger.breakpoints

    @property
    def session(self) -> Session:
        """The launch at hand. Raises DebugError if there is none."""
        if self.running is None:
            raise DebugError("no launch is under control", hint="the program has not launched a kernel, or goes on")
        return self.running

    def say(self, *lines: str) -> None:
        """Show lines, with the command that is being carried out."""
        self.said += lines

    def show_stop(self) -> None:
        """Show where the launch stands."""
        self.say(*texts.stop_lines(self.session))

    def bind(self) -> None:
        """Find out what new breakpoints are in the launch at hand."""
        if self.running is not None:
            self.running.bind()

    def place(self) -> LanesAt:
        """Where the lane in focus stands. Raises DebugError if it has exited."""
        machine, focus = self.session.machine, self.session.focus
        found = texts.place_of(machine.warp(focus.block, focus.warp), focus.lane)
        if found is None:
            raise DebugError("the thread in focus has exited", hint="cuda thread X chooses another")
        return found

    def state(self) -> WarpState:
        """The warp in focus."""
        return self.session.machine.warp(self.session.focus.block, self.session.focus.warp)

    def instruction(self) -> Instruction:
        """The next instruction of the lane in focus."""
        found = self.place().instruction
        if found is None:
            raise DebugError("the thread in focus is at the end of a function")
        return found

    def instructions(self, sites: Sequence[int]) -> int:
        """Number of instructions of some sites in the launch at hand."""
        return self.running.instructions(sites) if self.running is not None else 0

    def quit(self) -> None:
        """End the program's process."""
        raise NotImplementedError


@dataclass(frozen=True)
class Command:
    """A command.

    names: the first is its full name; others are the abbreviations that gdb has.
    act: what it does, with the terminal and the words behind the name.
    running: whether it needs a launch.
    group: what commands like it do.
    """

    names: tuple[str, ...]
    act: Callable[[Console, str], None]
    running: bool = True
    group: str = ""

    @property
    def help(self) -> str:
        """The help of a command."""
        return cleandoc(self.act.__doc__ or "")


COMMANDS: list[Command] = []
GROUPS: list[str] = []  # of the commands that come next, the last one


def command(*names: str, running: bool = True) -> Callable[[Callable[[Console, str], None]], Callable[[Console, str], None]]:
    """Decorator: a function that is a command of these names."""

    def register(function: Callable[[Console, str], None]) -> Callable[[Console, str], None]:
        COMMANDS.append(Command(names, function, running, GROUPS[-1]))
        return function

    return register


def find(word: str) -> Command:
    """The command of a name, or of its beginning. Raises DebugError."""
    for c in COMMANDS:
        if word in c.names:
            return c
    found = [c for c in COMMANDS if c.names[0].startswith(word)]
    if len(found) == 1:
        return found[0]
    if found:
        raise DebugError(f"{word} may be {', '.join(c.names[0] for c in found)}")
    from difflib import get_close_matches

    near = get_close_matches(word, [c.names[0] for c in COMMANDS], 2)
    raise DebugError(f"there is no command {shown(word)}", hint=f"{' or '.join(near)}?" if near else "help lists them")


def number_in(text: str, otherwise: int = 1) -> int:
    """A whole number as typed. Raises DebugError."""
    if not text:
        return otherwise
    try:
        return int(text.replace(",", ""), 0)
    except ValueError:
        raise DebugError(f"{shown(text)} is no number") from None
