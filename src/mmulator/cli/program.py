"""The program behind `mmulator exec`: how it is recognised, its environment, and how it starts."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from mmulator import variables
from mmulator.errors import LaunchError, MmulatorError

_FLAGS = ("-h", "--help", "--sanitize", "--strict", "--keep-going", "--json")  # options of ours without a value


def begin(arguments: list[str]) -> None:
    """Run `exec` without options of mmulator's at once. Returns where there is anything to print or to complete."""
    if not arguments or own(arguments) or "_MMULATOR_COMPLETE" in os.environ:
        return
    try:
        check_program(arguments)
        environment = surroundings({})
    except MmulatorError:
        return
    variables.check()
    if sanitizes(environment):
        return
    hint_behind(arguments)
    start(arguments, environment)


def sanitizes(environment: Mapping[str, str]) -> bool:
    """Whether the sanitizer looks at the program."""
    from mmulator.driver.settings import Settings

    return bool(Settings.from_environment(environment).sanitize)


def absolute(path: str) -> str:
    """A path as absolute one, for a program that may change its folder."""
    return str(Path(path).absolute())


def hint_behind(program: list[str]) -> None:
    """Print a hint where an option of mmulator's stands behind a script, which would get it: `exec prog.py --sanitize`."""
    words = [] if program[0] in ("-m", "-c") else program[1 : program.index("--") if "--" in program else None]
    mine = next((word for word in words if word.partition("=")[0] in ("--sanitize", "--sarif", "--autotune")), None)
    if mine is not None:
        told = f"note: {mine} goes to {program[0]}; options of mmulator stand before the program: mmulator exec {mine} ..."
        print(told, file=sys.stderr)


def own(arguments: list[str]) -> int:
    """Number of words behind `exec` that are options of mmulator's; the program begins behind them."""
    at = 0
    while at < len(arguments) and (arguments[at].startswith("--") or arguments[at] in _FLAGS) and arguments[at] != "--":
        at += 1 if "=" in arguments[at] or arguments[at] in _FLAGS else 2
    return min(at, len(arguments))


def check_program(program: list[str]) -> None:
    """Raise WrongUsage for a program that Python cannot run."""
    from mmulator.cli.output import WrongUsage

    first = program[0]
    if first in ("-m", "-c"):
        if len(program) == 1:
            raise WrongUsage(f"{first} needs {'a module' if first == '-m' else 'code'} behind it")
    elif first.startswith("-") and first[:2] not in ("-m", "-c") and first != "-":
        raise WrongUsage(
            f"{first} is no option of exec", hint="options of Python are set by its environment variables, such as PYTHONOPTIMIZE"
        )
    elif first != "-" and first[:1] != "-":
        if not Path(first).exists():
            raise WrongUsage(f"cannot read {first}: No such file or directory", hint="exec takes what follows `python`")
        _check_python(first)


def _check_python(path: str) -> None:
    """Raise WrongUsage for a file that is known to be no Python: Python's error would be about its first character."""
    from mmulator.cli.output import WrongUsage

    try:
        with Path(path).open("rb") as file:
            data = file.read(4)
            if data != b"\x7fELF" and not path.endswith((".cu", ".cuh", ".ptx", ".toml")):
                return
            data += file.read(1 << 26)
    except OSError:  # a folder with __main__.py, or Python says it
        return
    from mmulator.ptx.text import foreign

    what, hint = foreign(data, path) or ("PTX" if path.endswith(".ptx") else "a launch file", f"`mmulator run {path}` runs it")
    raise WrongUsage(f"{path} is {what}; exec runs programs of Python", hint=hint)


def surroundings(settings: dict[str, Any]) -> dict[str, str]:
    """The environment of a program: Python starts with the doors, Triton launches here, and no GPU is visible.

    settings: of the driver, None for those of the environment. Raises WrongUsage for a wrong setting, LaunchError for a wrong
        one
    in the environment.
    """
    from mmulator.cli.output import WrongUsage
    from mmulator.doors import imports
    from mmulator.driver.settings import Settings

    given = {f"MMULATOR_{name.upper()}": str(value) for name, value in settings.items() if value is not None}
    try:
        Settings.from_environment(given)
    except LaunchError as error:
        name = error.message.partition(" ")[0]
        raise WrongUsage(f"--{name.removeprefix('MMULATOR_').lower()} {given[name]}", hint=error.hint) from None
    environment = {**os.environ, **given}
    Settings.from_environment(environment)
    folder = str(Path(__file__).parents[1] / "doors" / "startup")
    paths = [p for p in environment.get("PYTHONPATH", "").split(os.pathsep) if p and p != folder]
    own = {"PYTHONPATH": os.pathsep.join([folder, *paths]), "MMULATOR_EXEC": sys.prefix}
    return {**environment, **own, **imports.environment()}


def start(program: list[str], environment: dict[str, str]) -> NoReturn:
    """Replace this process by the program."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(sys.executable, [sys.executable, *program], environment)
