"""What starts import: each process no more than it needs. Modules are counted, since seconds depend on the machine."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.places import ROOT

LAUNCH = """
import mmulator as mm
A, B, C = (np.zeros(s, t) for s, t in (((64, 256), "f2"), ((32, 256), "f2"), ((64, 32), "f4")))
mm.Module.load("examples/handwritten/mma.ptx")["gemm"].launch((4, 4), 32, [A, B, C, 32, 256], device="sm_80")
"""
# program; modules of the package at most; others, and parts of the package, of which none is imported
STARTS = {
    "launch": ("import numpy as np\n" + LAUNCH, 72, (
        "argparse", "rich", "ml_dtypes", "html", "shutil", "shlex", "random", "mmulator.cli", "mmulator.base.demangle",
        "mmulator.sanitizer.diagnostics",
    )),
    "run": ("from mmulator.cli.app import run; run(['run', 'examples/handwritten/launch.toml'])", 90, (
        "shutil", "rich", "ml_dtypes", "mmulator.host.jobs.judgement", "mmulator.base.findings", "mmulator.base.rules",
        "mmulator.matrix.layouts", "mmulator.sanitizer.diagnostics",
    )),
    "check": ("from mmulator.cli.app import run; run(['check', 'examples/handwritten/mma.ptx'])", 146, ("shutil", "ml_dtypes")),
    "help": ("from mmulator.cli.app import run; run(['--help'])", 14, ("numpy", "rich", "mmulator.base.codegen")),
}  # fmt: skip
NEVER = (
    "llvmlite.binding", "pydantic",
    "mmulator.ptx.parser", "mmulator.matrix.twin", "mmulator.sanitizer", "mmulator.matrix.inspect",
)  # fmt: skip


@pytest.mark.parametrize("name", STARTS)
def test_a_start_imports_what_it_needs(name: str, tmp_path: Path) -> None:
    program, most, heavy = STARTS[name]
    told = "import sys; before = {*sys.modules}\n" + program + "\nprint('loaded:', *sys.modules.keys() - before, file=sys.stderr)"
    environment = {**os.environ, "MMULATOR_CACHE": str(tmp_path)}
    for _ in range(2):  # the second one is warm
        words = [sys.executable, "-c", told]
        done = subprocess.run(words, capture_output=True, text=True, env=environment, cwd=ROOT, check=True)
    loaded = done.stderr.rpartition("loaded:")[2].split()
    unwanted = {*heavy, *NEVER} - ({"mmulator.ptx.parser"} if name == "check" else set())
    assert not [m for m in loaded if m in unwanted or m.startswith(tuple(f"{n}." for n in unwanted))]
    own = [m for m in loaded if m.startswith("mmulator.")]
    assert len(own) <= most, sorted(own)


COUNTED = """
import sys
calls = 0
def count(frame, event, what):
    global calls
    calls += event == "call"
sys.setprofile(count)
from mmulator.cli.app import run
try:
    run(sys.argv[1:])
finally:
    sys.setprofile(None)
    print("calls:", calls, file=sys.stderr)
"""
SANITIZED_COSTS = {"handwritten": 2.5, "hopper_gemm": 5}  # the second one has something to say, which takes the text


@pytest.mark.parametrize("example", SANITIZED_COSTS)
def test_a_second_sanitized_run_makes_few_calls_more_than_a_plain_one(example: str, tmp_path: Path) -> None:
    environment = {**os.environ, "MMULATOR_CACHE": str(tmp_path)}

    def calls(*flags: str) -> int:
        words = [sys.executable, "-c", COUNTED, "run", *flags, f"examples/{example}/launch.toml"]
        for _ in range(2):  # the second one is warm
            done = subprocess.run(words, capture_output=True, text=True, env=environment, cwd=ROOT, check=False)
            assert done.returncode == 0, done.stderr
        return int(done.stderr.rpartition("calls:")[2])

    assert calls("--sanitize") <= SANITIZED_COSTS[example] * calls()
