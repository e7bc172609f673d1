"""The unit's datapath in 32 bits.

With x = high * 2**9 + low the sum without its lowest n bits, up to 9, is C0 * 2**(c0_shift - n) and a rest, (C1 * low + C2 *
square + K >> n) + (C1 * high << 9 - n), which has 32 bits. The highest bits of the sum are C0 + (rest >> c0_shift - n). Nested
floors, so nothing is lost. With permutations of words (AVX-512), coefficients are looked up and the square
is computed for 32 lanes at a time in 16 bits; otherwise C0, and C1 together with C2, are words of 32 bits.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from mmulator.base.codegen.ops import bitcast, select, shuffle
from mmulator.base.codegen.rounding import half_word, has_word_permutes, table_word
from mmulator.base.codegen.types import Ty, i32, u16, u32
from mmulator.base.codegen.values import Value, constant
from mmulator.matrix.numerics.sfu.tables import Quadratic

_LOW = 9  # bits of x that are multiplied apart
_BIAS = 1 << 15  # of C1, which has 16 bits and a sign that is that of all its table


def lanes(ty: Ty, like: Value) -> Ty:
    """The vector of `ty` with as many lanes as `like`."""
    return ty.vec(like.ty.lanes)


def to(ty: Ty, x: Value) -> Value:
    """Every lane converted to `ty`."""
    result: Value = lanes(ty, x)(x)
    return result


def square(x: Value) -> Value:
    """The squarer of the unit, of u32 lanes below 2**17. With x = high * 2**9 + low the rows of high * high lose nothing,
    those of low * low everything, and the mixed rows come twice, which the final halving cancels. The sum has 15 bits.
    """
    return to(u32, _square(to(u16, x >> _LOW), to(u16, x & (1 << _LOW) - 1)))


def _square(high: Value, low: Value) -> Value:
    """`square` from the high and low parts, in u16 lanes."""
    total = high * high >> 1
    for i in range(1, 8):
        total = select((high & 1 << i) != 0, total + (low >> (9 - i)), total)
    return total


@dataclass(frozen=True)
class _Table:
    """Columns of coefficients that fit their fields. base: C0 is a multiple of it. scale: factor of x, and of everything but
    C1.
    """

    c0: list[int]
    c1: list[int]
    c2: list[int]
    constant: int
    base: int
    scale: int

    @property
    def sign(self) -> int:
        return -1 if self.c1[0] < 0 else 1


def _table(name: str, q: Quadratic) -> _Table:
    base, scale = min(q.c0_shift), q.square_shift
    c0 = [row[0] << q.c0_shift[n * len(q.c0_shift) // len(q.rows)] - base for n, row in enumerate(q.rows)]
    c1, c2 = ([row[column] for row in q.rows] for column in (1, 2))
    table = _Table(c0, c1, [c << scale for c in c2], q.constant << scale, base, scale)
    for row in zip(table.c0, table.c1, table.c2):
        if not (0 <= row[0] < 1 << 27 and 0 <= row[1] * table.sign < 2 * _BIAS and -_BIAS <= row[2] < _BIAS):
            raise ValueError(f"{name}: coefficients {row} do not fit 27, 16 and 16 bits")
    return table


def short(name: str, q: Quadratic, index: Value, x: Value) -> Value:
    """The datapath's sum shifted right by the least c0_shift, in i32 lanes. index, x: u32 lanes."""
    c0, rest, up = split_sum(name, q, index, x, _LOW)
    return c0 + (rest >> up)


def split_sum(name: str, q: Quadratic, index: Value, x: Value, dropped: int) -> tuple[Value, Value, int]:
    """(C0, rest, n): the datapath's sum without its lowest `dropped` bits is C0 * 2**n + rest. C0 and rest are i32 lanes; a rest
    of 32 bits is to be read as u32.

    index, x: u32 lanes.
    """
    table = _table(name, q)
    up = table.base + table.scale - dropped
    x = x << table.scale if table.scale else x
    if has_word_permutes() and index.ty.lanes == 32:
        return *_in_words(name, table, index, x, dropped), up
    c0 = to(i32, table_word(f"approx_{name}_0", table.c0, index))
    packed = table_word(f"approx_{name}_1", [(c2 & 0xFFFF) << 16 | abs(c1) for c1, c2 in zip(table.c1, table.c2)], index)
    slope, c2 = to(i32, packed & 0xFFFF), to(i32, packed) >> 16
    high, low = to(i32, x >> _LOW), to(i32, x & (1 << _LOW) - 1)
    near, far = c2 * to(i32, square(x)) + table.constant, slope * high << _LOW - dropped
    if table.sign < 0:
        return c0, (near - slope * low >> dropped) - far, up
    return c0, (near + slope * low >> dropped) + far, up


# in words of 16 bits -------------------------------------------------------------------------------------------------
# The lanes of two vectors of 16 go into one of 32, and back, in the order of the processor's pack and unpack: by 128 bits.
_PACKED = [half * 32 + at * 8 + 2 * n for at in range(4) for half in (0, 1) for n in range(4)]
_UNPACKED = tuple([at * 8 + 4 * half + n + word for at in range(4) for n in range(4) for word in (0, 32)] for half in (0, 1))


def _pack(parts: Sequence[Value]) -> Value:
    """Two vectors of u32 x 16, below 2**16, as one of u16 x 32."""
    a, b = (bitcast(u16.vec(32), p) for p in parts)
    return shuffle(a, b, _PACKED)


def _unpack(low: Value, high: Value) -> tuple[Value, Value]:
    """Low and high words as two vectors of u16 x 32, which are i32 x 16."""
    first, second = (shuffle(low, high, order) for order in _UNPACKED)
    return first, second


def _in_words(name: str, table: _Table, index: Value, x: Value, dropped: int) -> tuple[Value, Value]:
    """(C0, rest) with C1 less its bias in a signed word, so that one instruction computes C1 * low + C2 * square."""
    xs, indices = ([shuffle(v, None, range(at, at + 16)) for at in (0, 16)] for v in (x, index))
    high, low = _pack([v >> _LOW for v in xs]), _pack([v & (1 << _LOW) - 1 for v in xs])
    at = _pack(indices)
    bias = table.sign * _BIAS
    columns = ([c & 0xFFFF for c in table.c0], [c >> 16 for c in table.c0], [c - bias for c in table.c1], table.c2)
    c0_low, c0_high, c1, c2 = half_word(f"approx_{name}", columns, at)
    zero = constant(x.b, low.ty, 0)
    parts = zip(xs, _unpack(c0_low, c0_high), _unpack(c1, c2), _unpack(low, _square(high, low)), _unpack(high, zero))
    found = []
    for v, c0, c, near, far in parts:
        rest = (_products(c, near) + table.constant >> dropped) + (_products(c, far) << _LOW - dropped)
        biased = to(i32, v << 15 - dropped)
        found.append((bitcast(rest.ty, c0), rest + biased if bias > 0 else rest - biased))
    c0, rest = (shuffle(first, second, range(32)) for first, second in zip(*found))
    return c0, rest


def _products(a: Value, b: Value) -> Value:
    """Sums of the products of neighbours."""
    return a.b.call("llvm.x86.avx512.pmaddw.d.512", i32.vec(16), [a, b])
