"""Commands of the terminal in the console of a client."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, NoReturn

from mmulator.debug.dap.client import RefusedRequest
from mmulator.debug.dap.messages import Object
from mmulator.debug.stops import DebugError, Stopped
from mmulator.debug.terminal import DebugTerminal
from mmulator.debug.terminal_words import COMMANDS, find

if TYPE_CHECKING:
    from mmulator.debug.dap.standing import LanesFrame, Standing
    from mmulator.debug.session import Session

MOVING = (
    "continue", "reverse-continue", "step", "next", "stepi", "nexti", "reverse-step", "reverse-next", "reverse-stepi",
    "reverse-nexti", "finish", "reverse-finish", "goto", "run",
)  # fmt: skip
_OTHERS = ("quit", "detach", "kill")  # of which a client has its own


def word_of(text: str) -> str | None:
    """The full name of the command in a line; None if it has none. Raises Refused for one that the client has itself."""
    words = text.split()
    try:
        name = find(words[0].partition("/")[0]).names[0] if words else ""
    except DebugError:
        return None
    if name in _OTHERS:
        raise RefusedRequest(f"{name}: here the buttons of the debugger end the program")
    return name or None


def said_by(at: Standing, text: str) -> str:
    """The text that a command of the terminal says."""
    def end(code: int) -> NoReturn:
        raise RefusedRequest("the buttons of the debugger end the program")

    sink = io.StringIO()
    terminal = DebugTerminal(at.debugger, source=io.StringIO(), sink=sink, end=end)
    terminal.running = at.session
    terminal.do(text)
    return sink.getvalue().rstrip("\n")


def carry_out(at: Standing, text: str, session: Session) -> Stopped:
    """Carry out a command that moves the launch; what it says is shown in the console. Returns the stop."""
    at.client.output(said_by(at, text) + "\n")
    return session.stop


def completions(at: Standing, text: str, column: int, frame: LanesFrame | None) -> list[Object]:
    """Names that begin as the word before a column does."""
    before, _, word = text[: max(0, column - 1)].rpartition(" ")
    names = [*at.machine.types(frame.warp, frame.at.frame)] if frame is not None else []
    names += [a.name for a in at.session.names.arrays] + list(at.machine.kernel.shared.addresses)
    names += [] if before else [c.names[0] for c in COMMANDS]
    start = max(0, column - 1) - len(word)
    found = [name for name in dict.fromkeys(names) if word and name.startswith(word)]
    return [Object(label=name, start=start, length=len(word)) for name in found[:100]]
