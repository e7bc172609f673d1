"""The package's source, as laws read it: only files that have a word, and of a tree only its statements."""

import ast
from collections.abc import Iterator
from pathlib import Path
from re import Pattern

from tests.support.places import ROOT

SOURCE = ROOT / "src" / "mmulator"
FILES = sorted(SOURCE.rglob("*.py"))


def trees(word: Pattern[str], files: list[Path] = FILES) -> Iterator[tuple[Path, ast.Module]]:
    """Files in which a word is found, each with its tree: to make the trees of all takes seconds."""
    for path in files:
        if word.search(text := path.read_text()):
            yield path, ast.parse(text)


def statements(node: ast.AST, types: bool = True) -> Iterator[ast.stmt]:
    """Every statement below a node, inside functions too. types: those that are for types alone too."""
    for name in ("body", "handlers", "orelse", "finalbody", "cases"):
        for child in getattr(node, name, ()):
            if types or not (isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test)):
                if isinstance(child, ast.stmt):
                    yield child
                yield from statements(child, types)
