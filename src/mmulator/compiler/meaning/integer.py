"""Integer Arithmetic Instructions and Extended-Precision Integer Arithmetic Instructions (PTX ISA 9.1)."""

from collections.abc import Callable
from typing import Any

from mmulator.base.codegen.ops import (
    absolute,
    add_saturating,
    bit_reverse,
    bitcast,
    leading_zeros,
    maximum,
    minimum,
    popcount,
    select,
    sub_saturating,
)
from mmulator.base.codegen.types import Ty, i8, i16, i128, u8, u16, u128
from mmulator.base.codegen.values import Value, constant
from mmulator.compiler.emit.block import known
from mmulator.compiler.lowering.binding import lanewise
from mmulator.compiler.lowering.scope import (
    F64,
    I32,
    LANES,
    SIGNED,
    U32,
    UNSIGNED,
    Mods,
    Result,
    Scope,
    of_integers,
    outline,
    outlined,
    to,
)
from mmulator.compiler.meaning.logic import shift_left, shift_right


def wide(ty: Ty) -> Ty:
    """The type of twice the width."""
    if ty.bits == 64:
        twice = (i128 if ty.signed else u128).vec(LANES)
    else:
        twice = (SIGNED if ty.signed else UNSIGNED)[2 * ty.bits]
    return twice if ty.lanes else twice.element


def _short(m: Mods) -> bool:
    """Whether an operation is neither out of line nor uses the condition code."""
    return not m.has("hi", "cc") and m.op not in ("addc", "subc", "madc") and of_integers(m)


def unsigned(value: Value) -> Value:
    """The bits of a value as an unsigned integer."""
    return to(UNSIGNED[value.ty.bits], value)


# carry chains -------------------------------------------------------------------------------------------------------
def _add_with_carry(x: Scope, a: Value, b: Value, reads: bool, sets: bool) -> Value:
    total = unsigned(a) + unsigned(b)
    out = total < unsigned(a)
    if reads:
        more = total + total.ty(x.carry)
        out = out | (more < total)
        total = more
    if sets:
        x.carry = out
    return to(a.ty, total)


def _sub_with_borrow(x: Scope, a: Value, b: Value, reads: bool, sets: bool) -> Value:
    """a - b with the borrow. CC.CF holds the carry of a + ~b + 1, the complement of a borrow, as on hardware, where add.cc may
    be followed by subc.
    """
    ua, ub = unsigned(a), unsigned(b)
    borrow, total = ua < ub, ua - ub
    if reads:
        less = total - total.ty(~x.carry)
        borrow = borrow | (less > total)
        total = less
    if sets:
        x.carry = ~borrow
    return to(a.ty, total)


@lanewise("add", "addc", kinds="int", one=_short)
def add(x: Scope, m: Mods, a: Value, b: Value) -> Result:
    if m.op == "addc" or m.has("cc"):
        return _add_with_carry(x, a, b, m.op == "addc", m.has("cc"))
    return add_saturating(a, b) if m.has("sat") else a + b


@lanewise("sub", "subc", kinds="int", one=_short)
def sub(x: Scope, m: Mods, a: Value, b: Value) -> Result:
    if m.op == "subc" or m.has("cc"):
        return _sub_with_borrow(x, a, b, m.op == "subc", m.has("cc"))
    return sub_saturating(a, b) if m.has("sat") else a - b


# products -----------------------------------------------------------------------------------------------------------
def _high(x: Scope, a: Value, b: Value) -> Value:
    """Upper half of the product."""
    ty, twice = a.ty, wide(a.ty)

    def body(a: Value, b: Value) -> Value:
        product = to(twice, a) * to(twice, b)
        return to(ty, product >> ty.bits)

    if ty.bits == 64:
        return outline(x, f"ptx_mul_hi_{ty.element}", ty, body, a, b)
    return body(a, b)


def _product(x: Scope, m: Mods, a: Value, b: Value) -> Value:
    if m.has("wide"):
        return to(wide(a.ty), a) * to(wide(a.ty), b)
    return _high(x, a, b) if m.has("hi") else a * b


@lanewise("mul", kinds="int", one=_short)
def mul(x: Scope, m: Mods, a: Value, b: Value) -> Result:
    return _product(x, m, a, b)


@lanewise("mad", "madc", kinds="int", one=_short)
def mad(x: Scope, m: Mods, a: Value, b: Value, c: Value) -> Result:
    product = _product(x, m, a, b)
    if m.op == "madc" or m.has("cc"):
        return _add_with_carry(x, product, c, m.op == "madc", m.has("cc"))
    return add_saturating(product, c) if m.has("sat") else product + c


@lanewise("clmad")
def clmad(x: Scope, m: Mods, a: Value, b: Value, c: Value) -> Result:
    """The carry-less product (of polynomials over two elements), or a half of it, exclusive or c."""

    def body(a: Value, b: Value, c: Value) -> Value:
        half = constant(a.b, a.ty, 0)
        for n in range(64):
            shift = n if m.has("lo") else 64 - n
            if shift == 64:
                continue  # bit 0 of b adds nothing to the upper half
            part = (a << n if n else a) if m.has("lo") else a >> shift
            half = half ^ select((b & (1 << n)) != 0, part, 0)
        return half ^ c

    return outline(x, f"ptx_{m.key}", a.ty, body, a, b, c)


def _product24(m: Mods, a: Value, b: Value) -> Value:
    """mul24.lo: bits 31..0 of the 48-bit product; mul24.hi: bits 47..16."""
    a, b = (a << 8) >> 8, (b << 8) >> 8
    if m.has("lo"):
        return a * b
    twice = wide(a.ty)
    return to(a.ty, (to(twice, a) * to(twice, b)) >> 16)


@lanewise("mul24", kinds="int")
def mul24(x: Scope, m: Mods, a: Value, b: Value) -> Result:
    return _product24(m, a, b)


@lanewise("mad24", kinds="int")
def mad24(x: Scope, m: Mods, a: Value, b: Value, c: Value) -> Result:
    product = _product24(m, a, b)
    return add_saturating(product, c) if m.has("sat") else product + c


@lanewise("sad", kinds="int")
def sad(x: Scope, m: Mods, a: Value, b: Value, c: Value) -> Result:
    return c + (maximum(a, b) - minimum(a, b))


# quotients ----------------------------------------------------------------------------------------------------------
def _quotient(a: Value, b: Value) -> Value:
    """a / b toward zero; b must not be 0, and not -1 if a is the least number."""
    if a.ty.bits <= 32:  # exact: the quotient of 32-bit integers is at least 2^-32 away from the next integer
        return to(a.ty, to(F64, a) / to(F64, b))
    return a // b


def _safe(a: Value, b: Value) -> tuple[Value, Value]:
    """(divisor with 0 and -1 replaced by 1, where it was 0)."""
    zero = b == 0
    return select(zero | (b == -1) if a.ty.signed else zero, 1, b), zero


def _div(a: Value, b: Value) -> Value:
    divisor, zero = _safe(a, b)
    quotient = _quotient(a, divisor)
    if a.ty.signed:
        quotient = select(b == -1, -a, quotient)
    return select(zero, -1, quotient)


def _rem(a: Value, b: Value) -> Value:
    divisor, zero = _safe(a, b)
    rest = a - _quotient(a, divisor) * divisor
    return select(zero, -1, rest)


_DIVISION: dict[str, Callable[[Value, Value], Value]] = {"div": _div, "rem": _rem}


@lanewise("div", "rem", kinds="int")
def division(x: Scope, m: Mods, a: Value, b: Value) -> Result:
    return outline(x, f"ptx_{m.op}_{a.ty.element}", a.ty, _DIVISION[m.op], a, b)


# one operand, and choice --------------------------------------------------------------------------------------------
@lanewise("neg", kinds="int", one=of_integers)
def neg(x: Scope, m: Mods, a: Value) -> Result:
    return -a


@lanewise("abs", kinds="int", one=of_integers)
def abs_(x: Scope, m: Mods, a: Value) -> Result:
    return absolute(a)


@lanewise("min", "max", kinds="int", one=of_integers)
def extremum(x: Scope, m: Mods, a: Value, b: Value) -> Result:
    chosen = (minimum if m.op == "min" else maximum)(a, b)
    return maximum(chosen, 0) if m.has("relu") else chosen


_PACKED: dict[str, Callable[[Any, Any], Value]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "add.sat": add_saturating,
    "sub.sat": sub_saturating,
    "min": minimum,
    "max": maximum,
}
_ELEMENTS = {"s16x2": i16, "u16x2": u16, "s8x4": i8, "u8x4": u8}


@lanewise("add", "sub", "min", "max", "neg", kinds="packed")
def packed(x: Scope, m: Mods, a: Value, b: Value | None = None) -> Result:
    """The operation on each element of .u16x2, .s16x2, .u8x4 or .s8x4."""
    element = _ELEMENTS[m.type]
    parts = element.vec(32 // element.bits * LANES)
    if b is None:
        result = -bitcast(parts, a)
    else:
        result = _PACKED[m.op + ".sat" * m.has("sat")](bitcast(parts, a), bitcast(parts, b))
    if m.has("relu"):
        result = maximum(result, 0)
    return bitcast(U32, result)


# dot products -------------------------------------------------------------------------------------------------------
def _part(value: Value, low: int, width: int, signed: bool) -> Value:
    """Bits low .. low + width - 1, extended to 32."""
    word = to(U32, value)
    up = word << (32 - width - low) if low + width < 32 else word
    return to(U32, to(I32, up) >> (32 - width)) if signed else up >> (32 - width)


def _dot(m: Mods, a: Value, b: Value, c: Value, widths: tuple[int, int], b_from: int, count: int) -> Value:
    signed = [t[0] == "s" for t in m.types[-2:]]
    total = U32(c)
    for n in range(count):
        left = _part(a, n * widths[0], widths[0], signed[0])
        right = _part(b, b_from + n * widths[1], widths[1], signed[1])
        total = total + left * right
    return to(c.ty, total)


@lanewise("dp4a")
def dp4a(x: Scope, m: Mods, a: Value, b: Value, c: Value) -> Result:
    return outline(x, f"ptx_{m.key}", c.ty, lambda a, b, c: _dot(m, a, b, c, (8, 8), 0, 4), a, b, c)


@lanewise("dp2a")
def dp2a(x: Scope, m: Mods, a: Value, b: Value, c: Value) -> Result:
    low = 16 if m.has("hi") else 0
    return outline(x, f"ptx_{m.key}", c.ty, lambda a, b, c: _dot(m, a, b, c, (16, 8), low, 2), a, b, c)


# bit fields ---------------------------------------------------------------------------------------------------------
@lanewise("popc")
def popc(x: Scope, m: Mods, a: Value) -> Result:
    return to(U32, popcount(a))


@lanewise("clz")
def clz(x: Scope, m: Mods, a: Value) -> Result:
    return to(U32, leading_zeros(a))


@lanewise("brev")
def brev(x: Scope, m: Mods, a: Value) -> Result:
    return bit_reverse(a)


@lanewise("bfind")
def bfind(x: Scope, m: Mods, a: Value) -> Result:
    """Place of the highest bit that differs from the sign (0 for unsigned types), or its distance from the top."""
    bits = a ^ (a >> (a.ty.bits - 1)) if a.ty.signed else a
    zeros = U32(leading_zeros(UNSIGNED[a.ty.bits](bits)))
    place = zeros if m.has("shiftamt") else (a.ty.bits - 1) - zeros
    return select(bits == 0, 0xFFFFFFFF, place)


def _place(count: Value, width: int) -> Value:
    """A position or length: count & 255 for 32 bits, all bits for 64 (as on hardware); constants stay constants."""
    if width == 64:
        return count
    n = known(count)
    return count & 0xFF if n is None else constant(count.b, count.ty, n & 0xFF)


def _extract(a: Value, at: Value, length: Value) -> Value:
    width, n = a.ty.bits, known(length)
    field = shift_right(a, at)
    drop = width - minimum(length, width) if n is None else constant(a.b, length.ty, width - min(n, width))
    result = shift_right(shift_left(field, drop), drop)
    return select(length == 0, 0, result) if a.ty.signed and not n else result


def _insert(a: Value, b: Value, at: Value, length: Value) -> Value:
    ones = constant(a.b, a.ty, -1)
    mask = shift_left(~shift_left(ones, length), at)
    return (b & ~mask) | (shift_left(a, at) & mask)


def _on_field(x: Scope, m: Mods, act: Callable[..., Value], values: tuple[Value, ...], at: Value, length: Value) -> Value:
    """`act` on a bit field: inline if the field is constant, otherwise out of line.

    x, m: scope and modifiers.
    act: the function.
    values: its operands.
    at, length: place of the field.
    """
    width = values[0].ty.bits
    if known(at) is not None and known(length) is not None:
        return act(*values, _place(at, width), _place(length, width))

    def body(*sources: Value) -> Value:
        *others, at, length = sources
        return act(*others, _place(at, width), _place(length, width))

    return outline(x, f"ptx_{m.key}", values[0].ty, body, *values, at, length)


@lanewise("bfe")
def bfe(x: Scope, m: Mods, a: Value, b: Value, c: Value) -> Result:
    """c bits from bit b on; signed: extended with the field's top bit, or the operand's."""
    return _on_field(x, m, _extract, (a,), b, c)


@lanewise("bfi")
def bfi(x: Scope, m: Mods, a: Value, b: Value, c: Value, d: Value) -> Result:
    """b with the low d bits of a inserted from bit c on."""
    return _on_field(x, m, _insert, (a, b), c, d)


@lanewise("szext")
@outlined(lambda m: SIGNED[32] if m.type == "s32" else U32)
def szext(m: Mods, a: Value, b: Value) -> Value:
    """The low b bits of a, extended; b modulo 32 (.wrap), or all bits for b >= 32 (.clamp)."""
    n = b & 31
    ty = SIGNED[32] if m.type == "s32" else U32
    cut = 32 - n
    top = shift_left(ty(a), cut)
    result = select(n == 0, 0, shift_right(top, cut))
    return select(b >= 32, ty(a), result) if m.has("clamp") else result


@lanewise("bmsk")
@outlined(lambda m: U32)
def bmsk(m: Mods, a: Value, b: Value) -> Value:
    """b ones from bit a on. .wrap: a and b modulo 32; .clamp: all bits from a on if b >= 32, 0 if a >= 32."""
    start, width = a & 31, b & 31
    ones = constant(a.b, U32, -1)
    from_start, to_end = ones << start, shift_left(ones, start + width)
    if m.has("wrap"):
        return from_start & ~to_end
    mask = from_start & ~select(b >= 32, 0, to_end)
    return select(a >= 32, 0, mask)


@lanewise("fns")
@outlined(lambda m: U32)
def fns(m: Mods, mask: Value, base: Value, offset: Value) -> Value:
    """The |offset|-th set bit of mask from bit `base` on, upwards or (offset < 0) downwards; 0: bit base itself."""
    none = constant(mask.b, U32, -1)
    down = I32(offset) < 0
    # downwards: the same in the reversed word
    word = select(down, bit_reverse(mask), mask)
    start = select(down, 31 - base, base)
    word = (word >> (start & 31)) << (start & 31)
    count = select(down, U32(-I32(offset)), U32(offset))
    place = none
    for n in range(32):
        bit = (word >> n) & 1
        place = select((bit != 0) & (count == 1), n, place)
        count = count - bit
    place = select(down & (place != none), 31 - place, place)
    here = select(((mask >> (base & 31)) & 1) != 0, base, none)
    result = select(base >= 32, none, select(offset == 0, here, place))
    return select(offset == -(1 << 31), 0, result)  # measured on an NVIDIA H200
