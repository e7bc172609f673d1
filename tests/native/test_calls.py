"""Law: however the lanes of a warp part in calls, each computes what it would alone.

Programs are made at random: functions of registers of many sizes that branch, loop and call each other, by name, through
pointers, guarded, recursively, each lane its own way. A plain interpreter says what a lane must get.
"""

import random
from collections.abc import Iterator

import numpy as np
import pytest

from mmulator.errors import LaunchError, UnsupportedError
from mmulator.host.module import Module
from mmulator.ptx.program.blocks import build
from tests.support.ptx_text import STORE_R1, kernel

WIDTHS = (16, 32, 64)


class Program:
    """Functions f0 .. of (x, depth) -> u32. A statement is a tuple: what it does, and to which variables."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.count = self.random.randint(2, 5)
        self.recursive = seed % 3 != 0
        self.functions = [self._function(n) for n in range(self.count)]

    def _function(self, number: int) -> dict[str, object]:
        r = self.random
        widths = [r.choice(WIDTHS) for _ in range(r.randint(2, 9))]
        self.calls = 0
        body = self._body(number, len(widths), 3)
        if number == 0 and self.count > 1:  # lanes part at once
            targets = [r.randrange(1, self.count) for _ in range(4)]
            body.insert(r.randint(0, len(body)), ("pointer", r.randrange(len(widths)), 0, targets, None))
        return {"widths": widths, "body": body, "abi": r.choice(("reg", "param"))}

    def _body(self, number: int, variables: int, depth: int) -> list[tuple[object, ...]]:
        r = self.random
        body: list[tuple[object, ...]] = []
        for _ in range(r.randint(1, 4)):
            a, b = r.randrange(variables), r.randrange(variables)
            match r.choice(("op", "if", "loop", "call", "pointer")):
                case "if" if depth:
                    arms = [self._body(number, variables, depth - 1) for _ in range(2)]
                    body.append(("if", a, r.randrange(16), *arms))
                case "loop" if depth:
                    body.append(("loop", a, [("op", b, r.randrange(variables), r.randrange(1, 99))]))
                case ("call" | "pointer") as kind if self.calls < 2:
                    targets = range(0 if self.recursive else number + 1, self.count)
                    if targets:
                        self.calls += 1
                        chosen = [r.choice(targets) for _ in range(1 if kind == "call" else 4)]
                        body.append((kind, a, b, chosen, r.choice((None, r.randrange(16)))))
                case _:
                    body.append(("op", a, b, r.randrange(1, 99)))
        return body

    # what a lane must get
    def value(self, number: int, x: int, depth: int) -> int:
        f = self.functions[number]
        widths: list[int] = f["widths"]  # type: ignore[assignment]
        v = [(x * (n + 3) + n) % (1 << w) for n, w in enumerate(widths)]

        def run(body: list[tuple[object, ...]]) -> None:
            for s in body:
                self._step(s, v, widths, depth, run)

        run(f["body"])  # type: ignore[arg-type]
        return sum((k * 2 + 1) * (y % (1 << 32)) for k, y in enumerate(v)) % (1 << 32)

    def _step(self, s, v, widths, depth, run) -> None:  # type: ignore[no-untyped-def]
        match s:
            case ("op", a, b, c):
                v[a] = (v[a] * c + v[b]) % (1 << widths[a])
            case ("if", a, bit, yes, no):
                run(yes if v[a] >> bit & 1 else no)
            case ("loop", a, inner):
                for _ in range(v[a] % 8):
                    run(inner)
            case ("call" | "pointer", a, b, targets, bit):
                if depth and (bit is None or v[b] >> bit & 1):
                    v[a] = self.value(targets[v[b] % len(targets)], v[b] % (1 << 32), depth - 1) % (1 << widths[a])

    # the same as PTX
    def text(self) -> str:
        heads = "".join(f"{self._head(n)};\n" for n in range(self.count))
        return heads + "".join("".join(self._lines(n)) for n in range(self.count))

    def _head(self, n: int) -> str:
        s = self.functions[n]["abi"]
        return f".func (.{s} .b32 o) f{n} (.{s} .b32 x, .{s} .b32 d)"

    def _lines(self, n: int) -> Iterator[str]:
        f = self.functions[n]
        widths: list[int] = f["widths"]  # type: ignore[assignment]
        self.label = 0
        yield f"{self._head(n)}\n{{\n  .reg .pred p; .reg .b16 t16; .reg .b32 t32, arg, depth, sum, c<99>; .reg .b64 t64, at;\n"
        yield from (f"  .reg .b{w} v{k};\n" for k, w in enumerate(widths))
        loads = ("mov.b32 arg, x; mov.b32 depth, d;", "ld.param.b32 arg, [x]; ld.param.b32 depth, [d];")
        yield f"  {loads[f['abi'] == 'param']}\n"
        for k, w in enumerate(widths):
            yield f"  mad.lo.u32 t32, arg, {k + 3}, {k}; {self._to(w, f'v{k}', 't32', 32)}\n"
            if w == 64:
                yield f"  cvt.u64.u32 t64, arg; mad.lo.u64 v{k}, t64, {k + 3}, {k};\n"
        yield from self._statements(f["body"], widths)  # type: ignore[arg-type]
        yield "  mov.b32 sum, 0;\n"
        for k, w in enumerate(widths):
            yield f"  {self._to(32, 't32', f'v{k}', w)} mad.lo.u32 sum, t32, {k * 2 + 1}, sum;\n"
        yield f"  {('mov.b32 o, sum;', 'st.param.b32 [o], sum;')[f['abi'] == 'param']}\n  ret;\n}}\n"

    def _to(self, width: int, target: str, source: str, own: int) -> str:
        return f"mov.b{width} {target}, {source};" if width == own else f"cvt.u{width}.u{own} {target}, {source};"

    def _bit(self, name: str, width: int, bit: int) -> str:
        return (f"  {self._to(32, 't32', name, width)} shr.u32 t32, t32, {bit}; and.b32 t32, t32, 1; setp.ne.u32 p, t32, 0;\n")

    def _statements(self, body: list[tuple[object, ...]], widths: list[int]) -> Iterator[str]:
        for s in body:
            self.label += 1
            here = self.label
            match s:
                case ("op", a, b, c):
                    w = widths[a]
                    yield f"  {self._to(w, f't{w}', f'v{b}', widths[b])} mad.lo.u{w} v{a}, v{a}, {c}, t{w};\n"
                case ("if", a, bit, yes, no):
                    yield self._bit(f"v{a}", widths[a], bit) + f"  @!p bra N{here};\n"
                    yield from self._statements(yes, widths)
                    yield f"  bra E{here};\nN{here}:\n"
                    yield from self._statements(no, widths)
                    yield f"E{here}:\n"
                case ("loop", a, inner):
                    yield f"  {self._to(32, 't32', f'v{a}', widths[a])} and.b32 c{here}, t32, 7;\n"
                    yield f"L{here}:\n  setp.eq.u32 p, c{here}, 0;\n  @p bra X{here};\n  sub.u32 c{here}, c{here}, 1;\n"
                    yield from self._statements(inner, widths)
                    yield f"  bra L{here};\nX{here}:\n"
                case _:
                    yield from self._call(s, widths, here)

    def _call(self, s, widths, here: int) -> Iterator[str]:  # type: ignore[no-untyped-def]
        kind, a, b, targets, bit = s
        yield f"  {{\n  .reg .b32 deeper; .reg .b32 result; .reg .pred q;\n  setp.eq.u32 p, depth, 0;\n  @p bra S{here};\n"
        yield "  sub.u32 deeper, depth, 1;\n"
        yield f"  {self._to(32, 'result', f'v{b}', widths[b])}\n"
        yield "  .param .b32 px; .param .b32 pd; .param .b32 pr;\n  st.param.b32 [px], result; st.param.b32 [pd], deeper;\n"
        guard = ""
        yield f"  {self._to(32, 't32', f'v{a}', widths[a])} st.param.b32 [pr], t32;\n"
        if bit is not None:
            yield self._bit(f"v{b}", widths[b], bit)
            guard = "@p "
        if kind == "call":
            yield f"  {guard}call (pr), f{targets[0]}, (px, pd);\n"
        else:
            yield f"  and.b32 t32, result, 3; mul.wide.u32 at, t32, 8; mov.u64 t64, table_{targets_name(targets)};\n"
            yield "  cvta.global.u64 t64, t64; add.u64 t64, t64, at; ld.u64 t64, [t64];\n"
            yield f"  proto{here}: .callprototype (.param .b32 _) _ (.param .b32 _, .param .b32 _);\n"
            yield f"  {guard}call (pr), t64, (px, pd), proto{here};\n"
        unchanged = "" if bit is None else f"  @!p bra S{here};\n"
        yield f"{unchanged}  ld.param.b32 t32, [pr]; {self._to(widths[a], f'v{a}', 't32', 32)}\nS{here}:\n  }}\n"

    def tables(self) -> str:
        found = {tuple(s[3]) for f in self.functions for s in statements(f["body"]) if s[0] == "pointer"}
        return "".join(f".global .u64 table_{targets_name(t)}[4] = {{{', '.join(f'f{n}' for n in t)}}};\n" for t in sorted(found))


def targets_name(targets) -> str:  # type: ignore[no-untyped-def]
    return "_".join(map(str, targets))


def statements(body) -> Iterator[tuple]:  # type: ignore[no-untyped-def, type-arg]
    for s in body:
        yield s
        for part in s:
            if isinstance(part, list) and part and isinstance(part[0], tuple):
                yield from statements(part)


RECURSIVE = """
.func (.reg .b32 %o) down (.reg .b32 %n)
{
  .reg .pred %p; .reg .b32 %m; .reg .b64 %w;
  mov.b32 %o, 0; setp.eq.u32 %p, %n, 0; @%p bra E;
  cvt.u64.u32 %w, %n; sub.u32 %m, %n, 1;
  call (%o), down, (%m);
  cvt.u32.u64 %m, %w; add.u32 %o, %o, %m;
E: ret;
}
.func (.reg .b32 %o) count (.reg .b32 %n)
{
  .reg .pred %p;
  mov.b32 %o, 0;
L: add.u32 %o, %o, %n; sub.u32 %n, %n, 1; setp.ne.u32 %p, %n, 0; @%p bra L;
  ret;
}
"""


@pytest.mark.parametrize("name", ["down", "count"])
def test_each_lane_its_own_depth_and_its_own_parameters(name: str) -> None:
    """`down` recurs as deep as the lane says; the loop of `count` begins at the function's first instruction."""
    body = f"  mov.u32 %r2, %tid.x; add.u32 %r2, %r2, 1; call (%r1), {name}, (%r2);" + STORE_R1
    out = np.zeros(32, np.uint32)
    Module.load(kernel(body, top=RECURSIVE))["k"].launch(1, 32, [out], timeout=600)
    n = np.arange(1, 33)
    assert (out == n * (n + 1) // 2).all()


def test_thousands_of_functions() -> None:
    top = ".func f0 { ret; }\n" + "".join(f".func f{n} {{ call f{n - 1}; ret; }}\n" for n in range(1, 3000))
    module = Module.load(kernel("  call f2999;", top=top))
    assert not any(recursive for _, recursive in build(module.tree, module.tree.functions[-1]).groups)


@pytest.mark.parametrize("seed", range(12))
def test_random_programs(seed: int) -> None:
    program = Program(seed)
    depth = 4
    body = f"""
  mov.u32 %r63, %tid.x; mad.lo.u32 %r1, %r63, 40503, {seed};
  {{ .param .b32 px; .param .b32 pd; .param .b32 pr;
  st.param.b32 [px], %r1; st.param.b32 [pd], {depth};
  call (pr), f0, (px, pd);
  ld.param.b32 %r1, [pr]; }}
  mul.wide.u32 %rd1, %r63, 4; add.u64 %rd1, %rd0, %rd1; st.global.u32 [%rd1], %r1;
"""
    heads = "".join(f"{program._head(n)};\n" for n in range(program.count))
    text = kernel(body, top=heads + program.tables() + program.text())
    out = np.zeros(64, np.uint32)
    Module.load(text, name="random.ptx")["k"].launch(1, 64, [out], timeout=600)
    want = [program.value(0, (t * 40503 + seed) % (1 << 32), depth) for t in range(64)]
    assert out.tolist() == want


def test_a_large_parameter_is_copied_by_a_loop() -> None:
    """200 kB for each of 32 threads; as straight-line code it would take minutes to compile."""
    n = 200_000
    top = f""".func (.param .align 8 .b8 o[{n}]) f (.param .align 8 .b8 a[{n}])
{{ .reg .b64 %x; ld.param.b64 %x, [a+{n - 8}]; add.u64 %x, %x, 1; st.param.b64 [o+{n - 8}], %x; ret; }}
"""
    body = f"""
  mov.u32 %r1, %tid.x; cvt.u64.u32 %rd1, %r1;
  .param .align 8 .b8 a[{n}]; .param .align 8 .b8 o[{n}];
  st.param.b64 [a+{n - 8}], %rd1; call (o), f, (a); ld.param.b64 %rd1, [o+{n - 8}]; cvt.u32.u64 %r1, %rd1;
"""
    out = np.zeros(32, np.uint32)
    Module.load(kernel(body + STORE_R1, top=top))["k"].launch(1, 32, [out], timeout=600)
    assert (out == np.arange(1, 33)).all()


@pytest.mark.parametrize("space", ["reg", "param"])
def test_registers_of_128_bits_are_passed(space: str) -> None:
    a, o = ("%a", "%o") if space == "reg" else ("a", "o")
    before, after = ("", "") if space == "reg" else (".reg .b128 %a, %o; ld.param.b128 %a, [a];", "st.param.b128 [o], %o;")
    top = f""".func (.{space} .b128 {o}) f (.{space} .b128 {a})
{{ .reg .b64 %x, %y; {before} mov.b128 {{%x, %y}}, %a; add.u64 %x, %x, %y; mov.b128 %o, {{%y, %x}}; {after} ret; }}
"""
    body = """
  .reg .b128 %v, %w; .reg .b64 %s, %t;
  mov.u32 %r1, %tid.x; cvt.u64.u32 %s, %r1; mov.u64 %t, 1000; mov.b128 %v, {%s, %t};
  call (%w), f, (%v); mov.b128 {%s, %t}, %w; sub.u64 %s, %t, %s; cvt.u32.u64 %r1, %s;
"""
    out = np.zeros(33, np.uint32)
    Module.load(kernel(body + STORE_R1, top=top).replace(".version 8.0", ".version 8.3"))["k"].launch(1, 33, [out])
    assert (out == np.arange(33)).all()


def test_predicates_are_not_passed() -> None:
    top = ".func (.reg .pred %o) f (.reg .pred %a) { mov.pred %o, %a; ret; }\n"
    module = Module.load(kernel("setp.eq.u32 %p1, 0, 0; call (%p2), f, (%p1);", top=top))
    with pytest.raises(UnsupportedError, match="a predicate cannot be passed"):
        module["k"].launch(1, 1, [np.zeros(1, np.uint32)])


def test_frames_beyond_what_is_addressed_are_refused() -> None:
    """70 functions that call themselves, each with 500 kB of local memory: 64 times that, one behind the other."""
    heads = "".join(f".func f{n}();\n" for n in range(70))
    bodies = "".join(
        f"""
.func f{n}()
{{ .local .b8 x[500000]; .reg .pred %p; .reg .b64 %a; mov.u64 %a, x; st.local.b8 [%a], 1; setp.eq.u64 %p, %a, 0;
  @%p call f{n}; @%p call f{(n + 1) % 70 if n < 69 else n}; ret; }}"""
        for n in range(70)
    )
    module = Module.load(kernel("call f0;", top=heads + bodies))
    with pytest.raises(LaunchError, match=r"k and the functions it calls take 2\d{9} bytes for the local memory"):
        module["k"].launch(1, 1, [np.zeros(1, np.uint32)])
