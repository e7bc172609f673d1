"""What is printed and written of launches, line by line."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mmulator.errors import LaunchError
from mmulator.host.driver import Driver, Settings
from mmulator.host.driver.report import Totals, again, block, elided, listener, short
from mmulator.host.report import Report

# A program of its own: three launches of one kernel, one of another with a long name.
PROGRAM = '''
from mmulator.host.driver import current
TEXT = """.version 8.0
.target sm_90
.address_size 64
.visible .entry counts() { .reg .b32 i; mov.u32 i, %tid.x; add.u32 i, i, 1; ret; }
.visible .entry NAME() { ret; }
"""
driver = current()
loaded = driver.load(TEXT.replace("NAME", "a_kernel_" * 12), "k.ptx")
for _ in range(LAUNCHES):
    driver.launch(loaded.function("counts"), (4, 2), 64, b"")
driver.launch(loaded.function("a_kernel_" * 12), 1, 32, b"")
'''
KEYS = ["schema", "process", "launch", "finished", "name", "kernel", "device", "grid", "block", "cluster", "shared", "seed",
        "threads", "instructions", "macs", "seconds", "cached", "notes", "output", "stores", "findings", "why",
        "refused"]  # fmt: skip


def made(kernel: str = "k", **changes: Any) -> Report:
    values: dict[str, Any] = {
        "kernel": kernel, "device": "sm_90", "grid": (4, 2, 1), "block": (128, 1, 1), "shared": 0, "seed": 0, "threads": 2,
        "instructions": {"integer": 1200}, "macs": 0, "seconds": {"parse": 0.25, "compile": 0.5, "run": 0.125}, "cached": False,
    }  # fmt: skip
    return Report(**{**values, **changes})


def start(launches: int, **environment: str) -> subprocess.Popen[str]:
    import os

    command = [sys.executable, "-c", PROGRAM.replace("LAUNCHES", str(launches))]
    return subprocess.Popen(command, env={**os.environ, **environment}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_lines_on_standard_error() -> None:
    """A block for the first launch of a kernel, a line for each later one, a table at the end."""
    out, told = start(3, MMULATOR_REPORT="1").communicate()
    assert out == ""
    told = re.sub(r" \(from the cache\)", "", re.sub(r"\d+\.\d+", "N", told))
    told = re.sub(r"on \d threads?", "on T", told)
    *lines, head, first, second = told.splitlines()
    assert lines == [
        "mmulator: counts on sm_90: grid 4 x 2, block 64, 0 bytes of shared memory",
        "  instructions of warps: 48 (move 16, integer 16, control 16)",
        "  time: parse N s, compile N s, run N s on T",
        "mmulator: counts on sm_90: grid 4 x 2, block 64: launch 2, N s",
        "mmulator: counts on sm_90: grid 4 x 2, block 64: launch 3, N s",
        "mmulator: a_kernel_a_kernel_a_ke...a_kernel_a_kernel_a_kernel_a_kernel_a_kernel_",
        "    on sm_90: grid 1, block 32, 0 bytes of shared memory",
        "  instructions of warps: 1 (control 1)",
        "  time: parse N s, compile N s, run N s on T",
        "mmulator: 4 launches of 2 kernels on sm_90: N s, of which N s compiling",
    ]
    assert head.split() == ["kernel", "launches", "run,", "s", "compile,", "s", "instructions", "MACs"]
    assert {" ".join(line.split()[:2]) for line in (first, second)} == {"counts 3", "a_kerne...kernel_a_kernel_ 1"}


def test_lines_of_several_processes(tmp_path: Path) -> None:
    """Each is a whole JSON object, whoever else writes; the keys are those of the page."""
    path = tmp_path / "launches.jsonl"
    processes = [start(60, MMULATOR_REPORT=str(path)) for _ in range(2)]
    assert [p.communicate() for p in processes] == [("", "")] * 2
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [list(row) for row in rows] == [KEYS] * 122
    for process in {row["process"] for row in rows}:
        assert [row["launch"] for row in rows if row["process"] == process] == list(range(1, 62))
    assert rows[0]["grid"] == [4, 2, 1] and rows[0]["instructions"] == {"move": 16, "integer": 16, "control": 16}


def test_a_block_is_80_wide() -> None:
    report = made("a_name_" * 20, instructions={f"class{n}": 10**n for n in range(12)}, macs=123456789, notes=["inferred " * 30])
    lines = block(report).splitlines()
    assert lines[0].startswith("mmulator: a_name_") and all(len(line) <= 80 for line in lines)
    assert again(report, 12) == "mmulator: a_nam...me_a_name_ on sm_90: grid 4 x 2, block 128: launch 12, 0.125 s"
    assert any(line.startswith("  instructions of warps: 111.1 G (class0 1, class1 10,") for line in lines)
    assert "others 111.1 G)" in " ".join(line.strip() for line in lines)


def test_figures() -> None:
    assert [short(n) for n in (0, 999, 1000, 12345, 10**6, 999_999, 8 * 10**9)] == [
        "0", "999", "1.0 k", "12.3 k", "1.0 M", "1.0 M", "8.0 G",
    ]  # fmt: skip
    assert elided("x" * 50, 30) == "x" * 9 + "..." + "x" * 18 and len(elided("x" * 50, 5)) == 16


def test_totals_of_several_processes() -> None:
    one, two = Totals(), Totals()
    for totals, count in ((one, 3), (two, 2)):
        for n in range(count):
            assert totals.count(made()) == n + 1
    two.count(made("other", device="sm_80", macs=5000))
    one.add(json.loads(json.dumps(two.as_list())))
    assert one.head() == "6 launches of 2 kernels on sm_80, sm_90: 4.5 s, of which 3.8 s compiling"
    assert one.table() == [
        "kernel          launches  run, s  compile, s  instructions   MACs",
        "k on sm_90             5   0.625       3.000         6.0 k",
        "other on sm_80         1   0.125       0.750         1.2 k  5.0 k",
    ]
    assert Totals().head() == "no launches"
    names = [f"a_long_name_{part}_kernel" for part in ("of_a_forward", "of_a_backward", "that_is_not_of_a_forward")]
    for name in names:
        two.count(made(name))
    assert [line.split()[0] for line in two.table()[-3:]] == [names[0], "a_long_..._backward_kernel", names[2]]


@pytest.mark.parametrize("value", ["yes", "launches.txt", "2"])
def test_a_value_that_is_none(value: str) -> None:
    with pytest.raises(LaunchError, match="MMULATOR_REPORT is"):
        Settings.from_environment({"MMULATOR_REPORT": value})


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match=r"cannot write .*: No such file or directory"):
        Driver(Settings(report=str(tmp_path / "none" / "launches.jsonl")))
    assert Settings.from_environment({"MMULATOR_REPORT": "0"}).report == ""
    assert listener(str(tmp_path / "a.jsonl")) is listener(str(tmp_path / "a.jsonl"))
