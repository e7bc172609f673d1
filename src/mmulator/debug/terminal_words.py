"""The table of the terminal's commands: names, what they do, and how a word finds its command."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from inspect import cleandoc
from typing import TYPE_CHECKING

from mmulator.debug.stops import DebugError
from mmulator.errors import shown

if TYPE_CHECKING:
    from mmulator.debug.terminal import Terminal


@dataclass(frozen=True)
class Command:
    """A command.

    names: the first is its full name; others are the abbreviations that gdb has.
    act: what it does, with the terminal and the words behind the name.
    running: whether it needs a launch.
    """

    names: tuple[str, ...]
    act: Callable[[Terminal, str], None]
    running: bool = True

    @property
    def help(self) -> str:
        """What it does, in words."""
        return cleandoc(self.act.__doc__ or "")


COMMANDS: list[Command] = []


def command(*names: str, running: bool = True) -> Callable[[Callable[[Terminal, str], None]], Callable[[Terminal, str], None]]:
    """Decorator: a function that is a command of these names."""

    def register(function: Callable[[Terminal, str], None]) -> Callable[[Terminal, str], None]:
        COMMANDS.append(Command(names, function, running))
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
