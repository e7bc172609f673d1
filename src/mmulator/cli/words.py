"""Declarations of commands' options and arguments, and the reading of plain command lines.

To load typer takes longer than most commands run. So typer reads a command line only if it is not plain: help, a mistake, a
short option. A plain one has long options, each with a value of its kind, and arguments. typer's declarations are made of these
(tree.py).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

# Commands. Each is the function (or application) of that name, in the module of that name or the one in _MODULES.
COMMANDS: tuple[str, ...] = (
    "run", "exec", "debug", "nvcc", "check", "explain", "list", "why", "layout", "descriptor", "tensormap", "sparse", "explore",
    "conformance", "judge", "schema", "doctor", "cache",
)  # fmt: skip
_MODULES = {"list": "listing"}  # a module `list` would hide the builtin in this package
_WHOLE, _NUMBER = re.compile(r"\d{1,9}", re.ASCII), re.compile(r"\d+(\.\d+)?(e-?\d+)?", re.ASCII)


class Option:
    """An option of a command: an annotation of the parameter of its function. names: with their dashes; none: the parameter's.
    said: what typer is told. A text as `autocompletion` names a function of completion.py."""

    kind = "Option"  # typer's name of it

    def __init__(self, *names: str, **said: Any) -> None:
        self.names, self.said = names, said


class Positional(Option):
    """An argument of a command."""

    kind = "Argument"


def command_of(name: str) -> Any:
    """The function of a command, or its application."""
    return getattr(import_module(f"mmulator.cli.{_MODULES.get(name, name)}"), name)


def plain(command: Callable[..., Any], words: Sequence[str]) -> dict[str, Any] | None:
    """The parameters that a plain command line gives to a command; None for another one."""
    kinds: dict[str, tuple[Any, Option]] = {}
    options: dict[str, str] = {}
    arguments: list[str] = []
    for name, hint in get_type_hints(command, include_extras=True).items():
        if name != "return":
            _, word = kinds[name] = get_args(hint)
            if isinstance(word, Positional):
                arguments.append(name)
            else:
                options |= dict.fromkeys(word.names or (f"--{name.replace('_', '-')}",), name)
    given: dict[str, Any] = {}
    rest = [*words]
    while rest:
        option, equals, text = rest.pop(0).partition("=")
        if option[:1] == "-":
            name = options.get(option, "")
            if name and kinds[name][0] is not bool and not equals:
                text = rest.pop(0) if rest and rest[0][:1] != "-" else ""
            elif name and equals and kinds[name][0] is bool:
                return None
        else:
            name, text = arguments[0] if arguments else "", option + equals + text
            if name and not _is_list(kinds[name][0]):
                arguments.pop(0)
        if not name or not _take(given, name, *kinds[name], text):
            return None
    parameters = command.__code__.co_varnames[: command.__code__.co_argcount - len(command.__defaults__ or ())]
    return given if given.keys() >= {*parameters} else None


def _take(given: dict[str, Any], name: str, kind: Any, word: Option, text: str) -> bool:
    """Give a parameter a value; False where typer should look at it."""
    if kind is bool:
        given[name] = True
        return True
    several = _is_list(kind)
    if not text or (name in given and not several):
        return False
    kind = next(k for k in _kinds(kind) if k in (int, float, str, Path))
    if (kind is int and not _WHOLE.fullmatch(text)) or (kind is float and not _NUMBER.fullmatch(text)):
        return False
    if kind is Path and Path(text).exists() and not os.access(text, os.R_OK):
        return False
    value, least, most = kind(text), word.said.get("min"), word.said.get("max")
    given[name] = [*given.get(name, ()), value] if several else value
    return (least is None or value >= least) and (most is None or value <= most)


def _is_list(kind: Any) -> bool:
    return any(get_origin(part) is list for part in _kinds(kind))


def _kinds(kind: Any) -> Iterator[Any]:
    """A type, and the types that it is made of."""
    yield kind
    for part in get_args(kind):
        yield from _kinds(part)
