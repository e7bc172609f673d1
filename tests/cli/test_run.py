"""`mmulator run`: launch files, options, reports, exit codes."""

import json
import os
import shlex
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from mmulator.cli.app import run
from mmulator.errors import LaunchError
from mmulator.host.jobs.job import dtype_of, load_job, parse_argument, random_array
from mmulator.host.module import Module
from mmulator.ptx.text import read_bytes
from tests.support.places import ROOT
from tests.support.ptx_text import kernel
from tests.support.waiting import PATIENCE, wait_for_work

EXAMPLE = ROOT / "examples" / "hopper_gemm" / "launch.toml"
# out[i] = a[i] + n
ADD = kernel(
    """
  ld.param.u64 %rd1, [a];
  ld.param.u32 %r2, [n];
  mov.u32 %r3, %tid.x;
  mul.wide.u32 %rd2, %r3, 4;
  add.s64 %rd1, %rd1, %rd2;
  add.s64 %rd2, %rd0, %rd2;
  ld.global.u32 %r4, [%rd1];
  add.u32 %r4, %r4, %r2;
  st.global.u32 [%rd2], %r4;
""",
    ".param .u64 a, .param .u64 out, .param .u32 n",
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "add.ptx").write_text(ADD)
    np.save(tmp_path / "a.npy", np.arange(32, dtype=np.uint32))
    return tmp_path


def options(folder: Path, *more: str) -> list[str]:
    return ["run", str(folder / "add.ptx"), "--grid", "1", "--block", "32", *more]


def test_the_example_has_the_bits_of_the_h200(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["run", str(EXAMPLE)]) == 0
    said = capsys.readouterr()
    assert "bit-identical to the H200 reference: yes" in said.out
    for word in ("grid 4 x 4", "wgmma", "multiply-accumulates: 100,663,296", "parse", "compile", "run"):
        assert word in said.out
    assert "running blocks: 16/16" in said.err


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["run", str(EXAMPLE), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["ok"] and data["report"]["instructions"]["wgmma"] == 3072 and data["comparisons"][0]["wrong"] == 0


def test_options(folder: Path) -> None:
    saved = folder / "out.npz"
    more = ["--entry", "k", "--arg", str(folder / "a.npy"), "--arg", "C=out:u32:32", "--arg", "i32:7", "--save", str(saved)]
    assert run(options(folder, *more)) == 0
    with np.load(saved) as arrays:
        assert arrays.files == ["C"] and (arrays["C"] == np.arange(32) + 7).all()


@pytest.mark.parametrize(("n", "code"), [(7, 0), (8, 1)])
def test_expected_outputs_decide_the_exit_code(folder: Path, capsys: pytest.CaptureFixture[str], n: int, code: int) -> None:
    np.savez(folder / "want.npz", C=np.arange(32, dtype=np.uint32) + 7)
    more = ["--arg", str(folder / "a.npy"), "--arg", "C=out:u32:32", "--arg", f"i32:{n}", "--expect", str(folder / "want.npz")]
    assert run(options(folder, *more)) == code
    said = capsys.readouterr().out
    assert ("yes" in said) if code == 0 else ("no: 32 of 32 elements differ, the first at [0]: 8 instead of 7" in said)


def test_launch_file_with_every_kind_of_argument(folder: Path) -> None:
    np.savez(folder / "b.npz", x=np.arange(32, dtype=np.uint32))
    text = 'ptx = "add.ptx"\ngrid = 1\nblock = [32]\n[[arg]]\n{}\n[[arg]]\nname = "C"\ntype = "u32"\nshape = 32\nzeros = true\n'
    text += '[[arg]]\nvalue = 1\n[expect]\nfile = "want.npz"\n'
    np.savez(folder / "want.npz", C=np.arange(32, dtype=np.uint32) + 1)
    for source in ('npy = "a.npy"', 'npz = "b.npz:x"', f'type = "u32"\nvalues = {list(range(32))}'):
        (folder / "launch.toml").write_text(text.format(source))
        assert run(["run", str(folder / "launch.toml")]) == 0


WRONG = [
    ('grid = 1\nblock = 1\nptx = "x.ptx"\nfrom = 3', "unknown key 'from'"),
    ("grid = 1\nblock = 1", "'ptx' is missing"),
    ('ptx = "x"\ngrid = 1\nblock = 1\nshared = "x"', "shared is 'x'"),
    ('ptx = "x"\ngrid = 1\nblock = 1\n[[arg]]\ntype = "f16"\nshape = [2]', "give one of"),
    ('ptx = "x"\ngrid = 1\nblock = 1\n[[arg]]\ntype = "f16"\nshape = [-2]\nzeros = true', "shape is a list"),
    ('ptx = "x"\ngrid = 1\nblock = 1\n[[arg]]\ntype = "f16"\nshape = [2]\nrandom = {}', "needs a seed"),
    ('ptx = "x"\ngrid = 1\nblock = 1\n[[arg]]\nnpy = "none.npy"', "cannot read"),
    ('ptx = "x"\ngrid = 1\nblock = 1\n[[arg]]\nvalue = "3"', "a value is a number"),
    ('ptx = "x"\ngrid = 1\nblock = 1\n[expect]\ncompare = "bits"', "needs a file"),
    ("ptx = ", "launch.toml"),
]


@pytest.mark.parametrize(("text", "message"), WRONG)
def test_wrong_launch_files(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "launch.toml"
    path.write_text(text)
    with pytest.raises(LaunchError, match=message):
        load_job(path)


@pytest.mark.parametrize("text", ["zzz", "out:f99:2", "out:f16:2xx", "i32:x", "no.npy", "random:f16:2:y"])
def test_wrong_arguments(text: str) -> None:
    with pytest.raises(LaunchError, match="--arg"):
        parse_argument(text, 0)


KINDS = [("f16", np.float16), ("bf16", ml_dtypes.bfloat16), ("i8", np.int8), ("u64", np.uint64)]


@pytest.mark.parametrize(("name", "dtype"), KINDS)
def test_random_arrays_are_those_of_numpy(name: str, dtype: Any) -> None:
    assert dtype_of(name, "here") == dtype
    rng = np.random.default_rng(5)
    low, high = (0, 16) if name[0] == "u" else (-8, 8)
    floats = name in ("f16", "bf16")
    want = rng.standard_normal(9, dtype=np.float32) if floats else rng.integers(low, high, 9)
    assert np.array_equal(random_array(np.dtype(dtype), (9,), 5, None, None), want.astype(dtype))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "none.ptx", "--grid", "1", "--block", "1"], "cannot read none.ptx"),
        (["run", "none.ptx"], "cannot read none.ptx"),
        (["run", str(EXAMPLE.with_name("gemm.ptx"))], "needs --grid and --block"),
        (["run", __file__], f"it is a Python program\n  hint: mmulator exec {__file__}"),
        (["run", str(EXAMPLE.parents[2] / "README.md")], "it is a page"),
        (["run", str(EXAMPLE.parents[1] / "cuda" / "rms.cu")], "a program with a main: `mmulator exec"),
        (["run", "none.toml"], "cannot read"),
        (["run", str(EXAMPLE), "--grid", "1"], "goes with a PTX file"),
        (["run", str(EXAMPLE), "--device", "sm_80"], "does not run on sm_80"),
    ],
)
def test_one_clear_message(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 1
    said = capsys.readouterr().err
    assert message in said and "Traceback" not in said


def test_time_limit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "loop.ptx").write_text(kernel("L:\n  bra L;"))
    Module.load(tmp_path / "loop.ptx")["k"].compile()  # it has a limit of its own
    arguments = ["run", str(tmp_path / "loop.ptx"), "--grid", "1", "--block", "32", "--arg", "out:f32:1", "--timeout", "0.2"]
    assert run(arguments) == 1
    said = " ".join(capsys.readouterr().err.split())
    assert "did not finish within 0.2 s: 0 of 1 blocks are done; block (0, 0, 0) is at warp 0: lanes 0 to 31 at" in said


def test_little_memory() -> None:
    """400 MB of addresses are enough for the Hopper GEMM: a file reserves what it has, and not what it may have."""
    command = f"ulimit -v 400000; exec {shlex.quote(sys.executable)} -m mmulator run {shlex.quote(str(EXAMPLE))}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, "bit-identical" in done.stdout) == (0, True), done.stderr


def test_a_pipe_has_no_known_length(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    text = ADD.encode() + b"// more\n" * 300_000
    writer = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=[text])
    writer.start()
    assert read_bytes(tmp_path / "pipe") == text
    writer.join()


def test_ctrl_c(tmp_path: Path) -> None:
    """An endless kernel stops at Ctrl-C, not at its time limit, with exit code 130; it says where its warps were."""
    endless = tmp_path / "endless.ptx"
    endless.write_text(
        ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k() { .reg .b32 %r; L: add.u32 %r, %r, 1; bra L; }\n"
    )
    command = [sys.executable, "-m", "mmulator", "run", str(endless), "--grid", "1", "--block", "32", "--timeout", str(PATIENCE)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    assert "compiling instructions" in process.stderr.readline()
    wait_for_work(process.pid, 1)  # code may be loaded and compiled first
    process.send_signal(signal.SIGINT)
    said = process.communicate()[1]
    *_, where, last = said.splitlines()  # behind the progress
    assert where.startswith("0 of 1 blocks are done; block (0, 0, 0) is at warp 0: lanes 0 to 31 at add.u32 (")
    assert "endless.ptx:4)" in where and (process.returncode, last) == (130, "interrupted")


@pytest.mark.parametrize("options", [[], ["--seed", "1"], ["--seed", "2"], ["--sanitize"]])
def test_blackwell_example(options: list[str]) -> None:
    """tcgen05 of a launch file: the bits of `mm.matmul` under each seed, and no findings."""
    assert run(["run", str(ROOT / "examples" / "blackwell_gemm" / "launch.toml"), *options]) == 0
