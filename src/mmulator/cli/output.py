"""What commands print: tables for people, JSON for programs, errors for both."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from mmulator.errors import MmulatorError
from mmulator.source import Source


def read_source(path: str) -> Source:
    """The text of a file; `-` is standard input. Raises MmulatorError if it cannot be read."""
    if path == "-":
        return Source("<stdin>", sys.stdin.read())
    try:
        return Source(path, Path(path).read_text(encoding="utf-8", errors="replace"))
    except OSError as error:
        raise MmulatorError(f"cannot read {path}: {error.strerror}") from None


def error_data(error: MmulatorError) -> dict[str, Any]:
    """An error as JSON data; file, line, column and caret are None where it has no place in a text."""
    span = error.span
    return {
        "kind": error.kind,
        "message": error.message,
        "file": span.source.name if span else None,
        "line": span.line if span else None,
        "column": span.column if span else None,
        "caret": span.caret() if span else None,
        "rule": error.rule,
        "hint": error.hint,
    }


def print_error(error: MmulatorError, as_json: bool) -> None:
    """One message: on standard error for people, on standard output as JSON."""
    if as_json:
        print_json({"ok": False, "errors": [error_data(error)]})
    else:
        print(f"{error.kind}: {error}", file=sys.stderr)


def print_json(data: Any) -> None:
    print(json.dumps(data, indent=1, ensure_ascii=True, default=str))


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table; nothing if there are no rows."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    cells = [[escape(str(cell)) for cell in row] for row in rows]
    if not cells:
        return
    console = Console()
    if not console.is_terminal:
        console = Console(width=200)
    console.print(escape(title), style="bold", highlight=False)  # a table's own title is folded to its width
    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, header_style="dim")
    for row in cells:
        table.add_row(*row)
    console.print(table)
