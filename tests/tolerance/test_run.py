"""`mmulator run --bounds`: a row for each array that a launch stores, with bounds that its results keep."""

import json
from pathlib import Path

import pytest

from mmulator.cli.app import run
from tests.support.places import ROOT

GEMM = str(ROOT / "examples" / "handwritten" / "launch.toml")


def test_each_output_has_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["run", GEMM, "--bounds", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["bounds"].values()
    assert row["elements"] == 2048 and not row["unbounded"] and 0 < row["largest_error"] <= row["largest_bound"]
    assert row["largest_bound"] < 16 * row["largest_error"]


def test_a_launch_without_results_of_floating_point_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "k.ptx").write_text(
        ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 z) { .reg .b64 p; ld.param.u64 p, [z];\n"
        "st.global.u32 [p], 1; ret; }\n"
    )
    words = ["run", str(tmp_path / "k.ptx"), "--grid", "1", "--block", "1", "--arg", "out:u32:1", "--bounds"]
    assert run(words) == 1 and "no argument of floating point" in capsys.readouterr().err
