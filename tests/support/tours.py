"""Programs of other people's libraries, run in a process of their own: a door takes CUDA's place for a whole process."""

import ast
import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.support.places import PACKAGE, ROOT

PROGRAMS = ROOT / "tests" / "doors" / "programs"
_RUN = """
import importlib, json, runpy, sys, traceback
importlib.import_module(sys.argv[1]).install()
told = {}
try:
    program = runpy.run_path(sys.argv[2])
except BaseException:
    told[""] = traceback.format_exc()
    program = {}
for name, f in program.items():
    if name.startswith("try_"):
        try:
            f()
            told[name] = ""
        except BaseException:
            told[name] = traceback.format_exc()
print("\\n\\x1e" + json.dumps(told))
"""


def tries(program: str) -> list[str]:
    """The functions of a program that try something."""
    tree = ast.parse((PROGRAMS / program).read_text())
    return [f.name for f in tree.body if isinstance(f, ast.FunctionDef) and f.name.startswith("try_")]


@cache
def outcome(door: str, program: str) -> tuple[dict[str, str], str]:
    """What went wrong in each of them, "" for nothing, and what was printed."""
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE), "MMULATOR_DEVICE": "sm_90", "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-c", _RUN, f"mmulator.doors.{door}", str(Path(PROGRAMS / program))]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    printed, mark, told = done.stdout.rpartition("\x1e")
    assert mark, done.stdout + done.stderr
    return json.loads(told), printed


def trying(door: str, program: str) -> Callable[[str], None]:
    """A test of each function of a program that tries something."""

    @pytest.mark.parametrize("what", tries(program))
    def test_program(what: str) -> None:
        told, _ = outcome(door, program)
        wrong = told.get("", "") + told.get(what, "")
        assert not wrong, wrong

    return test_program
