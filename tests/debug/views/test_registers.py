"""Registers at a stop: types from the instructions that use them, values of every lane, what is read later, what is folded."""

import subprocess
import sys
from typing import Any

import numpy as np

from mmulator import Module
from mmulator.observation.debug.views import RegisterTable, RegisterView, Scene, registers, warps
from mmulator.runtime.native.state import FULL
from tests.support import one_block
from tests.support.scenes import texts_fit, watched


def at(body: str, where: str, *arrays: np.ndarray, block: int = 32, look: Any = registers) -> list[Any]:
    """What a view gives before each step of an instruction."""
    found = []

    def seen(scene: Scene) -> None:
        assert scene.instruction is not None
        if scene.instruction.span.text.startswith(where):
            found.append(look(scene))

    kernel = Module.load(one_block.text(body, len(arrays)), name="k.ptx")["k"]
    watched(kernel, 1, block, [*arrays, np.zeros((block, 4), np.uint32)], seen)
    return found


def lines(table: RegisterTable, name: str) -> str:
    return "\n".join(table[name].text())


def test_types_come_from_instructions() -> None:
    """A register of .b32 is shown as the floats, halves or integers that instructions compute with."""
    body = """ld.global.b32 r0, [in0]; fma.rn.f16x2 r1, r0, r0, r0; add.f32 r2, r0, r0; cvt.rn.bf16x2.f32 r3, r2, r2;
        add.s32 r4, r0, 1; shl.b32 r5, r0, 1; setp.gt.s32 p0, r4, 0; mov.u64 d0, in0; bar.sync 0;
        st.global.v4.b32 [out], {r1, r2, r3, r4}; @p0 st.global.b32 [out], r5; st.global.b32 [d0], r5;"""
    halves = np.array([1.5, -2.0], np.float16).view(np.uint32)[0]
    (table,) = at(body, "bar", np.full(32, halves, np.uint32))
    shown = {r.name: r.shown for r in table.rows}
    assert shown["r1"] == "f16x2" and shown["r2"] == "f32" and shown["r4"] == "s32" and shown["r5"] == "b32"
    assert lines(table, "r1").endswith("{3.75, 2.0}")
    assert table["r1"].value(3, "hex") == "0x40004380" and table["r1"].value(3, "int") == str(0x40004380)
    assert lines(table, "p0").endswith("false") and table["d0"].shown == "b64" and "0x" in lines(table, "d0")
    assert "r0" not in shown and table.hidden  # nothing reads it any more
    assert table.as_dict()["registers"][0]["name"] == table.rows[0].name


def test_values_are_those_of_each_lane() -> None:
    rng = np.random.default_rng(0)
    given = rng.integers(0, 1 << 32, 32, np.uint32)
    (table,) = at("ld.global.u32 r0, [in0]; bar.sync 0; st.global.u32 [out], r0;", "bar", given)
    assert table["r0"].values.tolist() == given.tolist() and texts_fit(table.text())
    assert [int(w) for line in table["r0"].text()[1:] for w in line.split()[1:]] == given.tolist()


def test_an_address_that_all_lanes_have_is_named() -> None:
    body = """ld.param.u64 d1, [given0]; add.u64 d0, d1, 12; mov.u64 d2, in0; add.u64 d3, d1, 128; mov.u64 d4, 12; bar.sync 0;
        st.global.v2.b64 [out], {d0, d1}; st.global.v2.b64 [out], {d2, d3}; st.global.b64 [out], d4;"""
    (table,) = at(body, "bar", np.zeros(32, np.uint32))
    named = {row.name: row.points for row in table.rows if row.name.startswith("d")}
    assert named == {"d0": "argument 0 (given0) + 12", "d1": "argument 0 (given0)", "d2": "", "d3": "", "d4": ""}


def test_equal_and_regular_lanes_are_folded() -> None:
    view = RegisterView("%r1", "b32", "u32", np.arange(32, dtype=np.uint64) % 4 * 4 + np.arange(32, dtype=np.uint64) // 4 * 512)
    assert view.text() == ["%r1      u32    4 * (lane % 4) + 512 * (lane / 4)"]
    for step, said in ((1, "lane"), (-1, "7 - lane"), (3, "7 + 3 * lane")):
        values = (np.arange(32) * step + (7 if said != "lane" else 0)).astype(np.int32).view(np.uint32).astype(np.uint64)
        assert RegisterView("%r1", "b32", "s32", values).text()[0].endswith(said)
    two = np.where(np.arange(32) < 16, 1, 9).astype(np.uint64)
    assert RegisterView("%r1", "b32", "u32", two).text()[0].endswith("1 + 8 * (lane / 16)")
    odd = np.where(np.arange(32) == 5, 9, 1).astype(np.uint64)
    assert RegisterView("%r1", "b32", "u32", odd).text()[0].endswith("lanes 0 to 4, 6 to 31: 1; lane 5: 9")


def test_every_formula_gives_the_values_back() -> None:
    """What a folded register says, evaluated for each lane, is its value; whatever cannot be folded lists all of them."""
    rng = np.random.default_rng(1)
    for _ in range(400):
        steps = rng.integers(-40, 40, 5) * rng.integers(0, 2, 5)
        if rng.integers(2):
            steps = int(rng.integers(1, 9)) << np.arange(5)
        base, lanes = int(rng.integers(-100, 100)), np.arange(32)
        values = base + sum(int(s) * (lanes >> b & 1) for b, s in enumerate(steps))
        view = RegisterView("%r1", "b32", "s32", np.asarray(values).astype(np.int32).view(np.uint32).astype(np.uint64))
        text = view.text(width=200)
        if len(text) == 1 and ("lane" in text[0] or len(view.groups) == 1) and "lanes" not in text[0] and ":" not in text[0]:
            formula = text[0][len(view.label) :].replace("/", "//")
            assert [eval(formula, {"lane": n}) for n in range(32)] == values.tolist(), text[0]


def test_a_diverged_warp_and_another_one() -> None:
    """Lanes that are asked for are those at the instruction; another warp has its own place and values."""
    body = """mov.u32 r1, t; setp.lt.u32 p0, t, 40; @p0 bra LOW; add.u32 r1, r1, 1000; bra MEET; LOW: add.u32 r1, r1, 2000;
        MEET: bar.sync 0; st.global.u32 [out], r1;"""
    tables = at(body, "add.u32 r1, r1, 1000", block=64)
    assert tables[0].lanes == FULL & ~0xFF and tables[0]["r1"].values[9] == 41
    other = at(body, "add.u32 r1, r1, 1000", block=64, look=lambda scene: registers(scene, "r1", warp=0))
    assert other[0].warp == 0 and other[0]["r1"].values[3] in (3, 2003)
    rows = at(body, "add.u32 r1, r1, 1000", block=64, look=warps)[0].rows
    assert [(r.warps, r.state) for r in rows if r.lanes == FULL & ~0xFF] == [((1,), "next")]
    assert sum(r.lanes for r in rows if r.warps == (1,)) == FULL


def test_nothing_is_loaded_before_it_is_asked_for() -> None:
    """The package of views loads none of its modules, and the motor none of the views."""
    code = "import sys, mmulator.observation.debug.session, mmulator.observation.debug.views\n"
    code += "print([m for m in sys.modules if '.debug.views.' in m])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600, check=True)
    assert done.stdout.strip() == "[]"
