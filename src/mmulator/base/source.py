"""Spans of source text: the one place that knows files, lines, columns and carets."""

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import field
from pathlib import Path, PurePath

from mmulator.base.classes import dataclass, node
from mmulator.base.lazy import cached_property
from mmulator.base.location import LineTable, Location
from mmulator.base.location import printable as printable


@dataclass(frozen=True, eq=False)
class Source:
    """A named text.

    name: a file name, or a description such as `<instruction>`.
    lines: what a compiler said about where the text comes from, as far as it has been parsed.
    keep: writes a text that came from no file to one, for people to open.
    """

    name: str
    text: str = field(repr=False)
    lines: LineTable = field(default_factory=LineTable, repr=False)
    keep: Callable[[str], Path | None] | None = field(default=None, repr=False)

    @cached_property
    def file(self) -> str:
        """The name, or the file that `keep` has written."""
        return str((self.keep(self.text) if self.keep is not None else None) or self.name)

    @cached_property
    def _starts(self) -> list[int]:
        starts = [0]
        starts.extend(i + 1 for i, c in enumerate(self.text) if c == "\n")
        return starts

    def position(self, offset: int) -> tuple[int, int]:
        """1-based line and column of a character offset."""
        line = bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1

    def line_text(self, line: int) -> str:
        """Text of a 1-based line, without its end."""
        start = self._starts[line - 1]
        end = self._starts[line] - 1 if line < len(self._starts) else len(self.text)
        return self.text[start:end].rstrip("\r")


@node(frozen=True, slots=True)
class Span:
    """Characters `start` up to `end` of a source."""

    source: Source
    start: int
    end: int

    @property
    def line(self) -> int:
        return self.source.position(self.start)[0]

    @property
    def column(self) -> int:
        return self.source.position(self.start)[1]

    @property
    def text(self) -> str:
        return self.source.text[self.start : self.end]

    @property
    def location(self) -> Location | None:
        """The line of the program that this was compiled from, where the text says so."""
        return self.source.lines.at(self.start, self.source.text, self.source.name)

    @property
    def assembly(self) -> int:
        """The offset at which the inline assembly around this begins; -1 for none."""
        return self.source.lines.assembly(self.start, self.source.text)

    @property
    def brief(self) -> str:
        """The line of the program as `mm.py:17`, or ""."""
        location = self.location
        return location.brief if location else ""

    @property
    def row(self) -> str:
        """The line of the text as `gemm.ptx:120`: the file without its folder."""
        return f"{PurePath(self.source.name).name}:{self.line}"

    @property
    def rows(self) -> str:
        """The lines of the program and of the text: `gemm.py:31, gemm.ptx:120`, or `gemm.ptx:120` where no program is named."""
        return f"{self.brief}, {self.row}" if self.brief else self.row

    @property
    def place(self) -> str:
        """The line of the text as `gemm.ptx:120`, with the file as it was named; of a text without a file the one that is written
        of it, unless the line of the program is known.
        """
        return f"{self.source.name if self.location else self.source.file}:{self.line}"

    def __str__(self) -> str:
        return f"{self.place}:{self.column}"

    def caret(self, width: int = 100) -> str:
        """The source line with a caret line under the span, cut to `width` columns around it."""
        line, column = self.source.position(self.start)
        text = self.source.line_text(line).replace("\t", " ")
        length = max(1, min(self.end - self.start, len(text) - column + 1))
        lead = len(text) - len(text.lstrip())
        text, column = text[lead:].rstrip(), max(1, column - lead)
        if len(text) > width:
            first = max(0, min(column - 1 - width // 3, len(text) - width))
            text, column = text[first : first + width], column - first
            length = min(length, width - column + 1)
        return f"{text}\n{' ' * (column - 1)}{'^' * max(1, length)}"
