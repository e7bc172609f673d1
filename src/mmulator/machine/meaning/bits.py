"""Logic and Shift Instructions, and the bit-field part of Integer Arithmetic Instructions (PTX ISA 9.1)."""

from __future__ import annotations

from collections.abc import Callable

from mmulator.codegen.ops import (
    bit_reverse,
    bitcast,
    funnel_left,
    funnel_right,
    leading_zeros,
    minimum,
    popcount,
    select,
    shuffle,
)
from mmulator.codegen.types import Ty, u8
from mmulator.codegen.values import Builder, Value, constant
from mmulator.machine.meaning.scope import (
    I32,
    LANES,
    SIGNED,
    U32,
    UNSIGNED,
    Mods,
    Result,
    Scope,
    known,
    outline,
    outlined,
    semantic,
    to,
)

_LOGIC: dict[str, Callable[[Value, Value], Value]] = {
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
}


@semantic("and", "or", "xor")
def logic(x: Scope, m: Mods, a: Value, b: Value) -> Result:
    return _LOGIC[m.op](a, b)


@semantic("not")
def not_(x: Scope, m: Mods, a: Value) -> Result:
    return ~a


@semantic("cnot")
def cnot(x: Scope, m: Mods, a: Value) -> Result:
    return to(a.ty, a == 0)


# lop3 ---------------------------------------------------------------------------------------------------------------
def _two(lut: int, a: Value, b: Value) -> Value | int:
    """A function of two bits: bit 2*a + b of `lut` (4 bits). 0 and -1 stay numbers."""
    match lut:
        case 0b0000:
            return 0
        case 0b1111:
            return -1
        case 0b1100:
            return a
        case 0b1010:
            return b
        case 0b0011:
            return ~a
        case 0b0101:
            return ~b
        case 0b1000:
            return a & b
        case 0b1110:
            return a | b
        case 0b0110:
            return a ^ b
        case 0b0100:
            return a & ~b
        case 0b0010:
            return b & ~a
        case 0b1101:
            return a | ~b
        case 0b1011:
            return b | ~a
    return ~_as_value(_two(15 - lut, a, b), a.ty)


def _as_value(value: Value | int, ty: Ty) -> Value:
    return value if isinstance(value, Value) else constant(Builder.current(), ty, value)


def _cofactors(lut: int, place: int) -> tuple[int, int]:
    """Truth tables of the other two variables where the one at bit `place` of the index is 0 and 1."""
    tables = [0, 0]
    counts = [0, 0]
    for index in range(8):
        which = index >> place & 1
        tables[which] |= (lut >> index & 1) << counts[which]
        counts[which] += 1
    return tables[0], tables[1]


_TRIVIAL = {0b0000, 0b1111, 0b1100, 0b1010}


def lut3(lut: int, a: Value, b: Value, c: Value) -> Value:
    """Bit 4*a + 2*b + c of `lut`, bit by bit: f0 ^ (v & (f0 ^ f1)) for the variable v that makes it shortest."""
    sources = (c, b, a)

    def cost(place: int) -> int:
        zero, one = _cofactors(lut, place)
        return sum(table not in _TRIVIAL for table in (zero, zero ^ one)) + 2 * (zero != one)

    place = min(range(3), key=cost)
    zero, one = _cofactors(lut, place)
    low, high = (sources[n] for n in range(3) if n != place)
    base, change = _two(zero, high, low), _two(zero ^ one, high, low)
    if isinstance(change, int):
        moved: Value | int = sources[place] if change else 0
    else:
        moved = sources[place] & change
    if isinstance(moved, int):
        return _as_value(base, a.ty)
    if isinstance(base, int):
        return ~moved if base else moved
    return base ^ moved


@semantic("lop3")
def lop3(x: Scope, m: Mods, a: Value, b: Value, c: Value, lut: int, q: Value | None = None) -> Result:
    """lop3.BoolOp also gives p = (d != 0) BoolOp q."""
    d = lut3(lut, a, b, c)
    if q is None:
        return d
    return d, _LOGIC[m.one(_LOGIC)](d != 0, q)


# shifts -------------------------------------------------------------------------------------------------------------
def shift_left(a: Value, count: Value) -> Value:
    """0 for a count of the width or more."""
    width, n = a.ty.bits, known(count)
    if n is not None:
        return a << n if n < width else constant(a.b, a.ty, 0)
    return select(count < width, a << a.ty(count), 0)


def shift_right(a: Value, count: Value) -> Value:
    """0, or the sign for a signed type, for a count of the width or more."""
    width, n = a.ty.bits, known(count)
    if n is not None:
        if n >= width and not a.ty.signed:
            return constant(a.b, a.ty, 0)
        return a >> min(n, width - 1)
    if a.ty.signed:
        return a >> to(a.ty, minimum(count, width - 1))
    return select(count < width, a >> a.ty(count), 0)


@semantic("shl")
def shl(x: Scope, m: Mods, a: Value, b: Value) -> Result:
    return shift_left(a, b)


@semantic("shr")
def shr(x: Scope, m: Mods, a: Value, b: Value) -> Result:
    return shift_right(a, b)


@semantic("shf")
def shf(x: Scope, m: Mods, a: Value, b: Value, c: Value) -> Result:
    """Funnel shift of b:a (b the upper word)."""
    left = m.has("l")
    result = funnel_left(b, a, c) if left else funnel_right(b, a, c)
    n = known(c)
    if m.has("wrap") or (n is not None and n < 32):
        return result
    return select(c < 32, result, a if left else b)


# bit fields ---------------------------------------------------------------------------------------------------------
@semantic("popc")
def popc(x: Scope, m: Mods, a: Value) -> Result:
    return to(U32, popcount(a))


@semantic("clz")
def clz(x: Scope, m: Mods, a: Value) -> Result:
    return to(U32, leading_zeros(a))


@semantic("brev")
def brev(x: Scope, m: Mods, a: Value) -> Result:
    return bit_reverse(a)


@semantic("bfind")
def bfind(x: Scope, m: Mods, a: Value) -> Result:
    """Place of the highest bit that differs from the sign (0 for unsigned types), or its distance from the top."""
    bits = a ^ (a >> (a.ty.bits - 1)) if a.ty.signed else a
    zeros = U32(leading_zeros(UNSIGNED[a.ty.bits](bits)))
    place = zeros if m.has("shiftamt") else (a.ty.bits - 1) - zeros
    return select(bits == 0, 0xFFFFFFFF, place)


def _place(count: Value, width: int) -> Value:
    """A position or length: count & 255 for 32 bits, all of it for 64 (as the hardware has it); constants stay so."""
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


def _on_field(
    x: Scope, m: Mods, act: Callable[..., Value], values: tuple[Value, ...], at: Value, length: Value
) -> Value:
    """Inline where the field is known, else out of line."""
    width = values[0].ty.bits
    if known(at) is not None and known(length) is not None:
        return act(*values, _place(at, width), _place(length, width))

    def body(*sources: Value) -> Value:
        *others, at, length = sources
        return act(*others, _place(at, width), _place(length, width))

    return outline(x, f"ptx_{m.key}", values[0].ty, body, *values, at, length)


@semantic("bfe")
def bfe(x: Scope, m: Mods, a: Value, b: Value, c: Value) -> Result:
    """c bits from bit b on; signed: extended with the field's top bit, or the operand's."""
    return _on_field(x, m, _extract, (a,), b, c)


@semantic("bfi")
def bfi(x: Scope, m: Mods, a: Value, b: Value, c: Value, d: Value) -> Result:
    """b with the low d bits of a inserted from bit c on."""
    return _on_field(x, m, _insert, (a, b), c, d)


@semantic("szext")
@outlined(lambda m: SIGNED[32] if m.type == "s32" else U32)
def szext(m: Mods, a: Value, b: Value) -> Value:
    """The low b bits, extended; b modulo 32 (.wrap) or everything from 32 on (.clamp)."""
    n = b & 31
    ty = SIGNED[32] if m.type == "s32" else U32
    cut = 32 - n
    top = shift_left(ty(a), cut)
    result = select(n == 0, 0, shift_right(top, cut))
    return select(b >= 32, ty(a), result) if m.has("clamp") else result


@semantic("bmsk")
@outlined(lambda m: U32)
def bmsk(m: Mods, a: Value, b: Value) -> Value:
    """b ones from bit a on. .wrap: a and b modulo 32; .clamp: everything from a on if b >= 32, 0 if a >= 32."""
    start, width = a & 31, b & 31
    ones = constant(a.b, U32, -1)
    from_start, to_end = ones << start, shift_left(ones, start + width)
    if m.has("wrap"):
        return from_start & ~to_end
    mask = from_start & ~select(b >= 32, 0, to_end)
    return select(a >= 32, 0, mask)


@semantic("fns")
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


# prmt ---------------------------------------------------------------------------------------------------------------
_MODES: dict[str, tuple[tuple[int, int, int, int], ...]] = {  # bytes of the result, low first, by the low bits of c
    "f4e": ((0, 1, 2, 3), (1, 2, 3, 4), (2, 3, 4, 5), (3, 4, 5, 6)),
    "b4e": ((0, 7, 6, 5), (1, 0, 7, 6), (2, 1, 0, 7), (3, 2, 1, 0)),
    "rc8": ((0, 0, 0, 0), (1, 1, 1, 1), (2, 2, 2, 2), (3, 3, 3, 3)),
    "ecl": ((0, 1, 2, 3), (1, 1, 2, 3), (2, 2, 2, 3), (3, 3, 3, 3)),
    "ecr": ((0, 0, 0, 0), (0, 1, 1, 1), (0, 1, 2, 2), (0, 1, 2, 3)),
    "rc16": ((0, 1, 0, 1), (2, 3, 2, 3), (0, 1, 0, 1), (2, 3, 2, 3)),
}


def _selector(picks: tuple[int, int, int, int]) -> int:
    return sum(pick << 4 * n for n, pick in enumerate(picks))


def _permute_known(a: Value, b: Value, selector: int) -> Value:
    """Bytes by constant numbers: a shuffle, then the bytes that repeat a sign."""
    bytes_ = u8.vec(4 * LANES)
    picks = [selector >> 4 * n & 15 for n in range(4)]
    index = [4 * lane + (pick & 3) + (4 * LANES if pick & 4 else 0) for lane in range(LANES) for pick in picks]
    moved = bitcast(U32, shuffle(bitcast(bytes_, a), bitcast(bytes_, b), index))
    signs = sum(0xFF << 8 * n for n, pick in enumerate(picks) if pick & 8)
    if signs:
        top = (moved >> 7) & 0x01010101
        moved = (moved & (0xFFFFFFFF ^ signs)) | ((top * 0xFF) & signs)
    return moved


def _permute(a: Value, b: Value, selector: Value) -> Value:
    result = constant(a.b, U32, 0)
    for n in range(4):
        nibble = (selector >> 4 * n) & 15
        byte = (select((nibble & 4) != 0, b, a) >> ((nibble & 3) << 3)) & 0xFF
        repeated = ((byte >> 7) & 1) * 0xFF
        result = result | (select((nibble & 8) != 0, repeated, byte) << 8 * n)
    return result


@semantic("prmt")
def prmt(x: Scope, m: Mods, a: Value, b: Value, c: Value) -> Result:
    mode = m.one(tuple(_MODES))
    number = known(c)
    if number is not None:
        return _permute_known(a, b, _selector(_MODES[mode][number & 3]) if mode else number & 0xFFFF)

    def body(a: Value, b: Value, c: Value) -> Value:
        if not mode:
            return _permute(a, b, c)
        selector = constant(a.b, U32, 0)
        for n, picks in enumerate(_MODES[mode]):
            selector = select((c & 3) == n, _selector(picks), selector)
        return _permute(a, b, selector)

    return outline(x, f"ptx_prmt_{mode}", U32, body, a, b, c)
