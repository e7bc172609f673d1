"""Integer arithmetic, bit fields and carries, against Python integers."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import vectors
from tests.support.integers import ALL, BITS, Oracle, any_operands, check, edges, known_operands, of_types, signed
from tests.support.scalar_harness import run

test_corners = vectors.measured(("fns.b32", (0x704E5E1B, 3, 0x80000000), 0))


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


def dot(a: int, b: int, c: int, kinds: str, widths: tuple[int, int], start: int) -> int:
    parts = 32 // widths[0]
    left = [a >> widths[0] * i & (1 << widths[0]) - 1 for i in range(parts)]
    right = [b >> start + 8 * i & 255 for i in range(parts)]
    if kinds[0] == "s":
        left = [signed(v, widths[0]) for v in left]
    if kinds[1] == "s":
        right = [signed(v, 8) for v in right]
    return c + sum(x * y for x, y in zip(left, right))


FORMS: dict[str, Oracle] = {}
FORMS |= of_types("add.{}", ALL, lambda w: lambda a, b: a + b)
FORMS |= of_types("sub.{}", ALL, lambda w: lambda a, b: a - b)
FORMS |= of_types("mul.lo.{}", ALL, lambda w: lambda a, b: a * b)
FORMS |= of_types("mul.hi.{}", ALL, lambda w: lambda a, b: a * b >> w)
FORMS |= of_types("mul.wide.{}", ALL[:4], lambda w: lambda a, b: a * b)
FORMS |= of_types("mad.lo.{}", ALL, lambda w: lambda a, b, c: a * b + c)
FORMS |= of_types("mad.hi.{}", ALL, lambda w: lambda a, b, c: (a * b >> w) + c)
FORMS |= of_types("mad.wide.{}", ALL[:4], lambda w: lambda a, b, c: a * b + c)
FORMS |= of_types("mad.hi.sat.{}", ("s32",), lambda w: lambda a, b, c: clamp((a * b >> w) + c, w))
FORMS |= of_types("add.sat.{}", ("s32",), lambda w: lambda a, b: clamp(a + b, w))
FORMS |= of_types("sub.sat.{}", ("s32",), lambda w: lambda a, b: clamp(a - b, w))
FORMS |= of_types("sad.{}", ALL, lambda w: lambda a, b, c: c + abs(a - b))
FORMS |= of_types("div.{}", ALL, lambda w: quotient)
FORMS |= of_types("rem.{}", ALL, lambda w: remainder)
FORMS |= of_types("neg.{}", ALL[1::2], lambda w: lambda a: -a)
FORMS |= of_types("abs.{}", ALL[1::2], lambda w: abs)
FORMS |= of_types("min.{}", ALL, lambda w: min)
FORMS |= of_types("max.{}", ALL, lambda w: max)
FORMS |= of_types("max.relu.{}", ("s32",), lambda w: lambda a, b: max(a, b, 0))
FORMS |= of_types("min.relu.{}", ("s32",), lambda w: lambda a, b: max(min(a, b), 0))
for _t, _cut in (("u32", lambda v: v & 0xFFFFFF), ("s32", lambda v: signed(v, 24))):
    FORMS[f"mul24.lo.{_t}"] = lambda a, b, cut=_cut: cut(a) * cut(b)
    FORMS[f"mul24.hi.{_t}"] = lambda a, b, cut=_cut: cut(a) * cut(b) >> 16
    FORMS[f"mad24.lo.{_t}"] = lambda a, b, c, cut=_cut: cut(a) * cut(b) + c
    FORMS[f"mad24.hi.{_t}"] = lambda a, b, c, cut=_cut: (cut(a) * cut(b) >> 16) + c
FORMS["mad24.hi.sat.s32"] = lambda a, b, c: clamp((signed(a, 24) * signed(b, 24) >> 16) + c, 32)
FORMS |= of_types("popc.{}", BITS, lambda w: int.bit_count)
FORMS |= of_types("clz.{}", BITS, lambda w: lambda a: w - a.bit_length())
FORMS |= of_types("brev.{}", BITS, lambda w: lambda a: int(f"{a:0{w}b}"[::-1], 2))
FORMS |= of_types("bfind.{}", ALL[2:], lambda w: lambda a: highest(a, w))
FORMS |= of_types("bfind.shiftamt.{}", ALL[2:], lambda w: lambda a: -1 if highest(a, w) < 0 else w - 1 - highest(a, w))
for _t, _cap in (("u32", 255), ("s32", 255), ("u64", 1 << 40), ("s64", 1 << 40)):  # 32 bits: the low 8 of each count
    FORMS[f"bfe.{_t}"] = lambda a, b, c, t=_t, cap=_cap: field(
        a, min(b & cap if cap == 255 else b, 256), min(c & cap if cap == 255 else c, 256), int(t[1:]), t[0] == "s"
    )
FORMS["bfi.b32"] = lambda a, b, c, d: inserted(a, b, c & 255, d & 255, 32)
FORMS["bfi.b64"] = lambda a, b, c, d: inserted(a, b, min(c, 64), min(d, 64), 64)
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


test_edges = edges(FORMS)
test_any_operands = any_operands(FORMS, 100)


@pytest.mark.parametrize("mnemonic", ["div.u16", "rem.s16", "mul.hi.s16", "div.s16"])
def test_every_dividend_of_16_bits(mnemonic: str) -> None:
    a = np.arange(65536)
    for b in (0, 1, 2, 3, 7, 255, 256, 32767, 32768, 65535, 65533):
        check(mnemonic, FORMS[mnemonic], [(int(v), b) for v in a[:: 1 if b in (3, 65535) else 17]])


# constants -----------------------------------------------------------------------------------------------------------
KNOWN = [
    *((f"bfe.{t}32", {"b": p, "c": n}) for t in "us" for p in (0, 8, 31, 32, 256) for n in (0, 1, 8, 32, 255)),
    *(("bfi.b32", {"c": p, "d": n}) for p in (0, 8, 31, 40) for n in (0, 1, 8, 32)),
]


test_known_operands_change_nothing = known_operands(KNOWN)


# carry ---------------------------------------------------------------------------------------------------------------
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


# bytes ---------------------------------------------------------------------------------------------------------------
def test_packed_bytes() -> None:
    a, b = (np.ascontiguousarray(x).view(np.uint32).ravel() for x in np.indices((256, 256), np.uint8))
    for letter, dtype in (("u", np.uint8), ("s", np.int8)):
        x, y = (v.view(dtype).astype(int) for v in (a, b))
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
        expected = {"add": x + y, "sub": x - y, "add.sat": np.clip(x + y, low, high), "sub.sat": np.clip(x - y, low, high),
                    "min": np.minimum(x, y), "max": np.maximum(x, y)}  # fmt: skip
        if letter == "s":
            expected |= {"min.relu": np.maximum(np.minimum(x, y), 0), "max.relu": np.maximum(np.maximum(x, y), 0)}
            assert (run("neg.s8x4", a).view(np.int8) == (-x).astype(np.int8)).all()
        for name, want in expected.items():
            assert (run(f"{name}.{letter}8x4", a, b).view(dtype) == want.astype(dtype)).all(), name
