"""A command line and its exit code: which command is run, and how errors are shown."""

import os
import platform
import sys
import warnings
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from mmulator import __version__
from mmulator.base.errors import InternalError, MmulatorError, UnsupportedError
from mmulator.base.source import printable
from mmulator.cli.commands import ABOUT, COMMANDS, command_of
from mmulator.cli.output import Terminal, WrongUsage, print_error
from mmulator.host.settings import check_variables

_INTERRUPTED = 130  # exit code after Ctrl-C
_COMPLETING = "_MMULATOR_COMPLETE"
_HELP = ("-h", "--help")
_OPTIONS = {
    "--version": "Print it.",
    "--install-completion": "Let a shell complete command lines: bash, zsh or fish, as the next word.",
    "--show-completion": "Print the script by which it does.",
    "-h, --help": "Show this; `mmulator COMMAND --help` shows a command's.",
}
_OF_LINUX = frozenset(("fcntl", "resource", "termios", "pty", "pwd"))  # modules that Python has where the system has POSIX
_ELSEWHERE = "it runs on Linux (on Windows in WSL 2); instructions, layouts and descriptors are explained anywhere"


def run(arguments: list[str]) -> int:
    """Runs a command line and returns its exit code. A MmulatorError becomes one message, JSON if asked for."""
    screen = sys.stdout
    check_variables()
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


def _run(arguments: list[str]) -> int:
    try:
        code = _command(arguments)
    except (MmulatorError, KeyboardInterrupt) as error:
        return ended(error, as_json="--json" in arguments)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
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
    return code


def ended(error: MmulatorError | KeyboardInterrupt, as_json: bool) -> int:
    """Print why a command ended; its exit code."""
    if isinstance(error, KeyboardInterrupt):
        sys.unraisablehook = lambda _: None  # objects of libraries that were half made are not worth a word
        print("interrupted", file=sys.stderr)
        return _INTERRUPTED
    print_error(error, as_json)
    return error.code


def _command(words: list[str]) -> int:
    """Run the command that words name; its exit code, unless it ends itself."""
    first = words[0] if words else ""
    if first == "help":
        return _command([*words[1:], "--help"])
    if _COMPLETING in os.environ or first in ("--install-completion", "--show-completion"):
        return _completion(first, words[1] if len(words) > 1 else None)
    if first == "--version":
        print(f"mmulator {__version__}")
        return 0
    if not first or first in _HELP:
        return _overview(code=0 if first else 2)
    return _named(command_of(known(first, COMMANDS)), [first], words[1:])


def _named(command: Any, path: list[str], words: list[str]) -> int:
    """Run a command, or one of a group."""
    from mmulator.cli.parser import Group, first_paragraph, parameters, print_commands

    if not isinstance(command, Group):
        command(**parameters(command, path, words))
        return 0
    if words[:1] and words[0] in command.commands:
        return _named(command.commands[words[0]], [*path, words[0]], words[1:])
    if command.alone is not None and not (words and words[0][:1] != "-"):
        return _named(command.alone, path, words)
    if not words or words[0] in _HELP:
        print_commands(" ".join(("mmulator", *path)), command.about, {n: first_paragraph(c) for n, c in command.commands.items()},
                       {"-h, --help": "Show this."})  # fmt: skip
        return 0 if words else 2
    command.otherwise(words)
    known(words[0], command.commands, " ".join(path))
    return 2


def known(word: str, commands: Iterable[str], of: str = "") -> str:
    """The word, if it is a command. Raises WrongUsage for another one, which names what may be meant."""
    if word in commands:
        return word
    from difflib import get_close_matches

    kind = "option" if word[:1] == "-" else "command"
    near = get_close_matches(word, [*commands, *_HELP, *_OPTIONS], 2, 0.6)
    hint = f"did you mean {' or '.join(near)}?" if near else f"mmulator{of and ' '}{of} --help lists them"
    raise WrongUsage(f"mmulator{of and ' '}{of} has no {kind} {word}", hint=hint)


def _overview(code: int) -> int:
    from mmulator.cli.parser import print_commands

    print_commands("mmulator", ABOUT, COMMANDS, _OPTIONS)
    return code


def _completion(asked: str, shell: str | None) -> int:
    """Answer a shell, or print or install the script by which one asks."""
    from mmulator.cli import completion

    if _COMPLETING in os.environ:
        print(completion.answer())
    elif asked == "--show-completion":
        print(completion.script(shell), end="")
    else:
        print(f"{completion.install(shell)}: completion works in shells that are started from now on")
    return 0
