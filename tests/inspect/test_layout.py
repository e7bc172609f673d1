"""`mmulator layout`: answers equal what executes, in every rendering, over all forms."""

import csv
import io
import json
import re
import sys
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from tensor_layouts import atoms_nv
from tensor_layouts.atoms import MMAAtom

from mmulator.cli.app import run
from mmulator.errors import InvalidInstructionError, MmulatorError, OperandError
from mmulator.inspect import Layout, layout
from mmulator.isa.form import Form
from mmulator.isa.matrix import matrix_forms
from mmulator.isa.names.words import find_forms
from mmulator.matrix.inspect.layouts.layout import operands, other_answer
from mmulator.matrix.inspect.views.svg import PAGE_HEIGHT, PAGE_WIDTH, text_width
from mmulator.matrix.inspect.views.tables import (
    CSV_COLUMNS,
    label,
    lane_table,
    matrix_table,
    repeat_of,
    run_of,
    to_csv,
    to_markdown,
)
from mmulator.matrix.instruction.instruction import Instruction
from mmulator.matrix.layouts import fragment, sparse
from tests.support.places import ROOT
from tests.support.raw_scales import raw_scales

DENSE = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
SPARSE = "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
WARPGROUP = "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16"
BLOCK = "mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32.e4m3.e4m3.f32.ue8m0"
FORMS = tuple(matrix_forms())


@cache
def different() -> tuple[tuple[Form, Layout], ...]:
    """Every layout that differs from the others, of all operands of all forms and all selectors."""
    found: dict[object, tuple[Form, Layout]] = {}
    for form in FORMS:
        for name in operands(form):
            choices: list[dict[str, int]] = [{}]
            if name in ("e", "sp_meta"):
                chunks = form.k // sparse.granularity(form).chunk
                choices = [{"selector": s} for s in range({4: 4, 8: 2, 16: 1}[chunks])]
            elif name.startswith("scale"):
                threads = range(2 if name == "scale_a" else 4)
                bytes_ = {1: range(4), 2: range(0, 3, 2), 4: range(1)}[form.scale_vec]
                choices = [{"byte_id": b, "thread_id": t} for b in bytes_ for t in threads]
            for choice in choices:
                key = (fragment(form, name), name, form.sparse) if not _special(name) else (
                    form.k, form.m, form.scale_vec, str(form.atype), name, tuple(choice.items()))  # fmt: skip
                if key not in found:
                    found[key] = form, layout(form, name, **choice)
    return tuple(found.values())


def shown() -> tuple[tuple[Form, Layout], ...]:
    """The same without accumulators that differ from others only in N: for tests that go cell by cell."""
    return tuple(x for x in different() if x[0].family != "wgmma" or x[1].operand != "d" or x[0].n in (8, 24, 256))


def _special(name: str) -> bool:
    return name in ("e", "sp_meta") or name.startswith("scale")


def picked(registers: np.ndarray, found: Layout) -> np.ndarray:
    """Elements [copies, rows, columns] out of registers [lanes, registers], by the bits that the layout names."""
    out = np.zeros((found.copies, found.rows, found.columns), np.uint64)
    for place, holders in found.cells.items():
        values = {int(registers[h.lane, h.register]) >> h.low & (1 << (h.high - h.low + 1)) - 1 for h in holders}
        assert len(values) == 1, place
        out[place] = values.pop()
    return out


@pytest.mark.full
def test_layouts_are_what_execute_unpacks() -> None:
    """Random registers or matrices go through the functions that `execute` uses, and through the layout's words."""
    generator = np.random.default_rng(3)
    cell_by_cell = {id(found) for _, found in shown()}  # the others have the maps of their fragments
    for form, found in different():
        if found.kind == "metadata":
            nibbles = generator.integers(0, 16, (found.rows, found.columns)).astype(np.uint8)
            selector = int(re.search(r"Selector (\d)", found.notes[0])[1])  # type: ignore[index]
            words = sparse.to_registers(nibbles, form, selector)[:, None]
            want = nibbles[None]
        elif found.kind == "scales":
            byte, thread = map(int, re.search(r"byte-id-. (\d), thread-id-. (\d)", found.notes[0]).groups())  # type: ignore[union-attr]
            words = generator.integers(0, 1 << 32, (32, 1)).astype(np.uint32)
            want = raw_scales(words[:, 0], form, found.operand[-1], byte, thread)[None]
        else:
            f = fragment(form, found.operand)
            want = generator.integers(0, 1 << min(f.width, 63), (f.copies, f.rows, f.columns), np.uint64)
            words = f.to_registers(want.reshape(f.matrix_shape))
            own = Instruction(form).layout(found.operand)
            assert all(map(np.array_equal, found.maps, own.fragment.maps))
            assert found.type == str(own.element_type)
        if id(found) in cell_by_cell:
            assert np.array_equal(picked(words, found), want.astype(np.uint64)), (str(form), found.operand)


def test_every_operand_of_every_form_has_a_layout() -> None:
    with_layout = 0
    for form in FORMS:
        names = operands(form)
        with_layout += bool(names)
        for signature in form.signatures:
            for o in signature:
                if o.kind == "registers":
                    assert o.key in names, (str(form), o.name)
        assert ("e" in names or "sp_meta" in names) == form.sparse
        assert ("scale_a" in names and "scale_b" in names) == form.block_scale
    assert with_layout == sum(f.op not in ("fence", "commit_group", "wait_group") for f in FORMS)


def test_element_and_register_are_inverses() -> None:
    for _, found in shown():
        seen = 0
        for (copy, row, column), holders in found.cells.items():
            for h in holders:
                (back,) = found.at(h.lane, h.register, h.index)
                assert (back.copy, back.row, back.column) == (copy, row, column)
                assert back.holders == (h,)
                seen += 1
        assert len(found.cells) == found.copies * found.rows * found.columns
        assert seen == int((found.maps[1] >= 0).sum())


def test_the_rule_in_words_is_the_map() -> None:
    for form, found in shown():
        values = dict(found.rule)
        code = {name: compile(text.replace("/", "//"), name, "eval") for name, text in values.items()}
        for (copy, row, column), holders in found.cells.items():
            for h in holders:
                if found.kind == "elements":
                    given = {"lane": h.lane, "register": h.register, "index": h.index}
                    want = {"row": row, "column": column} | ({"matrix": copy} if found.copies > 1 else {})
                elif found.kind == "metadata":
                    given, want = {"row": row, "chunk": column}, {"lane": h.lane, "lowest bit": h.low}
                else:
                    given, want = {"row": row, "column": column}, {"lane": h.lane, "byte": h.low // 8}
                assert {name: eval(c, {}, given) for name, c in code.items()} == want, (str(form), found.operand)


def test_csv_markdown_and_json_parse_back_to_the_map() -> None:
    for _, found in shown():
        rows = list(csv.reader(io.StringIO(to_csv(found))))
        assert tuple(rows[0]) == CSV_COLUMNS
        places = sorted((*where, h.lane, h.register, h.index) for where, hs in found.cells.items() for h in hs)
        assert sorted(tuple(map(int, r[:6])) for r in rows[1:]) == places
        tables = to_markdown(found).split("Matrix ") if found.copies > 1 else [to_markdown(found)]
        tables = [t for t in tables if t]
        assert len(tables) == found.copies
        for copy, table in enumerate(tables):
            lines = [line for line in table.splitlines() if line.startswith("|")][2:]
            assert len(lines) == found.rows
            for row, line in enumerate(lines):
                texts = [t.strip() for t in line.strip("|").split("|")][1:]
                for column, text in enumerate(texts):
                    want = ", ".join(label(found, h, 1, short=True) for h in found.cells[copy, row, column])
                    assert text == want
        data = found.to_dict()
        flat = [(e["copy"], e["row"], e["column"], h["lane"], h["register"], h["index"])
                for e in data["elements"] for h in e["holders"]]  # fmt: skip
        assert sorted(flat) == places
    assert json.loads(json.dumps(layout(DENSE, "a").to_dict()))["cute"] == "((4,8),(2,2,2)):((32,1),(16,8,128))"


def test_tables_fit_80_columns_and_show_every_cell() -> None:
    for _, found in shown():
        for full in (False, True):
            for text in (matrix_table(found, 80, full), lane_table(found, 80, full)):
                assert max(map(len, text.splitlines())) <= 80 or repeat_of(found)
        if repeat_of(found) is None or found.columns <= 32:
            words = set(matrix_table(found, 80, full=True).replace("=", " ").split())
            assert {f"T{h.lane}" for hs in found.cells.values() for h in hs} <= words
            cells = lane_table(found, 80, full=True).count("\nT") + 1
            assert cells >= 1
    assert "T31 a6-7" in matrix_table(layout(DENSE, "a"))


# CuTe ----------------------------------------------------------------------------------------------------------------
def evaluate(text: str) -> np.ndarray:
    """A CuTe layout of two modes as an array [first, second]: colexicographic within each mode."""
    shape, stride = (eval(part) for part in text.split(":"))

    def mode(shape: int | tuple[int, ...], stride: int | tuple[int, ...]) -> np.ndarray:
        pairs = zip(shape, stride) if isinstance(shape, tuple) else [(shape, stride)]  # type: ignore[arg-type]
        out = np.zeros(1, np.int64)
        for extent, step in pairs:
            out = (out[None, :] + (np.arange(extent) * step)[:, None]).reshape(-1)
        return out

    return mode(shape[0], stride[0])[:, None] + mode(shape[1], stride[1])[None, :]


def test_cute_layouts_give_every_element() -> None:
    without = set()
    for _, found in different():
        if found.cute is None:
            assert "not every lane" in found.cute_note
            without.add(found.kind)
            assert (found.offsets < 0).any(), found.instruction
            continue
        at = evaluate(found.cute)
        size = found.rows * found.columns
        rows = found.columns if found.operand == "b" else found.rows
        matrix, rest = np.divmod(at, size)
        second, first = np.divmod(rest, rows)
        row, column = (second, first) if found.operand == "b" else (first, second)
        shape = (found.lanes, -1)
        for got, want in zip((matrix, row, column), found.maps):
            assert np.array_equal(got, want.reshape(shape)), (found.instruction, found.operand)
    assert without == {"metadata", "scales"}


def test_cute_layouts_are_those_of_cutlass() -> None:
    """The MMA traits of CUTLASS, as the package tensor-layouts states them."""
    compared, not_one_to_one = 0, set()
    for atom in (a for a in vars(atoms_nv).values() if isinstance(a, MMAAtom)):
        try:
            form = Instruction.parse(atom.ptx).form
        except InvalidInstructionError:
            continue  # some rows there name no complete instruction
        if form.family == "tcgen05":
            continue  # tensor memory
        for name, theirs in (("a", atom.a_layout), ("b", atom.b_layout), ("d", atom.c_layout)):
            if form.family == "wgmma" and name != "d":
                continue  # shared memory
            found = layout(form, name)
            ours = found.offsets
            if atom.thr_id is not None:  # one of the four matrices of m8n8k4
                ours = ours[[atom.thr_id(t) for t in range(8)]]
            want = [[theirs(t, v) for v in range(ours.shape[1])] for t in range(ours.shape[0])]
            if len(np.unique(want)) < ours.size:
                not_one_to_one.add((atom.name.rpartition("_S32")[0] + f"_{name}", len(np.unique(want))))
                continue
            assert np.array_equal(ours, want), (atom.name, name)
            compared += 1
    assert compared > 100
    assert not_one_to_one == {("SM80_16x8x32_b", 160)}  # there lanes t and t + 1 would share half of their elements


# Drawings ------------------------------------------------------------------------------------------------------------
_SVG = "{http://www.w3.org/2000/svg}"


def texts(svg: str) -> list[str]:
    return [e.text or "" for e in ElementTree.fromstring(svg).iter(f"{_SVG}text")]


def test_drawings_show_every_cell_on_one_page() -> None:
    for _, found in shown():
        svg = found.svg()
        root = ElementTree.fromstring(svg)
        assert float(root.get("width", "0")) <= PAGE_WIDTH
        assert float(root.get("height", "0")) <= PAGE_HEIGHT, (found.instruction, found.operand)
        repeat, run_ = repeat_of(found), run_of(found)
        words = " ".join(texts(svg))
        for (_, row, column), holders in found.cells.items():
            if repeat is not None and (row >= repeat.rows or column >= 8 * run_.right):
                continue
            if row % run_.down or column % run_.right:
                continue
            for h in holders:
                whole = label(found, h, run_.length)
                assert whole in words or whole.replace(":", " ") in words, (found.instruction, found.operand, whole)


def test_text_of_drawings_stays_inside() -> None:
    """The estimated width of each text, in the widest font, inside the page; labels of cells clear of their borders, texts
    of a line clear of each other."""
    for _, found in shown():
        root = ElementTree.fromstring(found.svg())
        lines: dict[str, list[tuple[float, float, str]]] = {}
        box: tuple[float, float] | None = None
        for e in root:
            if e.tag == f"{_SVG}rect":
                x, width = (float(e.get(k, "0")) for k in ("x", "width"))
                box = (x + 2, x + width - 2) if e.find(f"{_SVG}title") is not None else None
            elif e.tag == f"{_SVG}text":
                classes = (e.get("class") or "").split()
                room = text_width(e.text or "", float(e.get("font-size", "0")), "m" in classes, e.get("font-weight") == "bold")
                start = float(e.get("x", "0")) - room * (0.5 if "middle" in classes else "end" in classes)
                low, high = box or (0, PAGE_WIDTH)
                assert low <= start + 0.01, (found.instruction, found.operand, e.text)
                assert start + room <= high + 0.01, (found.instruction, found.operand, e.text)
                lines.setdefault(e.get("y", ""), []).append((start, start + room, e.text or ""))
            else:
                box = None
        for line in lines.values():
            for (_, end, one), (start, _, other) in pairwise(sorted(line)):
                assert end + 2 <= start + 0.01, (found.instruction, found.operand, one, other)


def test_large_layouts_repeat_and_full_ones_show_all() -> None:
    for form, found in shown():
        assert (repeat_of(found) is not None) == (form.family == "wgmma"), (found.instruction, found.operand)
    found = layout(WARPGROUP, "d")
    words = " ".join(texts(found.svg(full=True)))
    for (_, _, column), holders in found.cells.items():
        if column % 2 == 0:
            assert label(found, holders[0], 2).replace(":", " ") in words
    assert {"d124", "d127", "T96..T127"} <= set(texts(found.svg()))


def test_notebooks_get_the_drawing() -> None:
    found = layout(DENSE, "a")
    assert found._repr_svg_() == found.svg()
    assert found.svg() in found._repr_html_()
    assert found.png(scale=1).startswith(b"\x89PNG")


# The command ---------------------------------------------------------------------------------------------------------
def test_command(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    def out(*arguments: str, code: int = 0) -> str:
        assert run(["layout", *arguments]) == code
        done = capfd.readouterr()
        return done.out + done.err

    assert out(DENSE, "a", "--element", "3,5") == "a: row 3, column 5 is a1: lane 14, register 0, bits 16 to 31\n"
    assert out(DENSE, "a", "--register", "14,0,1") == "a: row 3, column 5 is a1: lane 14, register 0, bits 16 to 31\n"
    assert len(out(DENSE, "a", "--register", "14,0").splitlines()) == 2
    assert out(SPARSE, "e", "--selector", "1", "--element", "9,5") == (
        "e: row 9, chunk 5 (of columns 20 to 23 of A): lane 7, register 0, bits 20 to 23\n"
    )
    assert "not used" in out(SPARSE, "e", "--register", "2,0")
    assert json.loads(out(DENSE, "a", "--element", "3,5", "--json"))["elements"][0]["holders"][0]["bits"] == [16, 31]
    assert json.loads(out(WARPGROUP, "d", "--json"))["elements"][-1]["row"] == 63
    assert out(WARPGROUP, "d", "--cute").splitlines()[0] == "((4,8,4),(2,2,32)):((128,1,16),(64,8,512))"
    assert "unsupported: no CuTe layout" in out(SPARSE, "e", "--cute", code=1)
    assert "T0 a0" in out(DENSE, "a", "--markdown")
    assert out(DENSE, "a", "--csv").startswith("copy,row,column,lane")
    assert out(DENSE, "a", "--svg", "-", "--theme", "dark") == layout(DENSE, "a").svg("dark")
    files = str(tmp_path / "a.svg"), str(tmp_path / "a.png")
    assert out(DENSE, "a", "--svg", files[0], "--png", files[1]) == f"{', '.join(files)}: operand a of {DENSE}\n"
    assert (tmp_path / "a.svg").read_text() == layout(DENSE, "a").svg()
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    wmma = "wmma.mma.sync.aligned.row.row.m16n16k16.f16.f16"
    assert "measured on an NVIDIA H200" in out(wmma, "a")
    assert "inferred for sm_80" in out(wmma, "a", "--device", "sm_80")
    assert out(wmma, "a", "--device", "sm_70").splitlines()[1].startswith("warning: not known for sm_70")
    assert "no operand of" in out(DENSE, "", code=1)
    assert "T1  0,2-3  8,2-3" in out(DENSE, "a", "--by", "lane")
    # what goes wrong
    assert "`mmulator descriptor encode wgmma" in out(WARPGROUP, "b", code=1)
    assert "operands with a layout: a, b, c, d" in out(DENSE, "e", code=1)
    assert "selector 2" in out(SPARSE, "e", "--selector", "2", code=1)
    assert "row 16 is outside 0..15" in out(DENSE, "a", "--element", "16,0", code=1)
    assert "lane 32 is outside 0..31" in out(DENSE, "a", "--register", "32,0", code=1)
    assert "devices: sm_70" in out(DENSE, "a", "--device", "sm_1", code=1)
    assert "cannot write" in out(DENSE, "a", "--svg", str(tmp_path / "none" / "a.svg"), code=1)
    assert json.loads(out(WARPGROUP, "b", "--json", code=1))["errors"][0]["kind"] == "operand error"
    assert "ROW,COL" in out(DENSE, "a", "--element", "3", code=2)
    assert "matrix or lane" in out(DENSE, "a", "--by", "row", code=2)
    for more in (("--json", "--csv"), ("--csv", "--markdown"), ("--svg", "x.svg", "--json"), ("--cute", "--element", "0,0"),
                 ("--svg", "-", "--png", "-"), ("--markdown", "--register", "0,0")):  # fmt: skip
        assert set(re.findall("--[a-z]+", " ".join(more))) <= set(re.findall("--[a-z]+", out(DENSE, "a", *more, code=2)))
    assert "not of operand a" in out(SPARSE, "a", "--selector", "0", code=2)
    assert "not of operand a" in out(DENSE, "a", "--byte-id", "1", code=2)
    assert "themes: auto" in out(DENSE, "a", "--svg", "-", "--theme", "sepia", code=1)


WORDS = ["mma", "m16n8k16", "f16"]
HALF = "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16"


def test_words_name_the_form_that_they_chose_and_one_that_answers_otherwise(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")

    def out(*arguments: str) -> str:
        assert run(["layout", *arguments]) == 0
        return capsys.readouterr().out

    other = f"The words fit other forms too, of which {HALF}"
    for words in (WORDS, [" ".join(WORDS)]):
        assert out(*words, "c", "--element", "3,5").splitlines() == [
            DENSE,
            "c: row 3, column 5 is c1: lane 14, register 1, bits 0 to 31",
            f"{other} answers otherwise:",
            "c: row 3, column 5 is c1: lane 14, register 0, bits 16 to 31",
        ]
    assert out(*WORDS, "a", "--element", "3,5").splitlines() == [
        DENSE, "a: row 3, column 5 is a1: lane 14, register 0, bits 16 to 31",
    ]  # fmt: skip
    asked = out(*WORDS, "c", "--register", "14,1").splitlines()  # f16: register 1 has two elements
    assert asked[0] == DENSE and f"{other} answers otherwise:" in asked and len(asked) == 5
    assert "answers otherwise" not in out(HALF, "c", "--element", "3,5")
    data = json.loads(out(*WORDS, "c", "--element", "3,5", "--json"))
    assert data["instruction"] == DENSE and data["otherwise"]["instruction"] == HALF
    assert data["otherwise"]["elements"][0]["holders"][0]["bits"] == [16, 31]
    assert out(*WORDS, "c", "--svg", str(tmp_path / "c.svg")).splitlines() == [
        f"{tmp_path}/c.svg: operand c of {DENSE}", f"{other} lays c out otherwise.",
    ]  # fmt: skip
    assert out(*WORDS, "c", "--svg", "-") == layout(DENSE, "c").svg()  # the words go to standard error


def test_the_other_answer_is_right_for_every_chosen_form() -> None:
    """Among all forms that words fit: the first in order whose answer differs, found the long way."""
    for text, operand in (("mma m16n8k16", "c"), ("mma m16n8k32", "a"), ("wgmma m64n64", "d"), ("mma.sp m16n8k32", "e")):
        found = layout(text, operand)

        def ask(one: Layout) -> list[Any]:
            return [one.element(3, 1)]

        def places(one: Layout) -> list[tuple[int, ...]]:
            return [(h.lane, h.register, h.low, h.high) for h in ask(one)[0].holders]

        every = [layout(form, operand) for form in find_forms(text) if operand in operands(form)]
        want = [o for o in every if places(o) != places(found)]
        got = other_answer(text, found, ask)
        assert (got is None) == (not want), text
        assert got is None or places(got[0]) == places(want[0])


def test_what_cannot_be_answered(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def out(*arguments: str, code: int) -> str:
        assert run(["layout", *arguments]) == code
        done = capsys.readouterr()
        return " ".join((done.out + done.err).replace("\u2502", "").split())

    assert "sm_70 has no mma.sync.aligned.m16n8k16" in out(*WORDS, "a", "--device", "sm_70", code=1)
    assert "operands with a layout: a, b, c, d" in out("mma", "m16n8k16", "f16", code=1)
    assert "an instruction and one of its operands" in out("mma", code=2)
    assert "too large to draw in full" in out("wgmma", "m64n128", "bf16", "d", "--full", "--svg", "-", code=1)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert "a PNG is no text for a terminal" in out(*WORDS, "a", "--png", "-", code=2)


def test_operands_have_the_names_of_the_specification() -> None:
    sparse_warpgroup = "wgmma.mma_async.sp.sync.aligned.m64n8k32.f16.f16.f16"
    assert layout(sparse_warpgroup, "sp-meta") == layout(sparse_warpgroup, "sp_meta")
    assert layout(BLOCK, "scale-a-data").operand == "scale_a"
    assert operands(BLOCK) == ("a", "b", "c", "d", "scale_a", "scale_b")
    assert operands("ldmatrix.sync.aligned.m8n8.x4.b16") == ("r",)
    for text in ("wgmma.fence.sync.aligned", "wgmma.wait_group.sync.aligned"):
        with pytest.raises(OperandError, match="no operand a"):
            layout(text, "a")
    with pytest.raises(MmulatorError, match="byte-id-a"):
        layout(BLOCK, "scale_a", byte_id=4)


def test_pictures_of_the_documentation_are_current() -> None:
    from tools.pages import layout_images

    for name, svg in layout_images.images().items():
        assert (ROOT / "docs" / "images" / name).read_text() == svg, "run tools/pages/layout_images.py"
        assert len(svg) < 100_000
