"""Values that a warp has once (program/uniform.py): random kernels against what each thread would do alone."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest

from mmulator.errors import ExecutionFault
from mmulator.host.module import Module
from mmulator.ptx.program.blocks import build
from mmulator.ptx.program.uniform import runs, uniform_registers

REGISTERS, PREDICATES, TABLE = 8, 4, 64
M32, M64 = (1 << 32) - 1, (1 << 64) - 1
UNTOUCHED = 0xDEADBEEF


def signed(value: int, bits: int = 32) -> int:
    return value - (1 << bits) if value >> (bits - 1) else value


BINARY: dict[str, Callable[[int, int], int]] = {
    "add.u32": lambda a, b: a + b,
    "sub.s32": lambda a, b: a - b,
    "mul.lo.u32": lambda a, b: a * b,
    "mul.hi.u32": lambda a, b: a * b >> 32,
    "and.b32": lambda a, b: a & b,
    "or.b32": lambda a, b: a | b,
    "xor.b32": lambda a, b: a ^ b,
    "min.s32": lambda a, b: min(signed(a), signed(b)),
    "max.u32": max,
    "shl.b32": lambda a, b: a << b if b < 32 else 0,
    "shr.u32": lambda a, b: a >> b if b < 32 else 0,
    "shr.s32": lambda a, b: signed(a) >> min(b, 31),
    "div.u32": lambda a, b: a // b if b else -1,
}
UNARY: dict[str, Callable[[int], int]] = {
    "mov.u32": lambda a: a,
    "not.b32": lambda a: ~a,
    "neg.s32": lambda a: -a,
    "abs.s32": lambda a: abs(signed(a)),
    "popc.b32": lambda a: a.bit_count(),
    "cvt.u32.s8": lambda a: signed(a & 0xFF, 8),
    "cvt.s32.u16": lambda a: a & 0xFFFF,
}
# of 64 bits and back: (text, meaning) of d, a, b
WIDE: list[tuple[str, Callable[[int, int], int]]] = [
    ("mul.wide.u32 {v}, {a}, {b}; shr.u64 {v}, {v}, 7; cvt.u32.u64 {d}, {v};", lambda a, b: a * b >> 7),
    ("mad.wide.s32 {v}, {a}, {b}, 12345678901; shr.s64 {v}, {v}, 9; cvt.u32.u64 {d}, {v};",
     lambda a, b: signed((signed(a) * signed(b) + 12345678901) & M64, 64) >> 9),
    ("cvt.s64.s32 {v}, {a}; cvt.u64.u32 {w}, {b}; sub.s64 {v}, {v}, {w}; shr.u64 {v}, {v}, 11; cvt.u32.u64 {d}, {v};",
     lambda a, b: (signed(a) - b & M64) >> 11),
]  # fmt: skip
COMPARE: dict[str, Callable[[int, int], bool]] = {
    "lt.u32": lambda a, b: a < b,
    "ge.s32": lambda a, b: signed(a) >= signed(b),
    "eq.u32": lambda a, b: a == b,
    "ne.s32": lambda a, b: a != b,
}


class Left(Exception):
    """A thread has exited."""


@dataclass
class Thread:
    r: list[int]
    p: list[bool]
    table: list[int]
    out: list[int] = field(default_factory=lambda: [UNTOUCHED] * (REGISTERS + 1))

    def store(self) -> None:
        self.out = [*self.r, sum(p << n for n, p in enumerate(self.p))]


Act = Callable[[Thread], None]


class Writer:
    """A random kernel: its text, and what a thread does."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.labels = 0
        self.names: list[str] = []
        # registers, each with the numbers of lanes or without, so that some stay the same in all lanes
        self.lanes = set(self.random.sample(range(REGISTERS), self.random.randrange(1, 5)))

    def label(self) -> str:
        self.labels += 1
        return f"L{self.labels}"

    def new(self, bits: int) -> str:
        """A register of its own, as compilers have it: one that is used again would be what the worst of its values is."""
        self.names.append(f".reg .b{bits} %n{len(self.names)};")
        return f"%n{len(self.names) - 1}"

    def register(self, lanes: bool) -> int:
        """One that may differ among lanes, or one that nothing of them reaches as long as control does not part."""
        choices = [n for n in range(REGISTERS) if lanes or n not in self.lanes]
        return self.random.choice(choices)

    def source(self, lanes: bool) -> tuple[str, Callable[[Thread], int]]:
        if self.random.random() < 0.25:
            number = self.random.choice((0, 1, 3, 31, 33, M32, 0x80000000, self.random.getrandbits(32)))
            return str(signed(number)), lambda t: number
        n = self.register(lanes)
        return f"%r{n}", lambda t: t.r[n]

    def predicate(self, lanes: bool) -> int:
        """The upper half may differ among lanes."""
        return self.random.randrange(PREDICATES if lanes else PREDICATES // 2)

    def guarded(self, lanes: bool) -> tuple[str, Callable[[Thread], bool]]:
        if self.random.random() < 0.7:
            return "", lambda t: True
        n, no = self.predicate(lanes), self.random.random() < 0.5
        return f"@{'!' * no}%p{n} ", lambda t: t.p[n] != no

    def assign(self) -> tuple[str, Act]:
        lanes = self.random.random() < 0.5
        d = self.random.choice([n for n in range(REGISTERS) if (n in self.lanes) == lanes] or [0])
        lanes = d in self.lanes
        guard, acts = self.guarded(lanes)
        (a, of_a), (b, of_b) = self.source(lanes), self.source(lanes)
        kind = self.random.randrange(6)
        if kind == 0:
            p = self.predicate(lanes)

            def chosen(t: Thread) -> int:
                return of_a(t) if t.p[p] else of_b(t)

            text, meaning = f"selp.b32 %r{d}, {a}, {b}, %p{p};", chosen
        elif kind == 1:
            name, one = self.random.choice(list(UNARY.items()))
            text, meaning = f"{name} %r{d}, {a};", lambda t: one(of_a(t))
            if name.startswith("cvt") and a[0] != "%":
                x = self.new(32)
                text, guard = f"mov.u32 {x}, {a}; {guard}{name} %r{d}, {x};", ""
        elif kind == 2:
            at = self.register(lanes)
            x, v = self.new(32), self.new(64)
            text = f"and.b32 {x}, %r{at}, {TABLE - 1}; mad.wide.u32 {v}, {x}, 4, %table; {guard}ld.global.u32 %r{d}, [{v}+0];"
            guard, meaning = "", lambda t: t.table[t.r[at] % TABLE]
        elif kind == 3:
            shape, two = self.random.choice(WIDE)
            first, second = (self.register(lanes) for _ in range(2))
            x, v, u = self.new(32), self.new(64), self.new(64)
            text = shape.format(d=x, a=f"%r{first}", b=f"%r{second}", v=v, w=u) + f" {guard}mov.u32 %r{d}, {x};"
            guard, meaning = "", lambda t: two(t.r[first], t.r[second])
        else:
            name, act = self.random.choice(list(BINARY.items()))
            n = self.register(lanes)
            text, meaning = f"{name} %r{d}, %r{n}, {b};", lambda t: act(t.r[n], of_b(t))

        def do(t: Thread) -> None:
            if acts(t):
                t.r[d] = meaning(t) & M32

        return guard + text, do

    def compare(self) -> tuple[str, Act]:
        lanes = self.random.random() < 0.5
        p = self.predicate(lanes) | (PREDICATES // 2 if lanes else 0)
        name, test = self.random.choice(list(COMPARE.items()))
        n, (b, of_b) = self.register(lanes), self.source(lanes)
        guard, acts = self.guarded(lanes)

        def do(t: Thread) -> None:
            if acts(t):
                t.p[p] = test(t.r[n], of_b(t))

        return f"{guard}setp.{name} %p{p}, %r{n}, {b};", do

    def choice(self, depth: int) -> tuple[str, Act]:
        p, no = self.predicate(self.random.random() < 0.6), self.random.random() < 0.5
        one, other = self.body(depth + 1), self.body(depth + 1)
        over, end = self.label(), self.label()
        text = f"@{'!' * no}%p{p} bra {over};\n{other[0]}\nbra {end};\n{over}:\n{one[0]}\n{end}:"
        return text, lambda t: (one if t.p[p] != no else other)[1](t)

    def loop(self, depth: int) -> tuple[str, Act]:
        """Up to four times, as a register says that the body may write: once for each depth a counter."""
        n, body, again = self.register(self.random.random() < 0.5), self.body(depth + 1), self.label()
        count, q = self.new(32), f"%q{self.labels}"
        self.names.append(f".reg .pred {q};")
        text = (f"and.b32 {count}, %r{n}, 3;\n{again}:\n{body[0]}\nsub.s32 {count}, {count}, 1;\n"
                f"setp.ge.s32 {q}, {count}, 0;\n@{q} bra {again};")  # fmt: skip

        def do(t: Thread) -> None:
            for _ in range((t.r[n] & 3) + 1):
                body[1](t)

        return text, do

    def leave(self) -> tuple[str, Act]:
        p, quiet = self.predicate(self.random.random() < 0.7), self.random.random() < 0.5
        on = self.label()
        text = f"@%p{p} exit;" if quiet else f"@!%p{p} bra {on};\n{STORE}\nret;\n{on}:"

        def do(t: Thread) -> None:
            if t.p[p]:
                if not quiet:
                    t.store()
                raise Left

        return text, do

    def body(self, depth: int) -> tuple[str, Act]:
        parts: list[tuple[str, Act]] = []
        for _ in range(self.random.randrange(1, 6 if depth else 12)):
            x = self.random.random()
            if x < 0.6 or depth == 3:
                parts.append(self.assign())
            elif x < 0.75:
                parts.append(self.compare())
            elif x < 0.85:
                parts.append(self.choice(depth))
            elif x < 0.94:
                parts.append(self.loop(depth))
            elif x < 0.96 and depth < 2:
                parts.append(self.leave())
            elif depth == 0:
                text = self.random.choice(("bar.warp.sync 0xffffffff;", "bar.sync 0;", "barrier.sync 0;"))
                parts.append((text, lambda t: None))

        def do(t: Thread) -> None:
            for _, act in parts:
                act(t)

        return "\n".join(text for text, _ in parts), do


STORE = "\n".join([
    "mov.u32 %x0, 0;",
    *(f"@%p{n} or.b32 %x0, %x0, {1 << n};" for n in range(PREDICATES)),
    *(f"st.global.u32 [%o+{4 * n}], %r{n};" for n in range(REGISTERS)),
    f"st.global.u32 [%o+{4 * REGISTERS}], %x0;",
])  # fmt: skip
HEAD = f"""
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out, .param .u64 table, .param .u32 number)
{{
.reg .pred %p<{PREDICATES}>; .reg .b32 %r<{REGISTERS}>, %x<4>; .reg .b64 %table, %o;
ld.param.u64 %table, [table];
ld.param.u64 %o, [out];
mov.u32 %x0, %ctaid.x; mov.u32 %x1, %ntid.x; mov.u32 %x2, %tid.x;
mad.lo.u32 %x0, %x0, %x1, %x2;
mad.wide.u32 %o, %x0, {4 * (REGISTERS + 1)}, %o;
"""


def made(seed: int) -> tuple[str, Callable[[int, int, int, list[int]], list[int]]]:
    """A kernel, and what thread `tid` of CTA `cta` stores."""
    w = Writer(seed)
    first: list[str] = []
    starts: list[Callable[[int, int, int], int]] = []
    for n in range(REGISTERS):
        if n in w.lanes:
            first.append(f"mad.lo.u32 %r{n}, %x2, {n + 1}, {n};")
            starts.append(lambda cta, tid, number, n=n: tid * (n + 1) + n)  # type: ignore[misc]
        elif n % 3 == 0:
            first.append(f"mov.u32 %r{n}, %ctaid.x;")
            starts.append(lambda cta, tid, number: cta)
        elif n % 3 == 1:
            first.append(f"ld.param.u32 %r{n}, [number];")
            starts.append(lambda cta, tid, number: number)
        else:
            first.append(f"mov.u32 %r{n}, {n * 77};")
            starts.append(lambda cta, tid, number, n=n: n * 77)  # type: ignore[misc]
    tested = [f"%r{w.register(False)}" if n < PREDICATES // 2 else "%x2" for n in range(PREDICATES)]
    tests = [f"setp.gt.u32 %p{n}, {name}, {5 + 9 * n};" for n, name in enumerate(tested)]
    text, act = w.body(0)

    def thread(cta: int, tid: int, number: int, table: list[int]) -> list[int]:
        r = [s(cta, tid, number) & M32 for s in starts]
        p = [(tid if name == "%x2" else r[int(name[2:])]) > 5 + 9 * n for n, name in enumerate(tested)]
        t = Thread(r, p, table)
        try:
            act(t)
            t.store()
        except Left:
            pass
        return t.out

    return "\n".join([HEAD, *w.names, *first, *tests, text, STORE, "ret;\n}"]), thread


@pytest.mark.parametrize("seed", range(60))
def test_a_thread_gets_what_it_would_have_got_alone(seed: int) -> None:
    text, thread = made(seed)
    r = np.random.default_rng(seed)
    table = r.integers(0, 1 << 32, TABLE, np.uint32)
    block, number, grid = (64, 40, 96, 7)[seed % 4], int(r.integers(0, 100)), 3
    want = [thread(cta, tid, number, table.tolist()) for cta in range(grid) for tid in range(block)]
    loaded = Module.load(text, name="uniform.ptx")["k"]
    for launch_seed in (0, 1, 7):
        out = np.full((grid * block, REGISTERS + 1), UNTOUCHED, np.uint32)
        loaded.launch(grid, block, [out, table, number], seed=launch_seed, timeout=600)
        assert out.tolist() == want, (seed, launch_seed)


# which registers ------------------------------------------------------------------------------------------------------
def kernel(body: str) -> str:
    return f"""
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out, .param .u64 data, .param .u32 n)
{{
.reg .pred %p, %q; .reg .b32 %a, %b, %c, %d, %e, %n, %t, %r; .reg .b64 %o, %at;
ld.param.u64 %o, [out]; ld.param.u64 %at, [data]; ld.param.u32 %n, [n];
mov.u32 %t, %tid.x;
mad.wide.u32 %o, %t, 4, %o;
setp.lt.u32 %p, %t, %n;
mov.u32 %a, %ctaid.x;
{body}
st.global.u32 [%o], %r;
DONE:
ret;
}}
"""


TID = list(range(48))
# body; those of %a %b %c %d %e %r that are one value; what each thread stores
PLACES: dict[str, tuple[str, str, Callable[[int, int], int]]] = {
    "a join": ("@%p bra A; mov.u32 %b, 1; bra B; A: mov.u32 %b, 2; B: add.u32 %r, %b, %a;", "a", lambda t, n: 2 if t < n else 1),
    "a join of a branch that all take": (
        "setp.lt.u32 %q, %n, 5; @%q bra A; mov.u32 %b, 1; bra B; A: mov.u32 %b, 2; B: add.u32 %r, %b, %a;", "abr",
        lambda t, n: 2 if n < 5 else 1,
    ),
    "a loop with as many rounds as lanes": (
        "mov.u32 %b, 0; mov.u32 %c, 0; L: add.u32 %c, %c, 3; add.u32 %b, %b, 1; setp.lt.u32 %q, %b, %t; @%q bra L;"
        "mov.u32 %r, %c;", "a", lambda t, n: 3 * max(t, 1),
    ),
    "a loop of all": (
        "mov.u32 %b, 0; mov.u32 %c, 0; L: add.u32 %c, %c, 3; add.u32 %b, %b, 1; setp.lt.u32 %q, %b, %n; @%q bra L;"
        "mov.u32 %r, %c;", "abcr", lambda t, n: 3 * max(n, 1),
    ),
    "lanes that have left": (
        "@!%p bra DONE; mov.u32 %b, 0; L: add.u32 %b, %b, 2; setp.lt.u32 %q, %b, 9; @%q bra L; mov.u32 %r, %b;", "abr",
        lambda t, n: 10 if t < n else UNTOUCHED,
    ),
    "a guarded exit": ("@!%p exit; add.u32 %b, %a, 4; bar.sync 0; mov.u32 %r, %b;", "abr",
                       lambda t, n: 4 if t < n else UNTOUCHED),
    "all lanes meet": (
        "mov.u32 %d, 5; @%p bra A; mov.u32 %b, 1; bra B; A: mov.u32 %b, 2; B: bar.warp.sync 0xffffffff; add.u32 %d, %d, 1; bra M;"
        "M: add.u32 %r, %b, %d;", "ad", lambda t, n: 8 if t < n else 7,
    ),
    "some lanes meet": (
        "mov.u32 %d, 5; @%p bra A; bar.warp.sync 0xfffffffe; mov.u32 %d, 1; bra B;"
        "A: bar.warp.sync 0x1; mov.u32 %d, 2; B: mov.u32 %r, %d;", "a", lambda t, n: 2 if t < n else 1,
    ),
    "barriers apart": (
        "@%p bra A; barrier.sync 0; mov.u32 %d, 1; bra B; A: barrier.sync 0; mov.u32 %d, 2; B: mov.u32 %r, %d;", "a",
        lambda t, n: 2 if t < n else 1,
    ),
    "a guard of lanes": ("mov.u32 %r, 3; @%p mov.u32 %r, 4;", "a", lambda t, n: 4 if t < n else 3),
    "a guard of all": ("setp.lt.u32 %q, %n, 5; mov.u32 %r, 3; @!%q mov.u32 %r, 4; bra B; B:", "ar",
                       lambda t, n: 3 if n < 5 else 4),
    "one lane for all": (
        "shfl.sync.idx.b32 %b, %t, 3, 31, 0xffffffff; bra B; B: add.u32 %r, %b, %a;", "abr", lambda t, n: t // 32 * 32 + 3,
    ),
    "a lane for eight": ("shfl.sync.idx.b32 %b, %t, 3, 0x181f, 0xffffffff; bra B; B: add.u32 %r, %b, %a;", "a",
                         lambda t, n: t // 8 * 8 + 3),
    "loaded from one place": ("ld.global.u32 %b, [%at+4]; bra B; B: add.u32 %r, %b, %n;", "abr", lambda t, n: 1001 + n),
    "loaded from many": ("mad.wide.u32 %at, %t, 4, %at; ld.global.u32 %r, [%at];", "a", lambda t, n: 1000 + t),
    "volatile": ("ld.volatile.global.u32 %r, [%at+4];", "a", lambda t, n: 1001),
    "the clock": ("mov.u32 %b, %clock; mov.u32 %r, %warpid;", "ar", lambda t, n: t // 32),
}  # fmt: skip


@pytest.mark.parametrize("name", PLACES)
def test_what_is_one_value(name: str) -> None:
    body, same, want = PLACES[name]
    module = Module.load(kernel(body), name="places.ptx")
    found = uniform_registers(build(module.tree, module.tree.functions[0]).entry, ())
    written = {r for r in "abcder" if r == "a" or f"%{r}," in body}
    assert {r for r in written if f"%{r}" in found} == set(same)
    if name == "some lanes meet":
        numbers = (1,)
    else:
        numbers = (0, 1, 4, 17, 32, 40, 48)
    data = np.arange(1000, 1048, dtype=np.uint32)
    for seed in (0, 3):
        for n in numbers:
            out = np.full(48, UNTOUCHED, np.uint32)
            module["k"].launch(1, 48, [out, data, n], seed=seed, timeout=600)
            assert out.tolist() == [want(t, n) for t in TID], n


# loads ----------------------------------------------------------------------------------------------------------------
LOADS = ("u8", "s8", "u16", "s32", "b64", "f32", "v2.u32", "v4.f32", "v2.b64", "f64", "v4.u16")
HIDE = "and.b32 %z, %t, 0; cvt.u64.u32 %zz, %z; add.u64 %at, %at, %zz;"  # zero, as nobody knows


def loading(what: str, space: str, offset: int, guard: str, hidden: bool) -> str:
    vec, _, kind = what.rpartition(".")
    count, bits = int(vec[1:] or 1) if vec else 1, int(kind[1:])
    prefix = {8: "%s", 16: "%s", 32: "%r", 64: "%rd"}[bits]
    names = [f"{prefix}{n}" for n in range(count)]
    target = names[0] if count == 1 else "{" + ", ".join(names) + "}"
    words = [f"cvt.u32.u{max(bits, 16)} %r{n}, {name};" for n, name in enumerate(names) if bits != 32]
    fill = "".join(f"mov.b{max(bits, 16)} {n}, 7;" for n in names)
    base = {"global": "data", "shared": "cells", "const": "fixed"}[space]
    place = "ld.param.u64 %at, [data];" if space == "global" else f"mov.u64 %at, {base};"
    return f"""
.version 8.0
.target sm_80
.address_size 64
.const .align 8 .b32 fixed[8] = {{3, 1, 4, 1, 5, 9, 2, 6}};
.visible .entry k(.param .u64 out, .param .u64 data, .param .u32 n)
{{
.shared .align 8 .b32 cells[8];
.reg .pred %p, %q; .reg .b16 %s<4>; .reg .b32 %r<4>, %t, %n, %z; .reg .b64 %rd<4>, %o, %at, %zz;
ld.param.u64 %o, [out]; ld.param.u32 %n, [n];
mov.u32 %t, %tid.x;
mad.wide.u32 %o, %t, 16, %o;
setp.gt.u32 %p, %t, %n;
setp.gt.u32 %q, %n, 5;
@!%p bra ON;
exit;
ON:
{fill}
{place}
st.shared.u32 [cells+4], 0x81828384;
{HIDE if hidden else ""}
{guard} ld.{space}.{what} {target}, [%at+{offset}];
{" ".join(words)}
{" ".join(f"st.global.u32 [%o+{4 * n}], %r{n};" for n in range(count))}
ret;
}}
"""


def outcome(loaded: Module, n: int) -> tuple[str, list[int]]:
    out, data = np.zeros((40, 4), np.uint32), np.arange(0x81, 0x81 + 32, dtype=np.uint8)
    try:
        loaded["k"].launch(1, 40, [out, data, n], timeout=600)
    except ExecutionFault as fault:
        return str(fault), out.tolist()
    return "", out.tolist()


@pytest.mark.parametrize(("what", "space"), [
    pytest.param(what, space, marks=pytest.mark.full if (m - n) % 3 else (), id=f"{what}-{space}")
    for n, what in enumerate(LOADS) for m, space in enumerate(("global", "shared", "const"))
])  # fmt: skip
def test_a_load_from_one_place(what: str, space: str) -> None:
    """As where nobody knows that it is one: bits, faults, lanes that have left, lanes that the guard excludes."""
    faults = 0
    for offset in (0, 8, 16, 24, 28, 31, 32, 4096, -8):
        for guard in ("", "@%q", "@!%q", "@!%p"):
            loaded = [Module.load(loading(what, space, offset, guard, hidden), name="load.ptx") for hidden in (False, True)]
            for n in (3, 60):
                one, lanes = (outcome(module, n) for module in loaded)
                assert one == (lanes[0].replace(HIDE, ""), lanes[1]), (offset, guard, n)
                faults += bool(one[0])
    assert faults


def several(what: str, space: str, offsets: tuple[int, ...], across: bool, hidden: bool) -> str:
    """Loads that are done together, or one after the other where nobody knows that their lanes have one address."""
    bits = int(what[1:])
    target = [f"%{'rd' if bits == 64 else 's' if bits < 32 else 'r'}{n}" for n in range(len(offsets))]
    into = [t if n % 2 else "{" + t + "}" for n, t in enumerate(target)]
    loads = [f"mov.b{max(bits, 16)} {t}, 7;\nadd.s64 %b{n}, %at, {o};\nld.{space}.{what} {into[n]}, [%b{n}];"
             for n, (t, o) in enumerate(zip(target, offsets))]  # fmt: skip
    words = [f"cvt.u32.u{max(bits, 16)} %r{n}, {t};" for n, t in enumerate(target) if bits != 32]
    lines = loading("u32", space, 0, "", hidden).splitlines()
    at = next(n for n, line in enumerate(lines) if f"ld.{space}.u32" in line)
    last = next(n for n, line in enumerate(lines) if "st.global.u32 [%o+0]" in line)
    stores = [f"st.global.u32 [%o+{4 * n}], %r{n};" for n in range(len(offsets))]
    between = ["bar.sync 0;"] if across else []
    body = [*lines[:at], "st.global.u32 [%o+0], 9;", *loads, *between, *words, *stores, *lines[last + 1 :]]
    return "\n".join(body).replace(".reg .b64 %rd<4>,", ".reg .b64 %rd<4>, %b<4>,")


OFFSETS = (0, 8, 16, 24), (24, 0, 8, 16), (0, 8, 4096, 64), (0, 3, 8, 4096), (4096, 8, 0, 0), (8, 16, 0, -8), (24, 32, 0, 8)


@pytest.mark.parametrize("across", [False, True])
@pytest.mark.parametrize("space", ["global", "shared", "const"])
@pytest.mark.parametrize("what", ["u32", "s16", "b64", "u8"])
def test_loads_that_are_done_together(what: str, space: str, across: bool) -> None:
    faults = set()
    for offsets in OFFSETS:
        loaded = [Module.load(several(what, space, offsets, across, hidden), name="load.ptx") for hidden in (False, True)]
        for n in (3, 60):
            one, lanes = (outcome(module, n) for module in loaded)
            assert one == lanes, (offsets, n)
            faults.add(one[0])
    assert len(faults) > 3
    text = several(what, space, (0, 8, 16, 24), across, False)
    tree = Module.load(text, name="load.ptx").tree
    entry = build(tree, tree.functions[0]).entry
    assert [len(run) for b in entry.blocks for run in runs(b, uniform_registers(entry, ()))] == [4]
