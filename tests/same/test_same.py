"""`mm.same`: pairs of kernels and their grades; what is graded "same bits" has the same bits on values that are hard to get."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mmulator as mm
from mmulator.cli.app import run
from mmulator.observation.same import comparison, ring
from mmulator.observation.same.comparison import ALGEBRA, DIFFERENT, SAME, UNDECIDED
from mmulator.observation.same.graph import ExpressionGraph
from tests.support import corpus

KERNEL = """.version 8.6
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 x, .param .u64 y, .param .f32 s) {{
  .reg .f32 %f<40>; .reg .b32 %r<40>; .reg .b64 %rd<20>; .reg .pred %p<4>; .reg .b16 %h<10>; .shared .align 16 .b32 buf[64];
  ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y]; ld.param.f32 %f30, [s]; mov.u32 %r1, %tid.x;
  mul.wide.u32 %rd3, %r1, 4; add.u64 %rd4, %rd1, %rd3; add.u64 %rd5, %rd2, %rd3;
  ld.global.f32 %f2, [%rd4]; ld.global.f32 %f3, [%rd4+256]; ld.global.f32 %f4, [%rd4+512];
  mov.u32 %r30, buf; shl.b32 %r31, %r1, 2; add.u32 %r32, %r30, %r31;
{body}
  st.global.f32 [%rd5], %f1;
  ret;
}}"""
MMA = "mma.sync.aligned.m16n8k{k}.row.col.f32.f16.f16.f32 {{{d}}}, {{{a}}}, {{{b}}}, {{{c}}};"


def halves(k: int, a: str, b: str, c: str) -> str:
    """A matrix product on registers of the lane, from c to %f10 .. %f13."""
    return MMA.format(k=k, d="%f10, %f11, %f12, %f13", a=a, b=b, c=c)


WORDS = "mov.b32 %r10, %f2; mov.b32 %r11, %f3; mov.b32 %r12, %f4;"
ZEROS, SUMS = "%f20, %f20, %f20, %f20", "%f10, %f11, %f12, %f13"
START = f"{WORDS} mov.f32 %f20, 0f00000000;"
ONE = START + halves(16, "%r10, %r11, %r12, %r10", "%r11, %r12", ZEROS) + "add.f32 %f1, %f10, %f11;"
TWO = (
    START + halves(8, "%r10, %r11", "%r11", ZEROS) + halves(8, "%r12, %r10", "%r12", SUMS) + "add.f32 %f1, %f10, %f11;"
)  # fmt: skip
PAIRS = {
    "a sum commutes": (SAME, "add.f32 %f1, %f2, %f30;", "add.rn.f32 %f1, %f30, %f2;"),
    "a sum does not associate": (
        ALGEBRA, "add.f32 %f5, %f2, %f3; add.f32 %f1, %f5, %f4;", "add.f32 %f5, %f3, %f4; add.f32 %f1, %f2, %f5;",
    ),
    "a contraction": (ALGEBRA, "fma.rn.f32 %f1, %f2, %f3, %f4;", "mul.rn.f32 %f5, %f2, %f3; add.rn.f32 %f1, %f5, %f4;"),
    "what ptxas contracts": (SAME, "fma.rn.f32 %f1, %f2, %f3, %f4;", "mul.f32 %f5, %f2, %f3; add.f32 %f1, %f5, %f4;"),
    "another operand": (DIFFERENT, "fma.rn.f32 %f1, %f2, %f3, %f4;", "fma.rn.f32 %f1, %f2, %f4, %f4;"),
    "powers": (
        ALGEBRA, "ex2.approx.ftz.f32 %f5, %f2; ex2.approx.ftz.f32 %f6, %f3; mul.f32 %f1, %f5, %f6;",
        "add.f32 %f5, %f2, %f3; ex2.approx.ftz.f32 %f1, %f5;",
    ),
    "the sine of a sum": (
        ALGEBRA, "add.f32 %f5, %f2, %f3; sin.approx.f32 %f1, %f5;",
        "sin.approx.f32 %f5, %f2; cos.approx.f32 %f6, %f3; cos.approx.f32 %f7, %f2; sin.approx.f32 %f8, %f3; "
        "mul.f32 %f9, %f7, %f8; fma.rn.f32 %f1, %f5, %f6, %f9;",
    ),
    "the cosine of a difference": (
        ALGEBRA, "sub.f32 %f5, %f2, %f3; cos.approx.f32 %f1, %f5;",
        "sin.approx.f32 %f5, %f2; cos.approx.f32 %f6, %f3; cos.approx.f32 %f7, %f2; sin.approx.f32 %f8, %f3; "
        "mul.f32 %f9, %f7, %f6; fma.rn.f32 %f1, %f5, %f8, %f9;",
    ),
    "a circle": (
        ALGEBRA, "sin.approx.f32 %f5, %f2; cos.approx.f32 %f6, %f2; mul.f32 %f7, %f5, %f5; fma.rn.f32 %f1, %f6, %f6, %f7;",
        "sub.f32 %f5, %f2, %f2; ex2.approx.f32 %f1, %f5;",
    ),
    "a power of the negative": (
        ALGEBRA, "neg.f32 %f5, %f2; ex2.approx.f32 %f1, %f5;", "ex2.approx.f32 %f5, %f2; rcp.approx.f32 %f1, %f5;",
    ),
    "the reciprocal of a reciprocal": (ALGEBRA, "rcp.rn.f32 %f5, %f2; rcp.rn.f32 %f1, %f5;", "mov.f32 %f1, %f2;"),
    "one and zero": (
        ALGEBRA, "mov.f32 %f6, 0f00000000; mov.f32 %f7, 0f3f800000; fma.rn.f32 %f1, %f2, %f7, %f6;", "mov.f32 %f1, %f2;",
    ),
    "a quotient": (ALGEBRA, "div.rn.f32 %f1, %f2, %f3;", "rcp.rn.f32 %f5, %f3; mul.f32 %f1, %f2, %f5;"),
    "a shuffle and a load": (
        SAME, "mov.b32 %r2, %f2; shfl.sync.bfly.b32 %r3, %r2, 1, 31, -1; mov.b32 %f5, %r3; add.f32 %f1, %f2, %f5;",
        "xor.b32 %r5, %r1, 1; mul.wide.u32 %rd6, %r5, 4; add.u64 %rd7, %rd1, %rd6; ld.global.f32 %f5, [%rd7]; "
        "add.f32 %f1, %f5, %f2;",
    ),
    "through shared memory": (
        SAME, "st.shared.f32 [%r32], %f2; bar.sync 0; ld.shared.f32 %f5, [%r32]; add.f32 %f1, %f5, %f3;",
        "add.f32 %f1, %f2, %f3;",
    ),
    "halves side by side": (
        SAME, "cvt.rn.bf16x2.f32 %r2, %f3, %f2; shl.b32 %r3, %r2, 16; mov.b32 %f1, %r3;",
        "cvt.rn.bf16.f32 %h1, %f2; mov.b16 %h2, 0; mov.b32 %r3, {%h2, %h1}; mov.b32 %f1, %r3;",
    ),
    "the upper half": (
        SAME, "mov.b32 %r2, %f2; and.b32 %r3, %r2, 0xffff0000; mov.b32 %f1, %r3;",
        "mov.b32 %r2, %f2; shr.u32 %r3, %r2, 16; shl.b32 %r4, %r3, 16; mov.b32 %f1, %r4;",
    ),
    "a selection and a guard": (
        SAME, "setp.gt.f32 %p1, %f2, %f3; selp.f32 %f1, %f2, %f3, %p1;",
        "setp.gt.f32 %p1, %f2, %f3; mov.f32 %f1, %f3; @%p1 mov.f32 %f1, %f2;",
    ),
    "a difference": (SAME, "sub.f32 %f1, %f2, %f3;", "neg.f32 %f5, %f3; add.f32 %f1, %f2, %f5;"),
    "twice": (SAME, "mul.f32 %f1, %f2, 0f40000000;", "add.f32 %f1, %f2, %f2;"),
    "bytes that are picked": (
        SAME, "mov.b32 %r2, %f2; mov.b32 %r3, %f3; prmt.b32 %r4, %r2, %r3, 0x5410; mov.b32 %f1, %r4;",
        "mov.b32 {%h1, %h2}, %f2; mov.b32 {%h3, %h4}, %f3; mov.b32 %f1, {%h1, %h3};",
    ),
    "a sign bit": (ALGEBRA, "sub.f32 %f1, %f2, %f3;", "sub.f32 %f5, %f3, %f2; mov.b32 %r2, %f5; xor.b32 %r3, %r2, 0x80000000; "
        "mov.b32 %f1, %r3;"),
    "sums of whole numbers": (
        SAME, "mov.b32 %r2, %f2; mov.b32 %r3, %f3; add.s32 %r4, %r2, %r3; add.s32 %r4, %r4, 7; mov.b32 %f1, %r4;",
        "mov.b32 %r2, %f2; mov.b32 %r3, %f3; add.u32 %r3, %r3, 7; add.u32 %r4, %r2, %r3; mov.b32 %f1, %r4;",
    ),
    "down and up": (
        ALGEBRA, "add.f32 %f5, %f2, %f3; add.f32 %f5, %f5, %f4; cvt.rn.f16.f32 %h1, %f5; cvt.f32.f16 %f1, %h1;",
        "add.f32 %f5, %f3, %f4; add.f32 %f5, %f2, %f5; cvt.rn.f16.f32 %h1, %f5; cvt.f32.f16 %f1, %h1;",
    ),
    "another place of rounding to a narrower type": (
        DIFFERENT, "mul.f32 %f5, %f2, %f3; cvt.rn.f16.f32 %h1, %f5; cvt.f32.f16 %f1, %h1;",
        "cvt.rn.f16.f32 %h1, %f2; cvt.rn.f16.f32 %h2, %f3; mul.f16 %h1, %h1, %h2; cvt.f32.f16 %f1, %h1;",
    ),
    "an atomic of one contributor": (
        SAME, "atom.global.add.f32 %f1, [%rd5], %f2; ld.global.f32 %f1, [%rd5];",
        "red.global.add.f32 [%rd5], %f2; ld.global.f32 %f1, [%rd5];",
    ),
    "what an atomic found": (SAME, "atom.global.add.f32 %f1, [%rd5], %f2;", "ld.global.f32 %f1, [%rd5];"),
    "an atomic and a sum": (
        ALGEBRA, "red.global.add.f32 [%rd5], %f2; ld.global.f32 %f1, [%rd5];",
        "ld.global.f32 %f5, [%rd5]; add.f32 %f1, %f5, %f2;",
    ),
    "rounding": (DIFFERENT, "add.rn.f32 %f1, %f2, %f3;", "add.rz.f32 %f1, %f2, %f3;"),
    "subnormals": (UNDECIDED, "mul.rn.f32 %f1, %f2, %f3;", "mul.rn.ftz.f32 %f1, %f2, %f3;"),
    "one product and two": (ALGEBRA, ONE, TWO),
}
GRADES = {"rounding": (ALGEBRA,), "subnormals": (ALGEBRA,)}  # equal as real numbers


BITS = "mov.b32 %r10, %f2; mov.b32 %r11, %f3; mov.b32 %r12, %f4; "
OUT = " mov.b32 %f1, %r20;"


def words(body: str) -> str:
    """Integer instructions from %r10, %r11, %r12 to %r20."""
    return BITS + body + OUT


CAPS = "setp.gt.f32 %p1, %f2, %f3; "
UNEQUAL = {
    "a narrower number": (words("cvt.u8.u32 %r20, %r10;"), words("mov.b32 %r20, %r10;")),
    "the sign of a narrower number": (words("cvt.s8.s32 %r20, %r10;"), words("cvt.u8.u32 %r20, %r10;")),
    "the sign of a loaded byte": (words("ld.global.u8 %r20, [%rd4];"), words("ld.global.s8 %r20, [%rd4];")),
    "a loaded byte and its neighbours": (words("ld.global.u8 %r20, [%rd4];"), words("ld.global.b32 %r20, [%rd4];")),
    "which lane asks": (
        words("match.any.sync.b32 %r20, %r10, -1;"),
        words("match.any.sync.b32 %r20, %r10, -1; shfl.sync.idx.b32 %r20, %r20, 0, 31, -1;"),
    ),
    "halves of what a warp answers": (
        words("match.any.sync.b32 %r20, %r10, -1; mov.b32 {%h1, %h2}, %r20; cvt.u32.u16 %r20, %h1;"),
        words("match.any.sync.b32 %r20, %r10, -1; mov.b32 {%h1, %h2}, %r20; cvt.u32.u16 %r20, %h2;"),
    ),
    "what is compared and what is stored": (words("atom.global.cas.b32 %r20, [%rd5], %r10, %r11; ret;"), "mov.f32 %f1, %f2;"),
    "votes of a block": (words(CAPS + "bar.red.popc.u32 %r20, 0, %p1;"), words(CAPS + "selp.u32 %r20, 1, 0, %p1;")),
    "a whole number": ("cvt.rmi.f32.f32 %f1, %f2;", "mov.f32 %f1, %f2;"),
    "a range": ("add.sat.f32 %f1, %f2, %f3;", "add.f32 %f1, %f2, %f3;"),
    "the sign bit of a constant": (words("add.s32 %r20, %r10, 0x80000000;"), words("add.s32 %r20, %r10, 0;")),
    "one pattern in two formats": (words("add.f16x2 %r20, %r10, %r11;"), words("add.bf16x2 %r20, %r10, %r11;")),
    "one number in two formats": (words("cvt.rn.f16x2.f32 %r20, %f2, %f3;"), words("cvt.rn.bf16x2.f32 %r20, %f2, %f3;")),
    "signs by the kind of a selector": (
        words("slct.b32.s32 %r20, %r10, %r11, %r12;"), words("slct.b32.f32 %r20, %r10, %r11, %f4;"),
    ),
}


@pytest.mark.parametrize("name", UNEQUAL)
def test_kernels_that_store_other_bits_are_not_merged(name: str) -> None:
    one, two = UNEQUAL[name]
    found = mm.same(kernel(one), kernel(two), 1, 64, given())
    assert found.grade in (DIFFERENT, UNDECIDED), str(found)
    assert any(_left(one, draw) != _left(two, draw) for draw in range(3))


def test_a_store_that_did_not_happen_is_said() -> None:
    late = "mov.f32 %f1, %f2; setp.gt.f32 %p1, %f2, 0f7e800000; @%p1 st.global.f32 [%rd5+1024], %f3;"
    found = mm.same(kernel("mov.f32 %f1, %f2;"), kernel(late), 1, 64, given())
    assert found.grade != SAME or "the condition at <ptx>" in found.rests_on[0]


def kernel(body: str) -> Any:
    return mm.Module.load(KERNEL.format(body=body))["k"]


def given(seed: int = 0) -> list[Any]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(256).astype(np.float32), np.zeros(64, np.float32), np.float32(2.5)]


@pytest.mark.parametrize("name", PAIRS)
def test_grades(name: str) -> None:
    grade, one, two = PAIRS[name]
    args = given()
    found = mm.same(kernel(one), kernel(two), 1, 64, args)
    assert found.grade in GRADES.get(name, (grade,)), str(found)
    assert found.elements == 64 and not args[1].any()
    if found.grade == SAME:
        assert not found.element and found.counterexample is None
        for draw in range(3):
            assert _left(one, draw) == _left(two, draw)
    else:
        assert found.element == "y[0]"
        assert all(line.startswith("<ptx>:") for line in found.lines if line or "mov.f32 %f1" not in two)
    if grade == DIFFERENT and found.grade == DIFFERENT:
        assert found.counterexample is not None
        inputs = found.counterexample.inputs["x"]
        assert _left(one, inputs) != _left(two, inputs)


def _left(body: str, draw: Any) -> bytes:
    """Bytes that a kernel stores for words of all kinds: NaNs, infinities, subnormal numbers. draw: a seed, or the words."""
    args = given()
    if isinstance(draw, int):
        rng = np.random.default_rng(draw)
        args[0] = rng.integers(0, 1 << 32, 256, np.uint32).view(np.float32)
        args[0][rng.integers(0, 256, 64)] = rng.choice(np.array([0, -0.0, np.inf, -np.inf, np.nan, 1e-40], np.float32), 64)
    else:
        args[0] = draw.copy()
    kernel(body).launch(1, 64, args)
    return bytes(args[1].tobytes())


def test_conditions_and_addresses_that_depend_on_inputs_are_said() -> None:
    branch = "setp.gt.f32 %p1, %f2, 0f00000000; mov.f32 %f1, %f3; @!%p1 bra E; add.f32 %f1, %f1, %f4; E:"
    found = mm.same(kernel(branch), kernel(branch), 1, 64, given())
    assert found.grade == SAME and len(found.rests_on) == 2 and "the condition at <ptx>" in found.rests_on[0]
    indexed = "mov.b32 %r2, %f2; and.b32 %r3, %r2, 0xfc; cvt.u64.u32 %rd6, %r3; add.u64 %rd7, %rd1, %rd6;"
    indexed += "ld.global.f32 %f1, [%rd7];"
    found = mm.same(kernel(indexed), kernel(indexed), 1, 64, given())
    assert found.grade == SAME and "the address at <ptx>" in found.rests_on[0]


def test_what_is_not_followed_is_not_decided() -> None:
    for atomic in ("red.global.add.f32 [%rd2], %f2; ret;", "atom.global.add.u32 %r2, [%rd2], 1; st.global.u32 [%rd5], %r2; ret;"):
        found = mm.same(kernel(atomic), kernel(atomic), 1, 64, given())
        assert found.grade == UNDECIDED and f"{atomic.split()[0]} at <ptx>" in found.reason and "order" in found.reason
    nothing = KERNEL.format(body="").replace("st.global.f32 [%rd5], %f1;", "")
    found = mm.same(mm.Module.load(nothing)["k"], mm.Module.load(nothing)["k"], 1, 64, given())
    assert found.grade == UNDECIDED and "neither kernel stores" in found.reason and not found.elements


def test_atomics_of_whole_numbers_may_come_in_any_order() -> None:
    sums, neighbours = "red.global.add.u32 [%rd2], %r10; ret;", "shfl.sync.bfly.b32 %r10, %r10, 1, 31, -1;"
    largest = sums.replace("add", "max")
    found = mm.same(kernel(BITS + sums), kernel(BITS + neighbours + sums), 1, 64, given())
    assert found.grade == SAME, str(found)
    assert mm.same(kernel(BITS + sums), kernel(BITS + largest), 1, 64, given()).grade in (DIFFERENT, UNDECIDED)


def test_what_nothing_wrote_is_not_decided() -> None:
    unwritten = "ld.shared.f32 %f1, [%r30+128]; add.f32 %f1, %f1, %f2;"
    found = mm.same(kernel(unwritten), kernel(unwritten), 1, 64, given())
    assert found.grade == UNDECIDED and "shared memory that no store" in found.reason


def test_blocks_do_not_take_each_others_shared_memory_for_theirs() -> None:
    """Each block has the addresses of the one before it, and not what that wrote there."""
    rank = "mov.u32 %r5, %ctaid.x; setp.ne.u32 %p1, %r5, 0; @!%p1 st.shared.f32 [%r32], %f2; bar.sync 0; "
    stale = rank + "ld.shared.f32 %f1, [%r32]; mul.wide.u32 %rd6, %r5, 128; add.u64 %rd5, %rd5, %rd6;"
    found = mm.same(kernel(stale), kernel(stale), 2, 32, given())
    assert found.grade == UNDECIDED and "shared memory that no store" in found.reason


def test_another_launch_of_the_second() -> None:
    x, y, s = given()
    body = "add.f32 %f1, %f2, %f3;"
    swapped = kernel(body.replace("%f2, %f3", "%f3, %f2"))
    two = {"grid": 2, "block": 32, "args": [x, y, s], "shared": 0}
    assert mm.same(kernel(body), swapped, 1, 64, [x, y, s], launch_b=two).grade == DIFFERENT  # each block begins at its thread 0
    with pytest.raises(mm.errors.LaunchError, match="no array in common"):
        mm.same(kernel(body), swapped, 1, 64, [0, 0, s])


@pytest.mark.parametrize("name", ["block_scan", pytest.param("gemm_s8_sm80", marks=pytest.mark.full)])
def test_kernels_are_the_same_as_themselves(name: str) -> None:
    entry = corpus.manifest()[name]
    k = corpus.module(entry["ptx"])[entry["entry"]]
    args, _ = corpus.arguments(entry)
    args += [0] * (len(k.function.params) - len(args))
    found = mm.same(k, k, entry["grid"], entry["block"], args, entry["shared"], device="sm_90")
    assert found.grade == SAME and found.elements > 0, str(found)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, body in (("one", "add.f32 %f1, %f2, %f3;"), ("two", "add.f32 %f1, %f3, %f2;"), ("bad", "sub.f32 %f1, %f2, %f3;")):
        (tmp_path / f"{name}.ptx").write_text(KERNEL.format(body=body))
    arguments = (
        ("x", "f32", "shape = [256]\nrandom = { seed = 1 }"), ("y", "f32", "shape = [64]\nzeros = true"),
        ("s", "f32", "value = 1.5"),
    )
    given = "".join(f'[[arg]]\nname = "{name}"\ntype = "{kind}"\n{more}\n' for name, kind, more in arguments)
    (tmp_path / "one.toml").write_text(f'ptx = "one.ptx"\ngrid = 1\nblock = 64\n{given}')
    assert run(["same", str(tmp_path / "one.toml"), str(tmp_path / "two.ptx")]) in (0, None)
    assert capsys.readouterr().out == "same bits: 64 elements\n"
    assert run(["same", "--json", str(tmp_path / "one.toml"), str(tmp_path / "bad.ptx")]) == 3
    data = json.loads(capsys.readouterr().out)
    assert data["grade"] == DIFFERENT and data["counterexample"]["differing"] and not data["ok"]


def test_the_fields_of_fingerprints() -> None:
    """P and Q are primes, and BASE has the order Q."""
    for n in (ring.P, ring.Q):
        for base in (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37):  # enough for numbers below 3e24
            d, twos = n - 1, 0
            while d % 2 == 0:
                d, twos = d // 2, twos + 1
            x = pow(base, d, n)
            assert x in (1, n - 1) or any((x := x * x % n) == n - 1 for _ in range(twos - 1))
    assert pow(ring.UNIT, 2, ring.P) == ring.P - 1 and pow(ring.TURN, ring.Q, ring.P) == 1 != ring.TURN
    assert (ring.P - 1) % ring.Q == 0 and pow(ring.BASE, ring.Q, ring.P) == 1 != ring.BASE


def test_unknown_functions_are_equal_of_equal_operands_alone() -> None:
    graph = ExpressionGraph()
    x, y = (graph.node("input", (n,), (), 32) for n in range(2))
    f, g, h = (graph.node("sin", ("f32", "rn", (), 0), (n,), 32) for n in (x, x, y))
    drawn = ring.Ring(graph, 0)
    assert f == g and drawn.of(f) != drawn.of(h) and ring.Ring(graph, 1).of(f) != drawn.of(f)


FUNCTIONS = """.func (.param .b8 r[8]) turned(.param .b8 u[8]) {
  .reg .f32 a, b; ld.param.v2.f32 {a, b}, [u]; st.param.f32 [r], b; st.param.f32 [r+4], a; ret;
}
.func (.param .f32 r) by_memory(.param .f32 u, .param .f32 v) {
  .reg .f32 a, b; .param .align 8 .b8 o[8]; .param .align 8 .b8 w[8];
  ld.param.f32 a, [u]; ld.param.f32 b, [v]; st.param.v2.f32 [o], {a, b}; call (w), turned, (o);
  ld.param.f32 b, [w]; mul.f32 a, a, b; st.param.f32 [r], a; ret;
}
.func (.reg .f32 r) by_register(.reg .f32 u, .reg .f32 v) { mul.f32 r, u, v; ret; }
"""
PASSED = "{{ .param .f32 u; .param .f32 v; .param .f32 w; st.param.f32 [u], {}; st.param.f32 [v], {}; "
PASSED += "call.uni (w), by_memory, (u, v); ld.param.f32 %f1, [w]; }}"
CALLS = {
    "by memory": (PASSED.format("%f2", "%f3"), SAME), "twice": (PASSED.format("%f4", "%f4") + PASSED.format("%f2", "%f3"), SAME),
    "other values": (PASSED.format("%f2", "%f4"), DIFFERENT), "by registers": ("call (%f1), by_register, (%f3, %f2);", SAME),
    "a constant": ("call (%f1), by_register, (%f3, 0f40000000);", DIFFERENT),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_values_go_into_functions_and_come_back(name: str) -> None:
    body, grade = CALLS[name]
    one = mm.Module.load(KERNEL.format(body=body).replace(".visible", FUNCTIONS + ".visible"))["k"]
    assert mm.same(one, kernel("mul.f32 %f1, %f2, %f3;"), 1, 64, given()).grade == grade


WHOLE = {  # what is loaded: one kernel, another, and the inputs for which both store one value
    "data": ("add.u32 v, r, 1;", "or.b32 v, r, 1;", [2, 4]),
    "a mask": ("mov.u32 v, 7; setp.eq.u32 c, r, 0; @c bra E; mov.u32 v, 9; E:", "mov.u32 v, 7;", [0, 0]),
    "an index": ("mul.wide.u32 s, r, 4; add.u64 s, s, p; ld.global.u32 v, [s];", "ld.global.u32 v, [p+4];", [1, 1, 3, 2]),
}


@pytest.mark.parametrize("name", WHOLE)
def test_whole_numbers_of_arrays_vary(name: str) -> None:
    one, two = (mm.Module.load(LEANS.format(body), name="k.ptx")["k"] for body in WHOLE[name][:2])
    x = np.array(WHOLE[name][2], np.uint32)
    found = mm.same(one, two, 1, 1, [x, np.zeros(1, np.uint32)])
    assert found.grade == DIFFERENT and found.counterexample is not None and not found.counterexample.given, str(found)
    assert x.tolist() == WHOLE[name][2]


def test_expressions_that_are_the_same_need_no_more_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "_counterexample", lambda *_, **__: pytest.fail("a launch that nobody needs"))
    body = "add.f32 %f1, %f2, %f3;"
    assert mm.same(kernel(body), kernel(body), 1, 64, given()).grade == SAME


def test_what_parts_is_said() -> None:
    texts = {
        "add.f32 %f1, %f3, %f4;": "y[0]: add.f32 at <ptx>:10 and add.f32 at <ptx>:10 have other operands",
        "add.f32 %f1, %f2, %f4;": "y[0]: add.f32 of x[64] at <ptx>:10 and add.f32 of x[128] at <ptx>:10 are not the same",
        "mov.f32 %f1, %f2;": "y[0]: add.f32 at <ptx>:10 and x[0] are not the same",
        "mov.f32 %f1, 0f00000000;": "y[0]: add.f32 at <ptx>:10 and the constant 0x0 are not the same",
        "fma.rn.f32 %f1, %f2, %f3, %f4;": "y[0]: add.f32 at <ptx>:10 and fma.rn.f32 at <ptx>:10 are not the same",
    }
    for body, text in texts.items():
        found = mm.same(kernel("add.f32 %f1, %f2, %f3;"), kernel(body), 1, 64, given())
        assert text in str(found) and "for these inputs" in str(found), str(found)


def test_what_is_no_launch_is_refused() -> None:
    one = kernel("mov.f32 %f1, %f2;")
    with pytest.raises(TypeError, match=r"kernel_b is None; give a kernel"):
        mm.same(one, None, 1, 64, given())  # type: ignore[arg-type]
    with pytest.raises(mm.errors.LaunchError, match="launch_b has 'grids'"):
        mm.same(one, one, 1, 64, given(), launch_b={"grids": 2})


COPIED = "cp.async.wait_all; ld.shared.u32 v, [z];"
ROW = "st.shared.v4.u32 [z], {7, 7, 7, 7}; bar.warp.sync -1;"
LEANING = {  # what decides a result besides its expression, and a kernel in which it is a number of the text
    "an exit that no lane takes": ("mov.u32 v, 9; setp.gt.u32 c, r, 3; @c exit;", "mov.u32 v, 9;"),
    "a return that no lane takes": ("mov.u32 v, 9; setp.gt.u32 c, r, 3; @c ret;", "mov.u32 v, 9;"),
    "where a copy reads": (
        "and.b32 v, r, 4; cvt.u64.u32 s, v; add.u64 s, s, p; cp.async.ca.shared.global [z], [s+4], 4;" + COPIED,
        "cp.async.ca.shared.global [z], [p+4], 4;" + COPIED),
    "rows of ldmatrix": (
        ROW + "and.b32 v, r, 0x100; add.u32 w, z, v; ldmatrix.sync.aligned.m8n8.x1.shared.b16 {v}, [w];",
        ROW + "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {v}, [z];"),
}  # fmt: skip
LEANS = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 x, .param .u64 y) {{
  .reg .b64 p, q, s; .reg .b32 r, v, w, z; .reg .pred c; .shared .align 16 .b8 tile[512];
  ld.param.u64 p, [x]; ld.param.u64 q, [y]; ld.global.u32 r, [p]; mov.u32 z, tile;
  {}
  st.global.u32 [q], v;
  ret;
}}
"""


@pytest.mark.parametrize("name", LEANING)
def test_what_decides_besides_the_expression_is_said(name: str) -> None:
    one, two = (mm.Module.load(LEANS.format(body), name="k.ptx")["k"] for body in LEANING[name])
    found = mm.same(one, two, 1, 32, [np.zeros(4, np.uint32), np.zeros(1, np.uint32)])
    assert found.grade != SAME or found.rests_on, found


def test_selectors_of_bytes_count() -> None:
    one, two = (mm.Module.load(LEANS.format(f"vadd.s32.s32.s32 v, r.{part}, r;"))["k"] for part in ("b0", "b1"))
    assert mm.same(one, two, 1, 1, [np.zeros(4, np.uint32), np.zeros(1, np.uint32)]).grade != SAME


def test_arrays_that_only_one_kernel_was_given_are_compared() -> None:
    """An array of both is one input; the others belong together by their order."""
    text = LEANS.replace("y) {{", "y, .param .u64 both) {{")
    body = "ld.param.u64 s, [both]; st.global.u32 [s], r; add.u32 v, r, {};"
    one, two = (mm.Module.load(text.format(body.format(n)))["k"] for n in (1, 2))
    x, z = np.zeros(4, np.uint32), np.zeros(1, np.uint32)
    ys = [np.zeros(1, np.uint32) for _ in range(2)]
    found = mm.same(one, two, 1, 1, [x, ys[0], z], launch_b={"args": [x, ys[1], z]})
    assert found.grade == DIFFERENT, found
