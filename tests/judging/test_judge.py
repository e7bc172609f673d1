"""Verdicts: each outcome by a kernel that deserves it, and kernels and programs that try to get a better one."""

import json
import time
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mmulator as mm
from mmulator.cli.app import run
from mmulator.evaluation.judging.verdict import Verdict, VerdictKind
from tests.support.schemas import checked

TWICE = """.version 8.0
.target sm_90
.address_size 64
.visible .entry twice(.param .u64 x, .param .u64 y, .param .u32 count)
{
  .reg .b64 p, q; .reg .b32 t, n, b; .reg .f32 v; .reg .pred off;
  ld.param.u64 p, [x]; ld.param.u64 q, [y]; ld.param.u32 n, [count];
  mov.u32 t, %tid.x; mov.u32 b, %ctaid.x; mad.lo.u32 t, b, 32, t;
  setp.ge.u32 off, t, n;
  @off ret;
  mad.wide.u32 p, t, 4, p; mad.wide.u32 q, t, 4, q;
  ld.global.f32 v, [p];
  add.f32 v, v, v;
  st.global.f32 [q], v;
  ret;
}
"""
# what is changed in the kernel; the outcome; what the message says
PLANTED = {
    "nothing": ("", "", VerdictKind.RIGHT, "equal to the reference"),
    "mask": ("off, t, n", "off, t, 99", VerdictKind.WRONG, "name it in inout"),
    "value": ("add.f32 v, v, v", "mul.f32 v, v, v", VerdictKind.WRONG, "y differs from the reference"),
    "bounds": ("@off ret;", "", VerdictKind.FAULT, "out of bounds"),
    "loop": ("@off ret;", "here: add.u32 b, b, 1; bra here;", VerdictKind.TIMEOUT, "limit of 2 s"),
    "text": ("add.f32", "addd.f32", VerdictKind.REFUSED, "kernel.ptx:13:3: there is no instruction 'addd'"),
    "race": ("mad.wide.u32 q, t, 4, q;", "", VerdictKind.UNDEFINED, "race-between-blocks"),
    "clock": ("st.global.f32 [q], v;", "mov.u32 t, %clock; st.global.u32 [q], t;", VerdictKind.WRONG, "differs"),
}  # fmt: skip


def arguments(seed: int) -> dict[str, Any]:
    x = np.random.default_rng(seed).standard_normal(100, np.float32)
    return {"x": x, "y": np.zeros(100, np.float32), "count": 100}


def expected(x: np.ndarray, **_: Any) -> dict[str, np.ndarray]:
    return {"y": 2 * x}


def twice(ptx: str, reference: Any = expected, **more: Any) -> Verdict:
    more = {"limits": mm.Limits(seconds=60), **more}
    return mm.judge(ptx, arguments, grid=4, block=32, reference=reference, **more)


@pytest.mark.parametrize("name", PLANTED)
def test_outcomes(name: str) -> None:
    old, new, outcome, said = PLANTED[name]
    assert not old or old in TWICE
    text = TWICE.replace(old, new)
    reference = None if name == "race" else expected  # all threads store to y[0]
    verdict = twice(text, reference, limits=mm.Limits(seconds=2 if name == "loop" else 60))
    assert (verdict.outcome, verdict.ok) == (outcome, outcome is VerdictKind.RIGHT), str(verdict)
    assert said in verdict.message
    assert verdict.kind == "kernel"
    if name not in ("loop", "text"):
        assert verdict.drawn is not None and verdict.device == "sm_90"
    data = json.loads(json.dumps(verdict.as_dict(), default=str))
    assert checked(data) == "judge" and data["outcome"] == outcome


def test_the_first_difference_is_told_with_the_seed_that_shows_it_again() -> None:
    verdict = twice(PLANTED["value"][0] and TWICE.replace("add.f32 v, v, v", "mul.f32 v, v, v"))
    row = verdict.outputs[0]
    assert verdict.drawn is not None and row.first is not None
    x = arguments(verdict.drawn)["x"][row.first]
    assert (row.got, row.want) == (float(x * x), float(2 * x))
    again = twice(TWICE.replace("add.f32 v, v, v", "mul.f32 v, v, v"), draw=verdict.drawn)
    assert again.outputs == verdict.outputs


def test_tolerances_and_contents_that_are_used() -> None:
    assert twice(TWICE, lambda x, **_: {"y": np.nextafter(2 * x, np.float32(9))}).outcome is VerdictKind.WRONG
    assert twice(TWICE, lambda x, **_: {"y": np.nextafter(2 * x, np.float32(9))}, ulp=1).ok
    adds = TWICE.replace("add.f32 v, v, v;", "red.global.add.f32 [q], v; red.global.add.f32 [q], v; ret;")
    assert "inout" in twice(adds).message
    assert twice(adds, inout=("y",)).ok


def test_without_a_reference(tmp_path: Path) -> None:
    """The outputs of a launch file are then its arrays of zeros: their bits are compared between seeds."""
    folder = Path("examples/handwritten").absolute()
    text = (folder / "launch.toml").read_text().partition("[expect]")[0].replace("mma.ptx", str(folder / "mma.ptx"))
    (launch := tmp_path / "launch.toml").write_text(text)
    assert mm.judge(launch).message == "it ran to its end; no reference was given"
    launch.write_text(text.replace("grid = [4, 4]", "grid = [4, 3]"))
    assert "grid = [4, 4]" in text and mm.judge(launch).outcome is VerdictKind.UNSTABLE


def test_what_is_read_is_not_written_unseen() -> None:
    verdict = twice(TWICE.replace("st.global.f32 [q], v;", "st.global.f32 [q], v; st.global.f32 [p], v;"), seeds=1)
    assert verdict.notes == ("it writes to x, which is no output",)


def test_a_kernel_of_a_module(tmp_path: Path) -> None:
    assert mm.judge(mm.Module.load(TWICE)["twice"], arguments, grid=4, block=32, reference=expected).ok
    assert mm.judge(TWICE, arguments(1), grid=4, block=32, reference={"y": 2 * arguments(1)["x"]}).drawn is None


@pytest.mark.parametrize("wrong", ["grid", "args", "inout", "shape", "name"])
def test_questions_without_sense(wrong: str) -> None:
    ask: dict[str, Callable[[], object]] = {
        "grid": lambda: mm.judge(TWICE, arguments),
        "args": lambda: mm.judge(TWICE, lambda seed: 5, grid=1, block=1),
        "inout": lambda: twice(TWICE, inout=("x",)),
        "shape": lambda: twice(TWICE, lambda x, **_: {"y": x[1:]}),
        "name": lambda: twice(TWICE, lambda x, **_: {"z": x}),
    }
    with pytest.raises(mm.errors.LaunchError):
        ask[wrong]()


# launch files ---------------------------------------------------------------------------------------------------------
def test_launch_files(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["judge", "--json", "--seeds", "1", "examples/handwritten/launch.toml"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["outcome"] == "right" and said["outputs"][0]["size"] == 2048 and said["report"]["macs"]
    assert run(["judge", "examples/sanitizer/launch.toml"]) == 3
    assert "undefined: undefined behaviour: proxy-fence-missing" in capsys.readouterr().out


def test_another_kernel_in_a_launch_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = Path("examples/handwritten/mma.ptx").read_text()
    (other := tmp_path / "mine.ptx").write_text(text.replace("{a0, a1, a2, a3}", "{a0, a2, a1, a3}"))
    assert run(["judge", "--kernel", str(other), "examples/handwritten/launch.toml"]) == 1
    assert capsys.readouterr().out.startswith("wrong: C differs from the reference")


# damaged files: options of a command about examples/handwritten, in a folder with the files; exit code; what is said
DAMAGED = {
    "no reference": ("--reference none.npz LAUNCH", 1, "launch error: cannot read none.npz: No such file or directory"),
    "empty reference": ("--reference empty.npz LAUNCH", 1, "launch error: cannot read empty.npz: it is damaged"),
    "folder as reference": ("--reference folder LAUNCH", 1, "launch error: cannot read folder: Is a directory"),
    "dtype": ("--reference ints.npz LAUNCH", 1, "is int32 (64, 32), C is float32 (64, 32)*hint: save it as float32"),
    "shape": ("--reference flat.npz LAUNCH", 1, "is float32 (3,), C is float32 (64, 32)*hint: shapes must be equal"),
    "name": ("--reference other.npz LAUNCH", 1, "has an array 'Q', but no array argument has*hint: array arguments: A, B, C"),
    "cut kernel": ("--kernel cut.ptx LAUNCH", 1, "refused: *cut.ptx:19:1: the function's body is not closed*hint: a '}'"),
    "folder as kernel": ("--kernel folder LAUNCH", 1, "refused: cannot read *folder: Is a directory"),
    "kernel without launch": ("cut.ptx", 2, "cut.ptx is a kernel*hint: mmulator judge --kernel cut.ptx LAUNCH.toml"),
    "no launch": ("none.toml", 1, "launch error: cannot read none.toml: No such file or directory"),
    "folder as launch": ("folder.toml", 1, "launch error: cannot read folder.toml: Is a directory"),
    "no program": ("none.py", 2, "cannot read none.py: No such file or directory*hint: "),
    "folder as program": ("folder", 1, "failed: the program ended with exit code 1*it printed last: *can't find"),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_files_are_told(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is wrong, where, and what to do; no traceback."""
    folder = Path("examples/handwritten").absolute()
    monkeypatch.chdir(tmp_path)
    Path("cut.ptx").write_bytes((folder / "mma.ptx").read_bytes()[:700])
    Path("empty.npz").touch()
    Path("folder").mkdir(), Path("folder.toml").mkdir()
    np.savez("ints.npz", C=np.zeros((64, 32), np.int32))
    np.savez("flat.npz", C=np.zeros(3, np.float32))
    np.savez("other.npz", Q=np.zeros(3, np.float32))
    words, code, said = DAMAGED[name]
    assert run(["judge", "--seeds", "1", *words.replace("LAUNCH", str(folder / "launch.toml")).split()]) == code
    text = " ".join("".join(capsys.readouterr()).split())
    assert fnmatch(text, "*" + said.replace("[", "[[]") + "*") and "Traceback" not in text, text


@pytest.mark.parametrize("wrong", ["none.py", "none.toml"])
def test_files_that_are_not_there(wrong: str) -> None:
    with pytest.raises(mm.errors.LaunchError, match=f"cannot read {wrong}: No such file"):
        mm.judge(wrong)


# sources and programs -------------------------------------------------------------------------------------------------
TRITON = """
import triton, triton.language as tl

@triton.jit
def twice(y, x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)
"""


def triton_kernel(path: Path) -> Verdict:
    def made(seed: int) -> dict[str, Any]:
        return {"x": arguments(seed)["x"], "y": np.zeros(100, np.float32), "n": 100, "BLOCK": 32, "num_warps": 1}

    return mm.judge(path, made, entry="twice", grid=lambda meta: (-(-100 // meta["BLOCK"]),), reference=expected)


STAYS = """
import os
seen, done = os.pipe()
if not os.fork():
    os.setsid()
    if not os.fork():
        os.write(done, b"1")
        os.execvp("sleep", ["sleep", "{word}"])
    os._exit(0)
os.read(seen, 1)
"""


def test_a_kernel_of_triton(tmp_path: Path) -> None:
    """And nothing of its source stays: a daemon could change what the next process leaves; it ends with the compilation."""
    (path := tmp_path / "twice.py").write_text(TRITON.replace("2 * tl.load", "3 * tl.load"))
    assert triton_kernel(path).outcome is VerdictKind.WRONG
    path.write_text("def twice(")
    assert triton_kernel(path).message.startswith("SyntaxError")
    word = f"6{time.time_ns() % 10**9}"
    path.write_text(STAYS.format(word=word) + TRITON)
    verdict = triton_kernel(path)
    assert verdict.ok and verdict.kind == "kernel" and verdict.seconds["compile"] > 0
    assert not any(word.encode() in p.read_bytes() for p in Path("/proc").glob("[0-9]*/cmdline") if p.exists())


PROGRAMS = {
    "no kernel": ("print('fine')", VerdictKind.RIGHT, "exit code 0; no launch of it was seen: nothing was looked at"),
    "code": ("raise SystemExit(3)", VerdictKind.FAILED, "exit code 3"),
    "killed": ("import os; os.kill(os.getpid(), 9)", VerdictKind.FAILED, "exit code -9"),
    "time": ("import time; time.sleep(1000)", VerdictKind.TIMEOUT, "limit of 5 s"),
    "memory": ("x = bytearray(3 << 30)\nwhile True: x[::4096] = bytes(len(x[::4096]))", VerdictKind.MEMORY, "limit of 1,024 MiB"),
    "child": ("import subprocess, sys; subprocess.run([sys.executable, '-c', 'x = bytes(b\"1\" * (3 << 30)); import time; "
              "time.sleep(1000)'])", VerdictKind.MEMORY, "limit of 1,024 MiB"),
    "answer": ("print('{\"exit_code\": 0, \"findings\": []}')\nraise SystemExit(1)", VerdictKind.FAILED, "exit code 1"),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str, tmp_path: Path) -> None:
    text, outcome, said = PROGRAMS[name]
    (path := tmp_path / "prog.py").write_text(text)
    verdict = mm.judge([path], limits=mm.Limits(5 if name == "time" else 600, 1 << 30))
    assert verdict.outcome is outcome and said in verdict.message, str(verdict)
    assert verdict.kind == "program" and verdict.notes


def test_the_command_takes_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (path := tmp_path / "prog.py").write_text("import sys; raise SystemExit(len(sys.argv) - 1)")
    assert run(["judge", "--seconds", "60", str(path)]) == 0
    assert run(["judge", "--json", str(path), "--json"]) == 1
    assert json.loads(capsys.readouterr().out.partition("\n{")[2].join("{}").removesuffix("}"))["kind"] == "program"
    assert run(["judge", "--kernel", "x.ptx", str(path)]) == 2
