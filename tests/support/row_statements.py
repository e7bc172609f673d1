"""Statements for every row of the scalar tables, and kernels that run them; a GPU gave their results (evidence/capture/rows.py).

What a row needs: any two of its modifiers that can stand together (and change the result) stand together in some
statement. `scalar_vectors` has many already; the others are made here, from the row alone. Results are kept as digests.
"""

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import combinations, product

import numpy as np

from mmulator.isa.fit import NoForm
from mmulator.isa.form import Form
from mmulator.isa.match import match, row_of
from mmulator.isa.row import OperandSpec, Row
from mmulator.isa.types import type_bits
from mmulator.isa.video import SELECTORS, masks
from tests.support import scalar_operands
from tests.support.row_forms import Words, forms, register_type, rows

THREADS = 128
GROUP = 48  # statements of one kernel
HEAD = """.version 9.4
.target sm_90a
.address_size 64
.global .align 8 .b8 gvar[512];
.const .align 8 .b8 cvar[64];
"""
# Modifiers that change no result of a single thread
SILENT = frozenset(("sem", "scope", "space", "cop", "nc", "L1", "L2", "hint", "prefetch", "mmio", "uni", "aligned", "cta"))
Pair = tuple[tuple[str, str], ...]
MNEMONIC = re.compile(r"\s*(?:\w+:\s*)?(?:@!?\w+\s+)?([a-z]\w*(?:\.[\w:]+)*)\b")


# What there must be -------------------------------------------------------------------------------------------------
def pairs(form: Form) -> set[Pair]:
    """Any one and any two modifiers of a form that matter; the empty pair stands for the row."""
    loud = sorted(x for x in form.modifiers if x[0] not in SILENT)
    return {(), *((x,) for x in loud), *combinations(loud, 2)}


def on_sm_90(form: Form) -> bool:
    return form.status.state != "unproven"


@cache
def wanted(row: Row) -> dict[Pair, tuple[Words, Form]]:
    """Every pair of a row that an sm_90 has, and a form with it."""
    out: dict[Pair, tuple[Words, Form]] = {}
    for words, form in forms(row, 3000):
        if on_sm_90(form) and not (form.opcode == "cvta" and form["type"] == "u32"):  # of addresses with 32 bits
            for pair in pairs(form) - out.keys():
                out[pair] = words, form
    return out


def covered(texts: Iterable[str]) -> dict[Row, set[Pair]]:
    """Pairs that the statements of these texts have, by row."""
    out: dict[Row, set[Pair]] = defaultdict(set)
    for mnemonic in {found[1] for t in texts for part in re.split(r"[;{}]", t) if (found := MNEMONIC.match(part))}:
        opcode, *words = mnemonic.split(".")
        row, form = row_of(opcode, tuple(words)), match(opcode, tuple(words))
        if row is not None and not isinstance(form, NoForm):
            out[row] |= pairs(form)
    return out


# Statements ---------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Statement:
    """text: on registers a0, a1, ... and d0, d1, ...; `p` is an address. sources, results: types of these registers.

    kind: `lanes`, or what stands around it: `load`, `store`.
    """

    text: str
    sources: tuple[str, ...]
    results: tuple[str, ...]
    kind: str = "lanes"


VIDEO_SOURCES = {"vsrc": SELECTORS, "vsrc-": SELECTORS, "vsrc2": ("h10", "h32", "h02", "h31"),
                 "vsrc4": ("b3210", "b7654", "b0123", "b7070")}  # fmt: skip
VIDEO_RESULTS = {"vmerge": SELECTORS, "vmask2": masks("h", 2), "vmask4": masks("b", 4)}


def _pool(spec: OperandSpec) -> str:
    """Where values of a source come from: its type, as scalar_operands.py names it."""
    type_name = register_type(spec.type)
    if spec.type in ("f16", "bf16", "f16x2", "bf16x2", "f32", "f64", "pred", "e4m3x2", "e5m2x2"):
        return spec.type
    return f"b{max(type_bits(type_name), 16 if spec.wider else 8)}"


def statements_of(words: Words, form: Form, turn: int) -> Iterator[Statement]:
    """The form on registers of its own; a video instruction with and without selectors (turn: which)."""
    if form.name in ("ld", "ldu", "st"):
        yield _memory(words, form)
        return
    video = any(s.kind in VIDEO_SOURCES or s.kind in VIDEO_RESULTS for s in form.operands)
    for variant in (0, turn + 1) if video else (0,):
        yield _lanes(words, form, variant)


def _lanes(words: Words, form: Form, variant: int) -> Statement:
    sources: list[str] = []
    results: list[str] = []
    texts = []
    negate = variant % 4
    for n, spec in enumerate(form.operands):
        if spec.optional and spec.since.minimum > form.requires.minimum:
            continue
        if spec.kind == "imm":
            texts.append(str(spec.values[0] if spec.values else 0xE8 if spec.name == "immLut" else spec.lo or 1))
            continue
        first = len(results) if spec.access == "w" else len(sources)
        letter = "d" if spec.access == "w" else "a"
        listed = results if spec.access == "w" else sources
        names = [f"{letter}{first + i}" for i in range(spec.count)]
        listed += [_pool(spec)] * spec.count
        text = "{" + ", ".join(names) + "}" if spec.count > 1 else names[0]
        if spec.kind == "dstpred" or spec.kind in ("pair", "dstpair"):
            listed.append("pred")
            text += f"|{letter}{first + 1}"
        if variant and spec.kind in VIDEO_SOURCES:
            choices = VIDEO_SOURCES[spec.kind]
            text += "." + choices[(variant * 5 + n) % len(choices)]
        if variant and spec.kind in VIDEO_RESULTS:
            choices = VIDEO_RESULTS[spec.kind]
            text += "." + choices[(variant * 3 + n) % len(choices)]
        if (spec.kind == "vsrc-" and negate == n) or (spec.kind == "vneg" and negate == 3):
            text = "-" + text
        texts.append(text)
    return Statement(f"{_mnemonic(form, words)} {', '.join(texts)};", tuple(sources), tuple(results))


def _mnemonic(form: Form, words: Words) -> str:
    return ".".join((form.opcode, *words))


def _memory(words: Words, form: Form) -> Statement:
    """[p] is 32 bytes of the thread's own: of an input for loads, of the results for stores."""
    spec = next(s for s in form.operands if s.kind in ("dst", "src"))
    pool = _pool(spec) if spec.type != "b128" else "b128"
    many = (pool,) * spec.count
    letter = "a" if form.opcode == "st" else "d"
    names = [f"{letter}{i}" for i in range(spec.count)]
    value = "{" + ", ".join(names) + "}" if spec.count > 1 else names[0]
    if form.opcode == "st":
        return Statement(f"{_mnemonic(form, words)} [p], {value};", many, ("b64", "b64"), "store")
    return Statement(f"{_mnemonic(form, words)} {value}, [p];", (), many, "load")


def _plain_accesses(row: Row) -> Iterator[tuple[Words, Form]]:
    """Every type and vector of a row, of global memory."""
    choices = {g.name: (*g.choices, *([""] * g.optional)) for g in row.slots}
    fixed = [g.choices[0] for g in row.slots if not g.optional and g.name not in ("type", "vec")]
    for vec, type_name in product(choices.get("vec", ("",)), choices["type"]):
        words = (*fixed, "global", *([vec] if vec else []), type_name)
        form = match(row.opcode, words)
        if not isinstance(form, NoForm) and row_of(row.opcode, words) is row:
            yield words, form


_MANY_LANES = frozenset(("shfl", "vote", "match", "redux", "elect", "activemask"))
_ELSEWHERE = frozenset(("alloca", "stacksave", "stackrestore", "cvta", "isspacep", "mapa", "getctarank"))


def lane_wise(row: Row) -> bool:
    """Is a statement of this row a function of one thread's registers and memory?"""
    if not row.status.runs or row.opcode in _MANY_LANES | _ELSEWHERE or row.name.startswith("createpolicy"):
        return False
    if row.opcode in ("ld", "st", "ldu"):
        return True
    return bool(row.operands) and row.operands[0].access == "w" and all(
        o.kind not in ("addr", "arguments", "label", "symbol") for o in row.operands
    ) and row.opcode not in ("bar", "barrier", "addc", "subc", "madc") and "cc" not in row.fixed  # fmt: skip


def plan(already: Iterable[str]) -> list[Statement]:
    """Statements that cover what `already` does not, in the order of the rows."""
    have = covered(already)
    out: dict[Statement, None] = {}
    turn = 0
    for row in rows():
        if not lane_wise(row):
            continue
        missing = set(wanted(row)) - have.get(row, set())
        if row.name in ("ld", "st", "ldu"):
            candidates = [(w, f) for w, f in _plain_accesses(row) if on_sm_90(f)]
        else:
            candidates = list(wanted(row).values())
        for words, form in candidates:
            if new := missing & pairs(form):
                missing -= new
                turn += 1
                out.update(dict.fromkeys(statements_of(words, form, turn)))
    return [*out, *special()]


def special() -> Iterator[Statement]:
    """Rows that need variables, the local stack or a barrier around them."""
    spaces = ("shared", "local", "global", "const")
    taken = [f"mov.b64 x{n}, {space[0]}var; cvta.{space}.u64 x{n}, x{n};" for n, space in enumerate(spaces)]
    taken.append("mov.b64 x4, results; cvta.param.u64 x4, x4;")
    variables = ".reg .b64 x<8>; .shared .align 8 .b8 svar[64]; .local .align 8 .b8 lvar[64];"
    for space in (*spaces, "shared::cta", "shared::cluster", "param", "param::entry"):
        asked = " ".join(f"isspacep.{space} d{n}, x{n};" for n in range(5))
        yield Statement(" ".join((variables, *taken, asked)), (), ("pred",) * 5)
    around = (
        "{variables} .reg .b32 w; mov.u32 w, %tid.x; {place} st.{space}.b32 [x0], a0; cvta.{space}.u64 x1, x0; "
        "ld.b32 d0, [x1]; cvta.to.{space}.u64 x2, x1; ld.{space}.b32 d1, [x2]; sub.u64 d2, x2, x0;"
    )
    for space, place in (
        ("shared", ".shared .b32 mine[128]; mov.b64 x0, mine; mad.wide.u32 x0, w, 4, x0;"),
        ("local", ".local .b32 mine; mov.b64 x0, mine;"), ("global", "mov.b64 x0, gvar; mad.wide.u32 x0, w, 4, x0;"),
    ):  # fmt: skip
        text = around.format(variables=".reg .b64 x<3>;", space=space, place=place)
        yield Statement(text, ("b32",), ("b32", "b32", "b64"))
    for type, mapped in (("u64", ""), ("u64", ".shared::cluster"), ("u32", ".shared::cluster")):
        bank = type.replace("u", "b")
        at = "mov.b64 g, mine; cvta.shared.u64 g, g; mov.b64 x, g;" if not mapped else f"mov.{bank} x, mine;"
        yield Statement(
            f".shared .b32 mine[128]; .reg .{bank} x, y; .reg .b64 g; .reg .b32 w; mov.u32 w, %tid.x; {at} "
            f"mad.{'wide' if type == 'u64' else 'lo'}.u32 x, w, 4, x; st{mapped}.b32 [x], a0; "
            f"mapa{mapped}.{type} y, x, 0; ld{mapped}.b32 d0, [y]; getctarank{mapped}.{type} d1, x;",
            ("b32",), ("b32", "b32"),
        )  # fmt: skip
    for type, size, align in (("u64", 24, 8), ("u32", 40, 32), ("u64", 1, 16), ("u64", 0, 8)):
        bank = type.replace("u", "b")
        access = "st.local.b32 [y], a0; st.local.b32 [y+4], a0; ld.local.b32 d0, [y+4];"
        if size < 8:
            access = "st.local.b8 [y], 17; ld.local.b8 d0, [y];" if size else ""
        yield Statement(
            f".reg .{bank} x, y, z, u, v; mov.b32 d0, 0; stacksave.{type} x; mov.{bank} z, {size}; "
            f"alloca.{type} y, z, {align}; {access} "
            f"stacksave.{type} u; sub.{type} u, y, u; stackrestore.{type} x; stacksave.{type} v; sub.{type} v, v, x; "
            f"and.{bank} z, y, {align - 1}; setp.le.{type} d1, y, x; "
            f"cvt.u64.{type} d2, u; cvt.u64.{type} d3, v; cvt.u64.{type} d4, z;",
            ("b32",), ("b32", "pred", "b64", "b64", "b64"),
        )  # fmt: skip
    for name in ("tid", "ntid", "ctaid", "nctaid"):
        yield Statement(f"mov.v4.u32 {{d0, d1, d2, d3}}, %{name};", (), ("b32",) * 4)
    for names, type in (
        (("clusterid.x", "nclusterid.x", "cluster_ctaid.x", "cluster_nctaid.x", "cluster_ctarank", "cluster_nctarank"), "b32"),
        (("cluster_nctaid.y", "cluster_nctaid.z", "nclusterid.y", "nclusterid.z", "clusterid.z", "cluster_ctaid.z"), "b32"),
        (("is_explicit_cluster",), "pred"), (("current_graph_exec",), "b64"),
        (("reserved_smem_offset_begin", "reserved_smem_offset_cap"), "b32"),
        (("reserved_smem_offset_0", "reserved_smem_offset_1"), "b32"),
    ):  # fmt: skip
        yield Statement(" ".join(f"mov.{type} d{n}, %{name};" for n, name in enumerate(names)), (), (type,) * len(names))
    for name in ("bar", "barrier"):
        for op, result in (("popc.u32", "b32"), ("and.pred", "pred"), ("or.pred", "pred")):
            yield Statement(f"{name}.red.{op} d0, 1, a0;", ("pred",), (result,))
            yield Statement(f"{name}.red.{op} d0, 2, 128, !a0;", ("pred",), (result,))
    yield Statement("createpolicy.fractional.L2::evict_last.b64 x, 0.5; ld.global.L2::cache_hint.b64 d0, [p], x;".replace(
        "createpolicy", ".reg .b64 x; createpolicy", 1), (), ("b64",), "load")  # fmt: skip


# Kernels ------------------------------------------------------------------------------------------------------------
# type of a source or result -> (register, bytes in memory)
STORAGE = {
    "pred": ("pred", 1), "b8": ("b8", 1), "b128": ("b128", 16),
    **dict.fromkeys(("f16", "bf16", "b16", "e4m3x2", "e5m2x2"), ("b16", 2)),
    **dict.fromkeys(("f16x2", "bf16x2", "b32", "f32"), ("b32", 4)), **dict.fromkeys(("b64", "f64"), ("b64", 8)),
}  # fmt: skip


@dataclass(frozen=True)
class Kernel:
    """Statements with the same sources. Parameters: a pointer to each source, to 32 bytes a thread, to the results."""

    name: str
    sources: tuple[str, ...]
    statements: tuple[Statement, ...]

    @property
    def words(self) -> int:
        """Words of 8 bytes that a thread writes."""
        return sum(_words(s) for s in self.statements)

    def inputs(self) -> list[np.ndarray]:
        """Arrays of every source, and of the memory; a function of the sources alone."""
        rng = np.random.default_rng(7)
        memory = rng.integers(0, 256, THREADS * 32, dtype=np.uint8)
        halves = [p for s in self.sources for p in (("b64", "b64") if s == "b128" else ("b16",) if s == "b8" else (s,))]
        made = iter(scalar_operands.operands(",".join(halves), THREADS) if halves else [])
        arrays = []
        for s in self.sources:
            one = next(made)
            arrays.append(np.stack([one, next(made)], 1).copy() if s == "b128" else one.astype(np.uint8) if s == "b8" else one)
        return [*arrays, memory]

    def body(self) -> str:
        lines = [".reg .b64 %q, %out, %cell, p; .reg .b32 %i, %w; .reg .b16 %h;", "mov.u32 %i, %tid.x;",
                 "ld.param.u64 %cell, [memory];", "mad.wide.u32 %cell, %i, 32, %cell;", "ld.param.u64 %out, [results];",
                 "mad.wide.u32 %out, %i, 8, %out;"]  # fmt: skip
        for n, s in enumerate(self.sources):
            register, size = STORAGE[s]
            lines += [f".reg .{register} a{n};", f"ld.param.u64 %q, [in{n}];", f"mad.wide.u32 %q, %i, {size}, %q;"]
            if s == "pred":
                lines += ["ld.global.u8 %h, [%q];", f"setp.ne.u16 a{n}, %h, 0;"]
            else:
                lines.append(f"ld.global.{register} a{n}, [%q];")
        at = 0
        for s in self.statements:
            lines += ["{", *_around(s, at), "}"]
            at += _words(s)
        parameters = [*(f".param .u64 in{n}" for n in range(len(self.sources))), ".param .u64 memory", ".param .u64 results"]
        return f".visible .entry {self.name}({', '.join(parameters)})\n{{\n" + "\n".join(lines) + "\nret;\n}\n"

    def digests(self, results: np.ndarray) -> Iterator[tuple[Statement, str]]:
        """results: (words, threads) of 64 bits."""
        at = 0
        for s in self.statements:
            yield s, digest(results[at : at + _words(s)])
            at += _words(s)


def digest(words: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(words).tobytes()).hexdigest()[:12]


def _words(s: Statement) -> int:
    return sum(2 if r == "b128" else 1 for r in s.results)


def _around(s: Statement, at: int) -> Iterator[str]:
    """The statement, its registers, and stores of its results to words at, at + 1, ..."""
    step = THREADS * 8
    if s.kind == "store":
        yield "st.global.v2.b64 [%cell], {0, 0};"
    if s.kind != "lanes":
        yield "mov.b64 p, %cell;"
    else:
        yield from (f".reg .{STORAGE[r][0]} d{n};" for n, r in enumerate(s.results))
    if s.kind == "load":
        yield from (f".reg .{STORAGE[r][0]} d{n};" for n, r in enumerate(s.results))
    yield s.text
    if s.kind == "store":
        yield ".reg .b64 d<2>; ld.global.v2.b64 {d0, d1}, [%cell];"
    for n, r in enumerate(s.results):
        register = STORAGE[r][0]
        if register == "pred":
            yield f"selp.b64 %q, 1, 0, d{n};"
        elif register == "b128":
            yield f".reg .b64 low{n}, %q{n}; mov.b128 {{low{n}, %q{n}}}, d{n}; st.global.b64 [%out+{at * step}], low{n};"
            at += 1
            yield f"mov.b64 %q, %q{n};"
        elif register == "b64":
            yield f"mov.b64 %q, d{n};"
        else:
            yield f"cvt.u64.u{register[1:]} %q, d{n};"
        yield f"st.global.b64 [%out+{at * step}], %q;"
        at += 1


def kernels(statements: Iterable[Statement]) -> list[Kernel]:
    by_sources: dict[tuple[tuple[str, ...], bool], list[Statement]] = defaultdict(list)
    for s in statements:
        by_sources[s.sources, s.kind == "store"].append(s)  # a store changes the memory that loads read
    out = []
    for (sources, _), group in by_sources.items():
        for n in range(0, len(group), GROUP):
            out.append(Kernel(f"rows{len(out)}", sources, tuple(group[n : n + GROUP])))
    return out
