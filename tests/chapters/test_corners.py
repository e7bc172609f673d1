"""Instructions of which no vector exists, or whose edges deserve names: against exact arithmetic and by hand."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest

from mmulator.errors import ExecutionFault, InvalidInstructionError, LimitReached, UnsupportedError
from mmulator.isa.targets import PTX_VERSIONS, TARGETS, Target, default_device
from mmulator.machine.launch.limits import check_device
from mmulator.machine.module import Module
from mmulator.program.runnable import unsupported
from mmulator.ptx import parse_module
from mmulator.ptx.verify import verify
from mmulator.source import Source
from tests.support import scalar_oracle as oracle
from tests.support.scalar_harness import run

LANES = 32


def launch(body: str, *arrays: np.ndarray, target: str = "sm_90a", block: int = LANES, entry: str = "") -> Any:
    """One block. `in0`, `in1`, ... are addresses of the thread's words of 4 bytes, `out` of 16 bytes."""
    pointers = "".join(
        f"ld.param.u64 in{n}, [given{n}]; mad.wide.u32 in{n}, t, 4, in{n};\n" for n in range(len(arrays))
    )
    parameters = ", ".join((*(f".param .u64 given{n}" for n in range(len(arrays))), ".param .u64 results"))
    registers = " ".join(f".reg .{t} {x}<9>;" for t, x in (("b32", "r"), ("b64", "d"), ("f32", "f"), ("b16", "h"), ("pred", "p")))
    text = (
        f".version 9.5\n.target {target}\n.address_size 64\n.visible .entry k({parameters}) {entry}\n{{\n"
        f".reg .b32 t; .reg .b64 in<{len(arrays) + 1}>, out; {registers}\nmov.u32 t, %tid.x;\n{pointers}"
        f"ld.param.u64 out, [results]; mad.wide.u32 out, t, 16, out;\n{body}\nret;\n}}\n"
    )
    results = np.zeros((block, 4), np.uint32)
    report = Module.load(text, name="k.ptx")["k"].launch(1, block, [*(a.copy() for a in arrays), results], timeout=30)
    return results, report


# versions, targets, devices -----------------------------------------------------------------------------------------
def test_versions_and_targets_of_ptxas_13_5() -> None:
    assert PTX_VERSIONS[-1] == (9, 5)
    cases = (("9.4", "sm_107a", True), ("9.3", "sm_107a", False), ("9.5", "sm_90a", True), ("9.2", "sm_121f", True))
    for version, target, good in cases:
        tree = parse_module(Source("v.ptx", f".version {version}\n.target {target}\n.visible .entry k() {{ ret; }}\n"))
        assert (verify(tree) == ()) == good, (version, target)
    assert Target(107, "f").family() == Target(103, "f").family() == 100
    assert Target(100, "f").runs_on("sm_103") and not Target(107, "f").runs_on("sm_103")


@pytest.mark.parametrize(
    ("statement", "good", "bad"),
    [
        ("add.sat.u8x4 r1, r2, r3;", "sm_120f sm_121a sm_107a", "sm_100a sm_103f sm_110a sm_120"),
        ("cvt.rs.f16x2.f32 r1, f1, f2, r2;", "sm_100a sm_103a sm_107a", "sm_100f sm_110a sm_120a"),
        ("min.NaN.f32 f1, f2, f3, f4;", "sm_100 sm_120a", "sm_90a"),
        ("min.abs.f32 f1, f2, f3;", "", "sm_100a"),
        ("redux.sync.min.f32 f1, f2, r1;", "sm_100a sm_103f sm_107a", "sm_110a sm_120a sm_100"),
        ("ld.global.v4.b64 {d1,d2,d3,d4}, [d1];", "sm_100 sm_120a", "sm_90a"),
        ("fence.acquire.gpu;", "sm_90 sm_100", "sm_80"),
        ("ld.mmio.acquire.sys.global.b32 r1, [d1];", "sm_75 sm_90a", ""),
        ("clmad.hi.u64 d1, d2, d3, d4;", "sm_80 sm_120", "sm_75"),
        ("set.lt.f16.bf16 h1, h2, h3;", "", "sm_90a"),
        ("ld.shared.v4.b64 {d1,d2,d3,d4}, [d1];", "", "sm_100a"),
        ("vadd.s32.u32.s32 r1.h0, r2.b0, r3, r4;", "sm_75 sm_90", ""),
        ("vadd.s32.u32.s32 r1.h0, r2.b0, r3;", "", "sm_90"),
        ("add.u32 r1, r2.b0, r3;", "", "sm_90"),
        ("add.u32 r1, -r2, r3;", "", "sm_90"),
        ("vmad.s32.u32.u32 r1, -r2.b0, r3, -r4;", "", "sm_90"),
        ("vavrg4.u32.u32.u32 r1, r2, r3, 5;", "", "sm_90"),
    ],
)
def test_verdicts_of_ptxas_13_5(statement: str, good: str, bad: str) -> None:
    registers = " ".join(f".reg .{t} {x}<9>;" for t, x in (("b32", "r"), ("b64", "d"), ("f32", "f"), ("b16", "h")))
    for target in (*good.split(), *bad.split()):
        text = f".version 9.5\n.target {target}\n.address_size 64\n.visible .entry k() {{ {registers}\n{statement}\nret; }}\n"
        assert (verify(parse_module(Source("v.ptx", text))) == ()) == (target in good.split()), target


def test_a_target_that_is_no_device_runs_on_a_later_one() -> None:
    for target in TARGETS:
        device = default_device(target)
        if target.runs_on(device):
            check_device(device, target)
        else:
            with pytest.raises(UnsupportedError, match="does not run") as caught:
                check_device(device, target)
            assert device not in str(caught.value.hint) and "is modelled" in str(caught.value.hint)
        version = "{}.{}".format(*PTX_VERSIONS[-1])
        text = f".version {version}\n.target {target}\n.visible .entry k() {{ ret; }}\n"
        named = [u.name for u in unsupported(parse_module(Source("t.ptx", text)))]
        assert named == ([] if target.runs_on(device) else [f".target {target}"])
    assert [default_device(Target(n)) for n in (88, 101, 107, 110)] == ["sm_89", "sm_103", "sm_120", "sm_120"]


# clusters -----------------------------------------------------------------------------------------------------------
CLUSTERED = [".reqnctapercluster 2, 1, 1 .explicitcluster", ".explicitcluster", ".maxclusterrank 8 .explicitcluster",
             ".reqntid 32 .reqnctapercluster 2 .blocksareclusters"]  # fmt: skip


@pytest.mark.parametrize("directives", CLUSTERED)
def test_a_kernel_for_clusters_is_refused_by_name(directives: str) -> None:
    with pytest.raises(UnsupportedError, match=r"\.\w+cluster\w* cannot be run: thread block clusters") as caught:
        launch("", entry=directives)
    tree = parse_module(Source("c.ptx", f".version 9.0\n.target sm_90\n.visible .entry k() {directives} {{ ret; }}\n"))
    named = unsupported(tree)
    assert {u.name[1:] for u in named} == {w[1:] for w in directives.split() if "cluster" in w and "max" not in w}
    assert named[0].error.message == caught.value.message


ALONE = [".reqnctapercluster 1, 1, 1", ".reqnctapercluster 1 .explicitcluster", ".maxclusterrank 1", ".maxclusterrank 8",
         ".maxclusterrank 4 .reqnctapercluster 1"]  # fmt: skip


@pytest.mark.parametrize("directives", ALONE)
def test_a_cluster_of_one_block_is_a_block(directives: str) -> None:
    body = (
        "mov.u32 r1, %cluster_nctarank; mov.u32 r2, %cluster_ctarank; mov.pred p1, %is_explicit_cluster; selp.b32 r3, 1, 0, p1;"
        "st.global.v4.b32 [out], {r1, r2, r3, r3};"
    )
    results, _ = launch(body, entry=directives)
    assert (results[:, 0] == 1).all() and not results[:, 1].any()


def test_another_block_of_the_cluster_is_no_memory() -> None:
    """mapa of rank 0 is the block's own memory, getctarank says which; any other rank faults when it is used."""
    body = (
        ".shared .b32 word; mov.u64 d1, word; mapa.shared::cluster.u64 d2, d1, {rank};"
        "getctarank.shared::cluster.u64 r2, d2; st.global.b32 [out], r2; st.shared::cluster.b32 [d2], r2;"
    )
    assert not launch(body.replace("{rank}", "0"))[0].any()
    with pytest.raises(ExecutionFault, match="out of bounds"):
        launch(body.replace("{rank}", "3"))


# what check says and what a launch does ----------------------------------------------------------------------------
def test_a_sparsity_selector_that_the_chip_refuses_is_named_by_check() -> None:
    text = (
        ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k() { .reg .b32 r<9>; .reg .f32 f<9>;\n"
        "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 "
        "{f1,f2,f3,f4}, {r1,r2,r3,r4}, {r1,r2,r3,r4}, {f1,f2,f3,f4}, r5, 2;\n"
        "ret; }\n"
    )
    tree = parse_module(Source("s.ptx", text))
    assert verify(tree) == ()
    (named,) = unsupported(tree)
    with pytest.raises(UnsupportedError) as caught:
        Module.load(text)["k"].launch(1, LANES)
    assert caught.value.message == named.error.message and "0 to 1" in named.reason
    assert named.span.text == "2" and caught.value.span is not None and caught.value.span.text == "2"


NOT_HERE = {  # (before the kernel, in it): what is said
    ("", "ld.global.b32 r, [there];"): "there .* defined elsewhere",
    (".extern .func f();", "mov.b64 d, f;"): "f .* defined elsewhere",
    (".func f(.param .b64 x) { ret; }", "call f, (given);"): "given .* cannot be passed on by its name",
    ("", "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {g, g1, g2, g3}, {r, r, r, 5}, d, 1, 1, 1, 0;"): "5 as operand a",
}


@pytest.mark.parametrize(("before", "body"), NOT_HERE)
def test_check_names_what_a_launch_refuses(before: str, body: str) -> None:
    text = (
        f".version 8.0\n.target sm_90a\n.address_size 64\n.extern .global .b32 there;\n{before}\n"
        f".visible .entry k(.param .b64 given) {{ .reg .b32 r; .reg .b64 d; .reg .f32 g, g1, g2, g3; {body} ret; }}\n"
    )
    (named,) = unsupported(parse_module(Source("e.ptx", text)))
    with pytest.raises(UnsupportedError, match=NOT_HERE[before, body]) as caught:
        Module.load(text)["k"].compile()
    assert caught.value.message == named.error.message


def test_what_no_chip_was_asked_is_noted() -> None:
    body = "mov.b64 d1, 0; add.rn.f32x2 d1, d1, d1; add.f32.f16 f1, h1, f1; add.f32 f1, f1, f1; st.global.f32 [out], f1;"
    _, report = launch(body, target="sm_100a")
    assert report.notes == ["add.rn.f32x2, add.f32.f16: as the PTX ISA describes them; no chip that has them was asked"]
    assert launch("add.f32 f1, f1, f1; st.global.f32 [out], f1;")[1].notes == []


# arithmetic ---------------------------------------------------------------------------------------------------------
RANDOM = {"f16": (13, (28, 16), (12, 0)), "bf16": (16, (31, 16), (15, 0))}
SMALL = {"e4m3": oracle.E4M3, "e5m2": oracle.E5M2, "e2m3": oracle.E2M3, "e3m2": oracle.E3M2, "e2m1": oracle.E2M1}
FORMATS = {"f16": oracle.F16, "bf16": oracle.BF16, **SMALL}


def stochastic(code: int, name: str, random: int, bits: int, finite: bool) -> int:
    """Away from zero if the random bits and the highest bits that are cut off carry; in exact fractions."""
    f = FORMATS[name]
    value = oracle.decode(code, oracle.F32)
    if value.kind == "nan":
        return f.nan
    if value.kind == "number":
        size = abs(value.value)
        step = Fraction(2) ** (max(oracle.floor_log2(size) if size else -500, 1 - f.bias) - f.mantissa)
        whole, part = divmod(size / step, 1)
        whole += (int(part * (1 << bits)) + random) >> bits
        size = whole * step
        largest = oracle.decode(f.top, f).value
        if size > largest:
            size = largest if finite else size * 4
        value = oracle.number(-size if value.negative else size, value.negative)
    return oracle.encode(value, f, "rz" if finite else "rn", finite=finite)


def numbers(rng: np.random.Generator, n: int) -> np.ndarray:
    """f32 around the range of the small formats, subnormal results, ends and NaN."""
    exponent = rng.integers(90, 150, n)
    made = (rng.integers(0, 2, n) << 31 | exponent << 23 | rng.integers(0, 1 << 23, n)).astype(np.uint32)
    made[:8] = [0, 1 << 31, 0x7F800000, 0xFF800000, 0x7FC00000, 0x477FF000, 0x3F800000, 0x00000001]
    return made


@pytest.mark.parametrize(("name", "finite"), list(product(RANDOM, (False, True))))
def test_two_halves_with_random_bits(name: str, finite: bool) -> None:
    bits, high, low = RANDOM[name]
    rng = np.random.default_rng(3)
    a, b = numbers(rng, 256), numbers(rng, 256)[::-1].copy()
    rbits = rng.integers(0, 1 << 32, 256, dtype=np.uint32)
    got = run(f"cvt.rs{'.satfinite' * finite}.{name}x2.f32", a, b, rbits)
    want = [
        stochastic(int(x), name, int(r) >> high[1] & (1 << bits) - 1, bits, finite) << 16
        | stochastic(int(y), name, int(r) >> low[1] & (1 << bits) - 1, bits, finite)
        for x, y, r in zip(a, b, rbits)
    ]
    assert got.tolist() == want


@pytest.mark.parametrize("name", SMALL)
def test_four_small_numbers_with_random_bits(name: str) -> None:
    rng = np.random.default_rng(5)
    sources = [numbers(rng, 64) for _ in range(4)]
    rbits = rng.integers(0, 1 << 32, 64, dtype=np.uint32)
    r, f = [f"r{n}" for n in range(1, 6)], [f"f{n}" for n in range(1, 5)]
    loads = " ".join(f"ld.global.b32 {x}, [in{n}];" for n, x in enumerate((*f, r[4])))
    d, width = ("h1", 4) if name == "e2m1" else ("r1", 8)
    store = "st.global.b16 [out], h1;" if width == 4 else "st.global.b32 [out], r1;"
    body = f"{loads} cvt.rs.satfinite.{name}x4.f32 {d}, {{{', '.join(f)}}}, r5; {store}"
    results, _ = launch(body, *sources, rbits, target="sm_100a", block=64)
    for n in range(64):
        word = int(rbits[n])
        first, second = word >> 16, word & 0xFFFF
        if width == 4:
            first, second = (word >> 24) << 8 | (word >> 8) & 0xFF, (word >> 16 & 0xFF) << 8 | word & 0xFF
        want = 0
        for source, random in zip(sources, (first, first, second, second)):
            want = want << width | stochastic(int(source[n]), name, random, 16, True)
        assert results[n, 0] == want, (n, [hex(int(s[n])) for s in sources], hex(word))


@pytest.mark.parametrize("name", SMALL)
def test_halves_to_small_formats_and_back(name: str) -> None:
    """Every .bf16 (and .f16) to the format as its .f32 would be; every code to .bf16 exactly."""
    every = np.arange(65536, dtype=np.uint32)
    widened = every.astype(np.uint16).view(np.float16).astype(np.float32).view(np.uint32)
    for half, single in (("bf16", every << 16), ("f16", widened)):
        if (name, half) in (("e4m3", "f16"), ("e5m2", "f16")):
            continue  # has a vector
        got = run(f"cvt.rn.satfinite.{name}x2.{half}x2", every << 16 | every[::-1])
        assert np.array_equal(got, run(f"cvt.rn.satfinite.{name}x2.f32", single, single[::-1].copy()))
    codes = np.arange(256 if name != "e2m1" else 16)
    f = SMALL[name]
    codes = codes[codes < 1 << f.bits]
    want = [oracle.encode(oracle.decode(int(c), f), oracle.BF16) for c in codes]
    packed = codes.astype(np.uint8 if name == "e2m1" else np.uint16)
    assert (run(f"cvt.rn.bf16x2.{name}x2", packed) & 0xFFFF).tolist() == want


EDGES = np.array([0, 1, 0x7FFFFF, 0x800000, 0x3F800000, 0x3F800001, 0x33800000, 0x7F7FFFFF, 0x7F800000, 0x7FC00001], np.uint32)
SIGNED = np.concatenate([EDGES, EDGES | 0x80000000])


def words(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).view(np.uint32)


@pytest.mark.parametrize("mods", ["", ".ftz", ".NaN", ".abs", ".ftz.NaN.abs"])
def test_the_least_of_three_is_that_of_two_and_the_third(mods: str) -> None:
    a, b, c = (np.ascontiguousarray(x.ravel()) for x in np.meshgrid(SIGNED, SIGNED, SIGNED))
    plain = mods.replace(".abs", "")
    x, y, z = ((v & 0x7FFFFFFF) if ".abs" in mods else v for v in (a, b, c))
    for op in ("min", "max"):
        two = words(run(f"{op}{plain}.f32", words(run(f"{op}{plain}.f32", x, y)), z))
        assert np.array_equal(words(run(f"{op}{mods}.f32", a, b, c)), two)


@pytest.mark.parametrize("rnd", ["rn", "rz", "rm", "rp"])
def test_pairs_and_mixed_sums_are_those_of_single_numbers(rnd: str) -> None:
    a, b = (np.ascontiguousarray(x.ravel()) for x in np.meshgrid(SIGNED, SIGNED))
    c = a[::-1].copy()
    pair = [v.astype(np.uint64) | v[::-1].astype(np.uint64) << np.uint64(32) for v in (a, b, c)]
    for op, n in (("add", 2), ("sub", 2), ("mul", 2), ("fma", 3)):
        for ftz in ("", ".ftz"):
            single = words(run(f"{op}.{rnd}{ftz}.f32", *(a, b, c)[:n]))
            both = np.ascontiguousarray(run(f"{op}.{rnd}{ftz}.f32x2", *pair[:n])).view(np.uint32).reshape(-1, 2)
            assert np.array_equal(both[:, 0], single) and np.array_equal(both[:, 1], single[::-1]), (op, ftz)
    for half, shift in (("bf16", 16), ("f16", 0)):
        codes = (a >> 16).astype(np.uint16)
        wide = codes.astype(np.uint32) << 16 if shift else words(codes.view(np.float16).astype(np.float32))
        for op in ("add", "sub"):
            for sat in ("", ".sat"):
                want = words(run(f"{op}.{rnd}{sat}.f32", wide, b))
                assert np.array_equal(words(run(f"{op}.{rnd}{sat}.f32.{half}", codes, b)), want), (op, half, sat)
        want = words(run(f"fma.{rnd}.f32", wide, wide[::-1].copy(), b))
        assert np.array_equal(words(run(f"fma.{rnd}.f32.{half}", codes, codes[::-1].copy(), b)), want)


def test_products_of_pairs_are_fused_with_sums_and_those_of_mixed_sums_are_not() -> None:
    """ptxas makes FFMA2 of mul.f32x2 and add.f32x2, and leaves mul.f32 before add.f32.f16 alone."""
    source = np.full(LANES, 0x3F800801, np.uint32)  # 1 + 2^-12 + 2^-23: its square is not exact
    body = (
        "ld.global.b32 f1, [in0]; mov.b64 d1, {f1, f1}; mul.rn.f32 f4, f1, f1; neg.f32 f5, f4; mov.b64 d2, {f5, f5};"
        "mul.f32x2 d3, d1, d1; add.f32x2 d3, d3, d2; mul.rn.f32x2 d4, d1, d1; add.rn.f32x2 d4, d4, d2;"
        "mov.b16 h1, 0xBC00; mul.f32 f6, f1, f1; add.f32.f16 f7, h1, f6; mul.rn.f32 f6, f1, f1; add.rn.f32.f16 f8, h1, f6;"
        "mov.b64 {r1, r2}, d3; mov.b64 {r3, r4}, d4; sub.f32 f7, f7, f8; mov.b32 r4, f7;"
        "st.global.v4.b32 [out], {r1, r2, r3, r4};"
    )
    results, _ = launch(body, source, target="sm_100a")
    x = Fraction(float(source[:1].view(np.float32)[0]))
    rest = x * x - Fraction(float(np.float32(float(x * x))))
    assert rest and (results[:, :2].view(np.float32) == float(rest)).all()
    assert not results[:, 2:].any()


def test_packed_bytes() -> None:
    a, b = (np.ascontiguousarray(x).view(np.uint32).ravel() for x in np.indices((256, 256), np.uint8))
    for letter, dtype in (("u", np.uint8), ("s", np.int8)):
        x, y = (v.view(dtype).astype(int) for v in (a, b))
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
        expected = {"add": x + y, "sub": x - y, "add.sat": np.clip(x + y, low, high), "sub.sat": np.clip(x - y, low, high),
                    "min": np.minimum(x, y), "max": np.maximum(x, y)}  # fmt: skip
        if letter == "s":
            expected |= {"min.relu": np.maximum(np.minimum(x, y), 0), "max.relu": np.maximum(np.maximum(x, y), 0)}
            assert (run("neg.s8x4", a).view(np.int8) == (-x).astype(np.int8)).all()
        for name, want in expected.items():
            assert (run(f"{name}.{letter}8x4", a, b).view(dtype) == want.astype(dtype)).all(), name


def test_redux_of_numbers() -> None:
    """-0 is below +0; NaN counts only with .NaN, or where there is nothing else."""
    rng = np.random.default_rng(1)
    plain = rng.integers(0, 1 << 32, LANES, dtype=np.uint32) & 0xBFFFFFFF
    zeros = np.where(np.arange(LANES) % 2, 0x80000000, 0).astype(np.uint32)
    some = np.where(np.arange(LANES) == 7, 0xFFC01234, plain).astype(np.uint32)
    nans = np.full(LANES, 0x7F800001, np.uint32)
    body = "ld.global.b32 f1, [in0]; redux.sync.{m}.f32 f2, f1, -1; st.global.b32 [out], f2;"
    for source in (plain, zeros, some, nans):
        nan = (source & 0x7FFFFFFF) > 0x7F800000
        for op, size, quiet in product(("min", "max"), ("", ".abs"), ("", ".NaN")):
            bits = source & 0x7FFFFFFF if size else source
            keys = [int(v) ^ (0x7FFFFFFF if v >> 31 else 0) for v in bits[~nan].tolist()]
            ordered = sorted(zip([k - (1 << 32) if k >> 31 else k for k in keys], bits[~nan].tolist()))
            want = 0x7FFFFFFF if nan.all() or (quiet and nan.any()) else ordered[0 if op == "min" else -1][1]
            got, _ = launch(body.replace("{m}", op + size + quiet), source, target="sm_100a")
            assert (got[:, 0] == want).all(), (op, size, quiet)


def test_moves_of_vectors() -> None:
    body = "ld.global.b32 r1, [in0]; add.u32 r2, r1, 1; mov.v2.b32 {r3, r4}, {r1, r2}; mov.v4.u32 {r5, r6, r7, r8}, %tid;"
    source = np.arange(LANES, dtype=np.uint32) * 7
    results, _ = launch(body + "st.global.v4.b32 [out], {r3, r4, r5, r8};", source)
    assert np.array_equal(results, np.stack([source, source + 1, np.arange(LANES), 0 * source], 1))


# the stack ----------------------------------------------------------------------------------------------------------
RECURSIVE = """.version 8.0
.target sm_80
.address_size 64
.func (.reg .b32 r) sum(.reg .b32 n) {
    .reg .b32 a, b, c; .reg .pred p; .reg .b64 size, place;
    cvt.u64.u32 size, n;
    alloca.u64 place, size, 16;
    st.local.u32 [place], n;
    setp.le.u32 p, n, 4;
    @p bra LAST;
    sub.u32 a, n, 4;
    call (b), sum, (a);
    ld.local.u32 c, [place];
    add.u32 r, b, c;
    ret;
LAST:
    ld.local.u32 r, [place];
    ret;
}
.visible .entry k(.param .u64 results, .param .u32 more) {
    .reg .b32 n, r, m; .reg .b64 out, before, after;
    mov.u32 n, %tid.x;
    ld.param.u64 out, [results];
    mad.wide.u32 out, n, 16, out;
    ld.param.u32 m, [more];
    mad.lo.u32 n, n, 4, m;
    stacksave.u64 before;
    call (r), sum, (n);
    stacksave.u64 after;
    sub.u64 after, before, after;
    st.global.v2.u64 [out], {after, after};
    st.global.u32 [out], r;
    ret;
}
"""


def test_alloca_lasts_until_its_function_returns() -> None:
    """Each lane its own sizes, each call its own place; what was taken is free again behind the call."""
    results = np.zeros((LANES, 4), np.uint32)
    kernel = Module.load(RECURSIVE, name="sum.ptx")["k"]
    kernel.launch(1, LANES, [results, 4])
    assert results[:, 0].tolist() == [(4 + 4 * i) * (i + 2) // 2 for i in range(LANES)]
    assert not results[:, 1:].any()
    with pytest.raises(LimitReached, match=r"stack overflow: alloca of \d+ bytes, of which \d+ are left"):
        kernel.launch(1, LANES, [results, 400])


def test_stackrestore_takes_what_stacksave_gave() -> None:
    body = "mov.u32 r1, {size}; stacksave.u32 r2; alloca.u32 r3, r1, 64; and.b32 r5, r3, 63; stackrestore.u32 {value}; "
    body += "stacksave.u32 r4; sub.u32 r4, r4, r2; st.global.v2.b32 [out], {r4, r5};"
    assert not launch(body.replace("{size}", "100").replace("{value}", "r2"))[0].any()
    with pytest.raises(ExecutionFault, match="no place on the stack"):
        launch("mov.u32 r1, 9000; stackrestore.u32 r1;")
    with pytest.raises(LimitReached, match="stack overflow"):
        launch(body.replace("{size}", "8200").replace("{value}", "r2"))


def test_alignment_of_alloca_is_a_power_of_two() -> None:
    with pytest.raises(InvalidInstructionError, match="immAlign is 24; allowed: 1, 2, 4, 8"):
        launch("mov.u32 r1, 8; alloca.u32 r3, r1, 24;")
