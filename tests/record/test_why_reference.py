"""An element beside a reference: what would make its value, of the operands that the machine read or of their arrays."""

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import mmulator as mm
from mmulator.errors import LaunchError
from mmulator.host.jobs.job import load_job, run_job
from mmulator.observation.record.launches.answers import WhyAnswer
from mmulator.observation.record.losses import losses_of
from mmulator.observation.record.origins import summary
from tests.support import places

EXAMPLES = places.ROOT / "examples"
GEMM = (EXAMPLES / "handwritten/mma.ptx").read_text()
rng = np.random.default_rng(1)
A, B = (rng.standard_normal(shape).astype(np.float16) for shape in ((64, 64), (32, 64)))
C64 = A.astype(np.float64) @ B.astype(np.float64).T


def beside(want: Any, text: str = GEMM, a: np.ndarray = A, b: np.ndarray = B, k: int = 64, c: str = "C[3,5]") -> WhyAnswer:
    out = np.zeros((64, 32), np.float32)
    kernel = mm.Module.load(text)["gemm"]
    names = {"A": a, "B": b, "C": out}
    (answer,) = kernel.launch((4, 4), 32, [a, b, out, 32, k], device="sm_80", why=c, against=want, names=names).why
    assert answer.beside is not None and json.loads(json.dumps(answer.as_dict()))["beside"]["want"] == answer.beside.want
    return answer


CASES: dict[str, tuple[Any, list[str]]] = {
    "rounding": (
        lambda: beside(C64), ["the exact sum of what was given", "the difference is rounding", "results are rounded, in"],
    ),
    "a reference that is rounded more": (lambda: beside(C64.astype(np.float16)), ["ULP", "the reference's own rounding"]),
    "swapped registers": (
        lambda: beside(C64, GEMM.replace("{a0, a1, a2, a3}", "{a0, a2, a1, a3}")),
        ["the reference is A[3,0..63] times B[5,0..63]", "number 8, A[11,0] times B[5,8]", "not multiplied here: A[3,8..15]"],
    ),
    "a scale": (lambda: beside(C64 * 2), ["times 2 the sum is the reference: a scale differs"]),
    "k 16 to 31 twice": (
        lambda: beside(C64 + A[:, 16:32].astype(np.float64) @ B[:, 16:32].astype(np.float64).T),
        ["with k 16..31 twice it is the reference's: A[3,16..31], B[5,16..31]"],
    ),
    "k 0 to 15 too much": (
        lambda: beside(A[:, 16:].astype(np.float64) @ B[:, 16:].astype(np.float64).T),
        ["without k 0..15 it is the reference's: A[3,0..15], B[5,0..15] counted too much"],
    ),
    "nothing known": (lambda: beside(C64 * 0 + 1234.5), ["the operands differ", "(tried: other rows and columns of the arrays"]),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_would_make_the_reference(name: str) -> None:
    make, wanted = CASES[name]
    said = str(make().beside)
    for part in wanted:
        assert part in said, said


def test_an_array_that_was_transposed() -> None:
    a, b = np.ascontiguousarray(A[:, :32]), np.ascontiguousarray(B[:, :32])
    want = a.astype(np.float64) @ b.astype(np.float64)
    said = str(beside(want, a=a, b=b, k=32).beside)
    assert "the reference is A[3,0..31] times B[0..31,5]" in said and "number 0, A[3,0] times B[5,0]" in said


def test_values_that_are_not_finite() -> None:
    a = A.copy()
    a[3, 7] = np.inf
    said = str(beside(C64, a=a).beside)
    assert "k 7 is" in said and "A[3,7] times B[5,7]" in said


def test_an_element_that_is_no_product() -> None:
    text = """.version 8.0
.target sm_80
.address_size 64
.entry k(.param .u64 x, .param .u64 y) { .reg .b64 a; .reg .f32 f; .reg .b32 t;
  ld.param.u64 a, [x]; ld.global.f32 f, [a+4]; add.f32 f, f, 0f3F800000; ld.param.u64 a, [y]; st.global.f32 [a], f; ret; }
"""
    x, y = np.array([1, 2], np.float32), np.zeros(1, np.float32)
    (answer,) = mm.Module.load(text)["k"].launch(1, 1, [x, y], why="y[0]", against=np.array([2.5])).why
    assert str(answer.beside) == (
        "beside reference: 2.5 there\n  here 3: more by 0.5 (20 %)\n"
        "  what would make it is not known: it is no sum of a matrix product alone, but made by add.f32"
    )
    x, want = np.array([1, 2, 1.5], np.float32), np.array([2.5])
    (answer,) = mm.Module.load(text)["k"].launch(1, 1, [x, y], why="y[0]", against=want).why
    assert str(answer).startswith("y[0] differs: with x[2] in place of x[1] it is the reference's\n")
    x, want = np.array([[1, 2], [1.5, 1.501]], np.float32), np.array([2.5005])
    (answer,) = mm.Module.load(text)["k"].launch(1, 1, [x, y], why="y[0]", against=want).why
    assert str(answer).startswith("y[0] differs: with x[1,0] in place of x[0,1] it is nearly the reference's\n")
    with pytest.raises(LaunchError, match="there is no reference to compare with"):
        mm.Module.load(text)["k"].launch(1, 1, [x, y], why="y[0]", against="reference")


TF32 = """.version 8.0
.target sm_80
.address_size 64
.entry k(.param .u64 A, .param .u64 B, .param .u64 C) {
  .reg .b64 a, b, c; .reg .b32 t, x<4>, y<2>; .reg .f32 d<4>; .reg .b16 h;
  ld.param.u64 a, [A]; ld.param.u64 b, [B]; ld.param.u64 c, [C];
  mov.u32 t, %tid.x;
  mad.wide.u32 a, t, 16, a; mad.wide.u32 b, t, 8, b; mad.wide.u32 c, t, 2, c;
  ld.global.v4.b32 {x0, x1, x2, x3}, [a]; ld.global.v2.b32 {y0, y1}, [b];
  mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {d0, d1, d2, d3}, {x0, x1, x2, x3}, {y0, y1},
    {0f00000000, 0f00000000, 0f00000000, 0f00000000};
  cvt.rn.f16.f32 h, d0; st.global.b16 [c], h; ret;
}
"""


def test_what_an_instruction_cuts_from_its_operands() -> None:
    """The sum of what was given is the reference's; the parts are the cut, the sum, the conversion after it, and add up."""
    a, b, c = (np.full(n, x, t) for n, x, t in ((128, 1.009, np.float32), (64, 1.009, np.float32), (32, 0, np.float16)))
    want = np.full(32, 8 * 1.009**2, np.float32)
    (answer,) = mm.Module.load(TF32, name="k.ptx")["k"].launch(1, 32, [a, b, c], device="sm_80", why="C[3]", against=want).why
    assert str(answer).splitlines()[0].startswith("C[3] differs: 13 bits of a and b are cut: f32 is read as tf32, which makes -")
    assert "fma.rn.f32, or three products of tf32 parts (3xTF32), keep them" in str(answer)
    assert "rounded to f16: " in str(answer) and "cvt.rn.f16.f32 at k.ptx:12 makes f16 of it" in str(answer)
    exact = 8 * Fraction(float(np.float32(1.009))) ** 2
    assert sum(x.value for x in losses_of(answer.cause)) == Fraction(float(c[3])) - exact
    losses = answer.as_dict()["losses"]
    assert [x["kind"] for x in losses] == [x.kind for x in losses_of(answer.cause)] and "conversion" in str(losses)
    assert sum(Fraction(float.fromhex(x["value"])) for x in losses) == Fraction(float(c[3])) - exact


CONVERSIONS = """.version 8.0
.target sm_90
.address_size 64
.entry k(.param .u64 x, .param .u64 y) {
  .reg .b64 a, b; .reg .f32 f, g, h; .reg .b16 p; .reg .b32 w;
  ld.param.u64 a, [x]; ld.param.u64 b, [y];
  ld.global.f32 f, [a]; ld.global.f32 g, [a+4]; ld.global.f32 h, [a+8];
  mul.ftz.f32 h, h, 0f4B800000; add.f32 g, g, h;
  cvt.rn.satfinite.e4m3x2.f32 p, f, g; st.global.b16 [b], p; ret;
}
"""


def test_conversions_that_round_saturate_and_flush() -> None:
    x, y = np.array([1000, 1.3, 1e-40], np.float32), np.zeros(2, ml_dtypes.float8_e4m3fn)
    low, high = mm.Module.load(CONVERSIONS, name="k.ptx")["k"].launch(1, 1, [x, y], device="sm_90", why=["y[0]", "y[1]"]).why
    assert ".satfinite: 1000 is beyond e4m3, which ends at 448" in str(high)
    assert "rounded to e4m3: -0.05, -0.4 ULP" in str(low) and ".ftz: h is subnormal, and counts as 0" in str(low)


@pytest.mark.parametrize("wrong", [False, True])
def test_a_launch_file_explains_what_its_reference_rejects(wrong: bool, tmp_path: Path) -> None:
    """The first element, of a launch again from the memory that the first found; arrays are as the first launch left them."""
    for file in (EXAMPLES / "handwritten").iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    if wrong:
        (tmp_path / "mma.ptx").write_text(GEMM.replace("{a0, a1, a2, a3}", "{a0, a2, a1, a3}"))
    job = load_job(tmp_path / "launch.toml")
    result = run_job(job, why=["auto"])
    plain = run_job(load_job(tmp_path / "launch.toml"))
    assert result.ok == plain.ok == (not wrong)
    assert all(np.array_equal(result.written[name], plain.written[name]) for name in plain.written)
    assert len(result.report.why) == wrong
    if wrong:
        (answer,) = result.report.why
        (comparison,) = result.comparisons
        assert answer.cause.bits == np.float32(comparison.got).view(np.uint32) and answer.beside.want == comparison.want
        assert "the reference is A[0,0..255] times B[0,0..255]" in str(answer.beside)


def test_auto_needs_a_reference(tmp_path: Path) -> None:
    job = load_job(EXAMPLES / "handwritten/launch.toml")
    job.expect = None
    with pytest.raises(LaunchError, match="there is no reference to compare with"):
        run_job(job, why=["auto"])


def test_summaries_of_names() -> None:
    cases = {
        "A[3,0..2]": ["A[3,0]", "A[3,1]", "A[3,2]"], "B[0..6 by 2]": ["B[0]", "B[2]", "B[4]", "B[6]"], "x (2 times)": ["x", "x"],
        "C[1,2..3]": ["C[1,2]", "C[1,2], byte 2", "C[1,3]", "C[1,3], byte 2"], "D[5], byte 1": ["D[5], byte 1"],
        "A[3,0], A[11,0], A[3,0]": ["A[3,0]", "A[11,0]", "A[3,0]"], "E[5], E[8..10]": ["E[5]", "E[8]", "E[9]", "E[10]"],
        "F[4..2]": ["F[4]", "F[3]", "F[2]"], "G[0..1], G[8..9]": ["G[0]", "G[1]", "G[8]", "G[9]"],
    }  # fmt: skip
    for said, names in cases.items():
        assert summary(names) == said
    assert summary([f"H[{n * n}]" for n in range(9)]).endswith("H[36] and 2 more ranges")
