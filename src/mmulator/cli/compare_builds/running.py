"""A program in one of two builds: another interpreter, or other variables of the environment."""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from mmulator.base.errors import LaunchError
from mmulator.cli.output import WrongUsage
from mmulator.evaluation.builds.suites import SuiteOfLaunches, read

WORDS = "[VARIABLE=VALUE]... [PYTHON]"


def build_of(words: str) -> tuple[str, dict[str, str]]:
    """The interpreter and the variables of a build. Raises WrongUsage."""
    parts = shlex.split(words)
    given = [part for part in parts if "=" in part.partition("/")[0]]
    rest = parts[len(given) :]
    if parts[: len(given)] != given or len(rest) > 1 or not parts:
        raise WrongUsage(f"--build {words!r}", hint=f"--build '{WORDS}'")
    python = shutil.which(rest[0]) if rest else sys.executable
    if python is None:
        raise WrongUsage(f"--build {words}: there is no program {rest[0]}")
    if rest and subprocess.run([python, "-c", "import mmulator"], capture_output=True).returncode:
        raise WrongUsage(f"--build {words}: mmulator is not installed there", hint=f"install this mmulator for {python}, too")
    return python, dict(part.split("=", 1) for part in given)


def recorded(
    words: str, python: str, variables: Mapping[str, str], folder: Path, more: Mapping[str, str], program: list[str]
) -> SuiteOfLaunches:
    """The record that a program makes in a build. What it prints goes to standard error. Raises LaunchError without launches."""
    print(f"mmulator: {words}", file=sys.stderr, flush=True)
    command = [python, "-m", "mmulator", "exec", "--record", str(folder.absolute()), *program]
    folder.parent.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(command, env={**os.environ, **more, **variables}, stdout=sys.stderr.fileno())
    if not folder.exists():
        raise LaunchError(f"--build {words}: the program launched no kernel, and ended with exit code {done.returncode}")
    return read(folder, words, done.returncode)
