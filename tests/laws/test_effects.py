"""Every row says what its instructions do besides computing, and nothing that looks at whole kernels knows opcodes."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mmulator.isa import match, table
from mmulator.isa.effects import ACTS, Effects, Ends, Flow, MemoryEffect, Ptxas, Queue, Step, Together
from mmulator.isa.form import forms_of
from mmulator.isa.matrix import MATRIX_ROWS
from mmulator.isa.pieces import D_A_B, row, type_
from mmulator.isa.row import Row
from mmulator.program.as_ptxas.contract import contract
from mmulator.program.blocks import build
from mmulator.program.counts import instruction_class
from mmulator.program.undefined import flow_of, takes_doubt
from mmulator.program.uses import accesses, registers_of, uses_and_defs
from mmulator.ptx.parser import parse_module
from mmulator.ptx.tree import Address, Instruction
from mmulator.source import Source
from tests.support import rows
from tests.support.ptx_text import kernel

SCALAR = [r for rows in table.ROWS.values() for r in rows if r.signatures is None]
NAMES_AN_ADDRESS = {"createpolicy.range", "fence.proxy.tensormap::generic"}  # and does not go there


def _variants(effects: Effects) -> Iterator[Effects]:
    yield effects
    yield from (e for _, e in effects.variants)


def _matrix() -> Iterator[tuple[str, Any]]:
    for r in MATRIX_ROWS:
        form = next(forms_of(r))
        yield form.mnemonic, form


MATRIX = dict(_matrix())


@pytest.mark.parametrize("opcode", dict.fromkeys(r.opcode for r in SCALAR))
def test_rows_say_what_they_do(opcode: str) -> None:
    for r in table.ROWS[opcode]:
        if r.open:
            assert r.effects == ACTS, "not modelled: it promises nothing"
        else:
            _says_what_it_does(r)


def _says_what_it_does(r: Row) -> None:
    choices = {c for slot in r.slots for c in slot.choices}
    assert {m for m, _ in r.effects.variants} <= choices, "a variant that no form has"
    writes = any("w" in o.access for o in r.operands)
    addresses = any(o.kind in ("addr", "tensor") for o in r.operands) and r.name not in NAMES_AN_ADDRESS
    mask = bool(r.operands) and r.operands[-1].name == "membermask"
    for e in _variants(r.effects):
        assert writes or not e.pure, "without a result it would be removed: what does it do?"
        assert (e.memory is not MemoryEffect.NONE) == addresses
        assert (e.together in (Together.MEMBERS, Together.MEETING)) == mask
        assert bool(e.carry) == r.section.title.startswith("Extended-Precision")
        assert (e.carry in ("w", "rw")) == ("cc" in r.fixed or ("cc" in choices and e is not r.effects))
        if writes and (e.memory is not MemoryEffect.NONE or e.together is not Together.ALONE or e.ends is not Ends.NO):
            assert e.flow is not Flow.EACH, "its results are not the lane's own: where do they come from?"
        assert e.approximate == any(slot.name in ("approx", "full") for slot in r.slots)
        _consistent(e)


@pytest.mark.parametrize("name", MATRIX)
def test_a_matrix_row_says_what_it_does(name: str) -> None:
    form = MATRIX[name]
    e: Effects = form.effects
    operands = [o for signature in form.signatures for o in signature]
    assert (e.memory is not MemoryEffect.NONE) == any(o.kind in ("address", "descriptor") for o in operands)
    assert e.together is (Together.WARPGROUP if form.lanes == 128 else Together.WARP)
    assert e.multiplies == (form.op in ("mma", "mma_async")) == bool(form.k and form.atype)
    assert set(e.pinned) <= {o.name for o in operands} and bool(e.pinned) == (e.step is Step.ISSUE)
    assert e.counted_as
    assert (e.flow is Flow.EACH) == (e.memory is MemoryEffect.WRITE or not any("w" in o.access for o in operands))
    _consistent(e)


# Results that have a value whatever the registers have that the instruction reads, and what of it.
DEFINED = {
    "mbarrier": "arrivals and phases are those of the mbarrier in memory", "bar": "an answer of the whole block",
    "barrier": "an answer of the whole block", "elect": "the mask names the lanes", "call": "the callee gives it",
}  # fmt: skip


@pytest.mark.parametrize("opcode", dict.fromkeys(r.opcode for r in SCALAR if r.opcode not in rows.WRITTEN))
def test_what_has_no_value_leaves_none(opcode: str) -> None:
    """A register that an instruction reads and that has no value leaves the results without one."""
    for r in (r for r in table.ROWS[opcode] if not r.open):
        for target, statements, runs in rows.groups(r):
            if runs:
                function = parse_module(Source("rows.ptx", rows.text_of(statements[:12], target))).entries[0]
                for ins in function.instructions:
                    _leaves_none(ins)


def _leaves_none(ins: Instruction) -> None:
    flow, (uses, defs) = flow_of(ins), uses_and_defs(ins)
    values = {n for access, o in accesses(ins) if "r" in access and not isinstance(o, Address) for n in registers_of(o)}
    if not defs or ins.effects.flow in (Flow.LOADED, Flow.ROWS, Flow.TILE, Flow.WGMMA):  # of memory
        return
    for name in values:
        assert takes_doubt(flow, ins, uses, {name}, set(), False) or ins.opcode in DEFINED, f"{ins}: {name}"


def _consistent(e: Effects) -> None:
    acts = e.ends is not Ends.NO or e.queue is not Queue.NONE or e.allocates
    acts |= e.memory not in (MemoryEffect.NONE, MemoryEffect.READ) or e.together in (Together.LIVE, Together.MEETING)
    assert not (acts and e.pure)
    assert e.ptxas is not Ptxas.SELECTED or (e.memory is MemoryEffect.NONE and e.together is Together.ALONE)
    assert (e.queue is Queue.NONE) == (e.step is Step.NONE)
    assert e.ends is not Ends.WAIT or e.step is (Step.NONE if e.queue is Queue.NONE else Step.WAIT)


FUSES = "  mul.f32 %f3, %f1, %f2;\n  {}\n  add.f32 %f4, %f3, %f5;\n  st.global.f32 [%rd0], %f4;"


@pytest.mark.parametrize(
    "body", ["newcomer.u32 %r3, %r1, %r2;", "@%p1 newcomer.u32 %r3, %r1, %r2;", "newcomer.f32 %f6, %f3, %f3;"]
)
def test_a_row_that_says_nothing_is_lane_wise(body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guarded it is no branch, and dead it keeps no product alive: both would change the bits of other instructions."""
    new = row("newcomer", (type_("u32", "f32"),), D_A_B, "Nowhere: newcomer")
    monkeypatch.setattr(table, "ROWS", {**table.ROWS, "newcomer": (new,)})
    module = parse_module(Source("test.ptx", kernel(FUSES.format(body))))
    match.match.cache_clear()
    function = contract(module.entries[0])
    assert "fma" in {i.opcode for i in function.instructions}
    found = next(i for i in function.instructions if i.opcode == "newcomer")
    assert instruction_class(found) == ("float" if ".f32" in body else "integer")
    assert found in build(module, function).blocks[0].body or found.guard is not None


# nobody else knows opcodes -----------------------------------------------------------------------------------------
SOURCE = Path(__file__).parents[2] / "src" / "mmulator"
HOUSES = ("native", "sanitizer", "compiler", "launch", "diagnostics", "host")
FILES = sorted(p for folder in ("isa", "program", *HOUSES, "driver") for p in (SOURCE / folder).rglob("*.py"))
# Chapters, one file for some instructions: they name what they are about, and decide by a row's columns all the same.
CHAPTERS = [p for p in FILES if {"meaning", "lowering", "isa"} & {*p.parts}]
WORDS = {"and", "or", "xor", "not", "add", "min", "max", "set", "match", "barrier", "call", "exit", "popc", "mbarrier"}
OPCODES = {n for r in SCALAR for n in (r.name, r.opcode)} | {f.family for f in MATRIX.values()}
OPCODES -= WORDS


def _strings(node: ast.AST) -> set[str]:
    return {n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)}


def _reads_opcode(node: ast.AST) -> bool:
    return any(isinstance(n, ast.Attribute) and n.attr == "opcode" for n in ast.walk(node))


def _reads_name(node: ast.AST) -> bool:
    """Whether something is a form's or an instruction's name."""
    return any(isinstance(n, ast.Attribute) and (n.attr in ("opcode", "mnemonic") or ast.unparse(n).endswith("form.name"))
               for n in ast.walk(node))  # fmt: skip


def _decides(node: ast.AST) -> bool:
    match node:
        case ast.Call(ast.Attribute(subject, "startswith" | "endswith")) if _reads_name(subject):
            return True
        case ast.Compare(left, _, others):
            reads = [_reads_opcode(side) for side in (left, *others)]
            return (any(reads) and not all(reads)) or bool(_strings(node) & OPCODES)
        case ast.Match(subject, cases):
            return _reads_opcode(subject) or any(_strings(c.pattern) & OPCODES for c in cases)
        case ast.Subscript(_, index):
            return _reads_opcode(index)
        case ast.Call(ast.Attribute(ast.Name(), "get"), arguments):
            return any(map(_reads_opcode, arguments))
        case ast.Set(elements) | ast.Call(ast.Name("set" | "frozenset" | "dict"), elements):
            return len(set().union(*map(_strings, elements)) & OPCODES) > 1
        case ast.Dict(keys):
            return len(set().union(*(_strings(k) for k in keys if k is not None)) & OPCODES) > 1
    return False


def decisions(tree: ast.AST) -> list[str]:
    """What decides by an opcode: a comparison of one, a match, a look-up; and collections of opcodes."""
    return [ast.unparse(node) for node in ast.walk(tree) if _decides(node)]


def _is_constant(node: ast.AST) -> bool:
    """Whether an expression holds names that are written down: a string, or a table by its name."""
    return bool(_strings(node)) or any(isinstance(n, ast.Name) and n.id.isupper() for n in ast.walk(node))


def opcode_decisions(tree: ast.AST) -> list[str]:
    """What compares an instruction's opcode with names that are written down, or looks it up among such."""
    found = []
    for node in ast.walk(tree):
        match node:
            case ast.Compare(left, _, others):
                sides = (left, *others)
                decides = any(map(_reads_opcode, sides)) and any(_is_constant(s) for s in sides if not _reads_opcode(s))
            case ast.Subscript(table, index) | ast.Call(ast.Attribute(table, "get"), [index, *_]):
                decides = _reads_opcode(index) and _is_constant(table)
            case ast.Match(subject):
                decides = _reads_opcode(subject)
            case _:
                decides = False
        if decides:
            found.append(ast.unparse(node))
    return found


def decided() -> dict[str, list[str]]:
    """Decisions by opcode of every file that has some."""
    found = {}
    for path in FILES:
        judge = opcode_decisions if path in CHAPTERS else decisions
        if said := judge(ast.parse(path.read_text())):
            found[str(path.relative_to(SOURCE))] = said
    return found


def test_nothing_is_decided_by_opcode() -> None:
    assert len(FILES) > 300 and not decided()


@pytest.mark.parametrize("text", [
    "if ins.opcode in X: pass", "ins.opcode == 'ld'", "A = {'ld', 'st'}", "A = frozenset(('bra', 'ret'))", "form.name == 'wgmma'",
    "match ins.opcode:\n  case 'a': pass", "A[ins.opcode]", "A.get(ins.opcode)", "A = {'ld': 1, 'st': 2}", "x.name == 'bar.sync'",
    "ins.form.name.startswith('fence')", "ins.mnemonic.startswith('cp.async')",
])  # fmt: skip
def test_a_decision_is_recognised(text: str) -> None:
    assert decisions(ast.parse(text))


@pytest.mark.parametrize(("text", "decides"), [
    ("ins.opcode in X: pass", True), ("ins.opcode == 'ld'", True), ("A[ins.opcode]", True), ("A.get(ins.opcode, 1)", True),
    ("match ins.opcode:\n  case 'a': pass", True), ("ins.opcode[-1] in _SIMD", True), ("row.opcode == family", False),
    ("a.opcode == b.opcode", False), ("rows[row.opcode]", False), ("form['op'] == 'add'", False),
])  # fmt: skip
def test_a_decision_by_opcode_is_recognised(text: str, decides: bool) -> None:
    assert bool(opcode_decisions(ast.parse(text.replace(": pass", "") if not text.startswith("match") else text))) is decides
