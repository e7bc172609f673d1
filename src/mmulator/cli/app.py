"""A command line and its exit code: which command is run, and how errors are shown."""

from __future__ import annotations

import os
import platform
import sys
import warnings
from contextlib import suppress
from types import FunctionType
from typing import Any

from mmulator import variables
from mmulator.cli.output import Terminal, WrongUsage, print_error
from mmulator.cli.words import COMMANDS, command_of, plain
from mmulator.errors import InternalError, MmulatorError, UnsupportedError
from mmulator.source import printable

_INTERRUPTED = 130  # exit code after Ctrl-C
_COMPLETING = "_MMULATOR_COMPLETE"
_OF_LINUX = frozenset(("fcntl", "resource", "termios", "pty", "pwd"))  # modules that Python has where the system has POSIX
_ELSEWHERE = "it runs on Linux (on Windows in WSL 2); instructions, layouts and descriptors are explained anywhere"


def _rewritten(arguments: list[str]) -> list[str]:
    """Arguments in the form that typer takes: `help run` becomes `run --help`; words of an instruction behind --for need no
    quotes.
    """
    if arguments[:1] == ["help"]:
        return [*arguments[1:], "--help"]
    if arguments[:1] in (["exec"], ["judge"], ["debug"]):  # words behind their own options belong to the program
        from mmulator.cli.program import DEBUG, GDB, JUDGE, own

        flags = {"judge": JUDGE, "debug": DEBUG}.get(arguments[0])
        if arguments[0] == "debug":
            end = 1 + own([GDB.get(word, word) for word in arguments[1:]], DEBUG)
            arguments = [*(GDB.get(word, word) for word in arguments[:end]), *arguments[end:]]
        end = 1 + (own(arguments[1:]) if flags is None else own(arguments[1:], flags))
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
        if arguments in ([], ["--help"], ["-h"]) and _COMPLETING not in os.environ:
            from mmulator.cli.overview import print_overview

            print_overview()
            return 0 if arguments else 2
        code = 0 if _plain(arguments) else _by_typer(arguments)
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
        if isinstance(error, ModuleNotFoundError) and error.name in _OF_LINUX:
            said = UnsupportedError(f"this command needs {error.name}, which {platform.system()} does not have", hint=_ELSEWHERE)
            print_error(said, as_json="--json" in arguments)
            return 1
        what = error if isinstance(error, InternalError) else f"{type(error).__name__}: {error}"
        bug = MmulatorError(f"mmulator has a bug: {what}", hint="set MMULATOR_TRACEBACK=1 to see where, and report it")
        bug.kind = InternalError.kind
        print_error(bug, as_json="--json" in arguments)
        return 1
    return code if isinstance(code, int) else 0


def _plain(arguments: list[str]) -> bool:
    """Run a plain command line. Returns False for one that typer must read."""
    if arguments[:1] == [] or arguments[0] not in COMMANDS or _COMPLETING in os.environ:
        return False
    command = command_of(arguments[0])
    given = plain(command, arguments[1:]) if isinstance(command, FunctionType) else None
    if given is None:
        return False
    try:
        command(**given)
    except Exception as error:
        if "typer" not in sys.modules or not isinstance(error, sys.modules["typer"].BadParameter):
            raise
        return False  # typer shows it
    return True


def _by_typer(arguments: list[str]) -> Any:
    from mmulator.cli.tree import command_tree

    # only the named command is loaded; a shell that completes asks in the environment
    named = arguments[:1] if arguments and arguments[0] in COMMANDS and _COMPLETING not in os.environ else COMMANDS
    return command_tree(named)(args=arguments, prog_name="mmulator", standalone_mode=True)
