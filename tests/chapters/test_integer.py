"""Integer, logic and bit-field semantics against Python integers."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mmulator.isa.types import type_bits
from tests.support.scalar_harness import bits, compiled, form_of, run, sources_of

EDGES = [
    *(
        0,
        1,
        2,
        3,
        5,
        7,
        8,
        15,
        16,
        17,
        31,
        32,
        33,
        63,
        64,
        65,
        127,
        128,
        254,
        255,
        256,
        0x7FFF,
        0x8000,
        0xFFFF,
        0x10000,
    ),
    *(0xFFFFFF, 0x1000003, 0x7FFFFFFF, 0x80000000, 0x80000001, 0xFFFFFFFF, 1 << 32, (1 << 63) - 1, 1 << 63),
]


def signed(value: int, width: int) -> int:
    value &= (1 << width) - 1
    return value - (1 << width) if value >> (width - 1) else value


def clamp(value: int, width: int) -> int:
    return min(max(value, -(1 << (width - 1))), (1 << (width - 1)) - 1)


def quotient(a: int, b: int) -> int:
    return -1 if not b else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def remainder(a: int, b: int) -> int:
    return -1 if not b else a - b * quotient(a, b)


def field(a: int, at: int, length: int, width: int, is_signed: bool) -> int:
    """bfe, bit by bit as the specification writes it."""
    bit = [a >> i & 1 for i in range(width)]
    fill = bit[min(at + length - 1, width - 1)] if is_signed and length else 0
    return sum((bit[at + i] if i < length and at + i < width else fill) << i for i in range(width))


def inserted(a: int, b: int, at: int, length: int, width: int) -> int:
    for i in range(length):
        if at + i < width:
            b = b & ~(1 << (at + i)) | (a >> i & 1) << (at + i)
    return b


def highest(a: int, width: int) -> int:
    """bfind: of a signed operand, the highest bit that differs from its sign."""
    return (~a if a < 0 else a).bit_length() - 1


def find_nth(mask: int, base: int, offset: int) -> int:
    if not offset:
        return base if mask >> base & 1 else -1
    left, at = abs(offset) - 1, base
    while 0 <= at < 32:
        if mask >> at & 1:
            if not left:
                return at
            left -= 1
        at += 1 if offset > 0 else -1
    return -1


def permuted(a: int, b: int, c: int) -> int:
    both, out = (a & 0xFFFFFFFF) | b << 32, 0
    for n in range(4):
        pick = c >> 4 * n & 15
        byte = both >> 8 * (pick & 7) & 255
        out |= (255 * (byte >> 7) if pick & 8 else byte) << 8 * n
    return out


def dot(a: int, b: int, c: int, kinds: str, widths: tuple[int, int], start: int) -> int:
    parts = 32 // widths[0]
    left = [a >> widths[0] * i & (1 << widths[0]) - 1 for i in range(parts)]
    right = [b >> start + 8 * i & 255 for i in range(parts)]
    if kinds[0] == "s":
        left = [signed(v, widths[0]) for v in left]
    if kinds[1] == "s":
        right = [signed(v, 8) for v in right]
    return c + sum(x * y for x, y in zip(left, right))


Oracle = Callable[..., int]
ALL = ("u16", "s16", "u32", "s32", "u64", "s64")
FORMS: dict[str, Oracle] = {}


def forms(pattern: str, types: tuple[str, ...], oracle: Callable[[int], Oracle]) -> None:
    """pattern: the instruction with {} for the type. oracle(width): works on operands as their types read them."""
    for t in types:
        FORMS[pattern.format(t)] = oracle(type_bits(t))


forms("add.{}", ALL, lambda w: lambda a, b: a + b)
forms("sub.{}", ALL, lambda w: lambda a, b: a - b)
forms("mul.lo.{}", ALL, lambda w: lambda a, b: a * b)
forms("mul.hi.{}", ALL, lambda w: lambda a, b: a * b >> w)
forms("mul.wide.{}", ALL[:4], lambda w: lambda a, b: a * b)
forms("mad.lo.{}", ALL, lambda w: lambda a, b, c: a * b + c)
forms("mad.hi.{}", ALL, lambda w: lambda a, b, c: (a * b >> w) + c)
forms("mad.wide.{}", ALL[:4], lambda w: lambda a, b, c: a * b + c)
forms("mad.hi.sat.{}", ("s32",), lambda w: lambda a, b, c: clamp((a * b >> w) + c, w))
forms("add.sat.{}", ("s32",), lambda w: lambda a, b: clamp(a + b, w))
forms("sub.sat.{}", ("s32",), lambda w: lambda a, b: clamp(a - b, w))
forms("sad.{}", ALL, lambda w: lambda a, b, c: c + abs(a - b))
forms("div.{}", ALL, lambda w: quotient)
forms("rem.{}", ALL, lambda w: remainder)
forms("neg.{}", ALL[1::2], lambda w: lambda a: -a)
forms("abs.{}", ALL[1::2], lambda w: abs)
forms("min.{}", ALL, lambda w: min)
forms("max.{}", ALL, lambda w: max)
forms("max.relu.{}", ("s32",), lambda w: lambda a, b: max(a, b, 0))
forms("min.relu.{}", ("s32",), lambda w: lambda a, b: max(min(a, b), 0))
for _t, _cut in (("u32", lambda v: v & 0xFFFFFF), ("s32", lambda v: signed(v, 24))):
    FORMS[f"mul24.lo.{_t}"] = lambda a, b, cut=_cut: cut(a) * cut(b)
    FORMS[f"mul24.hi.{_t}"] = lambda a, b, cut=_cut: cut(a) * cut(b) >> 16
    FORMS[f"mad24.lo.{_t}"] = lambda a, b, c, cut=_cut: cut(a) * cut(b) + c
    FORMS[f"mad24.hi.{_t}"] = lambda a, b, c, cut=_cut: (cut(a) * cut(b) >> 16) + c
FORMS["mad24.hi.sat.s32"] = lambda a, b, c: clamp((signed(a, 24) * signed(b, 24) >> 16) + c, 32)
BITS = ("b32", "b64")
forms("popc.{}", BITS, lambda w: int.bit_count)
forms("clz.{}", BITS, lambda w: lambda a: w - a.bit_length())
forms("brev.{}", BITS, lambda w: lambda a: int(f"{a:0{w}b}"[::-1], 2))
forms("bfind.{}", ALL[2:], lambda w: lambda a: highest(a, w))
forms("bfind.shiftamt.{}", ALL[2:], lambda w: lambda a: -1 if highest(a, w) < 0 else w - 1 - highest(a, w))
for _t, _cap in (("u32", 255), ("s32", 255), ("u64", 1 << 40), ("s64", 1 << 40)):  # 32 bits: the low 8 of each count
    FORMS[f"bfe.{_t}"] = lambda a, b, c, t=_t, cap=_cap: field(
        a, min(b & cap if cap == 255 else b, 256), min(c & cap if cap == 255 else c, 256), int(t[1:]), t[0] == "s"
    )
FORMS["bfi.b32"] = lambda a, b, c, d: inserted(a, b, c & 255, d & 255, 32)
FORMS["bfi.b64"] = lambda a, b, c, d: inserted(a, b, min(c, 64), min(d, 64), 64)
forms("and.{}", ("b16", *BITS), lambda w: lambda a, b: a & b)
forms("or.{}", ("b16", *BITS), lambda w: lambda a, b: a | b)
forms("xor.{}", ("b16", *BITS), lambda w: lambda a, b: a ^ b)
forms("not.{}", ("b16", *BITS), lambda w: lambda a: ~a)
forms("cnot.{}", ("b16", *BITS), lambda w: lambda a: not a)
forms("shl.{}", ("b16", *BITS), lambda w: lambda a, b: a << b if b < w else 0)
forms("shr.{}", ALL, lambda w: lambda a, b: a >> min(b, w))
FORMS["shf.l.wrap.b32"] = lambda a, b, c: (b << 32 | a) << (c & 31) >> 32
FORMS["shf.r.wrap.b32"] = lambda a, b, c: (b << 32 | a) >> (c & 31)
FORMS["shf.l.clamp.b32"] = lambda a, b, c: (b << 32 | a) << min(c, 32) >> 32
FORMS["shf.r.clamp.b32"] = lambda a, b, c: (b << 32 | a) >> min(c, 32)
FORMS["prmt.b32"] = permuted
FORMS["fns.b32"] = lambda m, b, o: 0 if o == -(1 << 31) else -1 if b > 31 else find_nth(m, b, o)
FORMS["bmsk.wrap.b32"] = lambda a, b: (1 << (b & 31)) - 1 << (a & 31)
FORMS["bmsk.clamp.b32"] = lambda a, b: ((1 << min(b, 32)) - 1) << min(a, 32)
for _m in ("wrap", "clamp"):
    FORMS[f"szext.{_m}.u32"] = lambda a, b, m=_m: a & (1 << (b & 31 if m == "wrap" else min(b, 32))) - 1
    FORMS[f"szext.{_m}.s32"] = lambda a, b, m=_m: signed(a, n) if (n := b & 31 if m == "wrap" else min(b, 32)) else 0
for _a, _b in product("us", repeat=2):
    FORMS[f"dp4a.{_a}32.{_b}32"] = lambda a, b, c, k=_a + _b: dot(a, b, c, k, (8, 8), 0)
    FORMS[f"dp2a.lo.{_a}32.{_b}32"] = lambda a, b, c, k=_a + _b: dot(a, b, c, k, (16, 8), 0)
    FORMS[f"dp2a.hi.{_a}32.{_b}32"] = lambda a, b, c, k=_a + _b: dot(a, b, c, k, (16, 8), 16)


def as_read(value: int, type_name: str) -> int:
    return signed(value, type_bits(type_name)) if type_name[0] == "s" else value & (1 << type_bits(type_name)) - 1


def check(mnemonic: str, rows: list[tuple[int, ...]]) -> None:
    """rows: raw operands, cut to the operands' types."""
    types = [o.type for o in sources_of(form_of(mnemonic))]
    columns = [[v & (1 << type_bits(t)) - 1 for v in column] for t, column in zip(types, zip(*rows))]
    arrays = [np.array(c, f"u{type_bits(t) // 8}") for c, t in zip(columns, types)]
    (got,) = compiled(mnemonic)(*arrays)
    width = got.dtype.itemsize * 8
    for i, operands in enumerate(zip(*columns)):
        want = FORMS[mnemonic](*(as_read(v, t) for v, t in zip(operands, types))) & (1 << width) - 1
        assert int(bits(got)[i]) == want, f"{mnemonic} {[hex(v) for v in operands]}"


@pytest.mark.parametrize("mnemonic", FORMS)
def test_edges(mnemonic: str) -> None:
    """All pairs of edge values and their negatives; third and fourth operands run through them."""
    count = len(sources_of(form_of(mnemonic)))
    values = [*EDGES, *(-v for v in EDGES)]
    rows = [
        tuple([a, b, values[(i * 7 + 3) % len(values)], values[(i * 11 + 5) % len(values)]][:count])
        for i, (a, b) in enumerate(product(values, repeat=2) if count > 1 else ((v, 0) for v in values))
    ]
    check(mnemonic, rows)


numbers = st.one_of(st.integers(0, 2**64 - 1), st.sampled_from(EDGES), st.integers(-40, 40), st.integers(0, 2**32 - 1))


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_operands(data: Any) -> None:
    mnemonic = data.draw(st.sampled_from(list(FORMS)))
    count = len(sources_of(form_of(mnemonic)))
    check(mnemonic, data.draw(st.lists(st.tuples(*[numbers] * count), min_size=8, max_size=64)))


@pytest.mark.parametrize("mnemonic", ["div.u16", "rem.s16", "mul.hi.s16", "div.s16"])
def test_every_dividend_of_16_bits(mnemonic: str) -> None:
    a = np.arange(65536)
    for b in (0, 1, 2, 3, 7, 255, 256, 32767, 32768, 65535, 65533):
        check(mnemonic, [(int(v), b) for v in a[:: 1 if b in (3, 65535) else 17]])


# constants ----------------------------------------------------------------------------------------------------------
WORDS = np.array([0, 1, 0x80, 0x7F, 0x8000, 0x12345678, 0x89ABCDEF, 0xFFFFFFFF, 0x80000000, 0xDEADBEEF, 255], np.uint32)
KNOWN = [
    *(("shl.b32", {"b": n}) for n in (0, 1, 31, 32, 200)),
    *((f"shr.{t}32", {"b": n}) for t in "us" for n in (0, 5, 31, 32, 255)),
    *((f"shf.{d}.{m}.b32", {"c": n}) for d in "lr" for m in ("wrap", "clamp") for n in (0, 7, 31, 32, 33)),
    *((f"bfe.{t}32", {"b": p, "c": n}) for t in "us" for p in (0, 8, 31, 32, 256) for n in (0, 1, 8, 32, 255)),
    *(("bfi.b32", {"c": p, "d": n}) for p in (0, 8, 31, 40) for n in (0, 1, 8, 32)),
    *(("prmt.b32", {"c": c}) for c in (0x3210, 0x5410, 0x7632, 0x0123, 0xFEDC, 0x8888, 0x4444, 0x9A10, 0x765C3)),
    *((f"prmt.b32.{m}", {"c": c}) for m in ("f4e", "b4e", "rc8", "ecl", "ecr", "rc16") for c in range(5)),
]


@pytest.mark.parametrize(("mnemonic", "constants"), KNOWN)
def test_known_operands_change_nothing(mnemonic: str, constants: dict[str, int]) -> None:
    """What is written for a constant agrees with what is written for a register that holds it."""
    names = [o.name for o in sources_of(form_of(mnemonic))]
    columns = dict(zip("ab", (c.ravel() for c in np.meshgrid(WORDS, WORDS))))
    free = [columns["ab"[i % 2]] for i, n in enumerate(names) if n not in constants]
    every = iter(free)
    all_of_them = [np.full(free[0].shape, constants[n], np.uint32) if n in constants else next(every) for n in names]
    assert np.array_equal(run(mnemonic, *free, **constants), run(mnemonic, *all_of_them))


@pytest.mark.parametrize("lut", range(256))
def test_every_lut(lut: int) -> None:
    """ta = 0xF0, tb = 0xCC, tc = 0xAA: the result of lop3 is its table."""
    one = [np.array([v], np.uint32) for v in (0xF0, 0xCC, 0xAA)]
    assert int(run("lop3.b32", *one, immLut=lut)[0]) & 0xFF == lut


@pytest.mark.parametrize("boolop", ["and", "or"])
def test_lop3_predicate(boolop: str) -> None:
    a, q = np.array([0, 0, 5, 5], np.uint32), np.array([False, True, False, True])
    d, p = run(f"lop3.{boolop}.b32", a, a, a, q, immLut=0x80)
    assert np.array_equal(d, a)
    assert np.array_equal(p, (a != 0) & q if boolop == "and" else (a != 0) | q)


# carry --------------------------------------------------------------------------------------------------------------
@given(st.lists(st.tuples(*[st.integers(0, 2**128 - 1)] * 2), min_size=1, max_size=40))
@settings(max_examples=40, deadline=None)
def test_chains_make_wide_sums(rows: list[tuple[int, int]]) -> None:
    """Two 64-bit links are a 128-bit sum, four 32-bit links are one, and the same for differences."""
    for width in (32, 64):
        for op, exact in (("add", lambda a, b: a + b), ("sub", lambda a, b: a - b)):
            carry, total = np.zeros(len(rows), bool), [0] * len(rows)
            for at in range(0, 128, width):
                a, b = (np.array([r[k] >> at & (1 << width) - 1 for r in rows], f"u{width // 8}") for k in (0, 1))
                d, carry = run(f"{op}{'c' if at else ''}.cc.u{width}", a, b, carry)
                total = [t | int(v) << at for t, v in zip(total, d)]
            assert total == [exact(*r) % 2**128 for r in rows]
            assert carry.tolist() == [(a + b) >> 128 == 1 if op == "add" else a >= b for a, b in rows]


def test_multiply_add_chain() -> None:
    """mad.lo.cc and madc.hi make a 64-bit product plus a 64-bit addend of 32-bit parts."""
    rng = np.random.default_rng(1)
    a, b, low, high = (rng.integers(0, 2**32, 300, dtype=np.uint64).astype(np.uint32) for _ in range(4))
    a[:20] = b[:20] = low[:20] = 0xFFFFFFFF
    none = np.zeros(300, bool)
    first, carry = run("mad.lo.cc.u32", a, b, low, none)
    second, _ = run("madc.hi.u32", a, b, high, carry)
    want = [(int(x) * int(y) + int(z) + (int(w) << 32)) % 2**64 for x, y, z, w in zip(a, b, low, high)]
    assert [int(x) | int(y) << 32 for x, y in zip(first, second)] == want


# comparison ---------------------------------------------------------------------------------------------------------
INTEGER = {"eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b, "le": lambda a, b: a <= b,
           "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b}  # fmt: skip
UNSIGNED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}


@pytest.mark.parametrize("type_name", ALL)
def test_integer_comparisons(type_name: str) -> None:
    width = type_bits(type_name)
    values = [v & (1 << width) - 1 for v in [*EDGES, *(-v for v in EDGES)]]
    a, b = (c.ravel() for c in np.meshgrid(*[np.array(values, f"u{width // 8}")] * 2))
    names = [*INTEGER, *(UNSIGNED if type_name[0] == "u" else ())]
    for name in names:
        relation = INTEGER[UNSIGNED.get(name, name)]
        want = [relation(as_read(int(x), type_name), as_read(int(y), type_name)) for x, y in zip(a, b)]
        p, q = run(f"setp.{name}.{type_name}", a, b)
        assert p.tolist() == want
        assert q.tolist() == [not w for w in want]
        assert run(f"set.{name}.u32.{type_name}", a, b).tolist() == [0xFFFFFFFF * w for w in want]
