"""mm.tolerance: each bound holds, by another library's exact arithmetic (Arb), over random programs and matrix instructions."""

from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from flint import arb as Arb
from flint import ctx

import mmulator as mm
from mmulator.observation.tolerance.tolerance import RoundingTolerance

COUNT = 64  # elements of a program

HEAD = """.version 8.0
.target sm_90
.address_size 64
.visible .entry f(.param .u64 x, .param .u64 y, .param .u64 z)
{
  .reg .b64 p, o; .reg .b32 t; .reg .f32 f<99>; .reg .pred q<99>; .reg .b16 h<99>;
  mov.u32 t, %tid.x; mul.wide.u32 o, t, 4;
  ld.param.u64 p, [x]; add.u64 p, p, o; ld.global.f32 f0, [p];
  ld.param.u64 p, [y]; add.u64 p, p, o; ld.global.f32 f1, [p];
"""
TAIL = "  ld.param.u64 p, [z]; add.u64 p, p, o; st.global.f32 [p], {};\n  ret;\n}}\n"




# an instruction, how many operands it has, and what it computes in exact arithmetic
ONE: dict[str, Callable[..., Any]] = {
    "neg.f32": lambda a: -a, "abs.f32": abs, "sqrt.rn.f32": lambda a: a.sqrt(), "sqrt.approx.f32": lambda a: a.sqrt(),
    "rsqrt.approx.f32": lambda a: 1 / a.sqrt(), "rcp.rn.f32": lambda a: 1 / a, "rcp.approx.ftz.f32": lambda a: 1 / a,
    "ex2.approx.f32": lambda a: (a * Arb(2).log()).exp(), "lg2.approx.f32": lambda a: a.log() / Arb(2).log(),
    "sin.approx.f32": lambda a: a.sin(), "cos.approx.ftz.f32": lambda a: a.cos(), "tanh.approx.f32": lambda a: a.tanh(),
}  # fmt: skip
TWO: dict[str, Callable[..., Any]] = {
    "add.f32": lambda a, b: a + b, "sub.rz.f32": lambda a, b: a - b, "mul.f32": lambda a, b: a * b,
    "add.rm.ftz.f32": lambda a, b: a + b,
    "div.rn.f32": lambda a, b: a / b, "div.full.f32": lambda a, b: a / b, "div.approx.f32": lambda a, b: a / b,
    "max.f32": lambda a, b: a.max(b), "min.f32": lambda a, b: a.min(b), "mul.rp.f32": lambda a, b: a * b,
}  # fmt: skip
NARROW = {"f16": "cvt.rn.f16.f32 {h}, {a}; cvt.f32.f16 {d}, {h};", "bf16": "cvt.rn.bf16.f32 {h}, {a}; cvt.f32.bf16 {d}, {h};",
          "tf32": "cvt.rna.tf32.f32 t, {a}; mov.b32 {d}, t;"}  # fmt: skip


def program(rng: np.random.Generator, length: int) -> tuple[str, Callable[[Any, Any], Any]]:
    """PTX of random instructions, and what it computes of two exact numbers."""
    lines: list[str] = [HEAD]
    does: list[tuple[Callable[..., Any], tuple[int, ...]]] = []
    for n in range(2, 2 + length):
        a, b, c = (int(i) for i in (*rng.integers(max(0, n - 4), n, 2), rng.integers(0, n)))
        kind = rng.choice(["one", "two", "two", "fma", "narrow", "select"])
        if kind == "one":
            name = str(rng.choice([*ONE]))
            lines.append(f"  {name} f{n}, f{a};\n")
            does.append((ONE[name], (a,)))
        elif kind == "two":
            name = str(rng.choice([*TWO]))
            lines.append(f"  {name} f{n}, f{a}, f{b};\n")
            does.append((TWO[name], (a, b)))
        elif kind == "fma":
            lines.append(f"  fma.rn.f32 f{n}, f{a}, f{b}, f{c};\n")
            does.append((lambda x, y, z: x * y + z, (a, b, c)))
        elif kind == "narrow":
            name = str(rng.choice([*NARROW]))
            lines.append("  " + NARROW[name].format(h=f"h{n}", a=f"f{a}", d=f"f{n}") + "\n")
            does.append((lambda x: x, (a,)))
        else:
            lines.append(f"  setp.lt.f32 q{n}, f{a}, f{b}; selp.f32 f{n}, f{a}, f{b}, q{n};\n")
            does.append((lambda x, y: x.min(y), (a, b)))

    def exact(x: Any, y: Any) -> Any:
        values = [x, y]
        for f, operands in does:
            values.append(f(*(values[i] for i in operands)))
        return values[-1]

    return "".join(lines) + TAIL.format(f"f{1 + length}"), exact


@pytest.mark.parametrize("seed", range(24))
def test_a_bound_holds_by_arb(seed: int) -> None:
    """The machine's result is not farther from Arb's than the bound says, for each element of a random program."""
    rng = np.random.default_rng(seed)
    text, exact = program(rng, int(rng.integers(1, 9)))
    x, y = (rng.standard_normal(COUNT).astype(np.float32) * np.float32(2.0) ** rng.integers(-3, 4, COUNT) for _ in range(2))
    x, y = x.astype(np.float32), y.astype(np.float32)
    if seed % 2:
        x, y = np.abs(x), np.abs(y)
    z = np.zeros(COUNT, np.float32)
    kernel = mm.Module.load(text)["f"]
    found = mm.tolerance(kernel, 1, COUNT, [x, y, z], output="z")
    kernel.launch(1, COUNT, [x, y, z])
    ctx.prec = 300
    checked = 0
    for n in range(COUNT):
        if not np.isfinite(found.bound[n]):
            continue
        want = exact(Arb(float(x[n])), Arb(float(y[n])))
        if not want.is_finite():
            continue
        checked += 1
        off = abs(Arb(float(z[n])) - want)
        assert off <= Arb(float(found.bound[n])) * (1 + Arb(2) ** -40), (n, text)
        assert abs(Arb(float(found.exact[n])) - want) <= Arb(2) ** -50 * abs(want) + Arb(float(found.bound[n])) / 1000, (n, text)
    assert checked == np.count_nonzero(np.isfinite(found.bound))
    finite = np.isfinite(found.bound)
    assert (np.abs(z - found.exact)[finite] <= (found.atol + found.rtol * np.abs(found.exact))[finite]).all()


TINY, BIG = 1e-40, 1e30
EDGES = {  # an instruction of f0 and f1, their values, and what it computes in exact arithmetic; None: it has no bound
    "a subnormal number is read as 0": ("mul.ftz.f32 f2, f0, f1;", TINY, BIG, lambda a, b: a * b),
    "and in a sum": ("fma.rn.ftz.f32 f2, f0, f1, f1;", TINY, BIG, lambda a, b: a * b + b),
    "a result is flushed": ("mul.ftz.f32 f2, f0, f1;", 2e-20, 2e-20, lambda a, b: a * b),
    "a power overflows": ("ex2.approx.f32 f2, f0;", 200.0, 0.0, None),
    "a reciprocal overflows": ("rcp.approx.f32 f2, f0;", TINY, 0.0, None),
    "a quotient by what may be 0": ("rcp.approx.ftz.f32 f2, f0;", TINY, 0.0, None),
    "a sum overflows": ("add.f32 f2, f0, f1;", 3e38, 3e38, None),
    "a sum that overflows by less than one unit": ("add.rp.f32 f2, f0, f1;", 3.4028234663852886e38, 1.0, None),
    "a quotient by a large number": ("div.approx.f32 f2, f0, f1;", 2.0**127, 2.0**127, None),
    "f16 overflows by little": ("cvt.rn.f16.f32 h2, f0; cvt.f32.f16 f2, h2;", 65530.0, 0.0, None),
    "f16 does not overflow": ("cvt.rn.f16.f32 h2, f0; cvt.f32.f16 f2, h2;", 65519.0, 0.0, lambda a, b: a),
    "f16 overflows": ("cvt.rn.f16.f32 h2, f0; cvt.f32.f16 f2, h2;", 1e6, 0.0, None),
    "f16 is kept finite": ("cvt.rn.satfinite.f16.f32 h2, f0; cvt.f32.f16 f2, h2;", 1e6, 0.0, lambda a, b: a),
    "a modifier that is not followed": ("max.xorsign.abs.f32 f2, f0, f1;", 3.0, -4.0, None),
    "a sum that cancels": ("add.f32 f2, f0, f1; sub.f32 f2, f2, f0;", BIG, 3.0, lambda a, b: b),
    "kept between 0 and 1": ("add.sat.f32 f2, f0, f1;", 0.75, 3.0, lambda a, b: Arb(1)),
}


@pytest.mark.parametrize("name", EDGES)
def test_a_bound_at_the_ends_of_a_type(name: str) -> None:
    line, a, b, exact = EDGES[name]
    x, y, z = (np.full(32, value, np.float32) for value in (a, b, 0.0))
    kernel = mm.Module.load(HEAD.replace("8.0", "8.6") + "  " + line + "\n" + TAIL.format("f2"))["f"]
    found = mm.tolerance(kernel, 1, 32, [x, y, z])
    kernel.launch(1, 32, [x, y, z])
    if exact is None:
        assert found.unbounded == 32 and np.isinf(found.bound).all() and found.reason
    else:
        assert not found.unbounded, found.reason
        assert abs(Arb(float(z[0])) - exact(Arb(float(x[0])), Arb(float(y[0])))) <= Arb(float(found.bound[0]))


# matrix instructions --------------------------------------------------------------------------------------------------------
BYTES = 32  # along k that one instruction takes, of each type
DTYPES: dict[str, Any] = {"bf16": ml_dtypes.bfloat16, "f16": np.float16, "tf32": np.float32, "e4m3": ml_dtypes.float8_e4m3fn,
                          "e5m2": ml_dtypes.float8_e5m2}  # fmt: skip
SHAPES = {"bf16": "m16n8k16", "f16": "m16n8k16", "tf32": "m16n8k8", "e4m3": "m16n8k32", "e5m2": "m16n8k32"}
PRODUCT = """.version 8.7
.target {target}
.address_size 64
.visible .entry product(.param .u64 A, .param .u64 B, .param .u64 D)
{{
  .reg .b64 pa, pb, pd, o; .reg .b32 a<4>, b<2>, t, lane, g, c; .reg .{acc} d<4>;
  ld.param.u64 pa, [A]; ld.param.u64 pb, [B]; ld.param.u64 pd, [D];
  mov.u32 lane, %tid.x; shr.u32 g, lane, 2; and.b32 c, lane, 3; shl.b32 c, c, 2;
  mad.lo.u32 t, g, {row}, c; cvt.u64.u32 o, t; add.u64 pa, pa, o; add.u64 pb, pb, o;
{body}
  mul.lo.u32 t, lane, {size}; cvt.u64.u32 o, t; add.u64 pd, pd, o; {store}
  ret;
}}
"""


def product(kind: str, acc: str, steps: int, target: str) -> str:
    """PTX of a product of 16 rows by 8 columns, with several instructions along k; D in the order of registers."""
    row, d = steps * BYTES, "{d0, d1, d2, d3}" if acc == "f32" else "{d0, d1}"
    lines = ["  mov.f32 d0, 0f00000000; mov.f32 d1, d0; mov.f32 d2, d0; mov.f32 d3, d0;" if acc == "f32" else
             "  mov.b32 d0, 0; mov.b32 d1, 0;"]  # fmt: skip
    for n in range(steps):
        for r in range(4):
            lines.append(f"  ld.global.b32 a{r}, [pa+{n * BYTES + r // 2 * 16 + r % 2 * 8 * row}];")
        lines += [f"  ld.global.b32 b{r}, [pb+{n * BYTES + r * 16}];" for r in range(2)]
        name = f"mma.sync.aligned.{SHAPES[kind]}.row.col.{acc}.{kind}.{kind}.{acc}"
        lines.append(f"  {name} {d}, {{a0, a1, a2, a3}}, {{b0, b1}}, {d};")
    store = f"st.global.v4.f32 [pd], {d};" if acc == "f32" else f"st.global.v2.b32 [pd], {d};"
    size, register = (16, "f32") if acc == "f32" else (8, "b32")
    return PRODUCT.format(target=target, acc=register, row=row, body="\n".join(lines), size=size, store=store)


def cases() -> Iterator[tuple[str, str, int, str]]:
    """Types of the operands and of the sum, instructions along k, devices: each kind of summation that a device has."""
    for device in ("sm_80", "sm_89", "sm_90", "sm_100", "sm_120"):
        for kind in SHAPES:
            if kind[0] != "e" or device != "sm_80":
                yield kind, "f32", 3, device
        yield "f16", "f16", 3, device


@pytest.mark.parametrize(("kind", "acc", "steps", "device"), [*cases()])
def test_a_bound_of_a_product_holds(kind: str, acc: str, steps: int, device: str) -> None:
    """The sums of tensor cores, with the bits that they cut, are within their bounds of the exact sums."""
    rng = np.random.default_rng(steps)
    dtype = np.dtype(DTYPES[kind])
    k = steps * BYTES // dtype.itemsize
    given = rng.standard_normal((24, k)) * 2.0 ** rng.integers(-3, 4, (24, k))
    if kind == "tf32":
        given[::2] = given[::2].astype(ml_dtypes.bfloat16)  # in these rows no bits are cut
    a, b = (np.ascontiguousarray(x) for x in np.split(given.astype(dtype), [16]))
    d = np.zeros((32, 4), np.float32 if acc == "f32" else np.float16)
    kernel = mm.Module.load(product(kind, acc, steps, "sm_89" if kind[0] == "e" else "sm_80"))["product"]
    found = mm.tolerance(kernel, 1, 32, [a, b, d], device=device)
    kernel.launch(1, 32, [a, b, d], device=device)
    assert not found.unbounded, found.reason
    for lane in range(32):
        for n in range(4):
            row, column = lane // 4 + n // 2 * 8, lane % 4 * 2 + n % 2
            want = sum((Fraction(float(x)) * Fraction(float(y)) for x, y in zip(a[row], b[column])), Fraction(0))
            assert abs(Fraction(float(d[lane, n])) - want) <= Fraction(found.bound[lane, n]), (lane, n)
            assert abs(Fraction(found.exact[lane, n]) - want) <= abs(want) * Fraction(2) ** -52
    assert found.bound.mean() <= 40 * found.error.mean() + 1e-14
    said: RoundingTolerance = found
    assert said.output == "D" and f"rtol={said.rtol:g}, atol={said.atol:g}" in str(said)
