"""`mmulator run --bounds`: a row for each array that a launch stores, with bounds that its results keep."""

import json
from pathlib import Path

import pytest

from mmulator.cli.app import run

PTX = """.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 x, .param .u64 z) {
  .reg .b64 p, q, o; .reg .b32 t; .reg .f32 f, g;
  ld.param.u64 p, [x]; ld.param.u64 q, [z]; mov.u32 t, %tid.x; mul.wide.u32 o, t, 4; add.u64 p, p, o; add.u64 q, q, o;
  ld.global.f32 f, [p]; STORED st.global.TYPE [q], RESULT; ret; }
"""


def words(folder: Path, stored: str, kind: str, result: str) -> list[str]:
    """A launch of the kernel above."""
    (folder / "k.ptx").write_text(PTX.replace("STORED", stored).replace("TYPE", kind).replace("RESULT", result))
    launch = ["--grid", "1", "--block", "64", "--arg", "x=random:f32:64:1", "--arg", f"z=out:{kind}:64"]
    return ["run", str(folder / "k.ptx"), *launch, "--bounds"]


def test_each_output_has_a_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    launch = words(tmp_path, "fma.rn.f32 g, f, f, f; mul.f32 g, g, f;", "f32", "g")
    assert run([*launch, "--json"]) == 0
    (name, row), *more = json.loads(capsys.readouterr().out)["bounds"].items()
    assert not more and (name, row["elements"], row["unbounded"]) == ("z", 64, 0)
    assert 0 < row["largest_error"] <= row["largest_bound"] < 10 * row["largest_error"]
    assert run(launch) == 0 and "largest bound" in capsys.readouterr().out


def test_a_launch_without_results_of_floating_point_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(words(tmp_path, "", "u32", "t")) == 1 and "no argument of floating point" in capsys.readouterr().err


def test_an_array_with_too_many_elements_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    launch = [word.replace("z=out:f32:64", "z=out:f32:32769") for word in words(tmp_path, "mul.f32 g, f, f;", "f32", "g")]
    assert run(launch) == 1 and "32,769 elements of floating point; at most 32,768 are followed" in capsys.readouterr().err
