"""The help of `mmulator` itself: its options and commands. typer writes the help of each command; to load it takes longer."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from itertools import zip_longest

from mmulator.cli.output import colours, width
from mmulator.cli.words import COMMANDS

ABOUT = "NVIDIA tensor-core kernels without the GPU, bit for bit."
VERSION = "Print it."
_SHELL = "<bash|zsh|fish|powershell|pwsh>"
_OPTIONS = {
    "--version": VERSION,
    f"--install-completion {_SHELL}": "Install completion for the specified shell.",
    f"--show-completion {_SHELL}": "Show completion for the specified shell, to copy it or customize the installation.",
    "--help, -h": "Show this message and exit.",
}
_STYLES = "\x1b[2m{}\x1b[0m", "\x1b[1;36m{}\x1b[0m"  # a frame's and a name's, as typer has them


def print_overview() -> None:
    """Print what `mmulator --help` shows."""
    columns = width()
    print(*textwrap.wrap("Usage: mmulator [OPTIONS] COMMAND [ARGS]...", columns), "", sep="\n")
    print(*textwrap.wrap(ABOUT, columns), "", sep="\n")
    _print_frame("Options", _OPTIONS, columns)
    _print_frame("Commands", COMMANDS, columns)


def _print_frame(title: str, rows: Mapping[str, str], columns: int) -> None:
    """Print names with their texts, framed as typer frames them. A name too long for its column has a line of its own."""
    frame, shown = _STYLES if colours() else ("{}", "{}")
    names = max(len(name) for name in rows if len(name) <= columns // 3)
    inside = columns - 4  # a border and a space on each side
    print(frame.format(f"╭─ {title} ".ljust(columns - 1, "─") + "╮"))
    for name, text in rows.items():
        lefts = [name] if len(name) <= names else [*textwrap.wrap(name, inside), ""]
        rights = [""] * (len(lefts) - 1) + textwrap.wrap(text, inside - names - 2, break_on_hyphens=False)
        for left, right in zip_longest(lefts, rights, fillvalue=""):
            rest = f"{left:{names}}  {right}"[len(left) :].rstrip().ljust(inside - len(left))
            print(frame.format("│"), shown.format(left) + rest, frame.format("│"))
    print(frame.format("╰" + "─" * (columns - 2) + "╯"))
