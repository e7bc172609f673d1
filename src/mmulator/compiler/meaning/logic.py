"""Logic and Shift Instructions (PTX ISA 9.1)."""

from collections.abc import Callable

from mmulator.base.codegen.ops import funnel_left, funnel_right, minimum, select
from mmulator.base.codegen.types import Ty
from mmulator.base.codegen.values import Builder, Value, constant
from mmulator.compiler.emit.block import known
from mmulator.compiler.lowering.binding import lanewise
from mmulator.compiler.lowering.scope import Mods, Result, Scope, of_integers, to

_LOGIC: dict[str, Callable[[Value, Value], Value]] = {
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
}


@lanewise("and", "or", "xor", one=of_integers)
def logic(x: Scope, m: Mods, a: Value, b: Value) -> Result:
    return _LOGIC[m.op](a, b)


@lanewise("not", one=of_integers)
def not_(x: Scope, m: Mods, a: Value) -> Result:
    return ~a


@lanewise("cnot")
def cnot(x: Scope, m: Mods, a: Value) -> Result:
    return to(a.ty, a == 0)


# lop3 ---------------------------------------------------------------------------------------------------------------
def _two(lut: int, a: Value, b: Value) -> Value | int:
    """A function of two bits: bit 2*a + b of `lut` (4 bits). Constant results 0 and -1 are plain numbers."""
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
    """Truth tables of the other two variables for value 0 and 1 of the variable at bit `place` of the index."""
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


@lanewise("lop3")
def lop3(x: Scope, m: Mods, a: Value, b: Value, c: Value, lut: int, q: Value | None = None) -> Result:
    """lop3; with BoolOp it also returns p = (d != 0) BoolOp q."""
    d = lut3(lut, a, b, c)
    if q is None:
        return d
    return d, _LOGIC[m.one(_LOGIC)](d != 0, q)


# shifts -------------------------------------------------------------------------------------------------------------
def shift_left(a: Value, count: Value) -> Value:
    """a << count; 0 for a count of the width or more."""
    width, n = a.ty.bits, known(count)
    if n is not None:
        return a << n if n < width else constant(a.b, a.ty, 0)
    return select(count < width, a << a.ty(count), 0)


def shift_right(a: Value, count: Value) -> Value:
    """a >> count; 0, or for a signed type the sign, for a count of the width or more."""
    width, n = a.ty.bits, known(count)
    if n is not None:
        if n >= width and not a.ty.signed:
            return constant(a.b, a.ty, 0)
        return a >> min(n, width - 1)
    if a.ty.signed:
        return a >> to(a.ty, minimum(count, width - 1))
    return select(count < width, a >> a.ty(count), 0)


@lanewise("shl", one=of_integers)
def shl(x: Scope, m: Mods, a: Value, b: Value) -> Result:
    return shift_left(a, b)


@lanewise("shr", one=of_integers)
def shr(x: Scope, m: Mods, a: Value, b: Value) -> Result:
    return shift_right(a, b)


@lanewise("shf")
def shf(x: Scope, m: Mods, a: Value, b: Value, c: Value) -> Result:
    """Funnel shift of b:a (b the upper word)."""
    left = m.has("l")
    result = funnel_left(b, a, c) if left else funnel_right(b, a, c)
    n = known(c)
    if m.has("wrap") or (n is not None and n < 32):
        return result
    return select(c < 32, result, a if left else b)
