"""Why an element has its value, asked of programs: on the command line, in a program of Triton's, in pytest."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import mmulator as mm
from tests.support import forks, places

TRITON = pytest.mark.skipif(not forks.THERE, reason="Triton or torch is not installed")
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


def command(folder: Path, *words: str, code: int = 0) -> str:
    ran = forks.run(["-m", "mmulator", *words], folder)
    assert ran.returncode == code, ran.stdout + ran.stderr
    return ran.stdout + ran.stderr


@TRITON
def test_a_program(tmp_path: Path) -> None:
    (tmp_path / "prog.py").write_text(KERNEL + 'run("cuda")\nrun("cuda")\n')
    said = command(tmp_path, "exec", "--why", "z[999]", "--why", "sub:z[1]", "--why", "add:y[5]", "prog.py")
    assert all(text in said for text in WHY), said
    assert "why z[999], launch 2 of add" in said and "why sub:z[1]: no kernel with this name was launched" in said, said
    assert "why add:y[5]: 2 launches, and none stored it; no store came to its address" in said
    assert "(prog.py:8)" in said


MAPS = """import torch, triton, triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

@triton.jit
def gemm(ad, bd, c, B: tl.constexpr):
    at = tl.arange(0, B)
    tl.store(c + at[:, None] * B + at[None, :], tl.dot(ad.load([0, 0]), bd.load([0, 0]).T))

a, b = (torch.randn(64, 64, device="cuda").half() for _ in range(2))
gemm[(1,)](*(TensorDescriptor.from_tensor(x, [64, 64]) for x in (a, b)), torch.empty(64, 64, device="cuda"), 64)
"""


@TRITON
def test_tensor_descriptors_have_the_names_of_their_arguments(tmp_path: Path) -> None:
    (tmp_path / "prog.py").write_text(MAPS)
    said = command(tmp_path, "exec", "--why", "c[3,5]", "prog.py")
    assert "row of A: ad[3,0..63]" in said and "column of B: bd[5,0..63]" in said and "was meant" not in said, said


@TRITON
def test_a_launch_of_a_program_by_its_number(tmp_path: Path) -> None:
    (tmp_path / "prog.py").write_text(KERNEL + 'run("cuda")\nrun("cuda")\n')
    assert "launch 1 of add" in command(tmp_path, "exec", "--why", "z[3]@1", "prog.py")


@TRITON
def test_a_program_beside_another_device_and_as_a_page(tmp_path: Path) -> None:
    (tmp_path / "prog.py").write_text(KERNEL + 'run("cuda")\n')
    words = "exec", "--why", "z[999]", "--against", "H200", "--why-to", "why.html", "prog.py"
    assert "beside sm_90: z[999] = 999.0" in command(tmp_path, *words)
    page = (tmp_path / "why.html").read_text()
    assert page.startswith("<!doctype html>") and "was predicated off" in page and "beside sm_90" in page
    assert "beside seed 7" in command(tmp_path, "exec", "--why", "z[3]", "--against", "7", "prog.py")


@TRITON
def test_a_failing_test(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(KERNEL + 'def test_add():\n    want, z = run("cuda")\n    assert (want == z).all()\n')
    words = ["-m", "pytest", "--mmulator", "--why", "z[999]", "-q", "-p", "no:cacheprovider", "test_it.py",
             "--mmulator-against", "7", "--mmulator-why-to", "why.html"]  # fmt: skip
    ran = forks.run(words, tmp_path)
    assert ran.returncode == 1 and all(text in ran.stdout for text in WHY), ran.stdout
    assert "'--why=z[999]'" in ran.stdout and "beside seed 7" in ran.stdout
    assert "was predicated off" in (tmp_path / "why.html").read_text()


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
    said = command(tmp_path, "run", launch, "--why", "C[101,33]")
    assert "not compared with sm_80: " in command(tmp_path, "run", launch, "--why", "C[101,33]", "--against", "A100")
    assert "row of A: A[101,0..335]" in said and "exact sum -13.9264487" in said
    (answer,) = json.loads(command(tmp_path, "run", launch, "--why", "C[101,33]", "--json"))["report"]["why"]
    assert answer["element"] == "C[101,33]" and answer["cause"]["bits"] == 0xCAF7


def test_beside_another_device_and_another_seed(tmp_path: Path) -> None:
    launch = str(places.ROOT / "examples/handwritten/launch.toml")
    said = command(tmp_path, "run", launch, "--why", "C[3,5]", "--against", "H100", "--why-to", str(tmp_path / "why.html"))
    said = " ".join(said.split())  # where lines end depends on the path of the repository
    assert "beside sm_90: C[3,5] = -5.5956774" in said and "their sums differ from that of the first 48 products on" in said
    page = (tmp_path / "why.html").read_text()
    assert page.startswith("<!doctype html>") and page.count("<details") == page.count("</details>") > 2
    assert "beside sm_90" in page and "http" not in page and "<script" not in page
    assert "no difference" in command(tmp_path, "run", launch, "--why", "C[3,5]", "--against", "7")
    (answer,) = json.loads(command(tmp_path, "run", launch, "--why", "C[3,5]", "--against", "sm_90", "--json"))["report"]["why"]
    assert answer["beside"]["label"] == "sm_90" and answer["beside"]["here"]["bits"] != answer["beside"]["there"]["bits"]


def test_a_missing_wait_is_seen_beside_another_seed() -> None:
    """Under another seed the copy comes too late: the answer says which load read something else."""
    text = """.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 in, .param .u64 out) { .reg .b64 d<4>; .reg .b32 r<4>; .shared .align 16 .b8 room[128];
  ld.param.u64 d0, [in]; ld.param.u64 d1, [out]; mov.u32 r0, %tid.x; mad.wide.u32 d0, r0, 4, d0; mad.wide.u32 d1, r0, 4, d1;
  mov.u32 r1, room; mad.lo.u32 r1, r0, 4, r1; cp.async.ca.shared.global [r1], [d0], 4;
  ld.shared.u32 r2, [r1]; st.global.u32 [d1], r2; cp.async.wait_all; ret; }
"""
    x, out = np.arange(1, 33, dtype=np.uint32), np.zeros(32, np.uint32)
    kernel = mm.Module.load(text, name="k.ptx")["k"]
    values: dict[int, int] = {}
    for seed in range(8):
        kernel.launch(1, 32, [x, out], seed=seed)
        values.setdefault(int(out[5]), seed)
    assert sorted(values) == [0, 6]
    answer = kernel.launch(1, 32, [x, out], seed=values[6], why="out[5]", against=values[0]).why[0]
    assert answer.beside is not None and answer.beside.here is not None and answer.beside.there is not None
    assert (answer.beside.here.bits, answer.beside.there.bits) == (6, 0) and f"beside seed {values[0]}" in str(answer)


@pytest.mark.parametrize("words", [["--against", "7"], ["--why-to", "why.html"]])
def test_options_that_go_with_why(tmp_path: Path, words: list[str]) -> None:
    launch = str(places.ROOT / "examples/handwritten/launch.toml")
    assert "go with --why" in command(tmp_path, "run", launch, *words, code=2)
    assert "go with --why" in command(tmp_path, "exec", *words, "-c", "", code=2)
    if words[0] == "--why-to":
        assert "ends in .html" in command(tmp_path, "run", launch, "--why", "C[0,0]", "--why-to", "why.txt", code=2)


@pytest.mark.parametrize(
    "element, said", [("C[", "is no element"), ("X[1]", "there is no array X"), ("C[450,0]", "has no element")]
)
def test_what_is_no_element(tmp_path: Path, element: str, said: str) -> None:
    launch = str(places.ROOT / "examples/hopper_gemm/launch.toml")
    assert said in command(tmp_path, "run", launch, "--why", element, code=1)


def test_what_is_no_element_in_a_program(tmp_path: Path) -> None:
    program = "import mmulator.host.driver as d; d.current()"
    assert "is no element" in command(tmp_path, "exec", "--why", "C[", "-c", program, code=2)


NAN = """import torch, triton, triton.language as tl

@triton.jit
def centred(x, y, B: tl.constexpr):
    at = tl.arange(0, B)
    a = tl.load(x + at)
    tl.store(y + at, a - tl.max(a, 0))

x, y = torch.full((128,), -float("inf"), device="cuda"), torch.empty(128, device="cuda")
for launch in range(2):
    centred[(1,)](torch.zeros_like(x) if launch == 0 else x, y, 128)
print("not reached")
"""


@TRITON
def test_a_program_is_stopped_at_the_first_launch_that_makes_a_nan(tmp_path: Path) -> None:
    (tmp_path / "prog.py").write_text(NAN)
    said = command(tmp_path, "exec", "--nan", "prog.py", code=3)
    assert "(prog.py:7): a NaN is made: sub.f32 -inf - -inf, block (0, 0, 0), thread (0, 0, 0); y[0] is nan because" in said
    assert "and 127 other elements of y are NaN now; -inf since x[" in said and "not reached" not in said
    assert "launch: prog.py:11: centred[(1,)](" in said
    assert "not reached" in command(tmp_path, "exec", "--nan", "-c", 'print("not reached")')
    said = command(tmp_path, "exec", "--why", "y[3]", "prog.py")
    assert "y[3] = nan (bits 0x7fffffff): NaN since prog.py:7: sub.f32 -inf - -inf," in said
