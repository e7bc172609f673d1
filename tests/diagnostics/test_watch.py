"""Watched elements: every store to them, by whom and from where; nothing else."""

import numpy as np
import pytest

import mmulator as mm
from mmulator import Module
from mmulator.cli.app import run
from mmulator.sanitizer.diagnostics.watch import WatchedStore
from tests.support.ptx_text import stored

TEXT = stored("stores")


def test_stores_of_every_kind() -> None:
    out, total = np.zeros(64, np.uint32), np.zeros(1, np.uint32)
    report = Module.load(TEXT, name="k.ptx")["k"].launch(2, 64, [out, total], watch=[(0, 33), (0, (34,)), (1, 0)])
    of = {index: [s for s in report.stores if (s.argument, s.index) == index] for index in ((0, (33,)), (0, (34,)), (1, (0,)))}
    lines = {n: TEXT.splitlines().index(n) + 1 for n in TEXT.splitlines() if "st." in n or "red." in n}
    line_of = [next(v for n, v in lines.items() if n.startswith(s)) for s in ("st.", "@%odd", "red.")]
    assert of[0, (33,)] == [
        WatchedStore(0, (33,), (b, 0, 0), (33, 0, 0), name, "k.ptx", line, value, value)
        for b in (0, 1)
        for name, line, value in (("st.global.u32", line_of[0], 100 * b + 33), ("st.v2.b16", line_of[1], 7 << 16))
    ]
    assert [(s.value, s.value.dtype) for s in of[0, (34,)]] == [(34, np.uint32), (134, np.uint32)]
    assert len(of[1, (0,)]) == 128
    assert {s.line for s in of[1, (0,)]} == {line_of[2]}
    assert {(s.block, s.thread) for s in of[1, (0,)]} == {((b, 0, 0), (t, 0, 0)) for b in (0, 1) for t in range(64)}
    assert sum(map(len, of.values())) == len(report.stores)


def test_a_launch_is_watched_and_sanitized_at_once() -> None:
    """Observers of one launch see what each of them sees alone."""
    kernel = Module.load(TEXT.replace("mad.lo.u32 %v, %b, 100, %t;\n", ""), name="k.ptx")["k"]  # %v has no value
    watch = [(0, 33), (1, 0)]

    def run(**observers: object) -> mm.Report:
        return kernel.launch(2, 64, [np.zeros(64, np.uint32), np.zeros(1, np.uint32)], **observers)  # type: ignore[arg-type]

    both, watched, sanitized = run(watch=watch, sanitize=True, threads=1), run(watch=watch), run(sanitize=True, threads=1)
    assert both.stores == watched.stores and len(both.stores) == 132
    assert both.findings == sanitized.findings
    assert {f.rule for f in both.findings} == {"race-between-blocks", "uninitialized-store"}
    assert both.instructions == watched.instructions == sanitized.instructions


def test_wmma_store_names_the_lane_that_holds_the_element() -> None:
    text = """.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 out) {
.reg .b64 %p; .reg .f32 %d<8>;
ld.param.u64 %p, [out];
""" + "".join(f"mov.f32 %d{i}, 0f3f800000;\n" for i in range(8)) + (
        "wmma.store.d.sync.aligned.row.m16n16k16.global.f32 [%p], {%d0, %d1, %d2, %d3, %d4, %d5, %d6, %d7};\nret; }\n"
    )
    layout = mm.Instruction.parse("wmma.store.d.sync.aligned.row.m16n16k16.global.f32").layout("r")
    for row, column in ((0, 0), (3, 5), (15, 15), (9, 2)):
        report = Module.load(text)["k"].launch(1, 32, [np.zeros((16, 16), np.float32)], watch=[(0, (row, column))])
        assert [s.thread[0] for s in report.stores] == [int(layout.locate(row, column)[0])]


def test_command(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "k.ptx"
    path.write_text(TEXT)
    launch = ["run", str(path), "--grid", "2", "--block", "64", "--arg", "C=out:u32:8x8", "--arg", "out:u32:1"]
    assert run([*launch, "--watch", "C[4,2]"]) == 0
    said = capsys.readouterr().out
    assert "stores to C[4, 2]" in said
    assert f"block (1, 0, 0), thread (34, 0, 0): st.global.u32 at {path}:12, 134 (bits 0x86)" in said
    messages = {"D[0]": "no argument is called D", "C[9,9]": "C is [8, 8] and has no such element", "C": "NAME[ROW,COLUMN]"}
    for wrong, message in messages.items():
        assert run([*launch, "--watch", wrong]) == 1
        assert message in capsys.readouterr().err


def test_no_store_is_forgotten_however_many_there_are_and_on_several_threads() -> None:
    out, total = np.zeros(64, np.uint32), np.zeros(1, np.uint32)
    report = Module.load(TEXT)["k"].launch(200, 64, [out, total], watch=[(1, 0)], threads=4)
    assert len(report.stores) == total[0] == 200 * 64 and report.threads == 4
    assert {(s.block[0], s.thread[0]) for s in report.stores} == {(b, t) for b in range(200) for t in range(64)}
    assert {s.value for s in report.stores} <= set(range(32, 200 * 64 + 1))
