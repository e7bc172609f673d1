"""Every scalar, warp and atomic form worth a vector: statement, operand types, and where operands come from.

Candidates are written generously; `capture_scalar.py` asks ptxas and drops what it rejects.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

U = ("u16", "u32", "u64")
S = ("s16", "s32", "s64")
RND = ("rn", "rz", "rm", "rp")
HALF = ("f16", "f16x2", "bf16", "bf16x2")


class Form(NamedTuple):
    """ins and outs: "a:f32 b:f32"; pool: overrides of the operand pools, "b:shift"; memory, tile, block: see Case."""

    text: str
    ins: str
    outs: str
    pool: str = ""
    memory: str = ""
    tile: bool = False
    block: int = 128


def bits(t: str) -> int:
    return {"f16x2": 32, "bf16x2": 32, "u16x2": 32, "s16x2": 32, "pred": 1}.get(t) or int(t.strip("usbf") or 0)


def of(op: str, t: str, n: int, d: str = "", pool: str = "") -> Form:
    """`op.t d, a, b, ...` with n operands of one type."""
    names = "abc"[:n]
    return Form(f"{op}.{t} d, {', '.join(names)};", " ".join(f"{x}:{t}" for x in names), f"d:{d or t}", pool)


def options(*groups: tuple[str, ...]) -> Iterator[str]:
    """All ways to choose one word of each group, "" for none, as a dotted suffix."""
    for words in product(*groups):
        yield "".join("." + w for w in words if w)


def integer() -> Iterator[Form]:
    for t in (*U, *S):
        yield from (of(op, t, 2) for op in ("add", "sub", "mul.lo", "mul.hi", "div", "rem", "min", "max"))
        yield from (of(op, t, 3) for op in ("mad.lo", "mad.hi", "sad"))
        wide = {"16": "32", "32": "64"}.get(t[1:])
        if wide:
            yield of("mul.wide", t, 2, t[0] + wide)
            yield Form(f"mad.wide.{t} d, a, b, c;", f"a:{t} b:{t} c:{t[0]}{wide}", f"d:{t[0]}{wide}")
    for t in S:
        yield from (of(op, t, 1) for op in ("abs", "neg"))
    yield from (of(op, "s32", 2) for op in ("add.sat", "sub.sat", "min.relu", "max.relu"))
    yield of("mad.hi.sat", "s32", 3)
    for t in ("u16x2", "s16x2"):
        yield from (of(op, t, 2) for op in ("add", "min", "max", "min.relu", "max.relu"))
    for t, h in product(("u32", "s32"), ("lo", "hi")):
        yield of(f"mul24.{h}", t, 2)
        yield of(f"mad24.{h}", t, 3)
    yield of("mad24.hi.sat", "s32", 3)
    for w in ("32", "64"):
        yield from (of(op, "b" + w, 1, "u32") for op in ("popc", "clz"))
        yield of("brev", "b" + w, 1)
        for s in "us":
            yield of("bfind", s + w, 1, "u32")
            yield of("bfind.shiftamt", s + w, 1, "u32")
            yield Form(f"bfe.{s}{w} d, a, b, c;", f"a:{s}{w} b:u32 c:u32", f"d:{s}{w}", "b:shift c:shift")
        yield Form(f"bfi.b{w} d, a, b, c, e;", f"a:b{w} b:b{w} c:u32 e:u32", f"d:b{w}", "c:shift e:shift")
    yield Form("fns.b32 d, a, b, c;", "a:b32 b:u32 c:s32", "d:u32", "b:lane c:lane2")
    for m in ("clamp", "wrap"):
        yield Form(f"bmsk.{m}.b32 d, a, b;", "a:u32 b:u32", "d:b32", "a:shift b:shift")
        for s in "us":
            yield Form(f"szext.{m}.{s}32 d, a, b;", f"a:{s}32 b:u32", f"d:{s}32", "b:shift")
    for x, y in product(("u32", "s32"), repeat=2):
        yield Form(f"dp4a.{x}.{y} d, a, b, c;", f"a:b32 b:b32 c:{'u32' if x == y == 'u32' else 's32'}", "d:b32")
        for h in ("lo", "hi"):
            yield Form(f"dp2a.{h}.{x}.{y} d, a, b, c;", f"a:b32 b:b32 c:{'u32' if x == y == 'u32' else 's32'}", "d:b32")


def extended() -> Iterator[Form]:
    """Carry chains: the carry shows in the next statement's result."""
    for t in ("u32", "s32", "u64", "s64"):
        three, two = f"a:{t} b:{t} c:{t}", f"d:{t} q:{t}"
        for op in ("add", "sub"):
            yield Form(f"{op}.cc.{t} d, a, b; {op}c.{t} q, c, a;", three, two)
            yield Form(f"{op}.cc.{t} d, a, b; {op}c.cc.{t} q, c, b; {op}c.{t} r, a, c;", three, f"{two} r:{t}")
        for h in ("lo", "hi"):
            yield Form(f"mad.{h}.cc.{t} d, a, b, c; addc.{t} q, 0, 0;", three, two)
            yield Form(f"add.cc.{t} d, a, b; madc.{h}.{t} q, a, b, c;", three, two)
            yield Form(f"add.cc.{t} d, a, b; madc.{h}.cc.{t} q, a, c, b; addc.{t} r, 0, 0;", three, f"{two} r:{t}")
        yield Form(f"sub.cc.{t} d, a, b; addc.{t} q, c, 0;", three, two)
        yield Form(f"add.cc.{t} d, a, b; subc.{t} q, c, 0;", three, two)


def logic() -> Iterator[Form]:
    for t in ("pred", "b16", "b32", "b64"):
        yield from (of(op, t, 2) for op in ("and", "or", "xor"))
        yield of("not", t, 1)
    yield from (of("cnot", t, 1) for t in ("b16", "b32", "b64"))
    for lut in (0x00, 0x01, 0x0F, 0x1B, 0x2D, 0x35, 0x69, 0x80, 0x96, 0xAC, 0xCA, 0xE8, 0xFE, 0xFF):
        yield Form(f"lop3.b32 d, a, b, c, {lut:#04x};", "a:b32 b:b32 c:b32", "d:b32")
    for op, lut in product(("or", "and"), (0xE8, 0x80)):
        yield Form(f"lop3.{op}.b32 d|q, a, b, c, {lut:#04x}, e;", "a:b32 b:b32 c:b32 e:pred", "d:b32 q:pred")
    for t in ("b16", "b32", "b64", *U, *S):
        if t[0] == "b":
            yield Form(f"shl.{t} d, a, b;", f"a:{t} b:u32", f"d:{t}", "b:shift")
        yield Form(f"shr.{t} d, a, b;", f"a:{t} b:u32", f"d:{t}", "b:shift")
    for d, m in product("lr", ("clamp", "wrap")):
        yield Form(f"shf.{d}.{m}.b32 d, a, b, c;", "a:b32 b:b32 c:u32", "d:b32", "c:shift")
    for m in ("", ".f4e", ".b4e", ".rc8", ".ecl", ".ecr", ".rc16"):
        yield Form(f"prmt.b32{m} d, a, b, c;", "a:b32 b:b32 c:b32", "d:b32")
    yield Form("mov.b32 d, {a, b};", "a:b16 b:b16", "d:b32")
    yield Form("mov.b64 d, {a, b};", "a:b32 b:b32", "d:b64")
    yield Form("mov.b32 {d, q}, a;", "a:b32", "d:b16 q:b16")
    yield Form("mov.b64 {d, q}, a;", "a:b64", "d:b32 q:b32")
    yield Form("mov.b64 {d, q, r, v}, a;", "a:b64", "d:b16 q:b16 r:b16 v:b16")
    yield Form("mov.b64 d, {a, b, c, e};", "a:b16 b:b16 c:b16 e:b16", "d:b64")


ORDERED = ("eq", "ne", "lt", "le", "gt", "ge")
UNORDERED = ("equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan")


def comparisons(t: str) -> tuple[str, ...]:
    if t[0] == "b" and t[:2] != "bf":
        return ("eq", "ne")
    if t[0] == "u":
        return (*ORDERED, "lo", "ls", "hi", "hs")
    return ORDERED if t[0] == "s" else (*ORDERED, *UNORDERED)


def compare() -> Iterator[Form]:
    types = ("b16", "b32", "b64", *U, *S, "f32", "f64", *HALF)
    for t in types:
        for ftz in ("", ".ftz") if t in ("f32", "f16", "f16x2") else ("",):
            for cmp in comparisons(t):
                pair = "d|q" if t.endswith("x2") else "d"
                outs = "d:pred q:pred" if t.endswith("x2") else "d:pred"
                yield Form(f"setp.{cmp}{ftz}.{t} {pair}, a, b;", f"a:{t} b:{t}", outs)
            cmp = "lt" if t[0] != "b" or t[:2] == "bf" else "ne"
            for op in ("and", "or", "xor"):
                yield Form(f"setp.{cmp}.{op}{ftz}.{t} d|q, a, b, c;", f"a:{t} b:{t} c:pred", "d:pred q:pred")
            yield Form(f"setp.{cmp}.and{ftz}.{t} d, a, b, !c;", f"a:{t} b:{t} c:pred", "d:pred")
            for d in ("u32", "s32", "f32", "f16", "bf16", "u16", "s16", "f16x2", "bf16x2"):
                if (d in HALF and d != t) or (d in ("u16", "s16") and t not in ("f16", "bf16")):
                    continue
                for c in (cmp, "nan") if t[0] == "f" else (cmp,):
                    yield Form(f"set.{c}{ftz}.{d}.{t} d, a, b;", f"a:{t} b:{t}", f"d:{d}")
                yield Form(f"set.{cmp}.xor{ftz}.{d}.{t} d, a, b, c;", f"a:{t} b:{t} c:pred", f"d:{d}")
    for t in ("b16", "b32", "b64", *U, *S, "f32", "f64"):
        yield Form(f"selp.{t} d, a, b, c;", f"a:{t} b:{t} c:pred", f"d:{t}")
        yield Form(f"slct.{t}.s32 d, a, b, c;", f"a:{t} b:{t} c:s32", f"d:{t}")
        yield Form(f"slct.{t}.f32 d, a, b, c;", f"a:{t} b:{t} c:f32", f"d:{t}")
        yield Form(f"slct.ftz.{t}.f32 d, a, b, c;", f"a:{t} b:{t} c:f32", f"d:{t}")


def floats() -> Iterator[Form]:
    for op, n in (("add", 2), ("sub", 2), ("mul", 2), ("fma", 3), ("mad", 3)):
        for o in options(("",) * (op in ("add", "sub", "mul")) + RND, ("", "ftz"), ("", "sat")):
            yield of(op + o, "f32", n)
        for o in options(("",) * (op in ("add", "sub", "mul")) + RND):
            yield of(op + o, "f64", n)
    for o in options(RND, ("", "ftz")):
        yield of("div" + o, "f32", 2)
        yield from (of(op + o, "f32", 1) for op in ("rcp", "sqrt"))
    for r in RND:
        yield of(f"div.{r}", "f64", 2)
        yield from (of(f"{op}.{r}", "f64", 1) for op in ("rcp", "sqrt"))
    for z in ("", ".ftz"):
        yield from (of(f"div.{m}{z}", "f32", 2) for m in ("approx", "full"))
        yield from (
            of(f"{op}.approx{z}", "f32", 1) for op in ("rcp", "sqrt", "rsqrt", "sin", "cos", "lg2", "ex2", "tanh")
        )
        yield from (of(f"{op}{z}", "f32", 1) for op in ("abs", "neg"))
    yield from (of(f"{op}.approx.ftz", "f64", 1) for op in ("rcp", "rsqrt"))
    yield of("rsqrt.approx", "f64", 1)
    yield from (of(op, "f64", n) for op, n in (("abs", 1), ("neg", 1), ("min", 2), ("max", 2)))
    for op in ("min", "max"):
        for o in options(("", "ftz"), ("", "NaN"), ("", "xorsign.abs")):
            yield of(op + o, "f32", 2)
    for t in ("f32", "f64"):
        yield of("copysign", t, 2)
        for p in ("finite", "infinite", "number", "notanumber", "normal", "subnormal"):
            yield Form(f"testp.{p}.{t} d, a;", f"a:{t}", "d:pred")


def halves() -> Iterator[Form]:
    for t in HALF:
        for op in ("add", "sub", "mul"):
            for o in options(("", "rn"), ("", "ftz"), ("", "sat")):
                yield of(op + o, t, 2)
        for o in options(("rn",), ("", "ftz"), ("", "sat", "relu", "oob", "oob.relu")):
            yield of("fma" + o, t, 3)
        for op in ("min", "max"):
            for o in options(("", "ftz"), ("", "NaN"), ("", "xorsign.abs")):
                yield of(op + o, t, 2)
        for z in ("", ".ftz"):
            yield from (of(f"{op}{z}", t, 1) for op in ("abs", "neg", "ex2.approx"))
        yield of("tanh.approx", t, 1)


INTS = ("u8", "s8", *U, *S)
FLOATS = ("f16", "bf16", "f32", "f64")


def conversions() -> Iterator[Form]:
    def cvt(o: str, d: str, a: str) -> Form:
        return Form(f"cvt{o}.{d}.{a} d, a;", f"a:{a}", f"d:{d}")

    for d, a in product(INTS, INTS):
        yield from (cvt(o, d, a) for o in ("", ".sat"))
    for d, a in product(FLOATS, INTS):
        yield from (cvt(o, d, a) for o in options(RND, ("", "sat")))
    for d, a in product(INTS, FLOATS):
        yield from (cvt(o, d, a) for o in options(("rni", "rzi", "rmi", "rpi"), ("", "ftz"), ("", "sat")))
    for d, a in product(FLOATS, FLOATS):
        yield from (
            cvt(o, d, a) for o in options(("", *RND), ("", "ftz"), ("", "sat", "relu", "satfinite", "relu.satfinite"))
        )
        if d == a:
            yield from (cvt(o, d, a) for o in options(("rni", "rzi", "rmi", "rpi"), ("", "ftz"), ("", "sat")))
    for o in options(("rn", "rz", "rna"), ("", "satfinite"), ("", "relu")):
        yield Form(f"cvt{o}.tf32.f32 d, a;", "a:f32", "d:b32")
    for d in ("f16x2", "bf16x2"):
        for o in options(("rn", "rz"), ("", "relu"), ("", "satfinite")):
            yield Form(f"cvt{o}.{d}.f32 d, a, b;", "a:f32 b:f32", f"d:{d}")
    for d in ("e4m3x2", "e5m2x2"):
        for r in ("", ".relu"):
            yield Form(f"cvt.rn.satfinite{r}.{d}.f32 d, a, b;", "a:f32 b:f32", f"d:{d}")
            yield Form(f"cvt.rn.satfinite{r}.{d}.f16x2 d, a;", "a:f16x2", f"d:{d}")
            yield Form(f"cvt.rn{r}.f16x2.{d} d, a;", f"a:{d}", "d:f16x2")
    for d in ("u16", "s16"):
        yield Form(f"cvt.pack.sat.{d}.s32 d, a, b;", "a:s32 b:s32", "d:b32")
    for d in ("u8", "s8", "u4", "s4", "u2", "s2"):
        yield Form(f"cvt.pack.sat.{d}.s32.b32 d, a, b, c;", "a:s32 b:s32 c:b32", "d:b32")
    # Registers wider than the type: the low part is read, the result is extended.
    for d, a in (("s16", "u32"), ("u16", "s32"), ("s32", "s64"), ("s16", "f32"), ("u16", "f32")):
        o = ".rzi" if a == "f32" else ""
        w = "64" if d[1:] == "32" else "32"
        yield Form(f"cvt{o}.{d}.{a} d, a;", f"a:{a}", f"d:{d[0]}{w}")
    for a in ("s16", "u16"):
        yield Form(f"cvt.s32.{a} d, a;", "a:b32", "d:s32")
        yield Form(f"cvt.rn.f32.{a} d, a;", "a:b32", "d:f32")


def narrow() -> Iterator[Form]:
    """8-bit types in 16-bit registers, as compilers hold them; loads and stores that extend and truncate."""
    for t, f in product(("u8", "s8"), ("u16", "s16", "u32", "s32", "s64", "f16", "bf16", "f32", "f64")):
        for r in ("",) if f[0] in "us" else RND:
            yield Form(f"cvt{'.' * bool(r)}{r}.{f}.{t} d, a;", "a:b16", f"d:{f}")
        for r, sat in product(("",) if f[0] in "us" else ("rni", "rzi", "rmi", "rpi"), ("", ".sat")):
            yield Form(f"mov.b16 d, 0; cvt{'.' * bool(r)}{r}{sat}.{t}.{f} d, a;", f"a:{f}", "d:b16")
    for space in ("global", "shared"):
        for t in ("b8", "u8", "s8", "b16", "u16", "s16", "b32", "u32", "s32", "b64", "u64", "s64", "f32", "f64"):
            n = int(t[1:])
            for d in (
                ("f32",)
                if t == "f32"
                else ("f64",)
                if t == "f64"
                else [w for w in ("b16", "b32", "b64", "u64", "s32") if n <= int(w[1:])]
            ):
                if t[0] != "f":
                    yield Form(f"ld.{space}.{t} d, [p];", "m:b64", f"d:{d} m:b64", memory=space)
                    yield Form(f"ld.volatile.{space}.{t} d, [p];", "m:b64", f"d:{d} m:b64", memory=space)
                yield Form(f"st.{space}.{t} [p], a;", f"m:b64 a:{d}", "m:b64", memory=space)
        yield Form(f"ld.{space}.v2.u8 {{d, q}}, [p+2];", "m:b64", "d:b16 q:b16 m:b64", memory=space)
        yield Form(f"ld.{space}.v4.s8 {{d, q, r, v}}, [p+4];", "m:b64", "d:b32 q:b32 r:b32 v:b32 m:b64", memory=space)
        yield Form(f"ld.{space}.v2.s16 {{d, q}}, [p+4];", "m:b64", "d:b32 q:b32 m:b64", memory=space)
        yield Form(f"ld.{space}.v4.u16 {{d, q, r, v}}, [p];", "m:b64", "d:b32 q:b32 r:b32 v:b32 m:b64", memory=space)
        yield Form(f"st.{space}.v4.b8 [p+4], {{a, b, a, b}};", "m:b64 a:b32 b:b32", "m:b64", memory=space)
        yield Form(f"st.{space}.v4.b16 [p], {{a, b, b, a}};", "m:b64 a:b16 b:b16", "m:b64", memory=space)
        yield Form(f"st.{space}.v2.b32 [p], {{b, a}};", "m:b64 a:b32 b:b32", "m:b64", memory=space)


def warp() -> Iterator[Form]:
    full = "0xffffffff"
    for m in ("up", "down", "bfly", "idx"):
        yield Form(f"shfl.sync.{m}.b32 d|q, a, b, c, {full};", "a:b32 b:u32 c:u32", "d:b32 q:pred", "b:lane c:segment")
        yield Form(f"shfl.sync.{m}.b32 d|q, a, b, c, {full};", "a:b32 b:u32 c:u32", "d:b32 q:pred", "b:b32 c:b32")
        clamp = "0" if m == "up" else "0x1f"
        yield Form(f"shfl.sync.{m}.b32 d, a, 5, {clamp}, {full};", "a:b32", "d:b32")
        # sixteen members only, in segments of sixteen lanes
        segment = "0x1000" if m == "up" else "0x100f"
        yield Form(
            "{.reg .u32 l; .reg .pred low; mov.u32 l, %laneid; setp.lt.u32 low, l, 16; mov.b32 d, 0; "
            f"setp.ne.u32 q, l, l; @low shfl.sync.{m}.b32 d|q, a, b, {segment}, 0xffff;}}",
            "a:b32 b:u32",
            "d:b32 q:pred",
            "b:lane",
        )
    for m in ("all", "any", "uni"):
        yield Form(
            f"vote.sync.{m}.pred d, a, {full}; vote.sync.{m}.pred q, !a, {full};",
            "a:pred",
            "d:pred q:pred",
            "a:warppred",
        )
    yield Form(f"vote.sync.ballot.b32 d, a, {full}; vote.sync.ballot.b32 q, !a, {full};", "a:pred", "d:b32 q:b32")
    for t in ("b32", "b64"):
        yield Form(f"match.any.sync.{t} d, a, {full};", f"a:{t}", "d:b32", "a:few")
        yield Form(f"match.all.sync.{t} d|q, a, {full};", f"a:{t}", "d:b32 q:pred", "a:few")
    for op, t in [*product(("add", "min", "max"), ("u32", "s32")), *product(("and", "or", "xor"), ("b32",))]:
        yield Form(f"redux.sync.{op}.{t} d, a, {full};", f"a:{t}", f"d:{t}")
        yield Form(
            f"mov.b32 d, 0; vote.sync.ballot.b32 k, e, {full}; @e redux.sync.{op}.{t} d, a, k;",
            f"a:{t} e:pred",
            f"k:b32 d:{t}",
        )
    yield Form(f"elect.sync d|q, {full};", "a:b32", "d:b32 q:pred")
    yield Form(
        f"mov.b32 d, 0; setp.ne.u32 q, 0, 0; vote.sync.ballot.b32 k, e, {full}; @e elect.sync d|q, k;",
        "e:pred",
        "k:b32 d:b32 q:pred",
    )
    yield Form("mov.b32 d, 0; @e activemask.b32 d;", "e:pred", "d:b32")
    yield Form(
        "mov.b32 d, 0; mov.b32 k, 0; @e bra YES; activemask.b32 d; bra END; "
        f"YES: activemask.b32 k; END: bar.warp.sync {full};",
        "e:pred",
        "k:b32 d:b32",
    )
    yield Form(
        f"mov.b32 d, 0; vote.sync.ballot.b32 k, e, {full}; @!e bra END; "
        f"match.any.sync.b32 d, a, k; END: bar.warp.sync {full};",
        "a:b32 e:pred",
        "k:b32 d:b32",
        "a:few",
    )
    yield Form(
        "mov.u32 d, %lanemask_lt; mov.u32 q, %lanemask_le; mov.u32 r, %lanemask_gt; "
        "mov.u32 v, %lanemask_ge; mov.u32 w, %lanemask_eq; mov.u32 x, %laneid;",
        "a:b32",
        "d:b32 q:b32 r:b32 v:b32 w:b32 x:b32",
    )


def matrix() -> Iterator[Form]:
    regs = "dqrv"
    for n, trans in product((1, 2, 4), ("", ".trans")):
        got = ", ".join(regs[:n])
        put = ", ".join("abce"[:n])
        yield Form(
            f"ldmatrix.sync.aligned.m8n8.x{n}{trans}.shared.b16 {{{got}}}, [s];",
            "tile:b32 row:u32",
            " ".join(f"{r}:b32" for r in regs[:n]),
            "row:row",
            tile=True,
            block=32,
        )
        yield Form(
            f"stmatrix.sync.aligned.m8n8.x{n}{trans}.shared.b16 [s], {{{put}}};",
            "tile:b32 row:u32 " + " ".join(f"{r}:b32" for r in "abce"[:n]),
            "tile:b32",
            "row:rowonce",
            tile=True,
            block=32,
        )
    yield Form("movmatrix.sync.aligned.m8n8.trans.b16 d, a;", "a:b32", "d:b32")


def atom(space: str, op: str, t: str) -> Form:
    return Form(f"atom.{space}.{op}.{t} d, [p], b;", f"m:{t} b:{t}", f"d:{t} m:{t}", memory=space)


def atomics() -> Iterator[Form]:
    for space in ("global", "shared"):
        for op, ts in (
            ("and", "b32 b64"),
            ("or", "b32 b64"),
            ("xor", "b32 b64"),
            ("exch", "b32 b64"),
            ("inc", "u32"),
            ("dec", "u32"),
            ("add", "u32 s32 u64 f32 f64"),
            ("min", "u32 s32 u64 s64"),
            ("max", "u32 s32 u64 s64"),
        ):
            for t in ts.split():
                yield atom(space, op, t)
                yield Form(f"red.{space}.{op}.{t} [p], b;", f"m:{t} b:{t}", f"m:{t}", memory=space)
        yield from [atom(space, "add.noftz", t) for t in HALF]
        for t in ("b16", "b32", "b64"):
            yield Form(
                f"atom.{space}.cas.{t} d, [p], b, c;", f"m:{t} b:{t} c:{t}", f"d:{t} m:{t}", "b:maybe", memory=space
            )
    pair = (
        "{{.reg .{r} x<{n}>, y<{n}>; mov.b64 {{{x}}}, b; "
        "atom.global.add{noftz}.v{n}.{t} {{{y}}}, [p], {{{x}}}; mov.b64 d, {{{y}}};}}"
    )
    for n, t in ((2, "f32"), (4, "f16"), (4, "bf16"), (2, "f16x2"), (2, "bf16x2")):
        x, y = (", ".join(f"{v}{i}" for i in range(n)) for v in "xy")
        text = pair.format(
            r="f32" if t == "f32" else "b16" if n == 4 else "b32",
            n=n,
            t=t,
            x=x,
            y=y,
            noftz="" if t == "f32" else ".noftz",
        )
        half = {"f32": "f32", "f16": "f16x2", "bf16": "bf16x2"}.get(t, t)
        yield Form(text, "m:b64 b:b64", "d:b64 m:b64", f"m:two-{half} b:two-{half}", memory="global")
    for text in (
        "atom.relaxed.gpu.global.add.u32",
        "atom.acq_rel.cta.global.max.s32",
        "atom.release.sys.global.exch.b32",
        "atom.acquire.gpu.global.add.u64",
        "atom.add.u32",
        "atom.cta.global.min.u32",
    ):
        t = text.rsplit(".", 1)[1]
        yield Form(f"{text} d, [p], b;", f"m:{t} b:{t}", f"d:{t} m:{t}", memory="global")


FAMILIES = {
    "integer": integer,
    "extended": extended,
    "logic": logic,
    "compare": compare,
    "float": floats,
    "half": halves,
    "convert": conversions,
    "narrow": narrow,
    "warp": warp,
    "matrix": matrix,
    "atomic": atomics,
}
