"""A kernel as lines that can be left out: one statement or declaration each, without comments and what it does not reach.

The text of a module comes in, and goes out again, a row a line: the number of a row is that of its line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from mmulator.ptx.program.calls import reached
from mmulator.ptx.tree import ParsedModule

_NOISE = re.compile(
    r"//[^\n]*|/\*[\s\S]*?\*/|\.section\s+\"?\.\w+\"?\s*\{[^}]*\}|\.file\s+\d+\s+\"[^\"]*\"(?:\s*,\s*\d+){0,2}"
    r"|\.loc(?:\s+\d+){2,3}(?:\s*,\s*function_name\s[^,]+,\s*inlined_at(?:\s+\d+){3})?"
)
_PIECE = re.compile(
    r"\s*(?:(?P<fixed>\.(?:version|target|address_size)\b[^\n]*|\.alias\b[^;]*;|[{}])|(?P<head>[^;{}]*?\.(?:entry|func)\b[^;{]*[;{])"
    r"|(?P<label>[\w$%]+\s*:(?!:))|(?P<rest>[^;]*;))"
)
_HEAD = re.compile(r"\.entry\s+([\w$%]+)|\.func\s*(?:\([^)]*\)\s*)?([\w$%]+)")


class LineKind(Enum):
    """The part that a line has in a program."""

    FIXED = "it stays"
    PARAM = "a parameter of the kernel"
    DECLARATION = "a variable, registers, a prototype or a list of targets"
    STATEMENT = "an instruction or a label"


@dataclass(frozen=True)
class ProgramLine:
    """A line of a program. function: whose line it is, "" for the module's."""

    text: str
    kind: LineKind
    function: str = ""

    def but(self, text: str) -> ProgramLine:
        """The line with another text."""
        return replace(self, text=text)


@dataclass(frozen=True)
class KernelLines:
    """A program. lines: in order."""

    lines: tuple[ProgramLine, ...]

    def but(self, lines: Sequence[ProgramLine]) -> KernelLines:
        """The program with other lines; scopes without any go."""
        kept: list[ProgramLine] = []
        for line in lines:
            if kept and line.text == "}" and kept[-1].text == "{":
                kept.pop()
            else:
                kept.append(line)
        return KernelLines(tuple(kept))

    def text(self) -> str:
        """The PTX."""
        last = max(self.of(LineKind.PARAM), default=-1)
        return "".join(
            f"{line.text}{',' * (line.kind is LineKind.PARAM and n != last)}\n" for n, line in enumerate(self.lines)
        )  # fmt: skip

    def of(self, kind: LineKind) -> list[int]:
        """Numbers of the lines of a kind."""
        return [n for n, line in enumerate(self.lines) if line.kind is kind]

    @property
    def instructions(self) -> int:
        """How many instructions the program has."""
        return sum(self.lines[n].text.endswith(";") for n in self.of(LineKind.STATEMENT))


def lines_of(tree: ParsedModule, entry: str, verified: bool = True) -> KernelLines:
    """The lines of a kernel and of what it reaches. verified: whether the tree is; of another one all functions stay."""
    kernel = next(f for f in tree.entries if f.name == entry)
    kept = {*reached(tree, kernel).functions} if verified else {f.name for f in tree.functions}
    lines = _lines(_NOISE.sub(" ", tree.source.text), entry)
    return KernelLines(()).but([x for x in lines if x.function in kept or not x.function])


def _lines(text: str, entry: str) -> Iterator[ProgramLine]:
    function, depth = "", 0
    for found in _PIECE.finditer(text):
        words, inner = " ".join(found[0].split()), "  " * (depth > 0)
        if found["head"] and words.endswith("{"):
            name = _HEAD.search(words)
            function, depth = (name[1] or name[2]) if name else "", 1
            before, parenthesis, rest = words.partition("(")
            if function == entry and parenthesis:
                parameters, _, rest = rest.partition(")")
                yield ProgramLine(f"{before}(", LineKind.FIXED, function)
                yield from (ProgramLine(f"  {p.strip()}", LineKind.PARAM, function) for p in parameters.split(",") if p.strip())
                words = f"){rest}"
            yield ProgramLine(words, LineKind.FIXED, function)
        elif found["fixed"]:
            depth += {"{": 1, "}": -1}.get(words, 0)
            yield ProgramLine(words, LineKind.FIXED, function)
            function = function if depth else ""
        else:
            declares = found["head"] or words.startswith(".")
            yield ProgramLine(inner + words, LineKind.DECLARATION if declares else LineKind.STATEMENT, function)
