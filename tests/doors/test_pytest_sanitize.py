"""`pytest --mmulator --sanitize`: which tests fail, what their reports say, what the end says."""

import json
from pathlib import Path

import pytest

from mmulator.doors.pytest_tests import seed_of
from tests.doors.test_pytest_plugin import part, run, section

RULE = "mbarrier-init-in-use"
SUITE = '''
import os
import struct
import numpy as np
import pytest
import mmulator as mm
from mmulator.host.driver import current, Region

DEVICE = os.environ.get("MMULATOR_DEVICE", "sm_90")  # doors are open before the file is read

def launch(name):
    out = np.zeros(4, np.uint32)
    function = current().load(open("kernels.ptx").read(), "kernels.ptx").function(name)
    region = Region(out.ctypes.data, 16, "argument 0 (out)")
    return current().launch(function, 1, 64, struct.pack("<Q", out.ctypes.data), [region])

@pytest.fixture
def launched():
    launch("twice")

def test_wrong():
    launch("twice")
    launch("twice")

def test_right(mmulator):
    assert launch("once").findings == () and mmulator.findings == [] and current().device.name == DEVICE
    print("seed of", mmulator.seed)

def test_in_a_fixture(launched):
    pass

def test_fails_itself():
    launch("twice")
    assert 0

def test_faults():
    launch("traps")

@pytest.mark.mmulator(rules="mbarriers")
def test_expects_findings(mmulator):
    assert [f.rule for f in launch("twice").findings] == ["RULE"]
    assert [f.rule for f in mmulator.take_findings()] == ["RULE"]

def test_expects_a_fault():
    with pytest.raises(mm.errors.ExecutionFault) as caught:
        launch("traps")
    assert [f.rule for f in caught.value.findings if f.rule == "RULE"]

@pytest.mark.mmulator(sanitize="raise")
def test_expects_undefined_behaviour():
    with pytest.raises(mm.errors.UndefinedBehaviour, match="RULE"):
        launch("twice")

@pytest.mark.mmulator(sanitize=False)
def test_is_not_looked_at():
    assert launch("twice").findings == ()

@pytest.mark.mmulator(rules="-mbarriers")
def test_has_no_such_rule():
    launch("twice")

@pytest.mark.xfail(strict=True)
def test_is_expected_to_fail():
    launch("twice")

@pytest.mark.mmulator(rules="no-such-rule")
def test_wrong_rule():
    pass

@pytest.mark.mmulator(sanitize="perhaps")
def test_wrong_word():
    pass
'''.replace('"RULE"', repr(RULE)).replace("RULE", RULE)  # fmt: skip
ENTRY = """.visible .entry {name}(.param .u64 out) {{
  .shared .align 8 .b64 bar; .reg .b32 t; .reg .pred p;
  mov.u32 t, %tid.x; setp.ne.u32 p, t, 0; @p bra done;
  mbarrier.init.shared.b64 [bar], 1;
{more}
done:
  {last};
}}
"""
INIT = "  mbarrier.init.shared.b64 [bar], 1;"
KERNELS = ".version 8.0\n.target sm_90\n.address_size 64\n" + "".join(
    ENTRY.format(name=name, more=more, last=last)
    for name, more, last in (("once", "", "ret"), ("twice", INIT, "ret"), ("traps", INIT, "bar.sync 0; trap"))
)


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("suite")
    (folder / "test_suite.py").write_text(SUITE)
    (folder / "kernels.ptx").write_text(KERNELS)
    return folder


@pytest.fixture(scope="module")
def lines(suite: Path) -> list[str]:
    return run(suite, "--mmulator", "--sanitize", "test_suite.py")


def test_tests_with_findings_fail(lines: list[str]) -> None:
    failed = sorted(line.split()[1].partition("::")[2] for line in lines if line.startswith("FAILED "))
    assert failed == ["test_fails_itself", "test_faults", "test_in_a_fixture", "test_wrong"]
    errors = sorted(line.split()[1].partition("::")[2] for line in lines if line.startswith("ERROR "))
    assert errors == ["test_wrong_rule", "test_wrong_word"]
    assert "4 failed, 6 passed, 1 xfailed, 2 errors" in lines[-1]


def test_the_report_of_a_test_has_its_findings(lines: list[str]) -> None:
    told = part(lines, "test_wrong")
    assert told[0] == f"{RULE} at kernels.ptx:16" and told[2].startswith("kernels.ptx:16: error: ")
    assert "  by: block (0, 0, 0), thread (0, 0, 0); 2 times" in told
    assert section(told)[1:] == [
        "device sm_90, seed 0; to run it again:", "  pytest --mmulator=sm_90 --sanitize test_suite.py::test_wrong"
    ]  # fmt: skip
    assert part(lines, "test_in_a_fixture")[0] == f"{RULE} at kernels.ptx:16"
    for name in ("test_fails_itself", "test_faults"):
        own = section(part(lines, name))
        assert own[0].startswith(f"{RULE} at kernels.ptx:") and any("error: " in line for line in own)
    fault = "\n".join(part(lines, "test_faults"))
    assert "trap executed" in fault and "sanitizer: 1 finding (1 error), of 1 rule, until then" in fault
    assert "there is no rule 'no-such-rule'" in "\n".join(part(lines, "test_wrong_rule"))
    assert "sanitize is 'perhaps', not True, False, 'strict' or 'raise'" in "\n".join(part(lines, "test_wrong_word"))


def test_the_end_counts_them(lines: list[str]) -> None:
    at = next(n for n, line in enumerate(lines) if line.startswith("sanitizer: "))
    assert lines[at] == "sanitizer: 1 finding (1 error) in 11 launches"
    assert lines[at + 1].startswith("  kernels.ptx:16: error: ") and lines[at + 1].endswith(f"[{RULE}]")
    assert lines[at + 2] == "    test_suite.py::test_wrong and 3 more"


@pytest.mark.full
def test_workers_tell_of_theirs(suite: Path) -> None:
    """pytest-xdist: options, doors and devices reach the workers, and what they launched and found is told at the end."""
    pytest.importorskip("xdist", reason="pytest-xdist is not installed")
    options = "--mmulator=sm_120", "--mmulator-seed=7", "--sanitize", "-n2", "-rP", "-k", "test_wrong or right or fixture"
    lines = run(suite, *options, "test_suite.py")
    assert [line for line in lines if line.startswith("seed of")] == [f"seed of {seed_of(7, 'test_suite.py::test_right')}"]
    assert "sanitizer: 1 finding (1 error) in 4 launches" in lines
    assert "mmulator: 4 launches of 2 kernels on sm_120: N s, of which N s compiling" in lines


def test_the_environment_and_the_rules(suite: Path) -> None:
    lines = run(suite, "--mmulator", "-k", "test_wrong or test_right", "test_suite.py", MMULATOR_SANITIZE="1")
    assert "1 failed, 1 passed, 9 deselected, 2 errors" in lines[-1]
    assert not any(line.startswith("mmulator: twice:") for line in lines)
    options = ("--mmulator", "--sanitize", "--mmulator-rules=-mbarriers", "-k", "test_wrong or test_right")
    lines = run(suite, *options, "test_suite.py")
    assert "sanitizer: no findings in 3 launches" in lines and "1 failed" not in lines[-1]


def test_without_it_nothing_is_looked_at(suite: Path) -> None:
    lines = run(suite, "--mmulator", "-k", "test_wrong or test_right", "test_suite.py")
    assert not any(line.startswith("sanitizer: ") for line in lines) and "2 passed" in lines[-1]


def test_what_an_earlier_run_found_fails_nothing(suite: Path) -> None:
    options = ("--mmulator", "--mmulator-sarif=found.sarif", "-k", "test_wrong or test_right", "test_suite.py")
    assert "1 failed" in run(suite, *options)[-1]
    lines = run(suite, "--mmulator-baseline=found.sarif", *options)
    assert "sanitizer: no findings, 1 known by the baseline in 3 launches" in lines and "failed" not in lines[-1]
    (result,) = json.loads((suite / "found.sarif").read_text())["runs"][0]["results"]
    assert result["baselineState"] == "unchanged"
