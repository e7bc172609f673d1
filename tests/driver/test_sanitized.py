"""Launches through the driver under the sanitizer: findings in reports, in errors, on standard error."""

import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mmulator.base.findings import Finding
from mmulator.errors import ExecutionFault, LaunchError, UndefinedBehaviour, UnstableResult
from mmulator.host.driver import Driver, Region, Settings
from mmulator.runtime.options import CompileOptions
from tests.support.breaches import RULE, TWICE
from tests.support.ptx_text import kernel

LAST = TWICE + "shr.u32 %r1, %r0, 5;\n st.global.b32 [%rd0], %r1;\n"


class Launch:
    """Of `k`, on 128 threads."""

    def __init__(self, body: str, **settings: Any) -> None:
        self.driver = Driver(Settings(**{"rules": "mbarriers"} | settings))
        self.read: list[tuple[str, tuple[Finding, ...], Any]] = []
        self.driver.readers[:] = [lambda *told: self.read.append(told)]
        self.function = self.driver.load(kernel(body), "k.ptx").function("k")

    def __call__(self) -> Any:
        out = np.zeros(4, np.uint32)
        region = Region(out.ctypes.data, 16, "argument 0 (out)")
        return self.driver.launch(self.function, 1, 128, struct.pack("<Q", out.ctypes.data), [region])


def test_the_report_has_the_findings() -> None:
    launch = Launch(TWICE, sanitize="report")
    (finding,) = launch().findings
    assert (finding.rule, finding.location, finding.count) == (RULE, "k.ptx:15", 1)
    assert launch.read == [("k", (finding,), None, 1)]


def test_off_is_the_kernel_as_it_was() -> None:
    launch = Launch(TWICE)
    assert launch().findings == () and launch.read == []
    assert {options for *_, options in launch.function.loaded.module.loaded.compiled} == {CompileOptions(waits=True)}


def test_rules() -> None:
    launch = Launch(TWICE, sanitize="report", rules="-mbarriers,-races")
    assert not any(f.rule == RULE for f in launch().findings)
    with pytest.raises(LaunchError, match="MMULATOR_RULES is 'nonsense'"):
        Settings.from_environment({"MMULATOR_RULES": "nonsense"})
    with pytest.raises(LaunchError, match="MMULATOR_SANITIZE is 'yes'"):
        Settings.from_environment({"MMULATOR_SANITIZE": "yes"})
    for text, sanitize in (("1", "report"), ("report", "report"), ("raise", "raise"), ("0", ""), ("", "")):
        assert Settings.from_environment({"MMULATOR_SANITIZE": text}).sanitize == sanitize


def test_raise() -> None:
    launch = Launch(TWICE, sanitize="raise")
    with pytest.raises(UndefinedBehaviour, match=RULE) as caught:
        launch()
    assert [f.rule for f in caught.value.findings] == [RULE]
    assert launch.read == [("k", caught.value.findings, caught.value, 1)]


def test_a_fault_has_them() -> None:
    launch = Launch(TWICE + "bar.sync 0;\n trap;\n", sanitize="report")
    with pytest.raises(ExecutionFault, match="sanitizer: 1 finding") as caught:
        launch()
    assert [f.rule for f in caught.value.findings] == [RULE] and launch.read[0][2] is caught.value


def test_seeds_together() -> None:
    (finding,) = Launch(TWICE, sanitize="report", seeds=3)().findings
    assert (finding.seeds, finding.count) == ((0, 1, 2), 3)
    with pytest.raises(UnstableResult) as caught:
        Launch(LAST, sanitize="report", seeds=16)()
    assert [f.rule for f in caught.value.findings] == [RULE]


def test_certificates_do_not_depend_on_rules_and_stand_in_errors(capsys: pytest.CaptureFixture[str]) -> None:
    launch = Launch(TWICE, certify=True, rules="races")
    report = launch()
    assert report.findings == () and report.certificate.verdict == "counterexample" and RULE in report.certificate.reasons[0].why
    with pytest.raises(ExecutionFault) as caught:
        Launch("bar.sync 0;\n trap;\n", certify=True)()
    assert caught.value.__dict__["certificate"].verdict == "counterexample"
    assert Launch("st.global.b32 [%rd0], 7;\n", certify=True)().certificate.verdict == "certified"
    with pytest.raises(LaunchError, match="seeds and certify"):
        Settings(certify=True, seeds=2)


def test_other_schedules_leave_no_trace() -> None:
    """Each thread adds one and stores what was there: memory is as the first schedule left it, and one report is heard."""
    body = "mov.u32 %r0, %tid.x;\n atom.global.add.u32 %r1, [%rd0], 1;\n"
    launch = Launch(body + "setp.eq.u32 %p0, %r0, 5;\n @%p0 st.global.u32 [%rd0+4], %r1;\n", certify=True)
    heard: list[Any] = []
    launch.driver.listeners.append(heard.append)
    assert launch().certificate.verdict in ("not decided", "counterexample") and len(heard) == 1
    assert launch.driver.settings.sanitize == "report"


PROGRAM = """
import struct, sys
import numpy as np
from mmulator.host.driver import Region, current
out = np.zeros(4, np.uint32)
function = current().load(open("k.ptx").read(), "k.ptx").function("k")
for _ in range(3):
    try:
        current().launch(function, 1, 128, struct.pack("<Q", out.ctypes.data), [Region(out.ctypes.data, 16, "argument 0 (out)")])
    except Exception as error:
        print(type(error).__name__)
"""


def test_standard_error_has_each_once_and_a_last_line(tmp_path: Path) -> None:
    (tmp_path / "k.ptx").write_text(kernel(TWICE))

    def said(**more: str) -> tuple[str, list[str]]:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM], cwd=tmp_path, env=os.environ | more, capture_output=True, text=True, check=True
        )  # fmt: skip
        return done.stdout, done.stderr.splitlines()

    _, lines = said(MMULATOR_SANITIZE="1", MMULATOR_RULES="mbarriers")
    assert lines[0] == "mmulator: k:" and lines[1].startswith("k.ptx:15: error: ")
    assert lines[-1] == "mmulator: 1 finding (1 error), of 1 rule, in 3 launches" and max(map(len, lines)) <= 80
    assert sum(line.startswith("k.ptx:15") for line in lines) == 1
    out, lines = said(MMULATOR_SANITIZE="raise", MMULATOR_RULES="mbarriers")
    assert out.split() == ["UndefinedBehaviour"] * 3 and lines[-1].startswith("mmulator: 1 finding (1 error)")
    assert said()[1] == [] == said(MMULATOR_SANITIZE="0")[1]


def test_a_fault_that_was_told_is_short(tmp_path: Path) -> None:
    """Its text names the finding above; without the sanitizer, and where the finding was not printed, it has all."""
    (tmp_path / "k.ptx").write_text(kernel("ld.global.u32 %r0, [%rd0+4096];\n"))
    whole = PROGRAM.replace("print(type(error).__name__)", "print(error)")

    def said(**more: str) -> str:
        done = subprocess.run([sys.executable, "-c", whole], cwd=tmp_path, env=os.environ | more, capture_output=True, text=True)
        return done.stdout

    assert said().count("hint: ") == 3
    assert said(MMULATOR_SANITIZE="1", MMULATOR_RULES="mbarriers").count("hint: ") == 3
    short = said(MMULATOR_SANITIZE="1").splitlines()
    assert len(short) == 6 and short[1] == "  the finding above says more [memory-out-of-bounds]"
