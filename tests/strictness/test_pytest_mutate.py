"""`pytest --mmulator --mutate`: what strict and vacuous tests let pass, and what is said of it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.schemas import checked

HEAD = '''
import numpy as np
import mmulator as mm
PTX = """.version 8.0
.target sm_90
.address_size 64
.visible .entry twice(.param .u64 x, .param .u64 y, .param .u32 count)
{
  .reg .b64 p, q; .reg .b32 t, n; .reg .f32 v, w; .reg .pred off;
  ld.param.u64 p, [x]; ld.param.u64 q, [y]; ld.param.u32 n, [count];
  mov.u32 t, %tid.x;
  setp.ge.u32 off, t, n;
  @off ret;
  mad.wide.u32 p, t, 4, p; mad.wide.u32 q, t, 4, q;
  ld.global.f32 v, [p];
  mul.f32 w, v, 0f40400000;
  mul.f32 v, v, 0f40000000;
  st.global.f32 [q], v;
  ret;
}
"""
X = np.arange(1, 65, dtype=np.float32)
kernel = mm.Module.load(PTX)["twice"]

def launch(x=X, n=64):
    y = np.full(64, np.nan, np.float32)
    kernel.launch(1, 64, [x, y, n])
    return y
'''
SUITE = HEAD + '''
def test_strict():
    y = launch(n=50)
    assert (y[:50] == 2 * X[:50]).all() and np.isnan(y[50:]).all()

def test_whole():
    assert (launch() == 2 * X).all()

def test_zeros():
    assert (launch(0 * X) == 0).all()

def test_wide():
    np.testing.assert_allclose(launch(1e-6 * X), 2e-6 * X, atol=1e-2)

def test_itself():
    np.testing.assert_array_equal(launch(), launch())

def test_never():
    launch()

def test_other():
    pass
'''
VACUOUS = {
    "test_strict": "", "test_whole": "",
    "test_zeros": "a kernel that stores 0 passes: with its inputs 0 is right everywhere",
    "test_wide": "a kernel that stores 0 passes: its tolerance is wider than the values, or it looks at few of them",
    "test_itself": "a kernel that stores 0, or random bytes, passes: it compares the kernel with itself",
    "test_never": "a kernel that stores 0, or random bytes, passes: it does not look at what the kernel stores",
}  # fmt: skip


def ran(folder: Path, suite: str, *options: str) -> tuple[int, str, dict[str, Any]]:
    """(exit code, output, JSON) of a suite."""
    (folder / "test_it.py").write_text(suite)
    words = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "-n0", "--mmulator", "--mutate"]
    done = subprocess.run([*words, "--mutate-to=m.json", *options], cwd=folder, capture_output=True, text=True, check=False)
    found = json.loads((folder / "m.json").read_text())
    assert checked(found) == "mutate"
    return done.returncode, done.stdout + done.stderr, found


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, str, dict[str, Any]]:
    return ran(tmp_path_factory.mktemp("suite"), SUITE, "--mutate-seconds=600")


def test_vacuous_tests_are_named(suite: Any) -> None:
    code, text, found = suite
    said = {t["test"].partition("::")[2]: t for t in found["tests"]}
    assert {name: said[name]["kernels"][0]["vacuous"] for name in VACUOUS} == VACUOUS
    assert said["test_other"]["why"] == "it launches no kernel in this process"
    assert code == 3 and "test_other: not run: it launches no kernel" in text


def test_a_strict_test_notices_all_but_what_is_the_same(suite: Any) -> None:
    states = {t["test"].partition("::")[2]: [m["state"] for k in t["kernels"] for m in k["mutants"]] for t in suite[2]["tests"]}
    assert sorted(states["test_strict"]) == ["equivalent", *["noticed"] * 4]  # w is not used
    assert sorted(states["test_whole"]) == ["equivalent", *["noticed"] * 2, *["survived"] * 2]


def test_a_survivor_has_its_line_and_an_input(suite: Any) -> None:
    _, text, found = suite
    (whole,) = (t["kernels"][0] for t in found["tests"] if t["test"].endswith("test_whole"))
    survivors = {m["change"]: m for m in whole["mutants"] if m["state"] == "survived"}
    assert survivors["ge becomes gt"]["line"] == 9
    assert "and count = 63 in place of 64: y[63] is " in survivors["ge becomes gt"]["words"]
    assert "survived: <ptx>:9: a bound is off by one: ge becomes gt" in text
    assert "mutate: 30 mutants: " in text


def test_strict_tests_alone_end_with_0_and_a_failing_one_is_not_run(tmp_path: Path) -> None:
    strict = SUITE.partition("def test_whole")[0]
    code, text, _ = ran(tmp_path, strict, "--mutate-seconds=600")
    assert code == 0 and "mutate: 5 mutants: 4 noticed, 1 equivalent" in text
    code, text, found = ran(tmp_path, HEAD + "\ndef test_wrong():\n    assert launch()[0] == 3\n")
    assert code == 1 and found["tests"][0]["why"] == "it does not pass unchanged" and "1 test not run" in text


def test_what_time_leaves_out_is_said(tmp_path: Path) -> None:
    strict = SUITE.partition("def test_whole")[0]
    _, text, _ = ran(tmp_path, strict, "--mutate-seconds=0.001")
    assert "mutate: 5 mutants: 5 not run" in text


def test_fixtures_of_a_module_stay_and_those_of_a_test_are_made_again(tmp_path: Path) -> None:
    more = HEAD + '''
import pytest
@pytest.fixture(scope="module")
def once():
    print("made once")
    yield 50
    print("ended once")
@pytest.fixture
def each(once):
    made = np.full(64, np.nan, np.float32)
    yield made
def test_with(each, once):
    kernel.launch(1, 64, [X, each, once])
    assert (each[:50] == 2 * X[:50]).all() and np.isnan(each[50:]).all()
def test_behind(once):
    assert once == 50
'''
    code, text, _ = ran(tmp_path, more, "-s", "--mutate-seconds=600")
    assert code == 0 and text.count("made once") == text.count("ended once") == 1 and "4 noticed, 1 equivalent" in text


SMALL_VALUES = '''
import pytest, torch, triton
import triton.language as tl

@triton.jit
def softmax(x, y, n, B: tl.constexpr):
    at = tl.arange(0, B)
    v = tl.load(x + at, mask=at < n, other=-float("inf"))
    e = tl.exp(v - tl.max(v, 0))
    tl.store(y + at, e / tl.sum(e, 0), mask=at < n)

@triton.jit
def unit(x, y, n, B: tl.constexpr):
    at = tl.arange(0, B)
    v = tl.load(x + at, mask=at < n, other=0.0)
    tl.store(y + at, v / tl.sqrt(tl.sum(v * v, 0)), mask=at < n)

@triton.jit
def least(x, y, n, B: tl.constexpr):
    at = tl.arange(0, B)
    tl.store(y + tl.program_id(0), tl.min(tl.load(x + tl.program_id(0) * n + at, mask=at < n, other=float("inf")), 0))

def close(a, b):
    assert torch.allclose(a, b, atol=1e-2, rtol=1e-2)

@pytest.fixture
def x():
    torch.manual_seed(0)
    return torch.rand(32768).to("cuda")

def test_softmax(x):
    y = torch.empty_like(x)
    softmax[(1,)](x, y, 32768, B=32768)
    close(y, torch.softmax(x.cpu(), 0).to("cuda"))

def test_frobenius_norm(x):
    y = torch.empty_like(x)
    unit[(1,)](x, y, 32768, B=32768)
    close(y, (x.cpu() / torch.linalg.norm(x.cpu())).to("cuda"))

def test_min_reduction(x):
    y = torch.empty(8, device="cuda")
    least[(8,)](x, y, 4096, B=4096)
    close(y, x.cpu().reshape(8, 4096).min(1).values.to("cuda"))

def test_l2_norm(x):
    y = torch.empty_like(x)
    unit[(1,)](x, y, 32768, B=32768)
    close(y, torch.nn.functional.normalize(x.cpu(), dim=0).to("cuda"))

def test_wide_values(x):
    y = torch.empty(8, device="cuda")
    least[(8,)](x + 1, y, 4096, B=4096)
    close(y, 1 + x.cpu().reshape(8, 4096).min(1).values.to("cuda"))
'''


@pytest.mark.full
def test_kernels_of_triton_whose_values_are_below_the_tolerance_are_named(tmp_path: Path) -> None:
    """Softmax, two norms and a minimum, as benchmarks of kernels have them: a kernel that stores 0 passes."""
    code, text, found = ran(tmp_path, SMALL_VALUES, "--mutate-seconds=0.001")
    said = {t["test"].partition("::")[2]: [k["vacuous"] for k in t["kernels"]] for t in found["tests"]}
    wide = ["a kernel that stores 0 passes: its tolerance is wider than the values, or it looks at few of them"]
    small = ("test_softmax", "test_frobenius_norm", "test_min_reduction", "test_l2_norm")
    assert said == dict.fromkeys(small, wide) | {"test_wide_values": [""]}, text
    assert code == 3


def test_launches_of_the_driver_are_changed_too(tmp_path: Path) -> None:
    """As those of Triton and CUDA's API are: the parameters of a program are bytes that nobody may change."""
    through = HEAD + '''
import struct
from mmulator.host.driver import Region, current
def test_driver(mmulator):
    y = np.full(64, np.nan, np.float32)
    words = struct.pack("<QQI", X.ctypes.data, y.ctypes.data, 64)
    regions = [Region(a.ctypes.data, 256, name) for a, name in ((X, "x"), (y, "y"))]
    current().launch(current().load(PTX, "k.ptx").function("twice"), 1, 64, words, regions)
    assert (y == 2 * X).all()
'''
    code, text, _ = ran(tmp_path, through, "--mutate-seconds=600")
    assert code == 3 and "mutate: 5 mutants: 2 noticed, 2 survived, 1 equivalent" in text
    assert "and count = 63 in place of 64: " in text and "mmulator: 1 launch of 1 kernel" in text
