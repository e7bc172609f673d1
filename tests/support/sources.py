"""The package's source, as laws read it: each file once, of a tree only its statements, and its native functions."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from re import Pattern

from tests.support.places import ROOT

SOURCE = ROOT / "src" / "mmulator"
FILES = sorted(SOURCE.rglob("*.py"))


@cache
def text(path: Path) -> str:
    return path.read_text()


@cache
def tree(path: Path) -> ast.Module:
    """The tree of a file. It may not be changed."""
    return ast.parse(text(path))


def trees(word: Pattern[str], files: list[Path] = FILES) -> Iterator[tuple[Path, ast.Module]]:
    """Files in which a word is found, each with its tree: to make the trees of all takes seconds."""
    return ((path, tree(path)) for path in files if word.search(text(path)))


def natives(module: ast.Module) -> list[ast.FunctionDef]:
    """Native functions of a file, those that factories make among them."""
    nodes = [*ast.walk(module)]
    calls = [a for a in nodes if isinstance(a, ast.Call) and isinstance(a.func, ast.Name) and a.func.id == "Native"]
    made = {first.id for a in calls for first in a.args[:1] if isinstance(first, ast.Name)}
    return [f for f in nodes if isinstance(f, ast.FunctionDef) and (any(map(_is_native, f.decorator_list)) or f.name in made)]


def _is_native(decorator: ast.expr) -> bool:
    return ast.unparse(decorator.func if isinstance(decorator, ast.Call) else decorator) == "native"


def statements(node: ast.AST, types: bool = True) -> Iterator[ast.stmt]:
    """Every statement below a node, inside functions too. types: those that are for types alone too."""
    for name in ("body", "handlers", "orelse", "finalbody", "cases"):
        for child in getattr(node, name, ()):
            if types or not (isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test)):
                if isinstance(child, ast.stmt):
                    yield child
                yield from statements(child, types)
