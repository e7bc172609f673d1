"""Cases of the fuzzer: module number N of a seed, always the same text and the same launch.

Four kinds: a file of the corpus with mutated tokens; accepted and refused statements in a frame that has all register
types, mutated or not; memory instructions with addresses near every edge; instructions that synchronise, under guards and
with numbers out of registers.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
LARGEST = 20_000  # bytes of a corpus file
BLOCKS = (1, 7, 32, 32, 33, 64, 128, 128, 160)
ARRAY = 512  # bytes of the array that `out` points to


@dataclass(frozen=True)
class Case:
    """launch: block, seed and threads of the launch if the text is to be launched, else None."""

    kind: str
    text: str
    launch: tuple[int, int, int] | None


FRAME = """.version {version}
.target {target}
.address_size 64
.extern .shared .align 128 .b8 smem[];
.shared .align 128 .b8 fixed[256];
.global .align 128 .b8 garr[1024];
.const .align 128 .b8 carr[1024];
.func (.param .b32 o) callee (.param .b32 i)
{{ .reg .b32 %x; ld.param.b32 %x, [i]; add.u32 %x, %x, 1; st.param.b32 [o], %x; ret; }}
.visible .entry k(.param .u64 out, .param .u32 prm1, .param .align 8 .b8 prm2[32])
{{
.reg .pred p<8>; .reg .b8 c<8>; .reg .b16 h<8>; .reg .b32 r<40>; .reg .b64 d<16>; .reg .f32 f<40>; .reg .f64 g<8>;
.reg .b128 q<4>; .reg .u16 uh<4>; .reg .s32 s<8>; .reg .u32 u<8>; .reg .s64 sd<8>; .reg .u64 ud<8>; .reg .f16 hf<8>;
.reg .f16x2 hx<8>; .reg .u8 uc<4>; .reg .s16 sh<4>; .param .b32 pa; .param .b32 pr;
{banks}.local .align 128 .b8 lbuf[128];
{values}
L0:
{body}
L1:
st.global.u32 [d3], r5;
ret;
}}
"""
# What the registers hold at the start. Only those that are used are set: launching is mostly compiling
START = (
    ("d1", "ld.param.u64 d1, [out];"), ("r1", "mov.u32 r1, %tid.x;"), ("r2", "mov.u32 r2, %laneid;"),
    ("r3", "and.b32 r3, r1, 7;"), ("r4", "shl.b32 r4, r2, 4;"), ("p1", "setp.eq.u32 p1, r3, {lane};"),
    ("p2", "setp.lt.u32 p2, r1, 16;"), ("p3", "setp.ne.u32 p3, r1, r1;"), ("p4", "setp.eq.u32 p4, r1, r1;"),
    ("d2", "cvt.u64.u32 d2, r4;"), ("d3", "add.u64 d3, d1, d2;"), ("d4", "mov.u64 d4, smem;"), ("d5", "mov.u64 d5, fixed;"),
    ("d6", "mov.u64 d6, lbuf;"), ("d7", "mov.u64 d7, garr;"), ("d8", "cvta.global.u64 d8, d7;"),
    ("d9", "cvta.shared.u64 d9, d5;"), ("d10", "cvta.local.u64 d10, d6;"), ("d11", "cvta.to.global.u64 d11, d1;"),
    ("ud1", "mov.b64 ud1, d1;"), ("u1", "mov.u32 u1, {value};"), ("f1", "mov.b32 f1, u1;"), ("r5", "mov.b32 r5, u1;"),
    ("r6", "mov.b32 r6, {other};"), ("d12", "cvt.u64.u32 d12, r5;"), ("s1", "mov.b32 s1, r6;"),
)  # fmt: skip
_WORD = re.compile(r"\w+")


def start(rng: random.Random, body: str) -> str:
    used = {*_WORD.findall(body), "d3", "r5"}
    lines: list[str] = []
    for register, line in reversed(START):
        if register in used:
            used.update(_WORD.findall(line))
            lines.append(line)
    lane, value, other = rng.choice((0, 1, 5, 7)), rng.choice(VALUES), rng.choice(VALUES)
    return " ".join(reversed(lines)).format(lane=lane, value=value, other=other)


VALUES = (0, 1, 2, 3, 4, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 96, 128, 255, 256, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFF0,
          0xFFFFFFFF, 0x3F800000, 0x7F800000, 0x7FC00000, 0x41414141)  # fmt: skip


def frame(rng: random.Random, body: list[str], target: str = "sm_90a", version: str = "8.6") -> str:
    banks: dict[str, int] = {}
    for line in body:
        for bank, number in _BANK.findall(line):
            banks[bank] = max(banks.get(bank, 0), int(number))
    declared = "".join(f".reg .{bank} %{bank}_<{min(most, 400) + 1}>;\n" for bank, most in banks.items())
    text = "\n".join(body)
    return FRAME.format(version=version, target=target, banks=declared, values=start(rng, text), body=text)


_BANK = re.compile(r"%(b16|u16|s16|b32|u32|s32|f32|f16x2|b64|u64|s64|f64|f16|b8|u8|pred|b128)_(\d+)")
_RANGE = re.compile(r"%(\w+)_(\d+)\.\.(\d+)")
_TOKEN = re.compile(r"[A-Za-z_$%][\w$.:]*|\.[\w:]+|0[xXfFdD][0-9a-fA-F]+|\d+|\s+|.", re.DOTALL)


def _registers(found: re.Match[str]) -> str:
    """`%b32_1..4` written out."""
    return ", ".join(f"%{found[1]}_{number}" for number in range(int(found[2]), int(found[3]) + 1))


@cache
def statements() -> tuple[list[tuple[str, str, str]], list[tuple[str, str, str]]]:
    """(target, version, text) of the recorded statements: those that ptxas accepts, and those that it refuses."""
    found: tuple[list[tuple[str, str, str]], list[tuple[str, str, str]]] = [], []
    for name in ("ptx_verdicts.txt", "matrix_verdicts.txt", "row_verdicts.txt", "tcgen05_verdicts.txt"):
        target, version = "sm_90a", "8.6"
        for line in (ROOT / "tests" / "data" / name).read_text().splitlines():
            mark, _, rest = line.partition(" ")
            if mark == "#":
                target, _, version = rest.partition(" ")
                continue
            for ours, theirs in (("garr", "gvar"), ("carr", "cvar"), ("lbuf", "lvar"), ("prm2", "pvar")):
                rest = rest.replace(theirs, ours)
            found[mark != "+"].append((target, version, _RANGE.sub(_registers, rest)))
    return found


@cache
def corpus() -> list[list[str]]:
    """Tokens of the small files of the corpus."""
    files = sorted((*(ROOT / "tests" / "kernels" / "ptx").glob("*.ptx"), *(ROOT / "examples").glob("**/*.ptx")))
    return [_TOKEN.findall(p.read_text()) for p in files if p.stat().st_size <= LARGEST]


_words = str.split
JUNK = (
    *"{}()[];,:@!|<>%-+_?.\"é\0\u202e", "/*", "*/", "//", "\x1b[2J", ".pragma \"nounroll\";", ".reg .b32 z<9999999999>;",
    ".loc 1 2 3", "bra L0;", ".align 3",
    *_words("0f 0x 99999999999999999999 -1 0xFFFFFFFFFFFFFFFF 4294967296 1.5 WARP_SZ %clock64 %lanemask_lt ret; @p1"),
    *_words(".v4 .u64 .pred .shared .param"),
)
NUMBERS = _words(
    "0 1 -1 2 3 7 8 15 16 17 31 32 63 64 255 4096 65535 65536 2147483647 4294967295 4294967296 1099511627776 -16 -4096 "
    "9223372036854775807 18446744073709551615"
)
REGISTERS = _words("p1 p2 p3 r1 r5 r6 d1 d3 d4 d5 f1 h1 g1 q1 s1 u1 ud1 sd1 hf1 hx1")
WORDS = _words("u32 v2 f16 sync b128 global")


def mutate(rng: random.Random, tokens: list[str], times: int, others: Callable[[], list[str]]) -> list[str]:
    """Tokens deleted, doubled, swapped, replaced; numbers and registers exchanged; pieces of another text put in."""
    tokens = list(tokens)
    for _ in range(times):
        if not tokens:
            break
        at = rng.randrange(len(tokens))
        match rng.randrange(9):
            case 0:
                del tokens[at]
            case 1:
                tokens.insert(at, tokens[at])
            case 2:
                other = rng.randrange(len(tokens))
                tokens[at], tokens[other] = tokens[other], tokens[at]
            case 3:
                tokens.insert(at, rng.choice(JUNK))
            case 4 | 5:
                numbers = [n for n, t in enumerate(tokens) if t[0].isdigit()]
                if numbers:
                    tokens[rng.choice(numbers)] = rng.choice(NUMBERS)
            case 6:
                words = [n for n, t in enumerate(tokens) if t[0] == "%" or t in REGISTERS]
                if len(words) > 1:
                    tokens[rng.choice(words)] = tokens[rng.choice(words)]
            case 7:
                more = others()
                start = rng.randrange(len(more))
                tokens[at:at] = more[start : start + rng.randrange(1, 30)]
            case 8:
                opcode, dot, rest = tokens[at].partition(".")
                parts = rest.split(".")
                if dot:
                    n = rng.randrange(len(parts))
                    parts[n : n + 1] = rng.choice(([], [parts[n], parts[n]], [rng.choice(WORDS)]))
                    tokens[at] = ".".join((opcode, *parts))
        tokens = [t for t in tokens if t]
    return tokens


def _file(rng: random.Random) -> str:
    files = corpus()
    return "".join(mutate(rng, rng.choice(files), rng.choice((1, 1, 2, 3, 8)), lambda: rng.choice(files)))


GUARDS = ("", "", "", "@p1 ", "@!p1 ", "@p2 ", "@p3 ", "@p4 ")


def _statements(rng: random.Random, mutations: tuple[int, ...], refused: float) -> str:
    """Up to a dozen statements of one target, some of them mutated, some under a guard."""
    groups, bad = by_target(), statements()[1]
    target, version = rng.choice(list(groups))
    good = groups[target, version]
    body: list[str] = []
    for _ in range(rng.choice((1, 1, 2, 3, 6, 12))):
        text = rng.choice(bad)[2] if rng.random() < refused else rng.choice(good)
        times = rng.choice(mutations)
        if times:
            text = "".join(mutate(rng, _TOKEN.findall(text), times, lambda: _TOKEN.findall(rng.choice(good))))
        guard = rng.choice(GUARDS)
        body.append(text if text.startswith("@") else guard + text)
    return frame(rng, body, target, version if version >= "8.3" else "8.6")


def _launchable(rng: random.Random) -> str:
    """Statements of sm_90a that are likely to be launched."""
    good = launchable()
    body = []
    for _ in range(rng.choice((1, 2, 3, 5, 8))):
        text = rng.choice(good)
        if rng.random() < 0.3:
            text = "".join(mutate(rng, _TOKEN.findall(text), 1, lambda: _TOKEN.findall(rng.choice(good))))
        body.append(text if text.startswith("@") else rng.choice(GUARDS) + text)
    return frame(rng, body)


@cache
def by_target() -> dict[tuple[str, str], list[str]]:
    """Accepted statements of each target and version."""
    found: dict[tuple[str, str], list[str]] = {}
    for target, version, text in statements()[0]:
        found.setdefault((target, version), []).append(text)
    return found


@cache
def launchable() -> list[str]:
    return [t for target, version, t in statements()[0] if target in ("sm_80", "sm_90", "sm_90a") and not t.startswith("tcgen05")]


BASES: dict[str, tuple[str, ...]] = {
    "": ("d1", "d3", "d8", "d9", "d10", "d12", "ud1", "0", "d7"), ".global": ("d1", "d3", "d11", "d12", "garr", "d7"),
    ".shared": ("d4", "d5", "d12", "smem", "fixed", "r5", "r4"), ".local": ("d6", "lbuf", "d12", "r5"),
    ".const": ("carr", "d12"), ".param": ("out", "prm1", "prm2"),
}  # fmt: skip
EDGES = [int(n) for n in _words(
    "0 0 0 4 8 12 16 28 32 48 64 120 124 127 128 240 248 252 255 256 496 500 504 508 511 512 1008 1020 1023 1024 4096 65536 "
    "232447 232448 1048576 2147483647 4294967295 4294967296 1099511627776"
)]  # fmt: skip
WIDTHS = (("b8", "r5"), ("u8", "r5"), ("b16", "h1"), ("b32", "r5"), ("f32", "f1"), ("b64", "d13"), ("f64", "g1"), ("b128", "q1"))
ATOMICS = _words(
    "add.u32 add.f32 exch.b32 cas.b32 min.s32 max.u32 and.b32 inc.u32 add.u64 exch.b64 add.f64 exch.b128 cas.b128 "
    "add.noftz.f16x2 add.noftz.bf16x2 min.noftz.f16 max.noftz.v2.f16x2"
)


def _address(rng: random.Random, space: str) -> str:
    base = rng.choice(BASES[space])
    offset = rng.choice(EDGES) + rng.choice((0, 0, 0, 0, 1, -1, -4, -16))
    return f"[{base}+{offset}]" if rng.random() < 0.5 else f"[{base}+{-offset}]" if rng.random() < 0.3 else f"[{base}]"


def _memory_line(rng: random.Random) -> str:
    space = rng.choice(("", ".global", ".global", ".shared", ".shared", ".local", ".const", ".param"))
    width, register = rng.choice(WIDTHS)
    to = _address(rng, space)
    several = ", ".join(f"{register[0]}{n}" for n in range(4, 6))
    four = ", ".join(f"r{n}" for n in range(8, 12))
    eight = ", ".join(f"r{n}" for n in range(8, 16))
    shared, other = _address(rng, ".shared"), _address(rng, ".global")
    size = rng.choice(("4", "8", "16"))
    atomic = rng.choice(ATOMICS)
    kind = atomic.rpartition(".")[2]
    value = {"u64": "d13", "b64": "d13", "f64": "g1", "b128": "q1", "f32": "f1", "f16": "h1"}.get(kind, "r6")
    third = f", {value}" if "cas" in atomic else ""
    match rng.randrange(14):
        case 0 | 1 | 2:
            return f"ld{space}.{width} {register}, {to};"
        case 3 | 4:
            return f"st{space}.{width} {to}, {register};"
        case 5:
            return f"ld{space}.v2.{width} {{{several}}}, {to};"
        case 6:
            return f"st{space}.v4.b32 {to}, {{{four}}};"
        case 7:
            return f"atom{space}.{atomic} {value}, {to}, {value}{third};"
        case 8:
            return f"red{space}.{atomic} {to}, {value};"
        case 9:
            return f"ldmatrix.sync.aligned.m8n8.x4{rng.choice(('', '.trans'))}.shared.b16 {{{four}}}, {shared};"
        case 10:
            return f"stmatrix.sync.aligned.m8n8.x4.shared.b16 {shared}, {{{four}}};"
        case 11:
            src = rng.choice(("", ", 0", ", 4", ", 16", ", r5", ", r6"))
            return f"cp.async.{'cg' if size == '16' else 'ca'}.shared.global {shared}, {other}, {size}{src};"
        case 12:
            stride = rng.choice(("16", "8", "0", "-16", "r5", "r6", "2147483647"))
            return f"wmma.load.a.sync.aligned.row.m16n16k16{space}.f16 {{{eight}}}, {to}, {stride};"
        case _:
            stride = rng.choice(("16", "8", "0", "-16", "r5", "r6"))
            return f"wmma.store.d.sync.aligned.row.m16n16k16{space}.f16 {to}, {{{four}}}, {stride};"


def _memory(rng: random.Random) -> str:
    lines = [rng.choice(GUARDS) + _memory_line(rng) for _ in range(rng.choice((1, 2, 3, 5)))]
    if any("cp.async" in line for line in lines):
        lines.append(rng.choice(("cp.async.wait_all;", "cp.async.commit_group; cp.async.wait_group 0;", "")))
    return frame(rng, lines)


NUMBER = ("0", "1", "15", "16", "r5", "r6", "u1", "r3", "4294967295")
COUNT = ("32", "64", "96", "128", "0", "31", "r5", "r6", "r1")
MASK = ("-1", "0xffffffff", "0xffff", "1", "0", "0xff00ff00", "r5", "r6", "r2")


def _wgmma(rng: random.Random) -> str:
    registers = ", ".join(f"f{n}" for n in range(8, 12))
    desc = rng.choice(("d12", "d4", "d5", "0x4000004000010000", "d1"))
    operands = f"{{{registers}}}, {desc}, {rng.choice(('d12', desc))}"
    one = f"wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {operands}, 1, 1, 1, 0, 0;"
    parts = ["wgmma.fence.sync.aligned;", *[one] * rng.choice((1, 1, 2, 3)), "wgmma.commit_group.sync.aligned;"]
    parts.append(f"wgmma.wait_group.sync.aligned {rng.choice((0, 0, 1, 7))};")
    guard = rng.choice(GUARDS)
    return "\n".join(guard + p for p in parts if rng.random() < 0.9)


def _sync_line(rng: random.Random) -> str:
    number, count, mask = rng.choice(NUMBER), rng.choice(COUNT), rng.choice(MASK)
    guard, way = rng.choice(GUARDS), rng.choice(("idx", "up", "down", "bfly"))
    four, two = "{r8, r9, r10, r11}", "{r12, r13}"
    lines: tuple[str, ...] = (
        f"bar.sync {number};", f"bar.sync {number}, {count};", f"bar.arrive {number}, {count};", f"barrier.sync {number};",
        f"barrier.sync.aligned {number}, {count};", f"barrier.red.popc.u32 r5, {number}, {count}, p2;",
        f"bar.red.and.pred p5, {number}, p2;", f"barrier.red.or.pred p5, {number}, {count}, !p1;", f"bar.warp.sync {mask};",
        f"shfl.sync.{way}.b32 r5|p5, r6, {rng.choice(NUMBER)}, {rng.choice(NUMBER)}, {mask};",
        f"vote.sync.{rng.choice(('any', 'all', 'uni'))}.pred p5, p2, {mask};", f"vote.sync.ballot.b32 r5, p2, {mask};",
        f"match.any.sync.b32 r5, r6, {mask};", f"match.all.sync.b64 r5|p5, d12, {mask};", f"redux.sync.add.s32 r5, r6, {mask};",
        f"elect.sync r5|p5, {mask};", "activemask.b32 r5;", "membar.gl;", "fence.acq_rel.cta;", "exit;", "bra L1;", "ret;",
        "trap;", "add.u32 r39, r39, 1; setp.lt.u32 p7, r39, 5; @p7 bra L0;", "nanosleep.u32 20;", "brkpt;",
        "st.param.b32 [pa], r5; call (pr), callee, (pa); ld.param.b32 r5, [pr];",
        "call (pr), callee, (pa);", f"mov.u64 d13, callee; call (pr), d13, (pa), proto{rng.randrange(1000000)};",
        f"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {{f8, f9, f10, f11}}, {four}, {two}, {{f8, f9, f10, f11}};",
        f"mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {four}, {four}, {two}, {four};",
        "movmatrix.sync.aligned.m8n8.trans.b16 r5, r6;", "cp.async.ca.shared.global [d5], [d1], 4; cp.async.wait_all;",
    )  # fmt: skip
    line = rng.choice(lines)
    name = re.search(r"proto\d+", line)
    declared = f"{name[0]}: .callprototype (.param .b32 _) _ (.param .b32 _);\n" if name else ""
    return declared + " ".join(
        part.strip() + ";" if part.strip()[0] == "@" else f"{guard}{part.strip()};" for part in line.split(";") if part.strip()
    )


def _sync(rng: random.Random) -> str:
    lines = [_wgmma(rng) if rng.random() < 0.1 else _sync_line(rng) for _ in range(rng.choice((1, 2, 3, 5, 8)))]
    if rng.random() < 0.3:  # warps and lanes on different ways
        half = len(lines) // 2
        past = "bra.uni L1;" if rng.random() < 0.3 else ""
        lines = [f"{rng.choice(('@p1', '@p2', '@p4'))} bra M;", *lines[:half], past, "M:", *lines[half:]]
    return frame(rng, lines)


# Of 19 modules: what they are, and whether they are launched
KINDS: tuple[tuple[str, Callable[[random.Random], str], bool], ...] = (
    ("file", _file, False),
    ("file", _file, False),
    *[("statements", lambda rng: _statements(rng, (0, 0, 1, 2), 0.1), False)] * 9,
    *[("statements, much changed", lambda rng: _statements(rng, (1, 3, 8), 0.5), False)] * 5,
    ("statements, launched", _launchable, True),
    ("memory", _memory, True),
    ("synchronising", _sync, True),
)


def case(seed: int, number: int) -> Case:
    """Module `number` of a seed."""
    rng = random.Random(f"{seed}.{number}")
    kind, make, launched = KINDS[number % len(KINDS)]
    text = make(rng)
    return Case(kind, text, (rng.choice(BLOCKS), rng.randrange(4), rng.choice((1, 1, 2))) if launched else None)
