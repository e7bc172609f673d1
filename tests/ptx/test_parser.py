"""The parser: real kernels, laws of the tree, constants, error texts, and text that is broken at random."""

import random
import re
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mmulator.base.source import Source, Span
from mmulator.errors import PtxSyntaxError
from mmulator.ptx.parser import parse_module
from mmulator.ptx.program.runnable import unsupported
from mmulator.ptx.resources import parameter_offsets
from mmulator.ptx.tree import (
    Address,
    Immediate,
    Instruction,
    LabelRef,
    ParsedModule,
    PredicatePair,
    Reg,
    Sink,
    SpecialRegister,
    Symbol,
    f64_to_f32_bits,
    flatten,
)
from mmulator.ptx.verify import verify
from tests.support import places

KERNELS = sorted((places.KERNELS / "ptx").glob("*.ptx"))
HEAD = ".version 8.7\n.target sm_90a\n.address_size 64\n"


def parse(text: str, head: str = HEAD) -> ParsedModule:
    return parse_module(Source("test.ptx", head + text))


def body(statements: str, declarations: str = "") -> ParsedModule:
    registers = ".reg .pred %p<9>; .reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .f32 %f<9>; .reg .f64 %fd<9>;"
    return parse(f"{declarations}\n.visible .entry k(.param .u64 x)\n{{\n{registers}\n{statements}\nret;\n}}\n")


def first(statements: str, declarations: str = "") -> Instruction:
    return next(iter(body(statements, declarations).entries[0].instructions))


@pytest.mark.parametrize("path", KERNELS, ids=lambda p: p.stem)
def test_real_kernels(path: Path) -> None:
    """Every statement is there once, with the text it was read from; every name it uses is declared."""
    source = Source(path.name, path.read_text())
    module = parse_module(source)
    assert verify(module) == ()
    for function in module.functions:
        end = 0
        labels = function.labels
        known = {p.name for p in (*function.params, *function.returns)} | {v.name for v in function.variables}
        known |= {v.name for v in module.variables} | {f.name for f in module.functions}
        known |= {*function.prototypes, *function.targets}
        for statement in function.body:
            assert statement.span.start >= end
            end = statement.span.end
            if not isinstance(statement, Instruction):
                continue
            assert statement.span.text.endswith(";")
            assert re.sub(r"\s", "", statement.mnemonic_span.text) == statement.mnemonic
            for operand in statement.operands:
                assert operand.span.text in statement.span.text
                for leaf in flatten((operand,)):
                    if isinstance(leaf, Reg):
                        assert function.registers[leaf.name] == leaf.type
                        assert leaf.span.text == leaf.name.partition("@")[0]
                    elif isinstance(leaf, LabelRef):
                        assert leaf.name in labels
                    elif isinstance(leaf, Symbol):
                        assert leaf.name in known


def test_scopes_are_flattened_with_unique_names() -> None:
    function = body(
        """
        mov.b32 %r1, 1;
        { .reg .b32 %r1; .reg .pred q; .local .b32 v;
          LOOP: mov.b32 %r1, 2;
          { .reg .b32 %r1; LOOP: mov.b32 %r1, 3; bra LOOP; bra DONE; }
          @q bra LOOP;
          st.local.b32 [v], %r2;
        }
        { .reg .b32 %r1; mov.b32 %r1, 4; }
        mov.b32 %r1, 5;
        DONE:
        """
    ).entries[0]
    written = [i.operands[0].name for i in function.instructions if i.opcode == "mov"]  # type: ignore[union-attr]
    assert written == ["%r1", "%r1@1", "%r1@2", "%r1@3", "%r1"]
    assert [i.operands[0].name for i in function.instructions if i.opcode == "bra"] == ["LOOP@2", "DONE", "LOOP@1"]  # type: ignore[union-attr]
    assert set(function.labels) == {"LOOP@1", "LOOP@2", "DONE"}
    assert [v.name for v in function.variables] == ["v@1"]
    assert function.registers["q@1"] == "pred"


def test_operands() -> None:
    pair = first("setp.lt.s32 %p1|_, %r1, -5;").operands
    assert isinstance(pair[0], PredicatePair) and isinstance(pair[0].q, Sink)
    assert isinstance(pair[2], Immediate) and pair[2].value == -5
    load = first("@!%p3 ld.global.v2.b32 {%r1, _}, [%rd1 + -8];")
    assert load.guard is not None and load.guard[1] and load.guard[0].name == "%p3"
    address = load.operands[1]
    assert isinstance(address, Address) and address.offset == -8 and load.form is not None
    assert load.form["vec"] == "v2" and load.form["space"] == "global"  # type: ignore[index]
    indexed = first("ld.global.u32 %r1, a[3];", ".global .u32 a[8];").operands[1]
    assert isinstance(indexed, Address) and indexed.offset == 12
    special = first("mov.u32 %r1, %tid.x;").operands[1]
    assert special == SpecialRegister("tid.x", special.span)
    element = first("mov.b64 %rd1, a[3];", ".global .u32 a[8];").operands[1]
    assert isinstance(element, Symbol) and (element.name, element.offset) == ("a", 12)
    name = first("mov.b64 %rd1, a+16;", ".global .u32 a[8];").operands[1]
    assert isinstance(name, Symbol) and (name.offset, name.space) == (16, "global")


def test_call_and_lists() -> None:
    module = body(
        """
        { .param .b32 out; .param .b64 in;
          call.uni (out), f, (in);
          call (out), %rd1, (in), proto;
          call g;
        }
        table: .branchtargets A, B;
        proto: .callprototype (.param .b32 _) _ (.param .b64 _) .noreturn;
        brx.idx %r1, table;
        A: B:
        """,
        ".func (.param .b32 r) f (.param .b64 a);\n.func g;",
    )
    function = module.entries[0]
    assert verify(module) == ()
    shapes = [[type(o).__name__ for o in i.operands] for i in function.instructions if i.opcode == "call"]
    assert shapes == [
        ["ArgumentList", "Symbol", "ArgumentList"],
        ["ArgumentList", "Reg", "ArgumentList", "Symbol"],
        ["ArgumentList", "Symbol", "ArgumentList"],
    ]
    assert [t.name for t in function.targets["table"].targets] == ["A", "B"]


@pytest.mark.parametrize(
    "declaration, size, align, initial",
    [
        (".global .b32 v = -1;", 4, 4, b"\xff\xff\xff\xff"),
        (".global .align 16 .b8 v[] = {1, 0x2, 03, 0b100};", 4, 16, bytes([1, 2, 3, 4])),
        (".const .u16 v[2][3] = {{1}, {2, 3}};", 12, 2, struct.pack("<5H", 1, 0, 0, 2, 3)),
        (".global .f32 v[2] = {1.5, 0fc0000000};", 8, 4, struct.pack("<2f", 1.5, -2)),
        (".global .f64 v = -2.5e3;", 8, 8, struct.pack("<d", -2500)),
        (".global .v4 .b16 v[2] = {{1, 2}, {3}};", 16, 8, struct.pack("<5H", 1, 2, 0, 0, 3)),
        (".global .u64 v[3] = {5, w, 7};", 24, 8, struct.pack("<3Q", 5, 0, 7)),
        (".shared .align 8 .b8 v[33];", 33, 8, None),
        (".extern .shared .b8 v[];", 0, 1, None),
    ],
)
def test_variables(declaration: str, size: int, align: int, initial: bytes | None) -> None:
    variable = parse(".global .b8 w[4];\n" + declaration).variables[1]
    assert (variable.size, variable.align, variable.initial) == (size, align, initial)


def test_symbol_initialisers() -> None:
    found = parse(".global .b8 w[4];\n.global .b8 v[4] = {7, 0xff(w), 0xFF00(w), 1};").variables[1].symbols
    assert [(s.offset, s.size, s.symbol, s.mask) for s in found] == [(1, 1, "w", 0xFF), (2, 1, "w", 0xFF00)]
    found = parse(".global .b8 w[4];\n.global .u64 v[2] = {w+4, generic(w)+8};").variables[1].symbols
    assert [(s.offset, s.addend, s.generic) for s in found] == [(0, 4, False), (8, 8, True)]


def test_parameter_offsets_follow_alignment() -> None:
    module = parse(".entry k(.param .b8 a, .param .u64 b, .param .u16 c, .param .align 16 .b8 d[20], .param .f32 e) { ret; }")
    assert parameter_offsets(module.entries[0].params) == (0, 8, 16, 32, 52)


@pytest.mark.parametrize(
    "text, literal, value",
    [
        ("0x1F", "int", 31), ("017", "int", 15), ("0b101", "int", 5), ("42U", "int", 42), ("-8388608", "int", -8388608),
        ("WARP_SZ", "int", 32), ("(1+2)*3", "int", 9), ("~0", "int", -1), ("!5", "int", 0), ("1 << 4 | 3", "int", 19),
        ("7 > 3 ? 10 : 20", "int", 10), ("-7 / 2", "int", -3), ("-7 % 2", "int", -1), ("-1 >> 1", "int", -1),
        ("(.u64)-1 >> 60", "int", 15), ("0xffffffffffffffff", "int", 2**64 - 1), ("2 + 3 * 4 - 1", "int", 13),
        ("0f3F800000", "f32", 0x3F800000), ("1.0 + 2.5", "f64", 0x400C000000000000), (".5", "f64", 0x3FE0000000000000),
        ("-2.", "f64", 0xC000000000000000),
        ("1.5", "f64", 0x3FF8000000000000),
        ("0d3FF8000000000000", "f64", 0x3FF8000000000000), ("2.5e-3", "f64", 0x3F647AE147AE147B),
    ],
)  # fmt: skip
def test_constants(text: str, literal: str, value: int) -> None:
    operand = first(f"mov.b64 %rd1, {text};").operands[1]
    assert isinstance(operand, Immediate) and (operand.literal, operand.value) == (literal, value)
    assert operand.span.text == text


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1), st.sampled_from(["+", "-", "*", "&", "|", "^"]))
@settings(max_examples=150, deadline=None)
def test_constant_arithmetic_wraps_like_int64(a: int, b: int, operator: str) -> None:
    operand = first(f"mov.b64 %rd1, ({a}) {operator} ({b});").operands[1]
    with np.errstate(over="ignore"):
        expected = {"+": np.add, "-": np.subtract, "*": np.multiply, "&": np.bitwise_and, "|": np.bitwise_or,
                    "^": np.bitwise_xor}[operator](np.int64(a), np.int64(b))  # fmt: skip
    assert isinstance(operand, Immediate) and operand.bits("b64") == int(expected) % 2**64


@given(st.integers(0, 2**64 - 1))
@settings(max_examples=500, deadline=None)
def test_double_constant_rounds_to_single_as_numpy(bits: int) -> None:
    with np.errstate(all="ignore"):
        expected = np.array([bits], np.uint64).view(np.float64).astype(np.float32)
    got = np.array([f64_to_f32_bits(bits)], np.uint32).view(np.float32)
    assert np.array_equal(got, expected, equal_nan=True)


@pytest.mark.parametrize("type, bits", [("b8", 0xFF), ("u16", 0xFFFF), ("s32", 2**32 - 1), ("b64", 2**64 - 1), ("pred", 1)])
def test_integer_constant_takes_the_size_of_its_operand(type: str, bits: int) -> None:
    source = Source("", "-1")
    assert Immediate(-1, "int", Span(source, 0, 2)).bits(type) == bits


@pytest.mark.parametrize("opening", ["(", "{", "[", "-", "~", "1?", "!", "a|", "1+(", "[a,{", "{("])
def test_deep_nesting_is_an_error_not_a_crash(opening: str) -> None:
    with pytest.raises(PtxSyntaxError):
        body(f"mov.b32 %r1, {opening * 5000};")
    with pytest.raises(PtxSyntaxError):
        parse(f".global .b32 a[2] = {opening * 5000};")


JUNK = [*"{}[]();,.:|!@%$<>\"'/*+-=?~^&#\n\0é", "0x", "/*", "//", ".reg", "99999999999999999999", "0f", "1e999", "<5>",
        ".version", "WARP_SZ", "_", "::", ".param", ".section", ".loc 1 2 3", "L: .callprototype", "call",
        ".align"]  # fmt: skip


@pytest.mark.parametrize("seed", range(40))
def test_broken_kernels_raise_only_syntax_errors(seed: int) -> None:
    """Random edits of real kernels: the text is read, or refused with a place; nothing else happens."""
    rng = random.Random(seed)
    tokens = re.findall(r"[\w.$%:]+|\s+|.", KERNELS[seed % len(KERNELS)].read_text()[:6000])
    for _ in range(12):
        text = list(tokens)
        for _ in range(rng.choice([1, 1, 2, 5])):
            at = rng.randrange(len(text))
            edit = rng.randrange(4)
            if edit == 0:
                del text[at]
            elif edit == 1:
                text.insert(at, rng.choice(JUNK))
            elif edit == 2:
                text[at] = rng.choice(JUNK)
            else:
                text[at] = rng.choice(text)
        try:
            module = parse_module(Source("fuzz.ptx", "".join(text) + "\n}" * rng.randrange(2)))
        except PtxSyntaxError as error:
            assert error.span is not None
            continue
        unsupported(module)
        assert all(error.span is not None for error in verify(module))
