"""The plan of the compiled twin of a fused dot product, and the layout of its packed operands in memory.

The idea. For one output element and chunk let q = 2**(emax - F). The exact model adds trunc(p/q) over the products p.
Products are exact in f32 (on the fast path: products below its normal numbers are below q too). So p times 1/q, converted to an
integer, is trunc(p/q), and integers of 32 bits hold the sum; emax itself is a maximum of byte sums.

If 24 bits hold the sum (F = 13) one instruction does more: a fused multiply-add in round-toward-zero, into an f32
accumulator that is kept positive at a magnitude where its last bit weighs q, adds floor(p/q). floor and trunc differ by one for
negative products that are not a multiple of q. These are counted separately, in bytes: the last set bit of a product weighs the
product of those of its factors, so a product is inexact if lsb(a) + lsb(b) < emax - F in exponents.

Lanes run along n. B is packed in blocks of 64 columns (then of 16), in which a row k is
    values [W] | exponent codes, and if counted: | last-bit codes of the negative elements | of the positive elements
where the byte codes of a 64-column block are ordered so that 32-bit lane t holds columns t, t+16, t+32, t+48; in a
16-column block a code fills the low byte of its lane. A is packed in blocks of 16 rows (the last may be lower); a block
is stored instruction by instruction along k, row by row, chunk by chunk, and a chunk is
    values [L] | exponent codes [L], and if counted: | last-bit codes [L] | offsets of the last-bit row of B [L]; | header
with each code repeated in the four bytes of a word, ready to be broadcast.

Exponent codes are biased so that a sum of two is a biased f32 exponent: 63 + e for A, 64 + e for B; 0 stands for a zero.
Last-bit codes count from the least last bit of the type or are NEVER; those of B are 128 less, so that sums
of two are signed bytes that do not wrap. Types whose exponents do not fit (bf16, tf32) are coded relative to the largest
exponent of the A chunk, and of the rows of one instruction in a B block. Headers hold these exponents, and whether there is an
Inf or NaN. Results that a fast path cannot represent are computed again by a slower vector path in f64.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from mmulator.base.classes import dataclass
from mmulator.base.lazy import cached_property
from mmulator.isa.types import F16, F32, ElementType
from mmulator.matrix.numerics.formats import element_type
from mmulator.matrix.numerics.profiles import DotKey, Profile

WIDE_COLUMNS, NARROW_COLUMNS = 64, 16
ROWS = 16  # rows of A that lie together, and of the accumulator tile on the stack
A_BIAS, B_BIAS = 63, 64
A_HEADER = 8  # bytes of a chunk's header in a row of A: whether the fast path is barred, with facts (plain.py); largest exponent
B_HEADER = 64  # of an instruction's header in a block of B: largest exponent, whether there is an Inf or NaN, facts (plain.py)
NEVER = 113  # the last-bit code of what is never too low: more than two of others
WINDOW = 30  # relative exponents further below the maximum are coded as this far below
LOWEST = 27  # field (exponent + 127) below which no fast path goes
HIGHEST = 225  # nor above; products of what is at most that large are no infinities
LANE = 4  # bytes of a value


class Parts:
    """The parameters of a twin: a frozen dataclass."""

    @property
    def of_a(self) -> Any:
        """The key of all that packing A depends on."""
        return self

    @property
    def of_b(self) -> Any:
        """The key of all that packing B depends on."""
        return self

    @property
    def of_dot(self) -> Any:
        """The key of all that the product of packed operands depends on."""
        return self

    @cached_property
    def symbol(self) -> str:
        """All parameters, as a part of the names of functions that depend on them."""
        return "_".join(_word(getattr(self, f.name)) for f in fields(self))  # type: ignore[arg-type]


def _word(value: Any) -> str:
    return value.symbol if isinstance(value, Parts) else str(int(value) if isinstance(value, bool) else value).replace("-", "m")


@dataclass(frozen=True)
class Plan(Parts):
    """One fused instruction, independent of the device's name. chunk: number of products of one chunk."""

    a: ElementType
    b: ElementType
    c: ElementType
    d: ElementType
    k: int
    chunk: int
    fraction: int
    floor: int
    keep: int
    sparse: bool
    halves: bool
    widen_c: bool
    narrow_d: bool
    scaled: bool  # one ue8m0 scale factor per row of A, column of B and instruction

    @property
    def products(self) -> int:
        return self.k // 2 if self.sparse else self.k

    def emin(self, t: ElementType) -> int:
        """Exponent of subnormal operands: that of f16 if they are converted to f16 first."""
        return min(t.emin, F16.emin) if self.halves else t.emin

    @property
    def length(self) -> int:
        """Number of products of one chunk."""
        return self.chunk

    @cached_property
    def order(self) -> tuple[tuple[int, ...], ...]:
        """Positions of products in each chunk."""
        products = range(self.products)
        if self.halves:
            return tuple(k for k in products if k % 4 < 2), tuple(k for k in products if k % 4 >= 2)
        return tuple(tuple(products[i : i + self.chunk]) for i in range(0, self.products, self.chunk))

    # What one function of the twin depends on: a plan with one value of all else.

    def _plain(self, **changes: Any) -> Plan:
        return replace(self, c=F32, d=F32, floor=0, keep=23, widen_c=False, narrow_d=False, scaled=False, **changes)

    @property
    def of_a(self) -> Plan:
        plain = self._plain(b=self.a)
        return plain if plain.relative == self.relative else replace(plain, b=self.b)

    @property
    def of_b(self) -> Plan:
        plain = self._plain(a=self.b, chunk=16, fraction=13 if self.counted else 25, sparse=False)
        return plain if plain.relative == self.relative else replace(plain, a=self.a)

    @property
    def of_sum(self) -> Plan:
        """The key of all that a chunk's sum depends on."""
        k = self.chunk << self.sparse + self.halves
        return replace(self, c=F32, d=self.state, k=k, widen_c=False, narrow_d=False)

    @property
    def of_c(self) -> Plan:
        """The key of all that loading the accumulator depends on."""
        return replace(self.of_sum, sparse=False, halves=False, k=16, chunk=16, floor=0, fraction=25, keep=23)

    @property
    def step(self) -> int:
        """Distance of the first product of a chunk from that of the chunk before."""
        return 2 if self.halves else self.chunk

    @property
    def state(self) -> ElementType:
        """Type of the accumulator between chunks."""
        return element_type("f32") if self.narrow_d else self.d

    @property
    def counted(self) -> bool:
        """Whether f32 accumulators truncate products themselves, with counts as correction; otherwise products are truncated to
        integers. Never for plans whose codes are biased.
        """
        return self.fraction + self.length.bit_length() + 3 <= 22

    @property
    def plain(self) -> bool:
        """Whether sums that are exact are computed as such (plain.py)."""
        return not (self.sparse or self.scaled)

    @property
    def relative(self) -> bool:
        """Whether exponent codes are relative to a maximum."""
        return max(self.a.exponent, self.b.exponent) > 5

    @property
    def biased(self) -> bool:
        """Whether a bias must be added to a sum of two exponent codes to get an f32 exponent."""
        return self.relative or self.scaled

    @property
    def zero_codes(self) -> int:
        """The largest sum of two codes if one of them is that of zero."""
        return B_BIAS + (0 if self.relative else max(self.top(self.a) - 1, self.top(self.b)))

    @property
    def top_codes(self) -> int:
        """The largest sum of two codes of finite numbers."""
        return A_BIAS + B_BIAS + (0 if self.relative else self.top(self.a) + self.top(self.b))

    @property
    def unit(self) -> int:
        """The number that is subtracted from the biased exponent of a sum's last bit times 2**F, to compare it with sums of
        last-bit codes.
        """
        return 127 + self.fraction + sum(t.emin - t.mantissa for t in (self.a, self.b))

    @staticmethod
    def top(t: ElementType) -> int:
        """Exponent of the largest finite elements."""
        return (1 << t.exponent) - 1 - (t.nan == "ieee") - t.bias

    @property
    def wide_sum(self) -> bool:
        """Whether sums may need more than 32 bits, but those of half of the products (of FP8, significands below 1.9) do not:
        the fast path checks afterwards.
        """
        return self.fraction + 1 + self.length.bit_length() > 31

    @property
    def may_overflow(self) -> bool:
        """Whether sums need just 32 bits: chunks of A with large significands are then flagged."""
        return self.fraction + 1 + self.length.bit_length() == 31

    # layout of packed operands ---------------------------------------------------------------------------------------
    @property
    def a_chunk(self) -> int:
        """Bytes of one chunk of a row of A."""
        return self.length * (LANE + (12 if self.counted else 4)) + A_HEADER

    @property
    def a_instruction(self) -> int:
        return len(self.order) * self.a_chunk

    def b_row(self, columns: int) -> int:
        return columns * LANE + (3 if self.counted else 1) * 64

    def a_bytes(self, m: int, k: int) -> int:
        """Bytes of a packed A of m rows and k dense columns."""
        return m * (k // self.k) * self.a_instruction

    def b_block(self, columns: int, k: int) -> int:
        return k * self.b_row(columns) + k // self.k * B_HEADER

    def b_bytes(self, n: int, k: int) -> int:
        """Bytes of a packed B of n columns."""
        wide, rest = divmod(n, WIDE_COLUMNS)
        return wide * self.b_block(WIDE_COLUMNS, k) + -(-rest // NARROW_COLUMNS) * self.b_block(NARROW_COLUMNS, k)


def plan_for(key: DotKey, p: Profile) -> Plan:
    """The plan of a key whose method is "fused" or "halves"."""
    return Plan(
        element_type(key.atype), element_type(key.btype), element_type(key.ctype), element_type(key.dtype), key.k,
        key.products // 2 if p.method == "halves" else min(p.chunk, key.products), p.fraction, p.floor, p.keep, key.sparse,
        p.method == "halves", p.widen_c, p.narrow_d, key.scale_blocks > 0,
    )  # fmt: skip
