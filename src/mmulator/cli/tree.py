"""The commands as a tree that typer reads: help, completion, usage errors."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import partial
from inspect import cleandoc
from types import FunctionType
from typing import Annotated, Any, get_args, get_type_hints

import typer

from mmulator import __version__
from mmulator.cli import completion
from mmulator.cli.overview import ABOUT, VERSION
from mmulator.cli.words import COMMANDS, Option, command_of


def _version(wanted: bool) -> None:
    if wanted:
        print(f"mmulator {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help=VERSION)] = False,
) -> None:
    pass


_root.__doc__ = ABOUT


def application(names: Iterable[str] = COMMANDS) -> typer.Typer:
    """The application with its commands, or some of them."""
    # `--show-completion SHELL` rather than a guess from the parent process, which is wrong in scripts and containers
    os.environ.setdefault("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    app = typer.Typer(
        name="mmulator", no_args_is_help=True, add_completion=True, pretty_exceptions_enable=False,
        rich_markup_mode="rich",
    )  # fmt: skip
    app.callback()(_root)
    for name in names:
        command = command_of(name)
        if isinstance(command, typer.Typer):  # an application with commands of its own
            app.add_typer(command, name=name)
        else:
            app.command(name)(_declared(command))
    return app


def _declared(command: Any) -> Callable[..., Any]:
    """A copy of a command's function with declarations of typer's in place of ours."""
    made = FunctionType(command.__code__, command.__globals__, command.__name__, command.__defaults__)
    made.__doc__ = command.__doc__
    for name, hint in get_type_hints(command, include_extras=True).items():
        kind, word = get_args(hint) if name != "return" else (hint, None)
        made.__annotations__[name] = Annotated[kind, _typers(word)] if word else hint
    return made


def _typers(word: Option) -> Any:
    said = dict(word.said)
    if "autocompletion" in said:
        said["autocompletion"] = getattr(completion, said["autocompletion"])
    return getattr(typer, word.kind)(*word.names, **said)


_METAVARS = {
    "target": "sm_NN", "device": "DEVICE", "ptx": "VERSION", "type": "TYPE", "family": "FAMILY", "shape": "SHAPE",
    "filter": "REGEX", "vectors": "DIR", "capture": "DIR", "report": "FILE",
    **dict.fromkeys(("selector", "byte_id", "thread_id", "lane", "cases", "seed", "processes"), "N"),
}  # fmt: skip
_HELP = {"help_option_names": ["-h", "--help"]}


def command_tree(names: Iterable[str] = COMMANDS) -> Any:
    """The application as a tree of commands, with help as people read it: paragraphs fill the terminal, `-h` works, and
    options without a value show none."""
    root = typer.main.get_command(application(names))
    waiting = [root]
    while waiting:
        command = waiting.pop()
        waiting += getattr(command, "commands", {}).values()
        command.context_settings = {**command.context_settings, **_HELP}
        setattr(command, "get_help_option", partial(_plain_help_option, command.get_help_option))  # noqa: B010
        if command.help:
            paragraphs = cleandoc(command.help).split("\n\n")
            command.help = "\n\n".join(p if p.startswith(" ") else " ".join(p.split()) for p in paragraphs)
        for option in command.params:
            if getattr(option, "is_flag", False):
                option.metavar = ""
            elif option.param_type_name == "option" and option.metavar is None:
                option.metavar = _METAVARS.get(option.name or "")
    return root


def _plain_help_option(make: Any, context: Any) -> Any:
    option = make(context)
    if option is not None:
        option.metavar = ""
    return option


