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

# Commands with the first paragraph of their help, which is written here, too, so that a list of them loads none. Each is the
# function (or application) of that name, in the module of that name or the one in _MODULES.
COMMANDS: dict[str, str] = {
    "run": "Run a kernel on the CPU with a device's bits.",
    "exec": "Run a program that uses a GPU on a machine without one.",
    "debug": "Debug kernels, forwards and backwards, in a terminal.",
    "nvcc": "Compile CUDA C++ by NVIDIA's nvcc, so that the program runs here.",
    "check": "Verify a PTX module: every instruction and operand, for its .target and .version.",
    "explain": "Explain a matrix instruction: operands, legal targets, each device's arithmetic, rules, text to paste. Or a "
        "rule of the sanitizer (`run --sanitize`): what must hold, and an example; `explain rules` lists them. Or one "
        "of the words swizzle, descriptor, fragment, proxy-fence, mbarrier, sparsity, bank.",
    "list": "List matrix instructions, those that differ only in shape, type or a qualifier in one line.",
    "why": "Show how each device adds up one element of a matrix product: chunks, exponents, the bits that are cut, the "
        "rounding.",
    "layout": "Which lane and register holds which element of a matrix, its metadata or its scale factors.",
    "explore": "Show layouts, shared memory, tensor maps, sparse metadata, number formats and sums in a browser.",
    "conformance": "Compare the model with a GPU, register by register, on operands that are hard to get right.",
    "judge": "One verdict on a kernel or a program.",
    "schema": "The JSON Schema of a document, or without a name which documents there are.",
    "doctor": "A report on this machine: the libraries and devices that mmulator can use.",
    "descriptor": "Encode, decode, check and draw matrix descriptors of wgmma; derive them from CuTe layouts.",
    "tensormap": "Encode, decode, check and draw tensor maps: the 128 bytes, and where each element of a box lands.",
    "sparse": "Matrices for sparse instructions: check, prune, compress, expand, lanes, decode.",
    "cache": "Where compiled code is kept, and how much of it.",
}  # fmt: skip
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
