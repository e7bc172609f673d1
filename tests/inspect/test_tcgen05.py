"""`mmulator layout` and `mmulator explain` of tcgen05: answers equal what executes, at 80 columns, mistakes are named."""

import csv
import io
import json

import numpy as np
import pytest

from mmulator.cli.app import run
from mmulator.errors import MmulatorError, OperandError, UnsupportedError
from mmulator.inspect import explain, layout
from mmulator.isa.form import forms_of
from mmulator.isa.tcgen05 import ROWS
from mmulator.matrix.layouts import tensor_memory as tm

PRODUCTS = (
    "m128n64 f16", "m64n64 f16", "m64n64 f16 f16 f16", "m256n64 bf16", "m128n64 bf16 cta_group::2", "m128n64 f16 sp",
    "m64n64 tf32 sp", "m128n64 f16 sp cta_group::2", "m64n128 e4m3 ws", "m32n128 s8 ws", "m32n64 f16 sp ws", "m128n64 e5m2 sp",
    "m128n64 e2m1", "m128n64 mxf8f6f4 e3m2", "m128n64 mxf4", "m128n128 nvfp4", "m128n128 mxf4 cta_group::2", "m128n64 mxf4 sp",
)  # fmt: skip


@pytest.mark.parametrize("words", PRODUCTS)
def test_d_and_a_have_the_places_that_execute(words: str) -> None:
    d = layout(f"tcgen05 {words}", "d")
    letter = d.section[-1]
    n = int(words.split("n")[1].split()[0])
    assert (d.rows, d.columns) == (tm.PARTS[letter], n)
    rng = np.random.default_rng(3)
    for m, column in zip(rng.integers(0, d.rows, 40).tolist(), rng.integers(0, n, 40).tolist()):
        (h,) = d.element(m, column).holders
        assert (h.lane, h.register, h.low) == (*tm.place(letter, m, column, n), 0)
        assert [(e.row, e.column) for e in d.at(h.lane, h.register)] == [(m, column)]
    a = layout(f"tcgen05 {words}", "a")
    assert all(len(held) == tm.copies(letter) for held in a.cells.values()) and len(a.cells) == a.rows * a.columns
    for m, k in zip(rng.integers(0, a.rows, 40).tolist(), rng.integers(0, a.columns, 40).tolist()):
        at = [tm.a_place(letter, a.room, m, k, copy) for copy in range(tm.copies(letter))]
        assert [(h.lane, h.register, h.low - a.shift) for h in a.element(m, k).holders] == sorted(at)
    rows = {m for block in d.blocks for m in _numbers(block[0])}
    assert rows == set(range(d.rows)) and sum(len(_numbers(b[0])) * len(_numbers(b[1])) for b in d.blocks) == d.rows * n


def _numbers(span: str) -> range:
    first, _, last = span.partition("-")
    return range(int(first), int(last or first) + 1)


@pytest.mark.parametrize("words", [w for w in PRODUCTS if "sp" in w])
def test_metadata_has_one_nibble_for_each_chunk(words: str) -> None:
    e = layout(f"tcgen05 {words}", "e")
    held = [h for holders in e.cells.values() for h in holders]
    assert len(e.cells) == e.rows * e.columns and len({(h.lane, h.register, h.low) for h in held}) == len(held)
    assert layout(f"tcgen05 {words}", "sp_meta").cells == e.cells == layout(f"tcgen05 {words}", "metadata").cells
    if words == "m128n64 f16 sp":
        second = layout(f"tcgen05 {words}", "e", selector=1).element(9, 3).holders
        assert [(h.lane, h.register, h.low) for h in second] == [(1, 1, 28)]
    with pytest.raises(UnsupportedError, match="sparsity selector 2: which columns"):
        layout(f"tcgen05 {words}", "e", selector=2)


def test_scale_factors_are_copied_to_every_quarter() -> None:
    a = layout("tcgen05 m128n64 mxf8f6f4 e4m3", "scale_a", byte_id=2)
    assert [(h.lane, h.register, h.low) for h in a.element(37, 0).holders] == [(5 + 32 * q, 1, 16) for q in range(4)]
    b = layout("tcgen05 m128n128 mxf4 cta_group::2", "scale_b")
    assert [(h.lane, h.register, h.low) for h in b.element(1, 70).holders] == [(70, 0, 8), (102, 0, 8)]
    c = layout("tcgen05 m128n192k96 nvfp4", "scale_b", byte_id=2)
    assert [(h.lane, h.register, h.low) for h in c.element(1, 70).holders] == [(6 + 32 * q, 2, 24) for q in range(4)]
    assert [(h.lane, h.register, h.low) for h in c.element(2, 70).holders] == [(6 + 32 * q, 10, 0) for q in range(4)]
    with pytest.raises(OperandError, match=r"the scale factor ID is 1: for \.scale_vec::2X it must be one of 0, 2"):
        layout("tcgen05 m128n64 mxf4", "scale_a", byte_id=1)


MOVES = [form for row in ROWS if row.name in ("tcgen05.ld", "tcgen05.st") for form in forms_of(row)]


def test_registers_of_every_load_and_store_hold_every_cell_once() -> None:
    assert len(MOVES) > 100
    for form in MOVES:
        if int(form["num"][1:]) > 8:
            continue
        found = layout(str(form), "r")
        assert len(found.cells) == found.rows * found.columns == 32 * found.registers * found.per_register
        assert all(len(holders) == 1 for holders in found.cells.values())
        if found.rows == 16 and "x256b" in str(form) and found.per_register == 1:
            assert found.cute


@pytest.mark.parametrize(
    ("words", "operand", "message"),
    [
        ("tcgen05 m128n64 f16", "b", "operand b of .* lies in shared memory"),
        ("tcgen05 m128n64 f16", "scale_a", "has no operand scale_a in tensor memory"),
        ("tcgen05 m128n64 f16", "e", "has no operand e in tensor memory"),
        ("tcgen05.ld.sync.aligned.32x32b.x8.b32", "d", "has no operand d"),
        ("tcgen05.fence::before_thread_sync", "d", "has no operand d"),
        ("tcgen05 m96n64 f16", "d", "m is 96"),
    ],
)
def test_what_has_no_layout_says_so(words: str, operand: str, message: str) -> None:
    with pytest.raises(MmulatorError, match=message):
        layout(words, operand)


@pytest.mark.parametrize("words", PRODUCTS)
def test_commands_print_80_columns(words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    operands = ["d", "a", *(["e"] if "sp" in words else []), *(["scale_a", "scale_b"] if "mx" in words or "nv" in words else [])]
    for operand in operands:
        for form in ([], ["--by", "lane"]):
            assert run(["layout", f"tcgen05 {words}", operand, *form]) == 0
            shown = capsys.readouterr().out.splitlines()
            assert all(len(line) <= 80 for line in shown if not line.startswith("tcgen05")), shown
    assert run(["layout", f"tcgen05 {words}"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert all(len(line) <= 80 for line in shown if "tcgen05" not in line), shown
    held = ["d", "a", *(["sp_meta"] if "sp" in words else []), *operands[-2:] * ("scale_a" in operands)]
    assert [line.split()[1] for line in shown if line.startswith("operand ")] == held
    assert run(["explain", f"tcgen05 {words}"]) == 0
    assert all(len(line) <= 80 for line in capsys.readouterr().out.splitlines() if "tcgen05" not in line)


def test_all_operands_at_once(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run(["layout", "tcgen05", "m64n64", "f16", "sp"]) == 0
    said = capsys.readouterr().out
    for text in (
        "operand d in tensor memory: 64 x 64 .f32", "48-63  0-63     96-111  0-63", "lowest bit = ",
        "sp_meta: inferred: for M = 64",
        "register r of lane t is column r of lane t", "mmulator layout tcgen05 m64n64 f16 sp d --full",
        "mmulator descriptor encode tcgen05 m64n64 f16 sp",
    ):  # fmt: skip
        assert text in said.replace("\n", " ")
    assert run(["layout", "tcgen05.ld.sync.aligned.16x64b.x1.b32"]) == 0 and "operand r: 16 x 2" in capsys.readouterr().out
    for words, message in {
        "tcgen05 m64n64 f16 --csv": "it is about one operand: name a, d as the last", "tcgen05": "words must give the type of A",
        "tcgen05.wait::ld.sync.aligned": "has no matrix in tensor memory or registers",
    }.items():  # fmt: skip
        assert run(["layout", *words.split()]) != 0
        assert message in " ".join(capsys.readouterr().err.replace("\u2502", "").split())


def test_list_has_every_form(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run(["list", "tcgen05"]) == 0
    said = capsys.readouterr().out
    assert all(len(line) <= 80 for line in said.splitlines())
    assert ".collector::b{0..3}::{fill,use,lastuse,discard}}" in said and ".x{1,2,4,8,16,32}{.pack::16b}.b32" in said
    assert f"{sum(len([*forms_of(row)]) for row in ROWS)} forms;" in said
    assert run(["list", "--family", "tcgen05", "mma", "f16", "--sparse", "--target", "sm_100f", "--full"]) == 0
    names = capsys.readouterr().out.split()
    assert len(names) == 33 and all(n.startswith("tcgen05.mma") and ".sp." in n and n.find(".kind::f16") > 0 for n in names)
    assert run(["list", "tcgen05", "shift", "--device", "B300", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["forms"] == 2
    for words in (["f17"], ["ld.red", "--device", "sm_100"], ["--type", "f16"]):
        assert run(["list", "tcgen05", *words]) != 0
        capsys.readouterr()


def test_one_place_and_all_as_data(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["layout", "tcgen05", "m32n64", "f16", "ws", "d", "--element", "5,50"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "d: row 5, column 50: lane 101, column 2, bits 0 to 31"
    assert run(["layout", "tcgen05", "m32n64", "f16", "ws", "d", "--register", "101,2", "--json"]) == 0
    (element,) = json.loads(capsys.readouterr().out)["elements"]
    assert (element["row"], element["column"]) == (5, 50)
    assert run(["layout", "tcgen05", "m64n8", "f16", "d", "--csv"]) == 0
    assert len([*csv.reader(io.StringIO(capsys.readouterr().out))]) == 1 + 64 * 8
    for form in ("--svg", "--cute"):
        assert run(["layout", "tcgen05", "m64n8", "f16", "d", form, *(["-"] if form == "--svg" else [])]) == 1
        assert "tensor memory" in capsys.readouterr().err


def test_explanations() -> None:
    e = explain("tcgen05 m128n64 f16")
    assert e.mnemonic == "tcgen05.mma.cta_group::1.kind::f16 m128n64k16 f32.f16.f16" and e.macs == 128 * 64 * 16
    assert explain(e.mnemonic).to_dict() | {"query": ""} == e.to_dict() | {"query": ""}
    assert "0x08100010" in next(o.what for o in e.operands if o.name == "idesc")
    assert {a.device for a in e.arithmetic} >= {"sm_100", "sm_103"} and e.ptx.startswith("tcgen05.mma.cta_group::1.kind::f16 [")
    for row in ROWS:
        if row.name.startswith("tcgen05.mma"):
            continue
        found = explain(str(next(iter(forms_of(row)))))
        assert found.computes.endswith(".") and all(o.what for o in found.operands)
    with pytest.raises(UnsupportedError, match="does not run on sm_90"):
        explain("tcgen05 f16", device="H100")
