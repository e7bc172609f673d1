"""The verifier: verdicts of ptxas on single statements, texts of errors, and laws of the scalar tables."""

import shutil
import subprocess
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

from mmulator.base.source import Source
from mmulator.errors import InvalidInstructionError, PtxSyntaxError
from mmulator.isa.fit import NoForm
from mmulator.isa.form import Form
from mmulator.isa.match import match
from mmulator.isa.row import Row
from mmulator.isa.table import CHAPTERS, ROWS
from mmulator.isa.types import type_bits
from mmulator.ptx.parser import parse_module
from mmulator.ptx.program.runnable import unsupported
from mmulator.ptx.verify import verify
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


def test_all_errors_are_collected() -> None:
    module = parse_module(Source("t", text("add.s32 d1, r2, r3;\nnope.b32 r1;\nbra X;")))
    found = verify(module)
    assert [e.span.line for e in found if e.span] == [14, 15, 16]


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
