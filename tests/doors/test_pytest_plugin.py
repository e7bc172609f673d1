"""`pytest --mmulator` on suites of a user: what tests find, what a failing one says, what the end says."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from mmulator.doors.pytest_tests import seed_of, where
from tests.support.places import PACKAGE
from tests.support.ptx_text import stored

SUITE = '''
import struct
import numpy as np
import pytest
import conftest
from mmulator.host.driver import current, Region

def launch(name, bytes=512, threads=128):
    """A launch of a kernel of kernels.ptx: words for the threads."""
    out = np.zeros(128, np.uint32)
    driver = current()
    function = driver.load(open("kernels.ptx").read(), "kernels.ptx").function(name)
    region = Region(out.ctypes.data, bytes, "argument 0 (out)")
    driver.launch(function, 1, threads, struct.pack("<Q", out.ctypes.data), [region])
    return out

@pytest.mark.parametrize("n", range(2))
def test_ids(n, mmulator):
    assert (launch("ids") == np.arange(128)).all()
    (report,) = mmulator.launches
    assert report.seed == mmulator.seed
    print("seed of", n, mmulator.seed)

def test_faults():
    launch("ids", 256)

@pytest.mark.mmulator(device="sm_80", seed=5, seeds=3)
def test_marked(mmulator):
    launch("ids")
    (report,) = mmulator.launches
    assert (report.device, report.seed, report.threads) == ("sm_80", 5, 1) and "seeds 5 to 7" in report.notes[0]
    with mmulator.device("sm_120") as driver:
        assert driver is current() and driver.device.name == "sm_120"
        launch("ids")
    assert [r.device for r in mmulator.launches] == ["sm_80", "sm_120"]
    assert driver.device.name == "sm_80" == driver.settings.device

def test_unmarked(mmulator):
    assert (current().device.name, current().settings.seeds) == (conftest.DEVICE, 1)

@pytest.mark.mmulator(timeout=0.2)
def test_endless():
    launch("endless")

@pytest.mark.mmulator(chip="sm_80")
def test_wrong_marker():
    pass

@pytest.mark.mmulator(seeds=8)
def test_order():
    launch("tickets")
'''
# doors are open before the first file of the tests is read
CONFTEST = """
import os
DEVICE = os.environ.get("MMULATOR_DEVICE", "sm_90")
assert os.environ["TRITON_DEFAULT_BACKEND"] == "mmulator"
"""
KERNELS = stored("ids_and_tickets")

ADD = """
import torch, triton, triton.language as tl

@triton.jit
def twice(x, o, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n)
    tl.store(o + at, v + v, mask=at < n)

def apply(x, n):
    o = torch.empty_like(x)
    twice[(1,)](x, o, n, BLOCK=128)
    return o

def test_values(mmulator):
    x = torch.arange(100, dtype=torch.float32, device="cuda")
    assert torch.equal(apply(x, 100), 2 * x)
    with mmulator.device("sm_80"):
        assert torch.cuda.get_device_capability() == (8, 0)
        assert torch.equal(apply(x, 100), 2 * x)
    assert [r.device for r in mmulator.launches] == ["sm_90", "sm_80"]

def test_bounds():
    try:
        apply(torch.zeros(100, device="cuda"), 101)
    except Exception as error:
        raise ValueError("as a library would wrap it") from error
"""
LIBRARIES = [name for name in ("torch", "triton") if find_spec(name) is None]
if not LIBRARIES:
    CONFTEST += """
import triton
import mmulator.doors.pytest_tests as tests

tests.LONG = 0.0

def listener(*, src, times, **rest):
    assert times.total > 0
    print("\\ncompiled", src.name)

triton.knobs.compilation.listener = listener
"""


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("suite")
    for name, text in (("test_suite.py", SUITE), ("conftest.py", CONFTEST), ("kernels.ptx", KERNELS), ("test_twice.py", ADD)):
        (folder / name).write_text(text)
    return folder


def environment(folder: Path, **more: str) -> dict[str, str]:
    found = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "MMULATOR_")) or k == "MMULATOR_CACHE"}
    found |= {"PYTHONPATH": f"{PACKAGE}{os.pathsep}{folder}", "COLUMNS": "100", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return found | {"TRITON_CACHE_DIR": str(folder / "triton"), **more}  # it would remember where its sources were


def run(folder: Path, *options: str, **more: str) -> list[str]:
    """The lines that pytest prints, times as N."""
    plugin = ["-p", "mmulator.doors.pytest_plugin", *(("-p", "xdist") if "-n2" in options else ())]  # and none of others
    command = [sys.executable, "-m", "pytest", *plugin, "-p", "no:cacheprovider", *options]
    done = subprocess.run(command, cwd=folder, env=environment(folder, **more), capture_output=True, text=True)
    return re.sub(r"\d+\.\d+", "N", done.stdout + done.stderr).splitlines()


def part(lines: list[str], title: str) -> list[str]:
    """What stands under the head of a failing test: lines that launch or raise, and what follows them."""
    first = next(n for n, line in enumerate(lines) if re.fullmatch(f"_+ (ERROR at setup of )?{re.escape(title)} _+", line)) + 1
    last = next(n for n, line in enumerate(lines) if n > first and re.match("(_+|=+) .* (_+|=+)$|mmulator: ", line))
    return lines[first:last]


def section(lines: list[str]) -> list[str]:
    return lines[next(n for n, line in enumerate(lines) if re.fullmatch("-+ mmulator -+", line)) + 1 :]


@pytest.fixture(scope="module")
def lines(suite: Path) -> list[str]:
    """Of all tests, those of Triton too where it is."""
    chosen = ["test_suite.py"] if LIBRARIES else ["."]
    return run(suite, "--mmulator", *chosen, "--mmulator-seed", "7", "--mmulator-report", "-rP", "-W", "ignore")


def test_a_suite(lines: list[str]) -> None:
    assert "mmulator: sm_90, seeds of --mmulator-seed 7" in lines
    seeds = [seed_of(7, f"test_suite.py::test_ids[{n}]") for n in range(2)]
    assert [line for line in lines if line.startswith("seed of")] == [f"seed of {n} {seed}" for n, seed in enumerate(seeds)]
    assert ("3 failed, 4 passed, 1 error" if LIBRARIES else "4 failed, 5 passed, 1 error") in lines[-1]

    # the error in full, with its line of PTX; of the program's frames its own, none of ours; how to run it again
    fault = part(lines, "test_faults")
    frames = [line for line in fault if line.startswith(">")]
    assert [line[1:].split("(")[0].strip() for line in frames] == ["launch", "driver.launch"]
    assert [line for line in fault if re.search(r"mmulator/\w+/\w+\.py", line)] == []
    assert [line for line in fault if line.startswith("E  ")][1:3] == ["E         st.global.b32 [o], i;", "E         " + "^" * 21]
    assert section(fault) == [
        f"device sm_90, seed {seed_of(7, 'test_suite.py::test_faults')}; to run it again:",
        "  pytest --mmulator=sm_90 --mmulator-seed=7 test_suite.py::test_faults",
    ]
    (wrong,) = part(lines, "test_wrong_marker")
    assert wrong == "@pytest.mark.mmulator takes device, seed, seeds, timeout, sanitize, rules, keep_going, why by name, not chip"
    assert section(part(lines, "test_endless"))[0] == "launches of this test may take N s together; those before took 0 s"
    order = "\n".join(part(lines, "test_order"))
    assert "UnstableResult: kernels.ptx:14:3: tickets left other bits under seed" in order and "and 7 more" in order

    at = next(n for n, line in enumerate(lines) if line.startswith("mmulator: ") and "launches of" in line)
    launches, kernels = (4, "1 kernel") if LIBRARIES else (6, "2 kernels")
    assert lines[at] == f"mmulator: {launches} launches of {kernels} on sm_120, sm_80, sm_90: N s, of which N s compiling"
    table = [line.split()[:4] for line in lines[at + 1 : at + 7]]
    assert table[0] == ["kernel", "launches", "run,", "s"]
    assert all(row in table for row in (["ids", "on", "sm_120", "1"], ["ids", "on", "sm_80", "1"], ["ids", "on", "sm_90", "2"]))


@pytest.mark.skipif(bool(LIBRARIES), reason=f"{' and '.join(LIBRARIES)} not installed")
def test_triton(suite: Path, lines: list[str]) -> None:
    """Kernels of Triton, on two chips in one process; a fault that something else was raised from."""
    told = section(part(lines, "test_bounds"))
    assert re.match(r"ExecutionFault: twice\.ptx:\d+:\d+ \(test_twice\.py:7\): out of bounds: ld\.global", told[0])
    assert f"  source: {suite / 'test_twice.py'}:7" in told
    assert "    v = tl.load(x + at, mask=at < n)" in told


def test_where_the_time_went() -> None:
    """A long session says so, and what makes the next one shorter, if anything does."""
    assert where(spent=19.0, triton=9, compiling=9, running=0) == ""
    assert where(spent=40.0, triton=11.13, compiling=17.2, running=0.5) == (
        "40.0 s: Triton's compiler 11.1 s, compiling here 17.2, launches 0.5, imports and tests 11.2; "
        "keep MMULATOR_CACHE and TRITON_CACHE_DIR for the next run"
    )
    assert where(spent=40.0, triton=0, compiling=20, running=1).endswith("tests 19.0; keep MMULATOR_CACHE for the next run")
    assert where(spent=40.0, triton=2, compiling=1, running=1).endswith("launches 1.0, imports and tests 36.0")


@pytest.mark.skipif(bool(LIBRARIES), reason=f"{' and '.join(LIBRARIES)} not installed")
def test_triton_says_how_long_it_compiles(lines: list[str]) -> None:
    """To a listener of the program, too."""
    assert any(re.match("mmulator: N s: Triton's compiler N s, compiling here N, launches N, imports", line) for line in lines)
    assert "compiled twice" in lines


def test_a_seed_is_of_the_test_alone() -> None:
    """Not of the folder that pytest began in, which the id of a test depends on."""
    assert seed_of(7, "tests/gpu/test_a.py::test_b[x/y]") == seed_of(7, "test_a.py::test_b[x/y]")
    assert len({seed_of(n, f"test_a.py::test_{m}") for n in range(8) for m in "bc"}) == 16
    assert min(seed_of(n, "test_a.py::test_b") for n in range(1000)) > 0


REFUSED = """
import sys
import pytest
for words in {words}:
    pytest.main([{plugin!r}, *words])
    print(flush=True)
"""


def test_options_are_checked(suite: Path) -> None:
    """In one process, in which each is refused before a test is read."""
    wrong = {
        ("--mmulator=sm_91",): "ERROR: --mmulator: unknown device 'sm_91'",
        ("--mmulator-seeds=2",): "ERROR: --mmulator-seeds goes with --mmulator",
        ("--mmulator", "--mmulator-seed=x"): "'x' is not a whole number from 0 on, or `random`",
        ("--sanitize",): "--mmulator-sanitize goes with --mmulator",
        ("--mmulator", "--mmulator-rules=x"): "there is no rule 'x'",
    }
    program = REFUSED.format(words=[*wrong], plugin="-pmmulator.doors.pytest_plugin")
    done = subprocess.run([sys.executable, "-c", program], cwd=suite, env=environment(suite), capture_output=True, text=True)
    said = re.split("(?=ERROR: )", done.stdout + done.stderr)[1:]
    assert len(said) == len(wrong) and all(text in line for text, line in zip(wrong.values(), said)), said


WITHOUT = """
import sys
def test_nothing_is_loaded():
    assert "numpy" not in sys.modules and {m for m in sys.modules if m.startswith("mmulator")} == LOADED
def test_needs(mmulator):
    pass
"""


def test_without_the_option_nothing_happens(tmp_path: Path) -> None:
    loaded = {"mmulator", "mmulator.doors", "mmulator.doors.pytest_plugin", "mmulator.base", "mmulator.base.lazy",
              "mmulator.host", "mmulator.host.settings", "mmulator.host.settings.readers"}  # fmt: skip
    (tmp_path / "test_none.py").write_text(WITHOUT.replace("LOADED", repr(loaded)))
    lines = run(tmp_path, "-rs", "test_none.py")
    assert "1 passed, 1 skipped" in lines[-1] and any("needs pytest --mmulator" in line for line in lines)
    lines = run(tmp_path, "-k", "needs", "test_none.py", MMULATOR_EXEC=sys.prefix)  # what `mmulator exec` says
    assert "1 passed" in lines[-1] and "mmulator: no launches" in lines
    assert not any(line.startswith("sanitizer: ") for line in lines)
    lines = run(tmp_path, "-k", "needs", "--sanitize", "test_none.py", MMULATOR_EXEC=sys.prefix)
    assert any(line.startswith("sanitizer: no launches; ") for line in lines)
