"""Planted bugs: the documented command names each, and says nothing of it for the right kernel."""

import shlex
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import replace
from functools import cache
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from mmulator.cli.app import run
from tests.support import forks, places
from tests.support.planted import PLANTED, Planted


def told(bug: Planted, folder: Path, broken: bool) -> str:
    """Output of a bug's command, without breaks of lines."""
    bug.write(folder, broken)
    words = shlex.split(bug.command)
    if words[0] == "exec":
        ran = forks.run(["-m", "mmulator", *words], folder)
        return " ".join((ran.stdout + ran.stderr).split())
    said = StringIO()
    with chdir(folder), redirect_stdout(said), redirect_stderr(said):
        run(words)
    return " ".join(said.getvalue().split())


@cache
def of_right_programs(file: str) -> str:
    """The answers to the questions of all bugs of a program, from one run of the right program."""
    bugs = [bug for bug in PLANTED if bug.kernel == file]
    questions = dict.fromkeys(bug.command.split("--why ")[1].split()[0] for bug in bugs)
    asked = " ".join(f"--why {question}" for question in questions)
    with TemporaryDirectory() as folder:
        return told(replace(bugs[0], command=f"exec --keep-going {asked} {file}"), Path(folder), False)


CASES = [
    pytest.param(bug, id=bug.name.replace(" ", "-"), marks=pytest.mark.full if bug.command.startswith("exec") else ())
    for bug in PLANTED
]


@pytest.mark.parametrize("bug", CASES)
def test_a_command_names_it(bug: Planted, tmp_path: Path) -> None:
    program = bug.command.startswith("exec")
    if program and not forks.THERE:
        pytest.skip("Triton or torch is not installed")
    said = told(bug, tmp_path, True)
    missing = [words for words in bug.said if words.strip() not in said]
    assert not missing, said
    right = of_right_programs(bug.kernel) if program else told(bug, tmp_path, False)
    assert "computed from" in right or not program, right
    assert not all(words.strip() in right for words in bug.said), right


def test_the_table_is_in_the_page() -> None:
    """docs/reference/planted.md has a row for each: its kernel, its command, and what is seen."""
    page = (places.ROOT / "docs" / "reference" / "planted.md").read_text()
    assert len(PLANTED) == 20 and not [bug.row for bug in PLANTED if bug.row not in page]
