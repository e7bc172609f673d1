"""Why an element has its value, asked of programs: on the command line, in a program of Triton's, in pytest."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support import places

TRITON = pytest.mark.skipif(find_spec("triton") is None or find_spec("torch") is None, reason="Triton or torch is not installed")
KERNEL = """import torch, triton, triton.language as tl

@triton.jit
def add(x, y, z, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    a = tl.load(x + at, mask=at < n - 1, other=0.0)
    b = tl.load(y + at, mask=at < n)
    tl.store(z + at, a + b, mask=at < n)

def run(device):
    x, y = torch.ones(1000, device=device), torch.arange(1000, dtype=torch.float32, device=device)
    z = torch.empty(1000, device=device)
    add[(8,)](x, y, z, 1000, 128)
    return x + y, z
"""
WHY = (
    "z[999] = 999.0", "was predicated off", "setp.lt.s32 999, 999", "add.f32(0 = 0.0, ", "y[999] = 999.0: as the launch found it",
)  # fmt: skip


def mmulator(folder: Path, *words: str, code: int = 0) -> str:
    ran = subprocess.run([sys.executable, "-m", "mmulator", *words], cwd=folder, capture_output=True, text=True, check=False)
    assert ran.returncode == code, ran.stdout + ran.stderr
    return ran.stdout + ran.stderr


@TRITON
def test_a_program(tmp_path: Path) -> None:
    (tmp_path / "prog.py").write_text(KERNEL + 'run("cuda")\nrun("cuda")\n')
    said = mmulator(tmp_path, "exec", "--why", "z[999]", "--why", "sub:z[1]", "--why", "add:y[5]", "prog.py")
    assert all(text in said for text in WHY), said
    assert "why z[999], launch 2 of add" in said and "why sub:z[1]: no launch has such an array" in said, said
    assert "why add:y[5]: 2 launches, and none stored it; no store came to its address" in said
    assert "(prog.py:8)" in said


@TRITON
def test_a_launch_of_a_program_by_its_number(tmp_path: Path) -> None:
    (tmp_path / "prog.py").write_text(KERNEL + 'run("cuda")\nrun("cuda")\n')
    assert "launch 1 of add" in mmulator(tmp_path, "exec", "--why", "z[3]@1", "prog.py")


@TRITON
def test_a_failing_test(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(KERNEL + 'def test_add():\n    want, z = run("cuda")\n    assert (want == z).all()\n')
    words = [sys.executable, "-m", "pytest", "--mmulator", "--why", "z[999]", "-q", "-p", "no:cacheprovider", "test_it.py"]
    ran = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": ""})
    assert ran.returncode == 1 and all(text in ran.stdout for text in WHY), ran.stdout
    assert "'--why=z[999]'" in ran.stdout


@TRITON
def test_a_launch_without_a_door(tmp_path: Path) -> None:
    (tmp_path / "prog.py").write_text(
        KERNEL.replace(
            "add[(8,)](x, y, z, 1000, 128)", 'print(mm.triton.launch(add, 8, x, y, z, 1000, B=128, why="z[999]").why[0])'
        )
        + 'import mmulator as mm\nrun("cpu")\n'
    )
    ran = subprocess.run([sys.executable, "prog.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert all(text in ran.stdout for text in WHY), ran.stdout + ran.stderr


def test_a_launch_file(tmp_path: Path) -> None:
    launch = str(places.ROOT / "examples/hopper_gemm/launch.toml")
    said = mmulator(tmp_path, "run", launch, "--why", "C[101,33]")
    assert "row of A: A[101,0..335]" in said and "exact sum -13.9264487" in said
    (answer,) = json.loads(mmulator(tmp_path, "run", launch, "--why", "C[101,33]", "--json"))["report"]["why"]
    assert answer["element"] == "C[101,33]" and answer["cause"]["bits"] == 0xCAF7


@pytest.mark.parametrize(
    "element, said", [("C[", "is no element"), ("X[1]", "there is no array X"), ("C[450,0]", "has no element")]
)
def test_what_is_no_element(tmp_path: Path, element: str, said: str) -> None:
    launch = str(places.ROOT / "examples/hopper_gemm/launch.toml")
    assert said in mmulator(tmp_path, "run", launch, "--why", element, code=1)


def test_what_is_no_element_in_a_program(tmp_path: Path) -> None:
    assert "is no element" in mmulator(tmp_path, "exec", "--why", "C[", "-c", "import mmulator.driver as d; d.current()", code=2)
