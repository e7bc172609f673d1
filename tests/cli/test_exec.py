"""`mmulator exec`: a program is started as Python starts it, with the doors open, and so is every Python that it starts."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mmulator.cli import supervisor
from mmulator.cli.app import run
from tests.support.places import PACKAGE, ROOT
from tests.support.waiting import PATIENCE

EXEC = [sys.executable, "-m", "mmulator", "exec"]


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Of a shell in a folder with a sitecustomize of the user's."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text("import builtins; builtins.mine = __name__\n")
    return os.environ | {"PYTHONPATH": f"{PACKAGE}{os.pathsep}{tmp_path / 'site'}"}


def both(environment: dict[str, str], *words: str) -> tuple[subprocess.CompletedProcess[str], subprocess.CompletedProcess[str]]:
    """What Python makes of a program, and exec."""
    first, second = (
        subprocess.run([*before, *words], env=environment, capture_output=True, text=True) for before in ([sys.executable], EXEC)
    )
    return first, second


PROGRAM = """
import os, sys, inspect
print(sys.argv, sys.path, __name__, __file__, __spec__ and __spec__.name, sys.flags, mine, sys.orig_argv[1:])
print([m for m in ("torch", "numpy", "argparse", "llvmlite") if m in sys.modules], inspect.getsource(sys.modules["__main__"])[:9])
def inner():
    raise ValueError("as ever")
if "--fail" in sys.argv:
    inner()
sys.exit(len(sys.argv) + 40)
"""


@pytest.mark.parametrize("words", [("prog.py", "--device", "H100", "--", "-x"), ("prog.py", "--fail"), ("-m", "prog", "-h")])
def test_a_program_is_started_as_python_starts_it(environment: dict[str, str], words: tuple[str, ...]) -> None:
    """Arguments, path, standard output, traceback, exit code; nothing heavy is imported for it."""
    Path("prog.py").write_text(PROGRAM)
    plain, here = both(environment, *words)
    assert (here.returncode, here.stdout, here.stderr) == (plain.returncode, plain.stdout, plain.stderr)
    assert "sitecustomize" in here.stdout and "[] \nimport" in here.stdout


CHILDREN = """
import multiprocessing, os, subprocess, sys
def ready(*_):
    from mmulator.host.driver import current
    return [sys.meta_path[0].__module__, current().device.name, current().settings.seed]
if __name__ == "__main__":
    print(ready())
    for way in ("fork", "spawn"):
        with multiprocessing.get_context(way).Pool(1) as pool:
            print(pool.map(ready, [0])[0])
    code = "import prog, os; os.chdir('/'); print(prog.ready())"
    print(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip())
"""


def test_the_doors_are_ready_in_every_python_that_it_starts(environment: dict[str, str]) -> None:
    Path("prog.py").write_text(CHILDREN)
    words = [*EXEC, "--device=A100", "--seed", "3", "prog.py"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True)
    assert done.stdout.splitlines() == ["['mmulator.doors.imports', 'sm_80', 3]"] * 4, done.stderr


def test_ctrl_c_is_pythons(environment: dict[str, str]) -> None:
    Path("prog.py").write_text("import time; print('on', flush=True); time.sleep(1000)\n")
    with subprocess.Popen(
        [*EXEC, "prog.py"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as going:
        assert going.stdout is not None and going.stdout.readline() == "on\n"
        going.send_signal(signal.SIGINT)
        _, said = going.communicate(timeout=PATIENCE)
    assert going.returncode == -signal.SIGINT
    assert said.splitlines()[0] == "Traceback (most recent call last):" and "mmulator" not in said


def test_settings_are_those_of_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of the driver, for child processes too; a relative file is where the command was given."""
    asked: list[tuple[list[str], dict[str, str]]] = []
    monkeypatch.setattr("os.execve", lambda path, words, environment: asked.append((words, environment)))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MMULATOR_SEED", "5")
    options = "--device RTX4090 --seeds 3 --timeout 0.5 --threads 2 --report r.jsonl --autotune first"
    assert run(["exec", *options.split(), "-c", "pass", "--device", "H100"]) == 0
    (words, environment), *_ = asked
    assert words[1:] == ["-c", "pass", "--device", "H100"]
    got = {k.removeprefix("MMULATOR_"): v for k, v in environment.items() if k.startswith("MMULATOR_")}
    want = {"DEVICE": "sm_89", "SEED": "5", "SEEDS": "3", "TIMEOUT": "0.5", "THREADS": "2", "AUTOTUNE": "first"}
    assert want.items() <= got.items() and got["REPORT"] == str(tmp_path / "r.jsonl")
    assert environment["TRITON_DEFAULT_BACKEND"] == "mmulator" and environment["PYTHONPATH"].partition(":")[0].endswith("startup")


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ("nosuch.py", 2, "cannot read nosuch.py: No such file or directory"),
        ("-O prog.py", 2, "-O is no option of exec"),
        ("-m", 2, "-m needs a module behind it"),
        ("--device sm_1 -c pass", 1, "unknown device 'sm_1'"),
        ("--device sm_90a -c pass", 1, "devices have no suffix: sm_90"),
        ("--report out.txt -c pass", 2, "a file that ends in .jsonl"),
        ("--autotune slowly -c pass", 2, "measure, or first"),
        ("--seeds 0 -c pass", 2, "--seeds"),
        ("", 2, "PROGRAM [ARGS]... is missing"),
    ],
)
def test_wrong_use_is_one_message(capsys: pytest.CaptureFixture[str], words: str, code: int, message: str) -> None:
    assert run(["exec", *words.split()]) == code
    said = capsys.readouterr().err
    assert message in said and "Traceback" not in said


def test_a_setting_of_the_environment_is_checked_before_the_program_begins(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MMULATOR_TIMEOUT", "soon")
    assert run(["exec", "-c", "pass"]) == 1
    assert "MMULATOR_TIMEOUT is 'soon'" in capsys.readouterr().err


RACES = """
import subprocess, sys
from mmulator.host.driver import current
PTX = '''.version 8.0
.target sm_80
.address_size 64
.entry k() {
  .reg .b32 t; .shared .b32 cell;
  mov.u32 t, %tid.x;
  st.shared.b32 [cell], t;
  ret;
}'''
def launch(name):
    driver = current()
    driver.launch(driver.load(PTX.replace("k()", name + "()")).function(name), 1, 64, b"")
if __name__ == "__main__":
    launch("parent")
    print("it runs")
    if "child" in sys.argv:
        subprocess.run([sys.executable, "-c", "import prog; prog.launch('child')"], check=True)
    sys.exit(int(sys.argv[1]))
"""


def test_findings_decide_the_exit_code_and_are_put_together(environment: dict[str, str], tmp_path: Path) -> None:
    """Findings of all processes come as JSON and SARIF; a baseline knows them; a program's own code and signal stay."""
    Path("prog.py").write_text(RACES)

    def ran(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*EXEC, *words], env=environment, capture_output=True, text=True)

    first = ran("--json", "--sarif", "found.sarif", "prog.py", "0", "child")
    told = json.loads(first.stdout)
    assert first.returncode == 3 and "it runs" in first.stderr
    assert (told["ok"], told["exit_code"], told["sanitized_launches"]) == (False, 0, 2)
    assert {f["kernel"] for f in told["findings"]} == {k["kernel"] for k in told["kernels"]} == {"parent", "child"}
    results = json.loads(Path("found.sarif").read_text())["runs"][0]["results"]
    assert sum(r["level"] == "error" for r in results) == 2
    known = ran("--baseline", "found.sarif", "prog.py", "0")
    assert known.returncode == 0 and known.stdout == "it runs\n" and "no findings, in 1 launch" in known.stderr
    assert ran("--sanitize", "prog.py", "5").returncode == 5
    assert ran("--strict", "-c", "import os; os.kill(os.getpid(), 15)").returncode == -15


def test_signals_reach_a_sanitized_program(environment: dict[str, str]) -> None:
    Path("prog.py").write_text("import time\ntry: print('on', flush=True); time.sleep(1000)\nexcept KeyboardInterrupt: exit(4)")
    with subprocess.Popen([*EXEC, "--sanitize", "prog.py"], env=environment, stdout=subprocess.PIPE, text=True) as going:
        assert going.stdout is not None and going.stdout.readline() == "on\n"
        going.send_signal(signal.SIGINT)
        assert going.wait(timeout=PATIENCE) == 4


def test_an_option_behind_the_program_is_the_programs_and_that_is_said(environment: dict[str, str]) -> None:
    Path("prog.py").write_text("import sys; print(sys.argv[1:])")
    done = subprocess.run([*EXEC, "prog.py", "--sanitize"], env=environment, capture_output=True, text=True)
    assert done.stdout == "['--sanitize']\n" and done.stderr.startswith("note: --sanitize goes to prog.py; options of mmulator")


FAULT = """
import struct, sys
import numpy as np
from mmulator.host.driver import Region, current
from tests.support.ptx_text import kernel
out = np.zeros(4, np.uint32)
body = "st.global.u32 [%rd0], 7;\\n" if "wrong" in sys.argv else "trap;\\n"
function = current().load(kernel(body), "k.ptx").function("k")
try:
    current().launch(function, 1, 1, struct.pack("<Q", out.ctypes.data), [Region(out.ctypes.data, 16, "argument 0 (out)")])
except Exception:
    if "caught" not in sys.argv:
        raise
assert "wrong" not in sys.argv
"""


def test_a_next_step_is_said(environment: dict[str, str]) -> None:
    """After a fault that ends the program, and where it fails without a finding; nowhere else."""
    Path("prog.py").write_text(FAULT)
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), environment["PYTHONPATH"]])

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*EXEC, *words], env=environment, capture_output=True, text=True)

    def last(*words: str) -> str:
        return (run(*words).stderr.splitlines() or [""])[-1]

    after = "mmulator: next: `exec --sanitize` says what went wrong before the fault, and `mmulator debug` stops there"
    assert last("prog.py") == after and last("prog.py", "caught") == ""
    unexplained = "mmulator: the program failed, and no finding explains it; next: `mmulator {} prog.py wrong` "
    assert last("--sanitize", "prog.py", "wrong").startswith(unexplained.format("exec --why auto"))
    own = supervisor._next(["./prog"], {}, 1)  # of a program that compares by itself
    assert own.endswith("next: `mmulator exec --why 'NAME[INDEX]' ./prog` says why an element of an array has its value")
    done = run("--json", "--sarif=a.sarif", "--sanitize", "--why=out[0]", "prog.py", "wrong")
    found, (log,) = json.loads(done.stdout), json.loads(Path("a.sarif").read_text())["runs"]
    assert done.stderr.splitlines()[-1] == f"mmulator: {found['next']}" == unexplained.format("debug") + "stops in its kernels"
    (why,) = found["why"]
    assert why["asked"] == why["answer"]["element"] == "out[0]" and why["said"].startswith("why out[0], launch 1 of k:\n")
    assert log["invocations"][0]["toolExecutionNotifications"] == [
        {"level": "note", "message": {"text": why["said"]}, "properties": why}
    ]
