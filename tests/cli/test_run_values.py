"""`mmulator run`: structs, bytes, module variables, references; wrong values are launch errors, said before anything runs."""

import json
import random
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mmulator.cli.app import run
from mmulator.errors import MmulatorError
from mmulator.host.jobs.job import load_job, parse_argument, run_job
from tests.support.ptx_text import stored

# out[t] = coef[cfg.i] * cfg.k; a struct { int n; int i; float k; float rest; }; hits counts the threads.
SCALE = stored("struct_argument")
# *cfg.p = cfg.n: a struct { int n; unsigned *p; }
THROUGH = """.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .align 8 .b8 cfg[16])
{
  .reg .b64 p; .reg .b32 n;
  ld.param.u32 n, [cfg];
  ld.param.u64 p, [cfg+8];
  st.global.u32 [p+4], n;
  ret;
}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "s.ptx").write_text(SCALE)
    (tmp_path / "t.ptx").write_text(THROUGH)
    monkeypatch.chdir(tmp_path)
    return tmp_path


LAUNCH = ["run", "s.ptx", "--entry", "scale<float>", "--grid", "1", "--block", "8", "--arg", "D=out:f32:2x4"]


def said(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert run([*arguments]) == code
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err + captured.out and "has a bug" not in captured.err
    return captured.out if captured.out else captured.err


@pytest.mark.parametrize(
    "value", ["i32,i32,f32,f32:0,2,0.5,9", "i32x2,f32x2:0,2,0.5,9", "hex:00000000_02000000_0000003f 00000000"]
)
def test_structs_are_written_as_c_lays_them_out(folder: Path, capsys: pytest.CaptureFixture[str], value: str) -> None:
    out = said(capsys, *LAUNCH, "--arg", value, "--print", "D", "--print", "hits")
    assert "void app::scale<float>(float*, Cfg) on sm_90" in out
    assert "D: float32 [2, 4]\n[[1.5 1.5 1.5 1.5]\n [1.5 1.5 1.5 1.5]]" in out and "_ZN3app4hitsE: uint32 = 8" in out


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("u8,u32:1,2", struct.pack("<BxxxI", 1, 2)),
        ("u8,f64,u16:1,0.5,3", struct.pack("<B7xdH6x", 1, 0.5, 3)),
        ("f32:1,2,3", struct.pack("<3f", 1, 2, 3)),  # one type for all
        ("f16,bf16:0x3c00,1", bytes.fromhex("003c803f")),  # a float by its bits
        ("i8,i8:-1,0xff", b"\xff\xff"),
    ],
)
def test_bytes_of_structs(text: str, data: bytes) -> None:
    assert parse_argument(f"S={text}", 0).value == data


@pytest.mark.parametrize(
    ("text", "value"), [("7", 7), ("-0x10", -16), ("0.5", 0.5), ("null", None), ("f16:1", 0x3C00), ("f32:1", 1.0), ("i32:-3", -3)]
)
def test_scalars(text: str, value: Any) -> None:
    found = parse_argument(text, 0).value
    assert found == value and type(found) is type(value)


def test_variables_are_set_and_read(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    more = ["--arg", "i32,i32,f32,f32:0,2,1,0", "--set", "coef=f32:10,20,30,40", "--set", "hits=5", "--save", "o.npz"]
    said(capsys, *LAUNCH, *more)
    with np.load("o.npz") as saved:
        assert (saved["D"] == 30).all() and saved["_ZN3app4hitsE"] == 13 and "coef" not in saved
    np.savez("want.npz", D=np.full((2, 4), 30, np.float32), _ZN3app4hitsE=np.uint32(13))
    assert "_ZN3app4hitsE: bit-identical to the reference: yes" in said(capsys, *LAUNCH, *more, "--expect", "want.npz")


def test_launch_file_with_structs_pointers_bytes_and_variables(folder: Path) -> None:
    text = """ptx = "s.ptx"
entry = "scale<float>"
grid = 1
block = 8
[[arg]]
name = "D"
type = "f32"
shape = [8]
zeros = true
[[arg]]
%s
[variables]
coef = { type = "f32", values = [1, 2, 3, 8] }
hits = { value = 1 }
"""
    members = "struct = [{type='i32', value=0}, {type='i32', value=3}, {type='f32', value=0.5}, {type='f32', value=0}]"
    for second in (members, 'hex = "00000000 03000000 0000003f 00000000"'):
        Path("launch.toml").write_text(text % second)
        result = run_job(load_job("launch.toml"))
        assert (result.written["D"] == 4).all() and result.written["_ZN3app4hitsE"] == 9
    Path("t.toml").write_text(
        'ptx = "t.ptx"\ngrid = 1\nblock = 1\n[[arg]]\nname = "cfg"\nstruct = [{type="i32", value=7}, '
        '{name="P", type="u32", shape=[3], zeros=true}]\n'
    )
    assert run_job(load_job("t.toml")).written["P"].tolist() == [0, 7, 0]


# references ---------------------------------------------------------------------------------------------------------
STRUCT = ["--arg", "i32,i32,f32,f32:0,2,1,0"]  # D becomes 3.0
THREE = np.full((2, 4), 3, np.float32)


def test_a_comparison_that_compares_nothing_fails(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also where it compares what the kernel did not write; and it names what it leaves out."""
    np.savez("empty.npz")
    assert "has no arrays: nothing would be compared" in said(capsys, *LAUNCH, *STRUCT, "--expect", "empty.npz", code=1)
    np.savez("other.npz", coef=np.array([1, 2, 3, 4], np.float32))
    out = said(capsys, *LAUNCH, *STRUCT, "--expect", "other.npz", code=1)
    assert "not compared: _ZN3app4hitsE, D: other.npz has no such arrays" in out
    assert "nothing that the kernel wrote was compared" in out
    np.savez("some.npz", D=THREE)
    assert "not compared: _ZN3app4hitsE: some.npz has no such array" in said(capsys, *LAUNCH, *STRUCT, "--expect", "some.npz")
    out = said(capsys, *LAUNCH, *STRUCT, "--expect", "some.npz", "--json")
    assert json.loads(out)["not_compared"] == ["_ZN3app4hitsE"]


def test_references_are_checked_before_the_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wide = THREE.astype(np.float64)
    for array, message in ((THREE.T, "float32 (4, 2), D is float32 (2, 4)"), (wide, "bits cannot be compared")):
        np.savez("want.npz", D=array)
        error = said(capsys, *LAUNCH, *STRUCT, "--expect", "want.npz", code=1)
        assert message in error and "running blocks" not in error
    np.save("want.npy", THREE)  # of the only output
    assert "D: bit-identical to the reference: yes" in said(capsys, *LAUNCH, *STRUCT, "--expect", "want.npy")


def test_tolerance_on_the_command_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    want = THREE.copy()
    want[1, 2] = np.nextafter(np.nextafter(np.float32(3), np.float32(9)), np.float32(9))
    np.savez("want.npz", D=want)
    compared = [*LAUNCH, *STRUCT, "--expect", "want.npz"]
    out = said(capsys, *compared, code=1)
    assert "1 of 8 elements differ, the first at [1, 2]: 3.0 instead of 3.0000005" in out
    assert "  ULP: 2 in 1\n  where: at [1, 2]\n" in out
    assert "1 of 8 elements differ" in said(capsys, *compared, "--ulp", "1", code=1)
    np.savez("zero.npz", D=np.zeros_like(want))
    assert "worst 3, the reference is all zeros" in said(capsys, *LAUNCH, *STRUCT, "--expect", "zero.npz", code=1)
    for option in (("--ulp", "2"), ("--rtol", "1e-6"), ("--atol", "1e-6")):
        assert "no, but close enough: 1 of 8" in said(capsys, *compared, *option)
    assert "goes with --expect" in said(capsys, *LAUNCH, *STRUCT, "--rtol", "1", code=1)
    for wrong in (("--rtol", "-1"), ("--atol", "nan"), ("--rtol", "inf")):
        assert "not a number of 0 or more" in said(capsys, *compared, *wrong, code=1)


def test_numbers_that_json_does_not_have(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez("want.npz", D=np.full((2, 4), np.nan, np.float32))
    data = json.loads(said(capsys, *LAUNCH, *STRUCT, "--expect", "want.npz", "--json", code=1), parse_constant=int)
    assert data["comparisons"][0]["want"] == "NaN" and data["comparisons"][0]["specials"] == 8


# wrong on purpose ---------------------------------------------------------------------------------------------------
WRONG = [
    (["--arg", "out:f16:-1x4"], "extents and seeds are 0 or more"),
    (["--arg", "out:u32:99999999999999"], "this machine has"),
    (["--arg", "out:u32:4294967296x4294967296"], "this machine has"),
    (["--arg", "random:f16:99999x99999x99999"], "this machine has"),
    (["--arg", "random:f16:10:-3"], "extents and seeds are 0 or more"),
    (["--arg", "out:f16"], "write out:TYPE:SHAPE"),
    (["--arg", "out:f16:4:7"], "write out:TYPE:SHAPE"),
    (["--arg", "i32:3000000000"], "does not fit .i32"),
    (["--arg", "f32:1e60"], "does not fit .f32"),
    (["--arg", "u8:-1"], "does not fit .u8"),
    (["--arg", "i32,f32:1"], "2 types and 1 values"),
    (["--arg", "i32,f99:1,2"], "'f99' is no element type"),
    (["--arg", "hex:0g"], "pairs of hexadecimal digits"),
    (["--arg", "i32,i32:1,2"], "an aggregate of 16 bytes: pass bytes of that length, not 8"),
    (["--arg", "bad.npy"], "cannot read bad.npy: it is damaged"),
    (["--arg", "two.npz"], "holds A, B: say which, as in two.npz:KEY"),
    (["--arg", "two.npz:C"], "has no array 'C'; it has A, B"),
    (["--arg", "text.npy"], "is no .npy or .npz file of numbers"),
    (["--set", "coef"], "write it as NAME=VALUE"),
    (["--set", "nope=1"], "no .const or .global variable 'nope'"),
    (["--set", "coef=1"], "coef is float32[4], 16 bytes: 1 is no value of it"),
    (["--set", "coef=f32:1,2"], "the value given has 8 bytes"),
    (["--set", "hits=0.5"], "0.5 is no value of it"),
    (["--timeout", "nan"], "a time limit of nan s"),
    (["--timeout", "-1"], "a time limit of -1.0 s"),
    (["--timeout", "0"], "a time limit of 0.0 s"),
    (["--save", "x.txt"], "the name must end in .npz"),
    (["--save", "none/x.npz"], "there is no folder none"),
    (["--print", "Q"], "there is no array 'Q'"),
    (["--expect", "bad.npz"], "it is damaged"),
    (["--entry", "scale"], "'scale' is a part of 2 names"),
    (["--entry", "gemm"], "has no kernel 'gemm'; it has void app::scale<float>"),
    (["--arg", "D=out:f32:4"], "two array arguments are called D"),
    (["--watch", "D[9,9]"], "--watch D[9,9]: D is ["),
]


@pytest.mark.parametrize(("more", "message"), WRONG, ids=lambda x: "" if isinstance(x, str) else " ".join(x))
def test_wrong_values_are_launch_errors(folder: Path, capsys: pytest.CaptureFixture[str], more: list[str], message: str) -> None:
    Path("bad.npy").write_bytes(b"\x93NUMPY\x01\x00\x10\x00{'descr': '<f4'")
    np.savez_compressed("two.npz", A=np.arange(1000), B=np.arange(9))
    data = bytearray(Path("two.npz").read_bytes())
    data[60:90] = bytes(30)
    Path("bad.npz").write_bytes(data)
    Path("text.npy").write_text("1 2 3\n")
    given = [*LAUNCH, *STRUCT]
    if more[0] == "--arg" and not more[1].startswith("D="):
        given = [*LAUNCH]
    error = said(capsys, *given, *more, code=1)
    assert message in error, error
    assert error.startswith(("launch error", "error")) and "running blocks" not in error


GOOD = """ptx = "s.ptx"
entry = "scale"
grid = [1, 1]
block = 8
shared = 0
device = "sm_90"
seed = 3
[[arg]]
name = "D"
type = "f32"
shape = [2, 4]
zeros = true
[[arg]]
type = "i32"
shape = [3]
random = { seed = 1, low = -5, high = 5 }
[[arg]]
type = "u8"
values = [1, 2, 3]
[[arg]]
struct = [{ type = "i32", value = 3 }, { type = "f32", shape = [2], zeros = true }]
[[arg]]
value = 1
[variables]
coef = { type = "f32", values = [1, 2, 3, 4] }
[expect]
file = "want.npz"
compare = "close"
rtol = 0.5
"""
PIECES = ["-1", "true", '"x"', "[]", "{}", "0.5", "nan", "-inf", "99999999999999999999", "[[1], 2]", "[99999, 99999, 9999]",
          "1979-05-27", "[true]", "0", '"f16"', "{ seed = 1, low = 5, high = 1 }", "{ seed = -1 }", "[300]"]  # fmt: skip


def test_damaged_launch_files_are_launch_errors(folder: Path) -> None:
    """Values replaced, lines lost, letters changed: an error of the family, or a launch."""
    np.savez("want.npz", D=THREE)
    path, generator = Path("launch.toml"), random.Random(5)
    lines = GOOD.splitlines()
    refused = 0
    for turn in range(900):
        mutant = [*lines]
        at = generator.randrange(len(lines))
        if turn % 3 == 0:
            key, equals, _ = mutant[at].partition(" = ")
            mutant[at] = key + equals + generator.choice(PIECES) if equals else mutant[at]
        elif turn % 3 == 1:
            del mutant[at]
        else:
            place = generator.randrange(len(mutant[at]) or 1)
            mutant[at] = mutant[at][:place] + generator.choice("0-[]{}=\"x,. \x00é") + mutant[at][place + 1 :]
        path.write_text("\n".join(mutant))
        try:
            load_job(path)
        except MmulatorError:
            refused += 1
    assert 300 < refused < 900
