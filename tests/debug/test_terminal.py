"""The terminal of the debugger: scripted sessions of launch files and of programs, and what a user types."""

import io
import json
import os
import re
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import mmulator as mm
from mmulator.cli import debug
from mmulator.observation.debug.program import Debugger
from mmulator.observation.debug.terminal import DebugTerminal
from mmulator.observation.debug.terminal_commands import COMMANDS
from tests.debug.test_session import PARTED, expected, line
from tests.support.nvcc import compiled, nvcc
from tests.support.places import PACKAGE, ROOT
from tests.support.schemas import checked
from tests.support.sessions import PIPELINE
from tests.support.waiting import PATIENCE, wait_for_work


class Left(Exception):
    """The end of a process, in tests."""


def talk(text: str, kernel: str = PARTED, *, typed: str | None = None, as_json: bool = False) -> tuple[str, np.ndarray]:
    """What a terminal shows, and what the launch leaves. text: commands, a line each. typed: what a user types behind them."""
    sink, out = io.StringIO(), np.zeros(128, np.int32)

    def end(code: int) -> None:
        raise Left(code)

    debugger = Debugger(
        lambda made: DebugTerminal(
            made, text.splitlines(), typed is None, as_json, source=io.StringIO(typed or ""), sink=sink, end=end  # type: ignore[arg-type]
        )
    )  # fmt: skip
    mm.Module.load(kernel)["parted"].launch(2, 64, [out], names={"out": out}, debug=debugger)
    return sink.getvalue(), out


def shown(text: str, name: str) -> str:
    """What the command of a name showed, the last time."""
    return text.rpartition(f"(mmulator) {name}\n")[2].partition("(mmulator)")[0]


def test_a_script_goes_forward_and_back() -> None:
    text, out = talk(f"""
break ptx:{line("bar.sync")} if threadIdx.x == 40 && %r3 > 7
continue
info line
print %r3
print/l %r3
digest
stepi
reverse-stepi
digest
goto +20
reverse-continue
info breakpoints
""")
    assert "Breakpoint 1: ptx:31" in text and "%r3 = 80" in text
    assert "lane  8:" in shown(text, "print/l %r3")
    digests = re.findall(r"step \d+: \w{64}", text)
    assert len(digests) == 2 and digests[0] == digests[1]
    assert "thread (40,0,0), warp 1 lane 8" in shown(text, "reverse-continue")
    assert re.search(r"1 +line +y +2 ", shown(text, "info breakpoints"))
    np.testing.assert_array_equal(out, expected())


def test_parted_lanes_are_shown() -> None:
    text, _ = talk(f"break ptx:{line('add.u32 %r3, %r3, %r0')}\ncontinue\ninfo cuda lanes\ninfo cuda warps\ncuda lane 20")
    assert "lanes 0 to 11 here; lanes 12 to 31 at <ptx>:" in shown(text, "continue")
    lanes = shown(text, "info cuda lanes").splitlines()[1:33]
    assert all(("next" in row) == (n < 12) for n, row in enumerate(lanes))
    assert "warp 0 lane 20" in shown(text, "cuda lane 20")


def test_a_guard_that_fails_is_shown() -> None:
    text, _ = talk(f"break ptx:{line('@%p0 bra LOW')}\ncontinue")
    assert "@%p0 holds for lanes 0 to 11" in text


def test_calls_are_on_the_stack() -> None:
    text, _ = talk("break twice\ncontinue\nbacktrace\nfinish\nbacktrace")
    assert re.search(r"#0 +twice at <ptx>:8\n#1 +parted at <ptx>:\d+", shown(text, "backtrace").replace("", "")) or "#1" in text
    assert "bra JOIN" in shown(text, "finish")


def test_elements_and_memory_are_shown() -> None:
    commands = "watch out[5]\ncontinue\nprint out[5]\nwhy out[5]\nx/4dw 0x400\nprint out[5] + 1\ncontinue\nreverse-continue"
    text, _ = talk(f"{commands}\nprint out[5]")
    assert "out[5]: 0 -> 74" in text and "out[5] = 74" in text and "out[5] + 1 = 75" in text
    assert "st.global.u32" in shown(text, "why out[5]") and "0x400: 100  101  102" in text
    assert text.rstrip().endswith("out[5] = 0")


def test_an_element_is_explained_when_the_launch_is_over() -> None:
    text, _ = talk("break end\ncontinue\nwhy out[5]")
    assert "is over" in text and "st.global.u32" in shown(text, "why out[5]")


def test_what_cannot_be_done_is_said() -> None:
    commands = "print %r99\nfoo\nreverse-stepi\nbreak 3 if tid.x ==\nwatch q[1]\nfinish\ngoto 99999\nstepi\nprint %r3\ncontinue"
    text, out = talk(commands)
    for said in (
        "there is no register %r99", "there is no command 'foo'", "nothing before it", "the launch is over", "is no expression",
        "there is no array q",
    ):  # fmt: skip
        assert said in text, said
    assert max(map(len, text.splitlines())) <= 80
    np.testing.assert_array_equal(out, expected())


def test_lines_of_json() -> None:
    text, _ = talk("break ptx:8\ncontinue\nprint tid.x\nfoo", as_json=True)
    rows = [json.loads(row) for row in text.splitlines()]
    assert {checked(row) for row in rows} == {"debug"}
    assert rows[0]["stop"]["reason"] == "entry" and rows[2]["stop"]["reason"] == "breakpoint"
    assert rows[2]["command"] == "continue" and rows[2]["stop"]["breakpoints"] == [1]
    assert "foo" in rows[4]["error"]


def test_a_user_types() -> None:
    text, out = talk("", typed="stepi\n\n\ninfo line\nset scope block\nhelp stepi\nhelp\ndetach\n")
    assert "step 3" in shown(text.replace("(mmulator) ", "(mmulator) \n"), "").replace("\n", " ") or "step 3" in text
    assert all(c.names[0] in text for c in COMMANDS)
    np.testing.assert_array_equal(out, expected())
    with pytest.raises(Left):
        talk("", typed="quit\n")


def test_words_are_completed() -> None:
    terminal = DebugTerminal(None, sink=io.StringIO(), source=io.StringIO())  # type: ignore[arg-type]
    assert terminal.endings([], "reverse-s") == ["reverse-step ", "reverse-stepi "]
    assert terminal.endings(["info"], "re") == ["registers"] and "warps" in terminal.endings(["info", "cuda"], "")
    assert terminal.endings(["set", "scope"], "w") == ["warp", "warpgroup"]


def test_every_command_has_help_and_no_name_twice() -> None:
    names = [name for c in COMMANDS for name in c.names]
    assert len(names) == len({*names}) and all(c.help.startswith(c.names[0]) for c in COMMANDS)


# launch files and programs ---------------------------------------------------------------------------------------------------
def mmulator(*words: str, folder: Path = ROOT, **more: object) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": f"{PACKAGE}{os.pathsep}{ROOT}", "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-m", "mmulator", *words]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, **more)  # type: ignore[call-overload, no-any-return]


def test_the_pipeline_of_hopper_forwards_and_back(tmp_path: Path) -> None:
    """Warps that load by TMA and warps that multiply: the state at a step is the same from both sides."""
    script = tmp_path / "script"
    script.write_text(
        "watch D[3,5]\nbreak mbarrier 0x28400\ncontinue\ndigest\ninfo cuda warps\ncontinue\ndelete 2\ncontinue\nprint D[3,5]\n"
        "digest\ncontinue\nreverse-continue\nstepi\ndigest\n"
    )
    done = mmulator("debug", "--batch", "-x", str(script), str(PIPELINE))
    assert done.returncode == 0 and done.stdout.rstrip().endswith("D: as expected"), done.stdout + done.stderr
    digests = re.findall(r"step ([\d,]+): (\w{64})", done.stdout)
    assert digests[1] == digests[2] and digests[0] != digests[1]


PROGRAM = """
import torch, triton, triton.language as tl

@triton.jit
def double(x, z, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + at, mask=at < n)
    tl.store(z + at, v * 2, mask=at < n)

x = torch.arange(100, device="cuda", dtype=torch.float32)
z = torch.empty_like(x)
double[(2,)](x, z, 100, 64)
double[(2,)](z, x, 100, 64)

def test_it():
    assert x[99] == 396

print("x[99] =", float(x[99]))
"""
SCRIPT = """break prog.py:8 if tid.x == 3
continue
list
delete
watch z[99]
continue
print z[99]
reverse-continue
print z[99]
continue
delete
continue
"""


@pytest.mark.skipif(find_spec("triton") is None or find_spec("torch") is None, reason="needs triton and torch")
@pytest.mark.parametrize("words", ["prog.py", "-m pytest -q -p no:cacheprovider prog.py"], ids=["script", "pytest"])
def test_a_program_of_triton(words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    (tmp_path / "prog.py").write_text(PROGRAM)
    (tmp_path / "script").write_text(SCRIPT)
    done = mmulator("debug", "--batch", "-x", "script", *words.split(), folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "x[99] = 396.0" in done.stdout or "1 passed" in done.stdout
    text = done.stdout
    assert "Breakpoint 1: prog.py:8" in text and "=>    8" in text and "z[99] = 198.0" in text
    assert text.count("launch 1") == 2 and "launch 2" not in text


@pytest.mark.skipif(find_spec("triton") is None or find_spec("torch") is None, reason="needs triton and torch")
def test_a_process_that_the_program_starts_runs_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    (tmp_path / "prog.py").write_text(PROGRAM)
    start = "import subprocess, sys; print(subprocess.run([sys.executable, 'prog.py'], capture_output=True, text=True).stdout)"
    done = mmulator("debug", "--batch", "-ex", "continue", "-c", start, folder=tmp_path)
    assert done.returncode == 0 and "x[99] = 396.0" in done.stdout and "(mmulator)" not in done.stdout, done.stdout + done.stderr


CUDA = r"""
#include <cstdio>
__global__ void axpy(float a, const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    y[i] = a * x[i] + y[i];
  }
}
int main() {
  float *x, *y, h[100];
  for (int i = 0; i < 100; i++) h[i] = i;
  cudaMalloc(&x, 400); cudaMalloc(&y, 400);
  cudaMemcpy(x, h, 400, cudaMemcpyHostToDevice); cudaMemcpy(y, h, 400, cudaMemcpyHostToDevice);
  axpy<<<2, 64>>>(3.0f, x, y, 100);
  cudaMemcpy(h, y, 400, cudaMemcpyDeviceToHost);
  printf("h[99] = %g\n", h[99]);
}
"""


@compiled
def test_variables_of_a_program_of_cuda(tmp_path: Path) -> None:
    (tmp_path / "axpy.cu").write_text(CUDA)
    built = nvcc("-cudart", "shared", "-G", "-arch=sm_80", "axpy.cu", "-o", "axpy", cwd=tmp_path, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    looks = ["print i", "print y[i]", "print x[i - 1]", "print n"]
    commands = ["break axpy.cu:6 if i == 99", "continue", *looks, "delete", "continue"]
    words = [word for c in commands for word in ("-ex", c)]
    done = mmulator("debug", "--batch", *words, "./axpy", folder=tmp_path)
    assert done.returncode == 0 and "h[99] = 396" in done.stdout, done.stdout + done.stderr
    for said in ("i = 99", "y[99] = 99.0", "x[98] = 98.0", "n = 100"):
        assert said in done.stdout, done.stdout


@compiled
def test_a_program_of_cuda(tmp_path: Path) -> None:
    (tmp_path / "axpy.cu").write_text(CUDA)
    place = "axpy.cu:6 if threadIdx.x == 35 && blockIdx.x == 1"
    looks = ["print n", "print a * 2", "print x", "print y[n - 1]", "print nope", "condition 1 n == 100 && lane == 3"]
    commands = [f"break {place}", "continue", "list", *looks, "reverse-step", "continue", "delete", "continue"]
    words = [word for c in commands for word in ("-ex", c)]
    done = mmulator("debug", "--batch", *words, "axpy.cu", folder=tmp_path)
    assert done.returncode == 0 and "h[99] = 396" in done.stdout, done.stdout + done.stderr
    for said in ("n = 100", "a * 2 = 6.0", "x = 0x", "y[99] = 99.0", "known here: a, x, y, n"):
        assert said in done.stdout, done.stdout
    assert "waits for another launch" not in done.stdout
    assert "[block (1,0,0), thread (35,0,0), warp 1 lane 3" in done.stdout and "=>    6      y[i] = a" in done.stdout


def test_what_is_no_program_is_said() -> None:
    assert "cannot read nothing.toml" in mmulator("debug", "nothing.toml").stderr
    assert "which takes no arguments" in mmulator("debug", str(PIPELINE), "more").stderr


def test_the_schedule_of_a_counterexample_is_debugged(tmp_path: Path) -> None:
    """The block that begins first is that of the order, for a launch file, for a program, and for both in an editor."""
    body = "mov.u32 c, %ctaid.x;\natom.global.add.u32 t, [p], c;\nst.global.u32 [p+4], t;\nret;\n}\n"
    text = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry old(.param .u64 s) {\n.reg .b64 p; .reg .b32 t, c;\n"
    (tmp_path / "k.ptx").write_text(text + "ld.param.u64 p, [s];\n" + body)
    argument = '[[arg]]\nname = "s"\ntype = "u32"\nshape = [2]\nzeros = true\n'
    (tmp_path / "k.toml").write_text('ptx = "k.ptx"\ngrid = 8\nblock = 1\n' + argument)
    found = mmulator("run", "k.toml", "--seed", "3", "--order", "5", "--print", "s", folder=tmp_path).stdout
    looks = ["break ptx:9", "continue", "print t", "delete", "continue", "print s[1]"]
    words = [word for c in looks for word in ("-ex", c)]
    done = mmulator("debug", "--batch", *words, "--seed", "3", "--order", "5", "k.toml", folder=tmp_path).stdout
    assert "[block (4,0,0)" in done and f" {re.findall(r's.1. = ([0-9]+)', done)[-1]}]" in found, done
    launch = {"cwd": str(tmp_path), "program": "k.toml", "seed": 3, "order": 5}
    words, environment = debug._command(launch)
    assert words[4:6] == ["--seed=3", "--order=5"] and environment["MMULATOR_ORDER"] == "5"
    assert "--order=5" not in debug._command({**launch, "order": None})[0]


def test_ctrl_c_stops_an_endless_loop(tmp_path: Path) -> None:
    """The prompt comes back, at some step of the loop, and so does a step back."""
    loop = ".entry k() {\n.reg .b32 %r1;\nmov.u32 %r1, 0;\nL: add.u32 %r1, %r1, 1;\nbra L;\n}\n"
    (tmp_path / "k.ptx").write_text(".version 8.0\n.target sm_90\n.address_size 64\n" + loop)
    (tmp_path / "k.toml").write_text('ptx = "k.ptx"\ngrid = 1\nblock = 32\n')
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE), "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "mmulator", "debug", "k.toml"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=tmp_path, env=environment, **pipes) as process:  # type: ignore[call-overload]
        assert process.stdin is not None and process.stdout is not None
        text = ""
        while "(mmulator) " not in text:
            more = process.stdout.read(1)
            assert more, f"it has ended: {text}"
            text += more
        process.stdin.write("continue\n")
        process.stdin.flush()
        wait_for_work(process.pid, 0.2)
        process.send_signal(signal.SIGINT)
        try:
            said, _ = process.communicate("print %r1\nreverse-stepi 2\nprint %r1\nquit\n", timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    assert "k: interrupted" in said and process.returncode == 0
    values = [int(value) for value in re.findall(r"%r1 = (\d+)", said)]
    assert len(values) == 2 and values[0] - values[1] == 1
