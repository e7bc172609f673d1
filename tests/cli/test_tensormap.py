"""`mmulator tensormap`: maps in and out, drawings, checks, exit codes."""

import io
import json
from pathlib import Path
from typing import Any

import pytest

import mmulator as mm
from mmulator.cli.app import run

SHAPE = ["--shape", "64,60", "--strides", "128", "--box", "8,64", "--swizzle", "128B"]
LOAD = "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"


@pytest.fixture(autouse=True)
def columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def said(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert run(["tensormap", *arguments]) == code, capsys.readouterr()
    captured = capsys.readouterr()
    text = captured.out + captured.err
    assert "Traceback" not in text and "has a bug" not in text
    return text


def data(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> Any:
    return json.loads(said(capsys, *arguments, "--json", code=code))


def test_what_is_encoded_is_decoded(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "map.bin"
    made = data(capsys, "encode", *SHAPE, "--fill", "nan", "--address", "0x1000", "--out", str(path))
    assert len(path.read_bytes()) == 128
    assert bytes.fromhex(made["bytes"]) == path.read_bytes()
    m = mm.TensorMap.decode(path.read_bytes())
    assert (m.shape, m.strides, m.box, m.swizzle, m.oob_fill, m.address) == ((64, 60), (128, 2), (8, 64), "128B", "nan", 4096)
    (tmp_path / "map.hex").write_text(f"0x{made['bytes'][:64]}\n{made['bytes'][64:]}\n")
    for given in (str(path), made["bytes"], str(tmp_path / "map.hex")):
        assert data(capsys, "decode", given) == made
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(path.read_bytes())))
    assert data(capsys, "decode", "-") == made
    text = said(capsys, "decode", str(path))
    assert "box_dim[0]" in text and "cuTensorMapEncodeTiled" in text
    assert all(len(line) <= 80 for line in text.split("\n"))


def test_im2col_from_options(capsys: pytest.CaptureFixture[str]) -> None:
    made = data(capsys, "encode", "--shape", "8,56,56,64", "--lower", "-1,-2", "--upper=-3,-4", "--channels", "64", "--pixels",
                "128", "--type", "bf16", "--element-strides", "1,2,1,1", "--l2-promotion", "128B")  # fmt: skip
    m = mm.TensorMap.decode(bytes.fromhex(made["bytes"]))
    assert (m.mode, m.lower, m.upper, m.box, m.element_strides) == ("im2col", (-1, -2), (-3, -4), (128, 64), (1, 2, 1, 1))
    assert (m.fields.strides, m.l2_promotion) == ((128, 7168, 401408), "128B")


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["encode"], 1, "no tensor map is given"),
        (["encode", "--shape", "64,64"], 2, "a tiled map needs it"),
        (["encode", "--shape", "64,64", "--box", "8"], 2, "1 numbers where a shape of 2 dimensions takes 2"),
        (["encode", "--shape", "64,x", "--box", "8,8"], 1, "--shape is '64,x'"),
        (["encode", "--shape", "64,64", "--box", "8,64", "--swizzle", "32B"], 1, "with swizzle 32B a row has at most 32"),
        (["encode", "--shape", "64,64", "--box", "8,64", "--swizzle", "33B"], 1, "known: none, 32B"),
        (["encode", "--shape", "2,8,64", "--box", "1,8,8", "--pixels", "3"], 2, "an im2col map has"),
        (["encode", "--shape", "", "--box", ""], 2, "at least one dimension"),
        (["encode", "--shape", "64", "--box", "64", "--interleave", "16B"], 1, "array has 1 dimensions: interleave 16B takes"),
        (["decode", "00ff"], 1, "a tensor map has 128 bytes, and these are 2"),
        (["decode", "nothing.bin"], 1, "is no file and no hexadecimal number"),
        (["draw", "00", *SHAPE], 2, "options of a tensor go without it"),
        (["draw", *SHAPE, "--at", "1,2,3"], 1, "3 coordinates where tile of a tensor of rank 2 takes 2"),
        (["draw", *SHAPE, "--theme", "dark"], 2, "it goes with --svg"),
        (["draw", *SHAPE, "--svg", "-", "--json"], 2, "standard output takes one"),
        (["draw", *SHAPE, "--shared", "x"], 1, "--shared is 'x': a whole number is needed hint: such as --shared 0x400"),
        (["draw", *SHAPE, "--mode", "tile::five"], 1, "no such mode"),
        (["check", *SHAPE, LOAD, LOAD], 2, "one map and one instruction"),
        (["check", "00", "mov.u32 %r1, %r2;"], 2, "'mov.u32 %r1, %r2;' is no tensor copy"),
        (["check", *SHAPE, f"@%p {LOAD}.l"], 1, "invalid instruction"),
        (["check", *SHAPE, "--for", "wgmma"], 2, "it goes with --descriptor"),
        (["check", *SHAPE, "--expect-tx", "4"], 2, "it goes with an instruction"),
        (["check", *SHAPE, "cp.async.ca"], 1, "invalid instruction"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, text: str) -> None:
    assert text in " ".join(said(capsys, *arguments, code=code).replace("│", " ").split())


def test_where_a_box_lands(capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, "draw", *SHAPE, "--at", "60,0", "--shared", "0x400")
    assert "60,56*" in text and "272 of them out of bounds" in text
    assert all(len(line) <= 80 for line in text.split("\n"))
    asked = said(capsys, "draw", *SHAPE, "--element", "3,9", "--element", "9,9", "--byte", "0x1a2", "--byte", "0xffff")
    assert "row,col (3, 9) lands at 0x1a2 (418)" in asked
    assert "(9, 9) lands nowhere" in asked
    assert "0x1a2 holds row,col (3, 9)" in asked and "0xffff holds no element" in asked
    found = data(capsys, "draw", *SHAPE, "--element", "3,9", "--byte", "0x1a2")
    assert found["elements"] == [{"element": [3, 9], "addresses": [418]}]
    assert found["bytes"] == [{"address": 418, "elements": [[3, 9]]}]
    assert len(found["chunks"]) == 64
    store = data(capsys, "draw", *SHAPE, "--store")
    assert store["units_outside"] == 0


def test_drawings_go_to_files_and_standard_output(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    svg, html = tmp_path / "box.svg", tmp_path / "box.html"
    said(capsys, "draw", *SHAPE, "--svg", str(svg), "--html", str(html), "--theme", "dark")
    assert svg.read_text().startswith("<svg")
    assert svg.read_text().strip() in html.read_text()
    assert html.read_text().startswith("<!DOCTYPE html>") and "global_dim[0]" in html.read_text()
    assert said(capsys, "draw", *SHAPE, "--svg", "-").startswith("<svg")
    images = ["--shape", "2,6,6,32", "--lower=-1,-1", "--upper=-1,-1", "--channels", "32", "--pixels", "20"]
    assert "im2col at (0, -1, -1, 0), offsets (1, 0)" in said(capsys, "draw", *images, "--offsets", "1,0")
    gathered = ["--shape", "64,64", "--box", "1,64", "--mode", "tile::gather4", "--at", "5,3,99,7,0"]
    assert "4 x 64 elements, 64 of them out of bounds" in said(capsys, "draw", *gathered)


def test_a_copy_is_checked(capsys: pytest.CaptureFixture[str]) -> None:
    box = ["--shape", "4096,64", "--box", "64,64", "--swizzle", "128B"]
    assert "nothing is wrong" in said(capsys, "check", *box, f"{LOAD} [%r1], [%rd1, {{0, 64}}], [%r2];", "--expect-tx", "8192")
    assert "nothing is wrong" in said(capsys, "check", *box, f"  @!%p1 {LOAD} [%r1], [%rd1, {{0, 64}}], [%r2];")
    assert "nothing is wrong" in said(capsys, "check", *box)
    wrong = data(capsys, "check", *box, LOAD.replace("2d", "3d"), "--shared", "0x10", code=1)
    assert not wrong["ok"]
    assert [f["level"] for f in wrong["findings"]] == ["error", "error"]
    reads = ["--descriptor", "0x4000004000010000", "--for", "wgmma m64n64 f16"]
    assert data(capsys, "check", *box, *reads)["ok"]
    assert not data(capsys, "check", *box[:-1], "none", *reads, code=1)["ok"]
