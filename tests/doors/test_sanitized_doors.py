"""Programs of other libraries under the sanitizer: kernels in order have no findings, others have theirs, with a line each."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support import forks
from tests.support.places import PACKAGE, ROOT

NUMBA = """
import numpy as np
from numba import cuda

@cuda.jit
def turn(out, late):
    tile = cuda.shared.array(128, np.float32)
    t = cuda.threadIdx.x
    tile[t] = t
    if late:
        cuda.syncthreads()
    out[t] = tile[127 - t]

out = cuda.to_device(np.zeros(128, np.float32))
for late in LATE:
    try:
        turn[1, 128](out, late)
        cuda.synchronize()
        print("ran")
    except Exception as error:
        print(type(error).__name__, "CUDA_ERROR_LAUNCH_FAILED" in str(error), "race-read-write" in str(error))
"""
TRITON = """
import numpy as np
import triton, triton.language as tl
import mmulator as mm

@triton.jit
def total(x, out, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + tl.program_id(0), tl.sum(tl.load(x + at)))

@triton.jit
def last(x, out):
    tl.store(out, tl.load(out) + tl.load(x + tl.program_id(0)))

x = np.arange(512, dtype=np.float32)
"""


def run(folder: Path, program: str, *words: str, code: int = 0, **more: str) -> tuple[str, list[str]]:
    """Standard output, and the lines of standard error that are ours. code: the exit code that the program has."""
    (folder / "prog.py").write_text(program)
    environment = {n: v for n, v in os.environ.items() if not n.startswith("MMULATOR_") or n == "MMULATOR_CACHE"}
    environment |= {"PYTHONPATH": str(PACKAGE), "TRITON_CACHE_DIR": str(folder / "triton"), "PYTHONWARNINGS": "ignore"}
    environment |= more
    words = words or ("-m", "mmulator", "exec", "--sanitize", "prog.py")
    if "numba" in program:  # whose door opens before it is imported
        done = subprocess.run([sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True)
    else:
        done = forks.run(words, folder, environment)
    assert done.returncode == code, done.stderr
    return done.stdout, done.stderr.splitlines()


@pytest.mark.skipif(find_spec("numba_cuda") is None, reason="numba-cuda is not installed")
@pytest.mark.full
def test_numba(tmp_path: Path) -> None:
    out, said = run(tmp_path, NUMBA.replace("LATE", "(True,)"))
    assert out == "ran\n" and said[-1] == "mmulator: no findings, in 1 launch"
    out, said = run(tmp_path, NUMBA.replace("LATE", "(False, False)"), code=3)
    assert out == "ran\nran\n" and said[-1] == "mmulator: 1 finding (1 error), of 1 rule, in 2 launches"
    assert sum("[race-read-write]" in line for line in " ".join(said).split("mmulator: ")) == 1
    words = ("-m", "mmulator", "exec", "prog.py")
    out, said = run(tmp_path, NUMBA.replace("LATE", "(False, True)"), *words, code=3, MMULATOR_SANITIZE="raise")
    first, second = out.splitlines()
    assert first.endswith(" True True") and second == "ran"


@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
def test_triton(tmp_path: Path) -> None:
    launches = "total[(4,)](x, np.zeros(4, np.float32), BLOCK=128)\nlast[(4,)](x, np.zeros(1, np.float32))\n"
    _, said = run(tmp_path, TRITON + launches, code=3)
    text = " ".join(" ".join(said).split())
    assert "(prog.py:13): error: " in text and "[race-between-blocks]" in text and "total" not in text
    assert "tl.store(out, tl.load(out) + tl.load(x + tl.program_id(0)))" in text
    assert said[-1].endswith("in 2 launches; 1 note: --strict")

    own = (
        "report = mm.triton.launch(total, 4, x, np.zeros(4, np.float32), BLOCK=128, sanitize=True)\n"
        "print(report.findings)\n"
        "report = mm.triton.launch(last, 4, x, np.zeros(1, np.float32), sanitize=True)\n"
        "print(sorted({f.rule for f in report.findings}), {f.source for f in report.findings})\n"
        "print(mm.triton.launch(last, 4, x, np.zeros(1, np.float32)).findings)\n"
        "for wrong in ('raise', 'yes'):\n"
        "    try:\n"
        "        mm.triton.launch(last, 4, x, np.zeros(1, np.float32), sanitize=wrong)\n"
        "    except mm.errors.MmulatorError as error:\n"
        "        print(type(error).__name__)\n"
    )
    out, said = run(tmp_path, TRITON + own, "prog.py")
    assert out.splitlines() == ["()", "['race-between-blocks'] {'prog.py:13'}", "()", "UndefinedBehaviour", "LaunchError"]
    assert said == []


LIBRARY = """import torch
x = torch.rand(8, 8).cuda()
y = torch.relu(x @ x)
torch.cumsum(y, 0), torch.conv1d(x, x[:, :, None])
torch.backends.cudnn.deterministic = True
torch.conv1d(x, x[:, :, None])
"""


@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
def test_calls_of_libraries_are_counted_and_never_certified(tmp_path: Path) -> None:
    _, said = run(tmp_path, LIBRARY, "-m", "mmulator", "exec", "--certify", "prog.py")
    assert "certified" not in " ".join(said)
    assert said[-1] == (
        "mmulator: no findings, in 0 launches; 5 library calls not checked (one result by the library's word; no single "
        "result is promised of convolution, cumsum)"
    )
    out, _ = run(tmp_path, LIBRARY, "-m", "mmulator", "exec", "--certify", "--json", "prog.py")
    found = json.loads(out)
    assert found["library_calls"] == {"calls": 5, "not_promised": {"convolution": 1, "cumsum": 1}} and "certificates" not in found
    _, said = run(tmp_path, LIBRARY)
    assert not any("library call" in line for line in said)


FORGOTTEN = "forgotten", "half_filled", "copied_from_what_is_unwritten", "given_out_again"
FILLED = "all_is_filled", "a_plane_is_copied", "memory_of_the_host"


@pytest.mark.skipif(sys.platform != "linux", reason="the library is made for Linux")
@pytest.mark.parametrize("part", (*FORGOTTEN, *FILLED))
def test_device_memory_that_nobody_has_written(tmp_path: Path, part: str) -> None:
    program = (ROOT / "tests" / "doors" / "programs" / "unwritten.py").read_text()
    words = ("-m", "mmulator", "exec", "--sanitize", "prog.py", part)
    _, said = run(tmp_path, program, *words, code=3 * (part in FORGOTTEN))
    text = " ".join(" ".join(said).split())
    if part in FORGOTTEN:
        assert said[-1] == "mmulator: 1 finding (1 error), of 1 rule, in 1 launch", text
        assert "[uninitialized-global]" in text and "of device memory, which has 128" in text
    else:
        assert said[-1].startswith("mmulator: no findings, in "), text
