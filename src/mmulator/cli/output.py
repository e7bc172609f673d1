"""Output of commands: tables for people, JSON for programs, errors for both."""

import errno
import json
import math
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TextIO

from mmulator.base.errors import MmulatorError
from mmulator.base.source import printable


def read_bytes(path: str) -> bytes:
    """The bytes of a file; `-` is standard input. Raises MmulatorError if it cannot be read."""
    from mmulator.ptx.text import read_bytes

    if path != "-":
        return read_bytes(path)
    given = getattr(sys.stdin, "buffer", sys.stdin).read()
    return given if isinstance(given, bytes) else given.encode()


def check_writable(path: str) -> None:
    """Raise MmulatorError at the beginning of a command if the file that it writes at the end cannot be written."""
    file = Path(path)
    wrong = errno.EISDIR if file.is_dir() else 0 if file.exists() or file.parent.is_dir() else errno.ENOENT
    if not wrong and not os.access(file if file.exists() else file.parent, os.W_OK):
        wrong = errno.EACCES
    if wrong:
        raise MmulatorError(f"cannot write {path}: {os.strerror(wrong)}")


def error_data(error: MmulatorError) -> dict[str, Any]:
    """An error as JSON data. file, line, column and caret are None for an error without a place in a text; source is None for a
    text
    that was written by hand.
    """
    span = error.span
    place = (span.source.file, span.line, span.column, span.caret()) if span else (None,) * 4
    return {
        "kind": error.kind, "message": error.message, **dict(zip(("file", "line", "column", "caret"), place)),
        "source": error.location.as_dict() if error.location else None, "rule": error.rule, "hint": error.hint,
    }  # fmt: skip


def print_error(error: MmulatorError, as_json: bool) -> None:
    """Print one error: on standard error for people, on standard output as JSON."""
    if as_json:
        print_json("error", {"ok": False, "errors": [error_data(error)]})
    else:
        print(error_text(error, _error_width() if sys.stderr.isatty() else None), file=sys.stderr)


def error_text(error: MmulatorError, columns: int | None) -> str:
    """An error for people, folded to `columns` columns; None does not fold."""
    text = f"{error.kind}: {error}"
    return text if columns is None else _fold_error(error, text, columns)


def _error_width() -> int:
    """Columns of the terminal that standard error goes to (standard output may go elsewhere)."""
    try:
        columns = int(os.environ.get("COLUMNS", "0")) or os.get_terminal_size(sys.stderr.fileno()).columns
    except (OSError, ValueError):
        columns = 0
    return max(40, columns or 80)


def _fold_error(error: MmulatorError, text: str, width: int) -> str:
    """The text of an error with its long lines folded; lines of source are cut around the caret."""
    shown: set[str] = set()
    if error.span:
        whole, cut = (printable(error.span.caret(*size)) for size in ((), (width - 2,)))
        whole, cut = ("\n".join(f"  {line}" for line in part.split("\n")) for part in (whole, cut))
        text = text.replace(whole, cut, 1)
        shown = set(cut.split("\n"))
    out = []
    for line in text.split("\n"):
        if line in shown or len(line) <= width:
            out.append(line)
            continue
        indent = " " * (len(line) - len(line.lstrip()) + 2)
        out += textwrap.wrap(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return "\n".join(out)


class WrongUsage(MmulatorError):
    """A command line that makes no sense; the hint is one that does. Exit code 2."""

    kind = "wrong usage"
    code = 2


def exclude(options: dict[str, Any], why: str) -> None:
    """Raise WrongUsage where more than one of the options is given (neither None nor False)."""
    given = [name for name, value in options.items() if value is not None and value is not False]
    if len(given) > 1:
        raise WrongUsage(f"not both {given[0]} and {given[1]}: {why}")


def misused(why: str, where: str) -> WrongUsage:
    """The error for options or arguments that make no sense. where: these, as help writes them."""
    return WrongUsage(f"{where}: {why}")


def print_json(name: str, data: dict[str, Any]) -> None:
    """Print a JSON document. NaN, Infinity and -Infinity, which JSON does not have, are written as texts.

    name: of its schema.
    """
    from mmulator.base.schemas import document

    print(json.dumps(_plain(document(name, data)), indent=1, ensure_ascii=True, default=str, allow_nan=False))


def _plain(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _plain(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_plain(value) for value in data]
    if isinstance(data, float) and not math.isfinite(data):
        return "NaN" if math.isnan(data) else "Infinity" if data > 0 else "-Infinity"
    return data


class Terminal:
    """Standard output on a terminal. Control characters in what a kernel prints, a file names or a module says are replaced;
    colours pass.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        at = 0
        for colour in _COLOUR.finditer(text):
            self._stream.write(printable(text[at : colour.start()]) + colour[0])
            at = colour.end()
        self._stream.write(printable(text[at:]))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


_COLOUR = re.compile(r"\x1b\[(?!8m)[0-9;]{0,20}m")
_BOLD, _DIM, _PLAIN = "\x1b[1m", "\x1b[2m", "\x1b[0m"


def colours() -> bool:
    """Whether standard output is a terminal with colours."""
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def print_heading(text: str) -> None:
    """A line of its own, bold on a terminal."""
    print(f"{_BOLD}{text}{_PLAIN}" if colours() else text)


def width() -> int:
    """Columns of the terminal; 80 elsewhere."""
    return max(40, shutil.get_terminal_size((80, 24)).columns)


def print_text(text: str, hang: int = 0, file: TextIO | None = None) -> None:
    """Print a paragraph, folded to the terminal (to 80 columns elsewhere). hang: indent of lines after the first."""
    first = " " * (len(text) - len(text.lstrip()))
    print(
        textwrap.fill(
            text.lstrip(), width(), initial_indent=first, subsequent_indent=" " * hang, break_long_words=False,
            break_on_hyphens=False,
        ),
        file=file,
    )  # fmt: skip


def print_line(text: str, hang: int = 4, file: TextIO | None = None) -> None:
    """Print a line that other programs may read: folded only on a terminal, or to COLUMNS."""
    if narrow():
        print_text(text, hang, file)
    else:
        print(text, file=file)


def narrow() -> bool:
    """Whether lines are folded: on a terminal, or where COLUMNS is set."""
    return sys.stdout.isatty() or "COLUMNS" in os.environ


def print_columns(columns: Sequence[str], rows: Sequence[Sequence[str]], breaks: str) -> None:
    """Print a table whose last column is long. On a terminal (or with COLUMNS) that column is folded before one of the letters
    `breaks`; other programs see whole lines.
    """
    widths = [max(len(row[i]) for row in (columns, *rows)) for i in range(len(columns) - 1)]
    left = sum(widths) + 2 * len(widths)
    room = max(24, shutil.get_terminal_size().columns - left) if narrow() else 1 << 30
    for number, row in enumerate((columns, *rows)):
        cells = [cell.ljust(width) for cell, width in zip(row, widths)]
        text = row[-1]
        head = "  ".join([*cells, ""])
        while len(text) > room:
            at = max((text.rfind(letter, 1, room + 1) for letter in breaks), default=-1)
            at = at if at > 0 else room
            at -= at > 1 and text[at - 1] == "{"  # `{.a,.b}` is not torn after the brace
            print(head + text[:at])
            head, text = " " * left, text[at:].lstrip()
        print(head + text if number else f"{_DIM}{head + text}{_PLAIN}" if colours() else head + text)


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table; nothing if there are no rows."""
    cells = [[str(cell) for cell in row] for row in rows]
    if not cells:
        return
    if not sys.stdout.isatty() and not _RICH & os.environ.keys():
        lines = _aligned([list(columns), *cells])
        if lines:
            print(*([title] if title else []), *lines, sep="\n")
            return
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console()
    if not console.is_terminal:
        console = Console(width=_WIDEST)
    if title:
        console.print(escape(title), style="bold", highlight=False)  # a table's own title is folded to its width
    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, header_style="dim")
    for row in cells:
        table.add_row(*map(escape, row))
    console.print(table)


_WIDEST = 200  # columns of a table that is printed elsewhere than on a terminal
_RICH = {"FORCE_COLOR", "TTY_COMPATIBLE"}  # variables by which rich takes anything for a terminal


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a table as rich writes them; none for one that needs rich: long lines, characters of another width."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)) for row in rows]
    return lines if len(lines[0]) <= _WIDEST and all(line.isascii() and line.isprintable() for line in lines) else []
