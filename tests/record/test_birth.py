"""Where a NaN or an infinity was born: the answer's first line, through loops, shuffles, memory, packed types and products."""

import math

import ml_dtypes
import numpy as np
import pytest

import mmulator as mm
from mmulator.errors import NotFinite

HEAD = ".version 8.6\n.target sm_100a\n.address_size 64\n"
LANE = """
  mov.u32 t, %tid.x;
  ld.param.u64 p, [x]; ld.param.u64 q, [y];
  mul.wide.u32 o, t, SIZE; add.u64 p, p, o; add.u64 q, q, o;
"""
REGS = """
  .reg .b64 p, q, o; .reg .b32 t, i, h, g; .reg .f32 a, b, c, d; .reg .b16 s, u; .reg .pred l, m;
  .shared .align 8 .b8 room[256];
"""


def kernel(body: str, size: int = 4) -> mm.Kernel:
    """A kernel of one warp, whose lanes are given the address p of x[lane] and q of y[lane]."""
    text = f"{HEAD}.visible .entry k(.param .u64 x, .param .u64 y)\n{{{REGS}{LANE.replace('SIZE', str(size))}{body}\n  ret;\n}}\n"
    return mm.Module.load(text, name="k.ptx")["k"]


def said(k: mm.Kernel, x: np.ndarray, y: np.ndarray, lane: int = 5, **more: object) -> list[str]:
    """The lines of why y[lane] has its value."""
    return str(k.launch(1, 32, [x, y], why=f"y[{lane}]", **more).why[0]).splitlines()


def line_of(k: mm.Kernel, text: str) -> int:
    return next(n for n, row in enumerate(k.module.source.text.splitlines(), 1) if text in row)


def values(special: float = math.nan, lane: int = 5, dtype: object = np.float32) -> np.ndarray:
    x = np.full(32, 2.0, dtype)
    x[lane] = special
    return x


LOOP = """  ld.global.f32 a, [p]; mov.u32 i, 0;
  sub.f32 b, a, a;
L: add.f32 b, b, 0f3F800000;
  mul.f32 b, b, 0f3F000000;
  add.u32 i, i, 1; setp.lt.u32 l, i, 17;
  @l bra L;
  st.global.f32 [q], b;"""


def test_a_loop_of_many_rounds_ends_at_the_instruction_that_made_the_nan() -> None:
    k = kernel(LOOP)
    first, second, *rest = said(k, values(math.inf), np.zeros(32, np.float32))
    place = f"k.ptx:{line_of(k, 'sub.f32 b')}"
    assert first == f"y[5] = nan (bits 0x7fffffff): NaN since {place}: sub.f32 inf - inf, block (0, 0, 0), thread (5, 0, 0)"
    assert second == "  inf since x[5] = inf, as the launch found it"
    loop = next(line for line in rest if line.startswith("  ..."))
    assert loop == f"  ... 17 rounds of the loop at k.ptx:{line_of(k, 'mul.f32 b')}, 30 instructions; --why-depth 36 shows them"
    assert len(rest) == 2 * 6 + 1 + 1  # six values of two lines, that line, and what it was computed from
    whole = said(k, values(math.inf), np.zeros(32, np.float32), why_depth=36)
    assert not any("..." in line for line in whole) and sum("add.f32(b = nan" in line for line in whole) == 17


def test_a_nan_that_the_launch_found() -> None:
    assert said(kernel(LOOP), values(), np.zeros(32, np.float32))[0].endswith(": NaN since x[5] = nan, as the launch found it")


CARRIED = {
    "shuffle": "ld.global.f32 a, [p]; shfl.sync.bfly.b32 b, a, 3, 31, -1; st.global.f32 [q], b;",
    "reduction": "ld.global.f32 a, [p]; redux.sync.max.NaN.f32 b, a, -1; st.global.f32 [q], b;",
    "select": "ld.global.f32 a, [p]; setp.eq.u32 l, t, 6; selp.b32 b, a, 0f00000000, l; st.global.f32 [q], b;",
    "maximum": "ld.global.f32 a, [p]; max.NaN.f32 b, a, 0f00000000; ex2.approx.f32 c, b; st.global.f32 [q], c;",
    "shared memory": """ld.global.f32 a, [p]; mov.u32 h, room; shl.b32 g, t, 2; add.u32 h, h, g; st.shared.b32 [h], a;
        bar.sync 0; ld.shared.b32 b, [h]; st.global.b32 [q], b;""",
    "bytes": """ld.global.b32 h, [p]; and.b32 h, h, 0xFFFF0000; shr.b32 g, h, 16; cvt.u16.u32 s, g; cvt.u32.u16 g, s;
        shl.b32 h, g, 16; st.global.b32 [q], h;""",
    "halves": """ld.global.f32 a, [p]; cvt.rn.bf16x2.f32 h, a, 0f3F800000; fma.rn.bf16x2 h, h, h, h;
        mov.b32 {s, u}, h; mov.b32 h, {0, u}; st.global.b32 [q], h;""",
    "division": "ld.global.f32 a, [p]; div.rn.f32 b, a, 0f40000000; sqrt.rn.f32 b, b; st.global.f32 [q], b;",
    "addition in memory": "ld.global.f32 a, [p]; red.global.add.f32 [q], a;",
}


@pytest.mark.parametrize("name", CARRIED)
def test_what_carries_a_nan(name: str) -> None:
    lane = {"shuffle": 6, "select": 6}.get(name, 5)
    asked = 5 if name != "select" else 6
    answer = said(kernel(CARRIED[name]), values(lane=lane), np.zeros(32, np.float32), asked)
    assert answer[0].endswith(f": NaN since x[{lane}] = nan, as the launch found it"), "\n".join(answer)


MADE = {
    "ex2.approx.f32 b, a;": (128.5, "infinity since k.ptx:13: ex2.approx.f32 of 128.5, "),
    "div.rn.f32 b, 0f3F800000, a;": (0.0, "infinity since k.ptx:13: div.rn.f32 1.0 / 0.0, "),
    "div.rn.f32 b, a, a;": (0.0, "NaN since k.ptx:13: div.rn.f32 0.0 / 0.0, "),
    "mul.f32 b, a, a;": (1e30, "infinity since k.ptx:13: mul.f32 1e+30 * 1e+30, "),
    "fma.rn.f32 b, a, a, a;": (-1e30, "infinity since k.ptx:13: fma.rn.f32 -1e+30 * -1e+30 + -1e+30, "),
    "sqrt.rn.f32 b, a;": (-1.0, "NaN since k.ptx:13: sqrt.rn.f32 of -1.0, "),
    "mov.f32 b, 0f7F800000;": (1.0, "infinity since k.ptx:13: the constant inf"),
    "not.b32 b, t;": (1.0, "NaN since k.ptx:13: not.b32 of 5, "),
}


@pytest.mark.parametrize("body", MADE)
def test_births(body: str) -> None:
    x, birth = MADE[body]
    k = kernel(f"  ld.global.f32 a, [p];\n{body}\n  st.global.f32 [q], b;")
    assert birth.replace("k.ptx:13", f"k.ptx:{line_of(k, body)}") in said(k, values(x), np.zeros(32, np.float32))[0]


def test_halves_of_packed_types_are_followed_alone() -> None:
    k = kernel("  ld.global.b32 h, [p];\n  mul.rn.f16x2 h, h, h;\n  st.global.b32 [q], h;")
    x = np.full(64, 2.0, np.float16)
    x[10], x[11] = math.nan, 300
    y = np.zeros(64, np.float16)
    assert said(k, x, y, 10)[0].endswith("NaN since x[10] = nan, as the launch found it")
    assert "infinity since k.ptx:" in (first := said(k, x, y, 11)[0]) and "mul.rn.f16x2 300.0 * 300.0, " in first


def test_eight_bits() -> None:
    k = kernel("  ld.global.f32 a, [p];\n  cvt.rn.satfinite.e4m3x2.f32 s, a, 0f00000000;\n  st.global.b16 [q], s;")
    y = np.zeros(128, ml_dtypes.float8_e4m3fn)
    assert said(k, values(), y, 21)[0].endswith("NaN since x[5] = nan, as the launch found it")


def test_eight_bits_become_sixteen() -> None:
    k = kernel("  ld.global.b16 s, [p];\n  cvt.rn.f16x2.e4m3x2 h, s;\n  st.global.b32 [q], h;")
    x = np.zeros(128, ml_dtypes.float8_e4m3fn)
    x[21], x[20] = math.nan, math.nan
    for lane in (10, 11):
        assert said(k, x, np.zeros(64, np.float16), lane)[0].endswith(f"NaN since x[{lane + 10}] = nan, as the launch found it")


# trees of causes --------------------------------------------------------------------------------------------------------
BUTTERFLY = "  ld.global.f32 a, [p];\n" + "".join(
    f"  shfl.sync.bfly.b32 b, a, {n}, 31, -1;\n  add.f32 a, a, b;\n" for n in (16, 8, 4, 2, 1)
) + "  st.global.f32 [q], a;"  # fmt: skip


def test_an_answer_fits_a_screen_unless_more_is_asked_for() -> None:
    def lines(**more: int) -> list[str]:
        report = kernel(BUTTERFLY).launch(1, 32, [values(3.0), np.zeros(32, np.float32)], why="y[5]", **more)
        return report.why[0].wrapped(80).splitlines()

    usual = lines()
    assert 20 < len(usual) <= 40 and "(--why-depth 12 goes on from here)" in map(str.strip, usual)
    assert usual[-1] == "computed from x[0..31]" and len(lines(why_depth=12)) > 100


def test_a_loop_that_is_followed_no_further_says_so() -> None:
    answer = said(kernel(LOOP), values(3.0), np.zeros(32, np.float32))
    assert "(the loop has more rounds: --why-depth 12 goes on from here)" in map(str.strip, answer)
    assert sum("add.f32(" in line for line in answer) < sum(
        "add.f32(" in line for line in said(kernel(LOOP), values(3.0), np.zeros(32, np.float32), why_depth=51)
    )


# matrix products --------------------------------------------------------------------------------------------------------
CASES = {
    "operand": ({(3, 20): math.nan}, {}, "NaN since A[3,20] = nan, as the launch found it"),
    "zero": ({(3, 20): 0.0}, {(20, 5): math.inf}, "0.0 * inf, A[3,20] times B["),
    "two infinities": (
        {(3, 20): math.inf, (3, 40): -math.inf}, {(20, 5): 1, (40, 5): 1}, "row 3, column 5 of D: inf - inf in one sum, ",
    ),
    "infinity": ({(3, 20): math.inf}, {}, "infinity since A[3,20] = inf, as the launch found it"),
}


@pytest.mark.parametrize("where", ["mma", "hopper", "blackwell"])
@pytest.mark.parametrize("case", CASES)
def test_products(where: str, case: str) -> None:
    """The element of A or B, of mma with registers, wgmma and tcgen05 with shared memory; the first product that has one."""
    from mmulator.host.jobs.job import load_job, run_job
    from tests.support.places import ROOT

    in_a, in_b, want = CASES[case]
    name = {"mma": "handwritten", "hopper": "hopper_gemm", "blackwell": "blackwell_gemm"}[where]
    job = load_job(ROOT / "examples" / name / "launch.toml")
    for side, elements in (("A", in_a), ("B", in_b)):
        array = job.arrays()[side]
        for at, value in elements.items():
            array[at[::-1] if side == "B" and where != "hopper" else at] = value  # that B is [K, N], the others are [N, K]
    first = str(run_job(job, why=["C[3,5]"]).report.why[0]).splitlines()[0]
    assert want in first, first


# launches that are stopped ----------------------------------------------------------------------------------------------
def test_a_launch_that_makes_a_nan_is_stopped() -> None:
    k = kernel(LOOP)
    y = np.zeros(32, np.float32)
    with pytest.raises(NotFinite, match=r"a NaN is made: sub.f32 inf - inf, .*; y\[5\] is nan because of it; inf") as caught:
        k.launch(1, 32, [values(math.inf), y], nan=True)
    assert caught.value.span is not None and caught.value.span.line == line_of(k, "sub.f32 b")
    assert np.isnan(y).nonzero()[0].tolist() == [5] and 0.9 < y[0] < 1  # as the launch left it


def test_a_nan_that_a_launch_was_given_stops_nothing() -> None:
    assert kernel(LOOP).launch(1, 32, [values(), np.zeros(32, np.float32)], nan="inf").kernel == "k"


def test_one_that_is_made_is_found_among_others_that_were_given() -> None:
    x = np.full(32, math.nan, np.float32)
    x[20] = math.inf
    with pytest.raises(NotFinite, match=r"y\[20\] is nan because of it, and 31 other elements of y are NaN now"):
        kernel(LOOP).launch(1, 32, [x, np.zeros(32, np.float32)], nan=True)


def test_infinities_are_asked_for() -> None:
    k = kernel("  ld.global.f32 a, [p];\n  ex2.approx.f32 b, a;\n  st.global.f32 [q], b;")
    k.launch(1, 32, [values(1000), np.zeros(32, np.float32)], nan=True)
    with pytest.raises(NotFinite, match=r"an infinity is made: ex2.approx.f32 of 1000.0, .*; y\[5\] is inf because of it"):
        k.launch(1, 32, [values(1000), np.zeros(32, np.float32)], nan="inf")


def test_a_nan_that_does_not_reach_memory_stops_nothing() -> None:
    body = "  ld.global.f32 a, [p]; sub.f32 b, a, a; setp.nan.f32 l, b, b; selp.f32 b, 0f00000000, b, l; st.global.f32 [q], b;"
    kernel(body).launch(1, 32, [values(math.inf), np.zeros(32, np.float32)], nan=True)


def test_integers_with_the_bits_of_a_nan_stop_nothing() -> None:
    body = "  ld.global.b32 h, [p]; not.b32 h, h; st.global.b32 [q], h;"
    kernel(body).launch(1, 32, [np.zeros(32, np.int32), np.zeros(32, np.int32)], nan=True)
