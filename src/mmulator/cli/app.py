"""The typer application, and how errors of commands are shown."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from inspect import cleandoc
from typing import Annotated, Any

import typer

from mmulator import __version__, variables
from mmulator.cli.output import Terminal, WrongUsage, print_error
from mmulator.errors import InternalError, MmulatorError
from mmulator.source import printable

# Commands. Each is the function (or application) of that name, in the module of that name or the one in _MODULES.
COMMANDS: tuple[str, ...] = (
    "run", "exec", "nvcc", "check", "explain", "list", "layout", "descriptor", "tensormap", "sparse", "conformance", "cache",
)  # fmt: skip
_MODULES = {"list": "listing"}  # a module `list` would hide the builtin in this package
_INTERRUPTED = 130  # exit code after Ctrl-C
_COMPLETING = "_MMULATOR_COMPLETE"


def _version(wanted: bool) -> None:
    if wanted:
        print(f"mmulator {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")] = False,
) -> None:
    """NVIDIA tensor-core kernels without the GPU, bit for bit."""


def application(names: Sequence[str] = COMMANDS) -> typer.Typer:
    """The application with its commands, or some of them."""
    # `--show-completion SHELL` rather than a guess from the parent process, which is wrong in scripts and containers
    os.environ.setdefault("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    app = typer.Typer(
        name="mmulator", no_args_is_help=True, add_completion=True, pretty_exceptions_enable=False,
        rich_markup_mode="rich",
    )  # fmt: skip
    app.callback()(_root)
    for name in names:
        command = getattr(import_module(f"mmulator.cli.{_MODULES.get(name, name)}"), name)
        if isinstance(command, typer.Typer):  # an application with commands of its own
            app.add_typer(command, name=name)
        else:
            app.command(name)(command)
    return app


_METAVARS = {
    "target": "sm_NN", "device": "DEVICE", "ptx": "VERSION", "type": "TYPE", "family": "FAMILY", "shape": "SHAPE",
    "filter": "REGEX", "vectors": "DIR", "capture": "DIR", "report": "FILE",
    **dict.fromkeys(("selector", "byte_id", "thread_id", "lane", "cases", "seed", "processes"), "N"),
}  # fmt: skip
_HELP = {"help_option_names": ["-h", "--help"]}


def command_tree(names: Sequence[str] = COMMANDS) -> Any:
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


def _rewritten(arguments: list[str]) -> list[str]:
    """Arguments in the form that typer takes: `help run` becomes `run --help`; words of an instruction behind --for need no
    quotes.
    """
    if arguments[:1] == ["help"]:
        return [*arguments[1:], "--help"]
    if arguments[:1] == ["exec"]:  # words behind exec's own options belong to the program
        from mmulator.cli.program import own

        end = 1 + own(arguments[1:])
        return [*arguments[:end], *(["--"] if end < len(arguments) else []), *arguments[end:]]
    if arguments[:1] == ["nvcc"] and arguments[1:] not in (["-h"], ["--help"]) and arguments[1:2] != ["--"]:
        return ["nvcc", "--", *arguments[1:]]
    if arguments[:1] not in (["sparse"], ["descriptor"]) or "--for" not in arguments:
        return arguments
    from mmulator.isa.names.words import is_word

    at = arguments.index("--for") + 2
    end = at
    while end < len(arguments) and is_word(arguments[end]):
        end += 1
    return [*arguments[: at - 1], " ".join(arguments[at - 1 : end]), *arguments[end:]] if end > at else arguments


def run(arguments: list[str]) -> int:
    """Runs a command line and returns its exit code. A MmulatorError becomes one message, JSON if asked for."""
    screen = sys.stdout
    variables.check()
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _note
            if screen.isatty():
                sys.stdout = Terminal(screen)
            code = _run(arguments)
        sys.stdout.flush()  # here, and not as Python ends, when nothing can be said of a failure
        return code
    except BrokenPipeError:  # the reader of our output has gone: nothing is left to say
        sys.stderr.close()
    except OSError as error:
        print_error(MmulatorError(f"cannot write the output: {error.strerror or error}"), as_json=False)
        _give_up_output()
    finally:
        sys.stdout = screen
    return 1


def _note(message: Warning | str, *_: object, **__: object) -> None:
    """Print a warning as one line, without the place in mmulator that it comes from."""
    print(f"note: {printable(str(message))}", file=sys.stderr)


def _give_up_output() -> None:
    """Discard what is still to be written: Python would write it at exit, and fail again."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _say_interrupted() -> None:
    """Print the last line of an interrupted command: objects of libraries that were half made are not worth a word."""
    sys.unraisablehook = lambda _: None
    print("interrupted", file=sys.stderr)


def _run(arguments: list[str]) -> int:
    try:
        arguments = _rewritten(arguments)
        # only the named command is loaded; a shell that completes asks in the environment
        named = arguments[:1] if arguments and arguments[0] in COMMANDS and _COMPLETING not in os.environ else COMMANDS
        code = command_tree(named)(args=arguments, prog_name="mmulator", standalone_mode=True)
    except MmulatorError as error:
        print_error(error, as_json="--json" in arguments)
        return 2 if isinstance(error, WrongUsage) else 1
    except SystemExit as stop:
        if stop.code == _INTERRUPTED:  # typer ends like this without a message
            _say_interrupted()
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except KeyboardInterrupt:
        _say_interrupted()
        return _INTERRUPTED
    except Exception as error:
        if isinstance(error, OSError) and error.filename is None:  # of a file without a name: standard output
            raise
        if os.environ.get("MMULATOR_TRACEBACK"):
            raise
        what = error if isinstance(error, InternalError) else f"{type(error).__name__}: {error}"
        bug = MmulatorError(f"mmulator has a bug: {what}", hint="set MMULATOR_TRACEBACK=1 to see where, and report it")
        bug.kind = InternalError.kind
        print_error(bug, as_json="--json" in arguments)
        return 1
    return code if isinstance(code, int) else 0
