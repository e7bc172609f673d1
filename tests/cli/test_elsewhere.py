"""Systems other than Linux, as far as this one can stand in for them: what needs no compiler answers, and what does says so in a
line with what to do."""

import json
import subprocess
import sys

import pytest

from tests.support.places import ROOT

ANSWERED = (
    "--version", "list wgmma", "list --devices", "explain mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "explain swizzle",
    "explain rules", "layout mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 a", "descriptor decode 0x4000004000010000",
    "tensormap --help", "check examples/hopper_gemm/gemm.ptx", "sparse --help", "run --help", "judge --help", "cache",
)  # fmt: skip
REFUSED = ("run examples/handwritten/launch.toml", "debug --batch examples/handwritten/launch.toml")
SAID = {
    "darwin": ("unsupported: kernels are compiled by llvmlite: ", "hint: pip install llvmlite"),
    "win32": ("unsupported: no kernel is compiled or run on Windows", "hint: WSL 2"),
}


@pytest.mark.parametrize("system", SAID)
def test_commands_on_other_systems(system: str) -> None:
    commands = [*ANSWERED, *REFUSED, "doctor"]
    command_line = [sys.executable, "-m", "tests.support.elsewhere", system]
    done = subprocess.run(command_line, input="\n".join(commands), capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    found = dict(zip(commands, map(json.loads, done.stdout.splitlines()), strict=True))
    for command in ANSWERED:
        code, out, errors = found[command]
        assert code == 0 and out and not errors, (command, code, errors)
    for command in REFUSED:
        code, out, errors = found[command]
        assert code == 1 and not out and len(errors.splitlines()) == 2, (command, errors)
        assert all(part in line for part, line in zip(SAID[system], errors.splitlines())), errors
    code, out, errors = found["doctor"]
    assert code == 1 and "wrong    system" in out and "kernels run on Linux" in out and not errors
