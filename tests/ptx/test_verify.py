"""The verifier: verdicts of ptxas on single statements, texts of errors, and laws of the scalar tables."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

from mmulator.errors import InvalidInstructionError, PtxSyntaxError
from mmulator.isa.fit import NoForm
from mmulator.isa.form import Form
from mmulator.isa.match import match
from mmulator.isa.row import Row
from mmulator.isa.table import CHAPTERS, ROWS
from mmulator.isa.types import type_bits
from mmulator.program.runnable import unsupported
from mmulator.ptx.parser import parse_module
from mmulator.ptx.verify import verify
from mmulator.source import Source
from tests.support.places import DATA

# Statements and the verdict of ptxas 13.0 (`+` accepted, `-` refused), under `# target version` lines.
VERDICTS = DATA / "ptx_verdicts.txt"
MODULE = """.version {version}
.target {target}
.address_size 64
.extern .shared .align 16 .b8 smem[];
.global .align 16 .b8 garr[1024];
.const .align 16 .b8 carr[1024];
.visible .entry k(.param .u64 prm0, .param .u32 prm1, .param .align 8 .b8 prm2[32])
{{
.reg .pred p<8>; .reg .b8 c<8>; .reg .b16 h<8>; .reg .b32 r<16>; .reg .b64 d<16>; .reg .f32 f<16>; .reg .f64 g<8>;{b128}
.reg .u16 uh<4>; .reg .s32 s<8>; .reg .u32 u<8>; .reg .s64 sd<8>; .reg .u64 ud<8>; .reg .f16 hf<8>; .reg .f16x2 hx<8>;
.reg .u8 uc<4>; .reg .s16 sh<4>;
.local .align 16 .b8 lbuf[64];
L0:
{statement}
ret;
}}
"""


def text(statement: str, target: str = "sm_90a", version: str = "9.0") -> str:
    b128 = " .reg .b128 q<4>;" if tuple(map(int, version.split("."))) >= (8, 3) else ""
    return MODULE.format(statement=statement, target=target, version=version, b128=b128)


def errors(statement: str, target: str = "sm_90a", version: str = "9.0") -> tuple[InvalidInstructionError, ...]:
    return verify(parse_module(Source("test.ptx", text(statement, target, version))))


def verdicts() -> Iterator[tuple[str, str, bool, str]]:
    """(target, version, accepted, statement)."""
    target = version = ""
    for line in VERDICTS.read_text().splitlines():
        mark, _, rest = line.partition(" ")
        if mark == "#":
            target, _, version = rest.partition(" ")
        else:
            yield target, version, mark == "+", rest


def accepts(statement: str, target: str, version: str) -> bool:
    try:
        return not errors(statement, target, version)
    except PtxSyntaxError:
        return False


def test_verdicts_agree_with_ptxas() -> None:
    wrong = [(t, v, s) for t, v, legal, s in verdicts() if accepts(s, t, v) != legal]
    assert wrong == []


def test_recorded_verdicts_are_those_of_ptxas(tmp_path: Path) -> None:
    """Every 40th recorded verdict again, where there is a ptxas."""
    ptxas = shutil.which("ptxas")
    if ptxas is None:
        pytest.skip("there is no ptxas on PATH")
    file = tmp_path / "statement.ptx"
    for target, version, legal, statement in list(verdicts())[::40]:
        file.write_text(text(statement, target, version))
        done = subprocess.run([ptxas, "-arch", target, file, "-o", tmp_path / "out"], capture_output=True)
        assert (done.returncode == 0) == legal, statement


MESSAGES = [
    ("add.s32 r1, r2, d3;", "operand b takes .s32; d3 is a .b64 register", "a .b32 register fits", "d3"),
    ("add.f32 f1, f2, 1;", "operand b takes .f32; 1 is an integer", "write 1.0", "1"),
    ("bra NOWHERE;", "there is no label NOWHERE in k", None, "NOWHERE"),
    ("mov.b32 r1, r99;", "r99 is not declared", "did you mean", "r99"),
    ("mov.u32 r1, %tidx;", "%tidx is not declared, and no special register", "%tid.x", "%tidx"),
    ("ld.shared.u32 r1, [garr];", "garr is in .global, not in .shared", "write .global", "garr"),
    ("ld.relaxed.global.u32 r1, [d1];", ".relaxed needs a scope", None, "ld.relaxed.global.u32"),
    ("ld.global.v2.u32 {r1, r2, r3}, [d1];", "operand d has 3 elements; it must have 2", None, "{r1, r2, r3}"),
    ("addd.s32 r1, r2, r3;", "there is no instruction 'addd'", "did you mean add", "addd.s32"),
    ("add.s33 r1, r2, r3;", "`add` has no qualifier `.s33`", "did you mean .s32", "s33"),
    ("add.ftz.s32 r1, r2, r3;", "takes no `.ftz` here", "nearest: add.s32", "ftz"),
    ("add.s32 r1, r2;", "add takes 3 operands; there are 2", "the operands are d, a, b", "add.s32 r1, r2;"),
    ("setp.lo.s32 p1, r1, r2;", ".lo does not compare .s32", None, "setp.lo.s32"),
    ("cvt.f32.s32 f1, r1;", "a rounding modifier is missing", None, "cvt.f32.s32"),
    ("cp.async.cg.shared.global [r1], [d1], 8;", "operand cp-size is 8; allowed: 16", None, "8"),
    ("bar.sync 16;", "operand a is 16; it must be from 0 to 15", None, "16"),
    ("@r1 bra L0;", "the guard r1 is a .b32 register", ".pred", "r1"),
    ("call (r1), nothing, (r2);", "the function nothing is not declared", ".extern .func", "nothing"),
    ("tcgen05.ld.sync.aligned.32x32b.x4.b32 {r1, r2, r3, r1}, [r4];", "r1 is there twice", "a register of its own", "r1"),
    ("tcgen05.ld.red.sync.aligned.32x32b.x2.min.u32 {r2, r2}, r1, [r4];", "r2 is there twice", None, "r2"),
    ("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {r1,r2,r3,r4}, {r1,r2,r3,r4}, {r5}, {r1,r2,r3,r4};",
     "operand b has 1 elements; it must have 2", None, "{r5}"),
]  # fmt: skip


@pytest.mark.parametrize("statement, message, hint, marked", MESSAGES, ids=[m[0][:30] for m in MESSAGES])
def test_errors_say_what_where_and_what_to_do(statement: str, message: str, hint: str | None, marked: str) -> None:
    error = errors(statement, "sm_103a" if "tcgen05" in statement else "sm_90a")[0]
    assert message in error.message
    assert (hint or "") in (error.hint or "")
    assert error.span is not None and error.span.text == marked and error.span.line == 14
    assert "PTX ISA" in (error.rule or "")


def test_target_and_version_decide() -> None:
    def said(statement: str, target: str, version: str) -> str:
        error = errors(statement, target, version)[0]
        return f"{error.message}: {error.hint}"

    elect = "elect.sync r1|p1, -1;"
    assert said(elect, "sm_80", "8.0") == "`elect.sync` is not available for .target sm_80: requires .target sm_90 or higher"
    assert said(elect, "sm_90", "7.8") == "`elect.sync` is not available in PTX ISA 7.8: requires .version 8.0 or higher"
    assert "one of sm_90a, sm_100a, sm_100f" in said("setmaxnreg.inc.sync.aligned.u32 64;", "sm_90", "8.0")
    assert "sm_90a" in str(errors("wgmma.fence.sync.aligned;", "sm_90", "8.0")[0])
    for where in (".entry k() { .reg .b128 w; ret; }", ".global .align 16 .b128 w;", ".func f(.param .b128 w) { ret; }"):
        text = f".version 8.2\n.target sm_90\n.address_size 64\n{where}"
        old, new = (verify(parse_module(Source("t", t))) for t in (text, text.replace("8.2", "8.3")))
        assert ".b128 needs PTX 8.3; this module says 8.2" in old[0].message and not new
    module = parse_module(Source("t", ".version 7.0\n.target sm_90\n.address_size 64\n"))
    assert ".target sm_90 needs PTX 7.8" in verify(module)[0].message


def test_all_errors_are_collected() -> None:
    module = parse_module(Source("t", text("add.s32 d1, r2, r3;\nnope.b32 r1;\nbra X;")))
    found = verify(module)
    assert [e.span.line for e in found if e.span] == [14, 15, 16]


CALLEE = ".func (.param .b32 r) f (.param .b64 a) { ret; }\n"


@pytest.mark.parametrize(
    "call, message",
    [
        ("call (o), f, (a);", None),
        ("call (o), f;", "0 arguments; the prototype has 1"),
        ("call f, (a);", "0 results; the prototype has 1"),
        ("call (o), f, (o);", "o has 4 bytes; the prototype has 8"),
        ("call (o), %x, (a);", "an indirect call needs a prototype"),
    ],
)
def test_calls_match_prototypes(call: str, message: str | None) -> None:
    kernel = f".entry k() {{ .reg .b64 %x; .param .b32 o; .param .b64 a; {call} ret; }}"
    found = verify(parse_module(Source("t", ".version 8.0\n.target sm_80\n.address_size 64\n" + CALLEE + kernel)))
    assert len(found) == bool(message)
    assert not message or message in found[0].message


def test_unsupported_instructions_are_named() -> None:
    statements = [f"{name}.whatever.b64 [r1], {{r1, r2}};" for name in ("tex", "fabric")]
    for statement in (*statements, "multimem.red.add.u32 [d1], r1;"):
        module = parse_module(Source("t", text(statement, "sm_100a", "9.5")))
        name = statement.partition(".whatever")[0].partition(".add")[0]
        assert verify(module) == ()
        (found,) = unsupported(module)
        assert found.name == name and found.reason and found.span.line == 14


ALL_ROWS = [row for chapter in CHAPTERS for row in chapter.ROWS]


def _forms(row: Row, limit: int = 60) -> Iterator[tuple[str, ...]]:
    """Modifiers of some forms of a row, in the order of the table."""
    choices = [(*(("",) if g.optional else ()), *g.choices) for g in row.slots]
    for count, picked in enumerate(product(*choices)):
        if count >= limit * 7:
            return
        if count % 7 == 0 or count < limit:
            yield tuple(p for p in picked if p)


@pytest.mark.parametrize("row", ALL_ROWS, ids=lambda r: f"{r.name}:{ALL_ROWS.index(r)}")
def test_rows_match_what_they_say(row: Row) -> None:
    """Every legal combination of a row's modifiers is found again, with those modifiers, in any order that is legal."""
    leading = [g for g in row.slots if g.name == row.leading]
    legal = 0
    for modifiers in _forms(row):
        fixed = row.fixed
        if leading and modifiers and modifiers[0] in leading[0].choices and leading[0] is row.slots[0]:
            written = (modifiers[0], *fixed, *modifiers[1:])
        else:
            written = (*fixed, *modifiers)
        form = match(row.opcode, written)
        if isinstance(form, NoForm):
            continue
        legal += 1
        meant = {(slot.name, slot.default) for slot in row.slots if slot.default not in written} | {*row.implied}
        assert sorted((*row.fixed, *(m for s, m in form.modifiers if (s, m) not in meant))) == sorted(written)
        assert match(form.opcode, tuple(str(form).split(".")[1:])) == form
        for operand in (o for signature in form.signatures for o in signature):
            assert operand.count >= 1
            assert not operand.type or type_bits(operand.type)
    assert legal, f"no form of {row.name} is legal"


def test_every_opcode_is_matched_by_its_own_name_only() -> None:
    for opcode, rows in ROWS.items():
        assert all(row.opcode == opcode for row in rows)
        found = match(opcode + "x", ())
        assert isinstance(found, NoForm) and opcode in (found.hint or opcode)
    assert isinstance(match("ret", ()), Form)
