"""Docstrings for Sphinx: lines `name: meaning` become a list."""

from __future__ import annotations

import inspect
import re
from typing import Any

_LINE = re.compile(r"^(\w+(?:, \w+)*): (\S.*)$")


def prepared(lines: list[str], names: set[str]) -> list[str]:
    """The lines of a docstring as reStructuredText. names: of parameters or fields."""
    out: list[str] = []
    inside = False
    for line in lines:
        found = _LINE.match(line)
        if found and {*found[1].split(", ")} <= names:
            out += [*([] if inside else [""]), f"- ``{found[1]}``: {_plain(found[2])}"]
            inside = True
        elif inside and line.strip():
            out.append(f"  {_plain(line.strip())}")
        else:
            if inside and line.strip():
                out.append("")
            inside = False
            out.append(_plain(line.strip()))
    return [*out, ""]


def _plain(line: str) -> str:
    """A line without marks of reStructuredText but backquotes."""
    return re.sub(r"(?<!`)([*|])", r"\\\1", line).replace("_ ", r"\_ ")


def _process(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    try:
        names = {*inspect.signature(obj).parameters}
    except (TypeError, ValueError):
        names = set()
    names |= {*getattr(obj, "__annotations__", {})}
    lines[:] = prepared(lines, names)


def setup(app: Any) -> dict[str, bool]:
    """Register with Sphinx."""
    app.connect("autodoc-process-docstring", _process)
    return {"parallel_read_safe": True}
