"""Commands of the terminal that move a launch, its breakpoints and the focus: gdb's and cuda-gdb's words; the table of all
commands, what they work on, and how a word finds its command.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from inspect import cleandoc
from typing import TYPE_CHECKING

from mmulator.base.errors import shown
from mmulator.observation.debug import terminal_texts as texts
from mmulator.observation.debug.breakpoints import Breakpoints
from mmulator.observation.debug.machine import first_lane
from mmulator.observation.debug.stops import DebugError, Focus, StepScope
from mmulator.runtime.native.state import LANES

if TYPE_CHECKING:
    from mmulator.observation.debug.machine import LanesAt, WarpState
    from mmulator.observation.debug.program import Debugger
    from mmulator.observation.debug.session import Session
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
        found = machine.warp(focus.block, focus.warp).at(focus.lane)
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


GROUPS.append("going on and back")
@command("continue", "c", "cont", "fg")
def go_on(t: Console, rest: str) -> None:
    """continue [N]: go on to the next stop; the breakpoint that stopped last is passed N - 1 times."""
    if t.session.stop.over:
        t.leave = True
        return
    for b in t.breakpoints:
        if b.number in t.session.stop.hits:
            b.ignore = max(0, number_in(rest) - 1)
    t.session.go()
    t.show_stop()


@command("reverse-continue", "rc")
def go_back(t: Console, _: str) -> None:
    """reverse-continue: go back to the stop before this one."""
    t.session.go(back=True)
    t.show_stop()


def _steps(lines: bool, over: bool, back: bool) -> Callable[[Console, str], None]:
    def act(t: Console, rest: str) -> None:
        t.session.step(number_in(rest), lines=lines, over=over, back=back)
        t.show_stop()

    return act


for _names, _lines, _over, _doc in (
    (("step", "s"), True, False, "go on to another line, in called functions, too"),
    (("next", "n"), True, True, "go on to another line; calls are part of their line"),
    (("stepi", "si"), False, False, "go on by one PTX instruction"),
    (("nexti", "ni"), False, True, "go on by one PTX instruction; a call is one"),
):  # fmt: skip
    for _back in (False, True):
        _act = _steps(_lines, _over, _back)
        _name, _short = (f"reverse-{_names[0]}", f"r{_names[1]}") if _back else _names
        _text = _doc.replace("go on", "go back") if _back else _doc
        _act.__doc__ = f"{_name} [N]: {_text}; N times. Whose instructions count, says `set scope warp|warpgroup|block`."
        command(_name, _short)(_act)


@command("finish", "fin")
def finish(t: Console, _: str) -> None:
    """finish: run until the function in focus returns, also one that the compiler inlined."""
    t.session.finish()
    t.show_stop()


@command("reverse-finish")
def finish_back(t: Console, _: str) -> None:
    """reverse-finish: go back to the call of the function in focus."""
    t.session.finish(back=True)
    t.show_stop()


@command("goto")
def goto(t: Console, rest: str) -> None:
    """goto STEP: stand before the step of this number; +N and -N count from here. `info line` says the number."""
    here = t.session.stop.step
    step = here + number_in(rest) if rest[:1] in ("+", "-") else number_in(rest, -1)
    t.session.goto(step)
    t.show_stop()


@command("run", "r", "start")
def run(t: Console, _: str) -> None:
    """run: start the launch over, from its first instruction."""
    t.session.start()
    t.show_stop()


@command("detach")
def detach(t: Console, _: str) -> None:
    """detach: let the program run to its end without the debugger."""
    t.detached = t.leave = True


@command("quit", "q", "exit", running=False)
def quit(t: Console, _: str) -> None:
    """quit: end the program."""
    t.quit()


@command("kill", "k")
def kill(t: Console, rest: str) -> None:
    """kill: end the program."""
    t.quit()


GROUPS.append("breakpoints")
def _split(rest: str) -> tuple[str, str]:
    place, _, condition = rest.partition(" if ")
    if rest.startswith("if "):
        place, condition = "", rest[3:]
    return place.strip(), condition.strip()


def _break(t: Console, rest: str, temporary: bool) -> None:
    place, condition = _split(rest)
    kind, _, what = place.partition(" ")
    if kind == "mbarrier" and what:
        made = t.breakpoints.mbarrier(what)
    elif kind == "rule" and what:
        made = t.breakpoints.rule(what)
    else:
        if not place:
            place = f"ptx:{t.session.stop.ptx_line}"
        made = t.breakpoints.add(place, condition, temporary)
    t.bind()
    where = f", ptx line {made.line}" if made.kind == "kernel" and made.line else f", line {made.line}" if made.line else ""
    places = t.instructions(made.sites)
    many = f", {places} places" if places > 1 else ""
    problem = f" (waits for another launch: {made.problem})" if made.problem else ""
    word = "Temporary breakpoint" if temporary else "Breakpoint"
    t.say(*texts.filled(f"{word} {made.number}: {made.place}{where}{many}{problem}", "    "))


@command("break", "b", "br", running=False)
def break_(t: Console, rest: str) -> None:
    """break PLACE [if CONDITION]: stop there. PLACE: FILE:LINE, LINE, ptx:LINE, KERNEL, *SITE; mbarrier ADDRESS|VARIABLE, where
    a phase is completed; rule NAME, where the sanitizer finds it broken. CONDITION: over the lanes, tid.x == 3 && %r5 > 7."""
    _break(t, rest, False)


@command("tbreak", "tb", running=False)
def tbreak(t: Console, rest: str) -> None:
    """tbreak PLACE [if CONDITION]: as break, for one stop."""
    _break(t, rest, True)


@command("watch", running=False)
def watch(t: Console, rest: str) -> None:
    """watch ELEMENT: stop behind the step that changes it. ELEMENT: C[3,5], KERNEL:C[3,5], 0x7f00:f32; shared 0x400:f32,
    shared tile+16 of each block."""
    place, condition = _split(rest)
    if condition:
        raise DebugError("a watchpoint has no condition", hint="break PLACE if CONDITION has")
    made = t.breakpoints.watch(place)
    t.bind()
    problem = f" (waits for another launch: {made.problem})" if made.problem else ""
    t.say(*texts.filled(f"Watchpoint {made.number}: {made.place}{problem}", "    "))


def _each(change: Callable[[Breakpoints, int], None]) -> Callable[[Console, str], None]:
    def act(t: Console, rest: str) -> None:
        for number in [number_in(word) for word in rest.split()] or [b.number for b in t.breakpoints]:
            change(t.breakpoints, number)

    return act


_ROWS: tuple[tuple[tuple[str, ...], Callable[[Breakpoints, int], None], str], ...] = (
    (("delete", "d", "del"), Breakpoints.delete, "remove breakpoints; without a number all"),
    (("enable",), Breakpoints.enable, "breakpoints stop launches again"),
    (("disable",), partial(Breakpoints.enable, enabled=False), "breakpoints stop nothing until they are enabled"),
)
for _words, _change, _doc in _ROWS:
    _act = _each(_change)
    _act.__doc__ = f"{_words[0]} [N...]: {_doc}."
    command(*_words, running=False)(_act)


@command("condition", "cond", running=False)
def condition(t: Console, rest: str) -> None:
    """condition N [CONDITION]: another condition of a breakpoint, or none."""
    number, _, text = rest.partition(" ")
    t.breakpoints.change(number_in(number, 0), text.strip())


@command("ignore", running=False)
def ignore(t: Console, rest: str) -> None:
    """ignore N COUNT: the breakpoint does not stop the next COUNT times."""
    number, _, count = rest.partition(" ")
    t.breakpoints[number_in(number, 0)].ignore = number_in(count)


GROUPS.append("focus")
_FOCUS = re.compile(r"(block|thread|warp|lane)\s+\(?(\d+(?:\s*,\s*\d+)*)\)?", re.ASCII)


@command("cuda")
def cuda(t: Console, rest: str) -> None:
    """cuda [block X,Y,Z] [thread X,Y,Z] [warp N] [lane N]: another lane in focus; without words, which it is."""
    _set_focus(t, rest)


@command("thread")
def thread(t: Console, rest: str) -> None:
    """thread [X,Y,Z]: another thread of the block in focus."""
    _set_focus(t, f"thread {rest}" if rest else "")


def _set_focus(t: Console, rest: str) -> None:
    session = t.session
    if rest and not re.fullmatch(rf"(\s*{_FOCUS.pattern})+\s*", rest):
        raise DebugError(f"{shown(rest)}: no such focus", hint="cuda block 1,0 thread 32; cuda warp 3 lane 5")
    machine, focus = session.machine, session.focus
    for name, numbers in _FOCUS.findall(rest):
        at = [int(n) for n in numbers.split(",")]
        if name == "block":
            number = at[0] if len(at) == 1 and session.grid[1] == session.grid[2] == 1 else _linear(at, session.grid, "block")
            focus = Focus(number, 0, 0)
        elif name == "thread":
            number = _linear(at, session.block, "thread")
            focus = Focus(focus.block, number // LANES, number % LANES)
        elif name == "warp":
            focus = Focus(focus.block, at[0], 0)
        else:
            focus = Focus(focus.block, focus.warp, at[0])
    state = machine.warp(focus.block, focus.warp)
    if not 0 <= focus.lane < LANES or not int(state.cta.warps[focus.warp]["lanes"]) >> focus.lane & 1:
        raise DebugError(f"warp {focus.warp} has no lane {focus.lane}")
    if rest and not {"lane", "thread"} & {name for name, _ in _FOCUS.findall(rest)} and state.places:
        first = state.places[0].lanes
        focus = Focus(focus.block, focus.warp, first_lane(first))
    session.focus = focus
    t.say(*texts.focus_lines(session))


def _linear(at: list[int], extent: tuple[int, int, int], what: str) -> int:
    x, y, z = [*at, 0, 0][:3]
    if len(at) > 3 or not (x < extent[0] and y < extent[1] and z < extent[2]):
        raise DebugError(f"there is no {what} {at}: the extents are {extent}")
    return x + extent[0] * (y + extent[1] * z)


@command("set", running=False)
def set_(t: Console, rest: str) -> None:
    """set scope warp|warpgroup|block: whose instructions are steps."""
    words = rest.split()
    if words[:1] != ["scope"] or words[1:] not in ([s.value] for s in StepScope):
        raise DebugError(f"{shown(rest)}: nothing that can be set", hint="set scope warp, warpgroup or block")
    t.scope = StepScope(words[1])
    if t.running is not None:
        t.running.scope = t.scope


@command("help", "h", running=False)
def help_(t: Console, rest: str) -> None:
    """help [COMMAND]: what the commands do."""
    if rest:
        c = find(rest.split()[0])
        t.say(*texts.filled(" ".join(c.help.split()), "    "), *([f"also: {', '.join(c.names[1:])}"] if c.names[1:] else []))
        return
    for before, c in zip([None, *COMMANDS], COMMANDS):
        if before is None or before.group != c.group:
            t.say(*[""] * (before is not None), f"{c.group}:")
        first = " ".join(c.help.split()).partition(": ")
        t.say(*texts.filled(f"{c.names[0]:17} {first[2].partition('. ')[0].rstrip('.')}", " " * 18))
