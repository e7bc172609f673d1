"""The commands and pytest, asked for profiles and traces."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mmulator.cli.app import run
from tests.record.test_profile import HEAD, LOOP
from tests.record.test_trace import checked
from tests.support.places import PACKAGE

PROGRAM = f'''
import struct, subprocess, sys
import numpy as np
from mmulator.host.driver import Region, current

def test_it():
    x = np.zeros(48, np.uint32)
    driver = current()
    function = driver.load("""{HEAD}{LOOP}""", "loop.ptx").function("k")
    for _ in range(2):
        driver.launch(function, 1, 48, struct.pack("<Q", x.ctypes.data), [Region(x.ctypes.data, x.nbytes, "x")])

if __name__ == "__main__":
    test_it()
    if len(sys.argv) == 1:
        subprocess.run([sys.executable, __file__, "child"], check=True)
'''


def mmulator(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_loop.py").write_text(PROGRAM)
    environment = os.environ | {"PYTHONPATH": str(PACKAGE), "MMULATOR_PROGRESS": "never"}
    return subprocess.run([sys.executable, "-m", *words], cwd=folder, env=environment, capture_output=True, text=True)


def test_a_program_and_its_child_are_one_profile_and_one_trace(tmp_path: Path) -> None:
    done = mmulator(tmp_path, "mmulator", "exec", "--profile", "--trace", "t.json", "test_loop.py")
    assert done.returncode == 0, done.stderr
    assert "mmulator: profile of k on sm_90, 4 launches" in done.stderr and "not reached in loop.ptx: line 21" in done.stderr
    events = checked(tmp_path / "t.json")
    processes = [e["args"]["name"] for e in events if e["name"] == "process_name"]
    assert processes == [f"launch {n}: k, block (0, 0, 0)" for n in range(1, 5)]


def test_a_program_as_json(tmp_path: Path) -> None:
    done = mmulator(tmp_path, "mmulator", "exec", "--json", "--profile-to", "p.html", "--sanitize", "test_loop.py", "alone")
    data = json.loads(done.stdout)
    assert data["ok"] and data["profiles"][0]["launches"] == 2 and "st.global.u32" in (tmp_path / "p.html").read_text()
    assert "profile" not in done.stderr


def test_a_program_that_asks_by_its_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MMULATOR_PROFILE", "p.json")
    monkeypatch.setenv("MMULATOR_TRACE", "t.json")
    done = mmulator(tmp_path, "test_loop", "alone")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads((tmp_path / "p.json").read_text())["profiles"][0]["launches"] == 2 and checked(tmp_path / "t.json")


def test_pytest_says_what_was_not_reached(tmp_path: Path) -> None:
    options = "--mmulator-profile", "--mmulator-profile-to=c.info", "--mmulator-trace=t.json"
    done = mmulator(tmp_path, "pytest", "-q", "-p", "no:cacheprovider", "--mmulator", *options, "test_loop.py")
    assert "profile: 1 kernel: 15 of 16 lines reached, 3 of 4 ways of branches" in done.stdout, done.stdout
    assert "not reached in loop.ptx: line 21" in done.stdout and "DA:21,0" in (tmp_path / "c.info").read_text()
    assert checked(tmp_path / "t.json")


def test_run_writes_every_format(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "k.ptx"
    file.write_text(HEAD + LOOP)
    launch = ["run", str(file), "--grid", "1", "--block", "48", "--arg", "out:u32:48"]
    for name in ("p.html", "p.json", "p.txt", "p.info"):
        assert run([*launch, "--profile-to", str(tmp_path / name), "--trace", str(tmp_path / "t.json")]) == 0
        assert (tmp_path / name).stat().st_size > 100 and checked(tmp_path / "t.json")
        assert "profile of k on sm_90" in capsys.readouterr().out
    assert run([*launch, "--profile", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["report"]["profile"]["launches"] == 1
    for wrong in (["--profile-to", "p.pdf"], ["--trace", "t.txt"], ["--profile-to", str(tmp_path / "no" / "p.txt")]):
        assert run([*launch, *wrong]) in (1, 2), wrong
