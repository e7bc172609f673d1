"""Every row says what its instructions do besides computing, and nothing that looks at whole kernels knows opcodes."""

import ast
import re
from collections.abc import Iterator
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import pytest

from mmulator.base.codegen.lang import Native, native
from mmulator.base.codegen.ops import load, shuffle, store
from mmulator.base.codegen.types import ptr_to, u32
from mmulator.base.rules.values import UNDEFINED_STORE
from mmulator.base.source import Source
from mmulator.compiler import meaning
from mmulator.compiler.emit.emitter import Emitter
from mmulator.compiler.emit.shadow import Shadow
from mmulator.compiler.lowering import binding, definedness
from mmulator.compiler.lowering.operands import write_result
from mmulator.errors import InternalError
from mmulator.host.module import Module
from mmulator.isa import match, table
from mmulator.isa.effects import ACTS, Algebra, Effects, Ends, Flow, MemoryEffect, Ptxas, Queue, Step, Together
from mmulator.isa.form import Form, forms_of
from mmulator.isa.matrix import MATRIX_ROWS
from mmulator.isa.pieces import D_A_B, row, type_
from mmulator.isa.row import Row
from mmulator.isa.targets import PTX_VERSIONS
from mmulator.matrix.twin.moves import register_move
from mmulator.ptx.parser import parse_module
from mmulator.ptx.program.as_ptxas.contract import contract
from mmulator.ptx.program.blocks import build
from mmulator.ptx.program.counts import instruction_class
from mmulator.ptx.program.undefined import flow_of, takes_doubt
from mmulator.ptx.program.uses import accesses, registers_of, uses_and_defs
from mmulator.ptx.tree import Address, Instruction
from mmulator.runtime.options import CompileOptions
from mmulator.sanitizer.instrument import SANITIZE
from tests.support import row_forms, rows, sources
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
        assert takes_doubt(flow, ins, uses, {name}, set(), False, ()) or ins.opcode in DEFINED, f"{ins}: {name}"


# the masks of a launch ----------------------------------------------------------------------------------------------
VALUES = {"f32": "0f3F800000", "f64": "0d3FF0000000000000", "b128": "{%one, %one}"}
STORES = {"pred": "{ .reg .b32 %u; selp.b32 %u, 1, 0, @; st.global.b32 [%out], %u; }",
          "b128": "{ .reg .b64 %u, %v; mov.b128 {%u, %v}, @; st.global.b64 [%out], %u; }"}  # fmt: skip
HEAD = """.version {}.{}\n.target {}\n.address_size 64\n.visible .entry k(.param .u64 out)
{{ .reg .pred %even; .reg .b32 %t; .reg .b64 %out, %one; mov.b64 %one, 1; ld.param.u64 %out, [out]; mov.u32 %t, %tid.x;
and.b32 %t, %t, 1; setp.eq.u32 %even, %t, 0;
"""


def _type(name: str) -> str:
    return name[1:].rpartition("_")[0]


def _written(name: str, yes: bool, guard: str = "") -> str:
    match _type(name):
        case "pred":
            return f"{guard} setp.eq.u32 {name}, 1, {int(yes)};"
        case "b8":
            return f"{guard} cvt.u8.u32 {name}, 1;"
    return f"{guard} mov.{_type(name)} {name}, {VALUES.get(_type(name), '1')};"


def _without_value(ins: Instruction) -> Iterator[tuple[list[str], bool]]:
    """(registers without a value, value of the predicates): each source in turn, or as many as the result's flow wants."""
    flow = flow_of(ins)
    read = [[*registers_of(o)] for access, o in accesses(ins) if "r" in access and not isinstance(o, Address)]
    sources = [names for names in read if names]
    if sources and flow in (Flow.ANY, Flow.PICKS):
        yield [*chain(*sources)], True
    elif flow is Flow.CHOICE and _type(sources[2][0]) != "pred":  # whether a number selects a or b is not computed twice
        yield from ((sources[0] + sources[1], True), (sources[2], True))
    else:
        neutral = ins.form["boolop"] != "or" and ins.effects.algebra is not Algebra.OR
        yield from ((names, neutral != (flow is Flow.CHOICE and n == 1)) for n, names in enumerate(sources))


def _case(statement: str, ins: Instruction, lost: list[str], yes: bool) -> str:
    """Three lines: registers, of which some have no value (in odd lanes, if lanes are on their own); the statement; a store."""
    members = [*registers_of(ins.operands[-1])] if ins.effects.together is Together.MEMBERS else []
    names = {n: access for access, o in accesses(ins) for n in registers_of(o)}
    lines = [f".reg .{_type(n)} {n};" for n in names]
    for n in (n for n, access in names.items() if access == "r" and n not in lost):
        lines.append(f"mov.b32 {n}, -1;" if n in members else _written(n, yes))
    if ins.effects.together is Together.ALONE:
        lines += (_written(n, yes, "@%even") for n in lost)
    stored = next(n for n, access in names.items() if access == "w")
    store = STORES.get(_type(stored), f"st.global.{_type(stored)} [%out], @;").replace("@", stored)
    return f"{{ {' '.join(lines)}\n{statement}\n{store} }}\n"


def _statement(f: Form) -> tuple[str, str]:
    target = "sm_120a" if f.requires.minimum > 90 and f.effects.multiplies else rows.target_of(f)
    return target, f"{f} {', '.join(row_forms.operands(f))};"


def _cases() -> dict[str, list[tuple[str, bool]]]:
    """By target: (text, whether lanes are on their own) of rows whose results follow from registers."""
    found: dict[str, list[tuple[str, bool]]] = {}
    statements = [(target, texts[0]) for r in SCALAR if r.opcode not in (*rows.WRITTEN, *DEFINED)
                  for target, texts, runs in rows.groups(r) if runs]  # fmt: skip
    runs = [f for f in MATRIX.values() if f.status.runs]
    shapes = {(f.name, f.shape, f.sparse, f.block_scale, f.atype.bits, f.ctype == f.dtype): f for f in runs}
    statements += map(_statement, shapes.values())
    for target, text in statements:
        (ins, *_) = parse_module(Source("rows.ptx", rows.text_of([text], target))).entries[0].instructions
        results = [n for access, o in accesses(ins) if access == "w" for n in registers_of(o)]
        if results and ins.effects.memory is MemoryEffect.NONE and flow_of(ins) is not Flow.DEFINED:
            alone = ins.effects.together is Together.ALONE
            found.setdefault(target, []).extend((_case(text, ins, *way), alone) for way in _without_value(ins))
    return found


def test_a_launch_finds_what_has_no_value() -> None:
    """Each source of each row in turn has no value, and the sanitizer finds that the result is stored without one."""
    counted = 0
    for target, cases in _cases().items():
        for part in (cases[n : n + 50] for n in range(0, len(cases), 50)):
            text = HEAD.format(*PTX_VERSIONS[-1], target)
            first = text.count("\n") + 1
            text += "".join(case for case, _ in part) + "ret; }\n"
            report = Module.load(text, name="k.ptx")["k"].launch(1, 32, [np.zeros(2, np.uint64)], sanitize=True)
            found = {int(f.location.split(":")[1]): f.threads for f in report.findings if f.rule == UNDEFINED_STORE.name}
            for n, (case, alone) in enumerate(part):
                threads = found.get(first + 3 * n + 2)
                assert threads is not None, f"nothing is found: {case}"
                assert not alone or "lanes 1, 3, 5" in threads, f"{threads}: {case}"
                counted += 1
    assert counted > 500


def test_a_guarded_instruction_gives_its_results_a_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a row writes in the lanes that its guard lets through has new marks, also where its code ends the block."""
    marked: set[str] = set()
    found: dict[str, set[str]] = {}

    def follow(where: Any, name: str, at: tuple[Ends, ...]) -> None:
        """Record which results have no new marks after each call of a function that writes an instruction."""
        old = getattr(where, name)

        def write(e: Emitter, ins: Instruction) -> None:
            marked.clear()
            old(e, ins)
            if ins.effects.ends in at and e.shadow is not None:
                found[str(ins)] = {n for n in _results(ins) if e.shadow.doubts(n)} - marked
                seen.update(n for n in _results(ins) if e.shadow.doubts(n))

        monkeypatch.setattr(where, name, write)

    seen: set[str] = set()
    set_mask = Shadow.set

    def mark(shadow: Shadow, name: str, *masks: Any) -> None:
        marked.add(name)
        set_mask(shadow, name, *masks)

    monkeypatch.setattr(Shadow, "set", mark)
    follow(meaning, "write", (Ends.NO, Ends.WAIT))
    follow(definedness, "received", (Ends.CALL, Ends.BARRIER))
    texts = [(target, text) for r in SCALAR if r.opcode not in rows.WRITTEN for target, some, runs in rows.groups(r) if runs
             for text in some[:2]]  # fmt: skip
    for target, text in [*texts, *map(_statement, (f for f in MATRIX.values() if f.status.runs))]:
        (ins, *_) = parse_module(Source("rows.ptx", rows.text_of([text], target))).entries[0].instructions
        names = _results(ins)
        stores = " ".join(STORES.get(_type(n), f"st.global.{_type(n)} [%out], @;").replace("@", n) for n in sorted(names))
        if names:
            seen.clear()
            head = ".reg .b64 %out; .reg .pred %if; mov.b64 %out, 0; setp.eq.u32 %if, 0, 0;"
            rows.write_blocks(rows.text_of([f"{head} @%if {text} {stores}"], target), CompileOptions(events=SANITIZE))
            assert names <= seen, text
    assert len(found) > 300 and not {text: names for text, names in found.items() if names}


def _results(ins: Instruction) -> set[str]:
    return {n for access, o in accesses(ins) if "w" in access and not isinstance(o, Address) for n in registers_of(o)}


@native
def interleave(a: ptr_to(u32), b: ptr_to(u32), d: ptr_to(u32)) -> None:
    """d[lane] = a[lane + 1] in even lanes, b[lane - 1] in odd ones."""
    store(shuffle(load(u32.vec(32), a), load(u32.vec(32), b), [n + 1 if n % 2 == 0 else 31 + n for n in range(32)]), d)


def _interleave(move: Native, e: Emitter, ins: Instruction) -> None:
    d, *sources = ins.operands
    out = e.room(u32.vec(32))
    e.call(interleave, *(e.spill(u32.vec(32)(e.source(o, "b32"))) for o in sources), out)
    write_result(e, d, e.fetch(out, u32.vec(32)), ins)
    definedness.moved(e, ins, move)


def _interleaves(lost: str, move: Native, monkeypatch: pytest.MonkeyPatch) -> str:
    """The threads that a finding names, of a launch in which a register has no value in every fourth lane."""
    effects = Effects(together=Together.WARP, flow=Flow.MOVED)
    new = row("interleave", (type_("b32"),), D_A_B, "Nowhere: interleave", effects=effects)
    monkeypatch.setattr(table, "ROWS", {**table.ROWS, "interleave": (new,)})
    meaning = binding.Meaning(partial(_interleave, move), False)
    monkeypatch.setitem(binding._meanings, ("Nowhere: interleave", "interleave"), {"": meaning})
    match.match.cache_clear()
    other = "%b" if lost == "%a" else "%a"
    body = f""".reg .b32 %a, %b, %d, %t; .reg .b64 %out; .reg .pred %p; ld.param.u64 %out, [out]; mov.u32 %t, %tid.x;
    and.b32 %t, %t, 2; setp.eq.u32 %p, %t, 0; mov.u32 {other}, 1; @%p mov.u32 {lost}, 2;
    interleave.b32 %d, %a, %b;\n st.global.b32 [%out], %d; ret;"""
    text = f".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry {move.name}(.param .u64 out) {{ {body} }}"
    report = Module.load(text)[move.name].launch(1, 32, [np.zeros(1, np.uint32)], sanitize=True)
    return next(f.threads for f in report.findings if f.rule == UNDEFINED_STORE.name)


def test_values_move_from_several_registers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lanes of a result whose value comes from a lane without one, of either source."""
    assert "lanes 2, 6, 10" in _interleaves("%a", interleave, monkeypatch)
    assert "lanes 3, 7, 11" in _interleaves("%b", interleave, monkeypatch)


def test_a_movement_says_all_its_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InternalError, match=r"2 sources and 1 results: .* needs a function of a pointer for each"):
        _interleaves("%b", register_move(MATRIX["movmatrix.sync.aligned.m8n8.trans.b16"]), monkeypatch)


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
SOURCE = sources.SOURCE
FILES = [p for p in sources.FILES if p.parent != SOURCE / "ptx"]
# Chapters, files for some instructions, and folders that name instructions to people or have functions of the same names: they
# name what they are about, and decide by a row's columns all the same.
NAMING = {"meaning", "lowering", "isa", "cli", "codegen", "conformance", "doors", "explore", "inspect", "instruction", "layouts",
          "numerics", "rules", "twin"}  # fmt: skip
CHAPTERS = [p for p in FILES if NAMING & {*p.relative_to(SOURCE).parts}]
WORDS = {"and", "or", "xor", "not", "add", "min", "max", "set", "match", "barrier", "call", "exit", "popc", "mbarrier",
         "tensormap"}  # fmt: skip
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
                decides = any(map(_reads_name, sides)) and any(_is_constant(s) for s in sides if not _reads_name(s))
            case ast.Subscript(table, index) | ast.Call(ast.Attribute(table, "get"), [index, *_]):
                decides = _reads_name(index) and _is_constant(table)
            case ast.Match(subject):
                decides = _reads_name(subject)
            case _:
                decides = False
        if decides:
            found.append(ast.unparse(node))
    return found


def decided() -> dict[str, list[str]]:
    """Decisions by opcode of every file that has some."""
    found = {}
    said_or_read = re.compile(rf"opcode|mnemonic|form\.name|[\"'}}](?:{'|'.join(map(re.escape, OPCODES))})[\"'{{]")
    for path, tree in sources.trees(said_or_read, FILES):
        judge = opcode_decisions if path in CHAPTERS else decisions
        if said := judge(tree):
            found[str(path.relative_to(SOURCE))] = said
    return found


def test_nothing_is_decided_by_opcode() -> None:
    assert len(FILES) > 500 and not decided()


def _reads_family(node: ast.AST) -> bool:
    """Whether a family is among the values of an expression; `Target.family()` is of chips."""
    called = {id(n.func) for n in ast.walk(node) if isinstance(n, ast.Call)}
    return any(isinstance(n, ast.Attribute) and n.attr == "family" and id(n) not in called for n in ast.walk(node))


def family_decisions(tree: ast.AST) -> list[str]:
    """What compares a family, matches it, or looks something up by it."""
    found = []
    for node in ast.walk(tree):
        match node:
            case ast.Compare(left, _, others):
                decides = any(map(_reads_family, (left, *others)))
            case ast.Subscript(_, asked) | ast.Match(asked) | ast.Call(ast.Attribute(_, "get"), [asked, *_]):
                decides = _reads_family(asked)
            case ast.Call(ast.Attribute(asked, "startswith" | "endswith")):
                decides = _reads_family(asked)
            case _:
                decides = False
        if decides:
            found.append(ast.unparse(node))
    return found


def test_families_decide_little() -> None:
    """Where all depends on the family a table by family says it; what a row's column says is asked there."""
    found = [(p.name, text) for p, tree in sources.trees(re.compile("family")) for text in family_decisions(tree)]
    assert len(found) < 40, found


@pytest.mark.parametrize("text", [
    "f.family == 'wgmma'", "f.family not in X", "'a' in f.family", "X[f.family]", "X.get(f.family, 1)",
    "f.family.startswith('w')", "match f.family:\n  case 'a': pass", "X[f'{f.family}.{f.op}']",
])  # fmt: skip
def test_a_decision_by_family_is_recognised(text: str) -> None:
    assert family_decisions(ast.parse(text)) and not family_decisions(ast.parse("a.family() == b; f(x.family)"))


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
