"""One element of a matrix product as a record: every step of its sum on a device, of one instruction or of a chain of them.

`dot.py` makes the steps, and the result is that of the last one. `telling.py` tells the record as text and HTML.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from mmulator.base.distance import distances
from mmulator.base.errors import InternalError
from mmulator.base.lazy import cached_property
from mmulator.isa.form import Form
from mmulator.isa.types import F16, F32, ElementType
from mmulator.matrix.numerics.dot import MODES, Origin, SumStep, Term, converted, group_scales, steps, term
from mmulator.matrix.numerics.formats import SCALE_OF_ONE, container, element_type, from_raw, integers
from mmulator.matrix.numerics.profiles import GROUP, DotKey, Profile, dot_key, profile_for

Number = Fraction | float  # an exact value; a float for NaN and infinities
WHOLE = {"tf32": F32}  # types of which an instruction reads only upper bits: what it is given


@dataclass(frozen=True)
class Loss:
    """A part of the difference between a result and the exact sum.

    kind: "operands", "terms", "sums", "result"; "conversion" behind the product.
    said: what makes it.
    value: how much, with its sign.
    """

    kind: str
    said: str
    value: Fraction


@dataclass(frozen=True)
class ElementSum:
    """The sum of one output element on one device. All operands are raw bits.

    key: the arithmetic of the instruction.
    device: name of the device.
    a, b: the factors along k; of a sparse A those that are kept, and the elements of B that meet them.
    c: the element of C.
    scale_a, scale_b: scale factors along k.
    sign: imm_scale_a * imm_scale_b.
    positions: for each product its k in the dense matrices.
    steps: what the device does, in order.
    """

    key: DotKey
    device: str
    a: tuple[int, ...]
    b: tuple[int, ...]
    c: int
    scale_a: tuple[int, ...]
    scale_b: tuple[int, ...]
    sign: int
    positions: tuple[int, ...]
    steps: tuple[SumStep, ...]

    @property
    def profile(self) -> Profile:
        """The arithmetic of the device."""
        return profile_for(self.key, self.device)

    @property
    def dtype(self) -> ElementType:
        """The type of the result."""
        return element_type(self.key.dtype)

    @property
    def bits(self) -> int:
        """The result."""
        return self.steps[-1].result

    @property
    def value(self) -> Number:
        """The value of the result."""
        return self.steps[-1].value

    @cached_property
    def exact(self) -> Number:
        """The sum of what was given, without any rounding; NaN or an infinity where it is special."""
        return self._total(whole=True)

    @cached_property
    def read(self) -> Number:
        """The sum of what the instruction reads, without any rounding: of an f32 that is read as tf32 the upper bits."""
        return self._total(whole=False) if self.key.atype in WHOLE else self.exact

    def _total(self, whole: bool) -> Number:
        finite, special = Fraction(0), 0.0
        for value in (*self.products(whole), number(element_type(self.key.ctype), self.c)):
            if isinstance(value, Fraction):
                finite += value
            else:
                special += value
        return special or finite

    @cached_property
    def losses(self) -> tuple[Loss, ...]:
        """The parts of the difference between the result and `exact`, in order; none where one of the two is not finite.

        Raises InternalError if they do not add up.
        """
        value, read, exact = self.value, self.read, self.exact
        if not (isinstance(value, Fraction) and isinstance(read, Fraction) and isinstance(exact, Fraction)):
            return ()
        cuts, (*early, late) = zip(*map(lost, self.steps))
        last = self.steps[-1].rounding
        cut_bits = F32.mantissa - element_type(self.key.atype).mantissa
        low = (1 << cut_bits) - 1 if self.key.atype in WHOLE else 0
        sides = " and ".join(name for name, side in (("a", self.a), ("b", self.b)) if any(x & low for x in side))
        assert last is not None
        found = (
            Loss("operands", f"{cut_bits} bits of {sides} are cut: f32 is read as {self.key.atype}", read - exact),
            Loss("terms", f"bits below what a sum keeps are cut, in {_count(cuts)}", -sum(cuts)),
            Loss("sums", f"results are rounded, in {_count(early)} before the last", Fraction(sum(early))),
            Loss("result", f"the last result is rounded to {last.dtype}, {MODES[last.mode]}", late),
        )
        if sum(x.value for x in found) != value - exact:
            raise InternalError(f"{self.key} on {self.device}: {value - exact} is not the sum of {found}")
        return tuple(x for x in found if x.value)

    def products(self, whole: bool = False) -> Iterator[Number]:
        """The exact products, with sign and scale factors. whole: of all bits that were given, not of those that are read."""
        key, p = self.key, self.profile
        atype, btype = (WHOLE.get(name, element_type(name)) if whole else element_type(name) for name in (key.atype, key.btype))
        scales = []
        for n in range(0, len(self.scale_a), key.scale_blocks or 1):
            part = slice(n, n + key.scale_blocks)
            scales += group_scales(key, self.scale_a[part], self.scale_b[part])
        each = GROUP if p.method == "groups" else key.products
        for k, (x, y) in enumerate(zip(self.a, self.b, strict=True)):
            if p.method == "integer" or p.method == "bits":
                left, right = (int(integers(t, z)) for t, z in ((atype, x), (btype, y)))  # type: ignore[arg-type]
                yield Fraction(left ^ right if key.bit_op == "xor" else left * right)
                continue
            product = term(atype, x) * term(btype, y)
            product = product.negated() if self.sign < 0 else product
            yield (product * scales[k // each] if scales else product).value

    def running(self) -> dict[int, SumStep]:
        """The rounded sums that hold all of the first n products, by n: where sums of two devices can be compared."""
        seen: list[set[int]] = []
        done: dict[int, SumStep] = {}
        for s in self.steps:
            own = {source.number for source in s.sources if source.kind == "product"}
            own = own.union(*(seen[source.number] for source in s.sources if source.kind == "step"))
            seen.append(own)
            if s.bits is not None and len(own) == max(own, default=-1) + 1:
                done[len(own)] = s
        return done

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON can hold it: exact numbers as texts (hexadecimal floats), NaN and infinities too."""
        p = self.profile
        return {
            "arithmetic": asdict(self.key), "device": self.device, "profile": asdict(p), "sign": self.sign,
            "bits": self.bits, "value": hexed(self.value), "exact": hexed(self.exact), "c": self.c,
            "scale_a": self.scale_a, "scale_b": self.scale_b,
            "steps": [self._step(s) for s in self.steps],
        }  # fmt: skip

    def _step(self, s: SumStep) -> dict[str, Any]:
        kept = (None,) * len(s.terms) if s.special else s.kept
        exponents = s.exponents or (None,) * len(s.terms)
        terms = [self._term(*each, s) for each in zip(s.sources, s.terms, exponents, kept, strict=True)]
        return {
            "operation": s.operation, "emax": s.emax, "quantum": s.quantum, "total": s.total,
            "special": hexed(s.special) if s.special else None, "rounding": asdict(s.rounding) if s.rounding else None,
            "scale": hexed(s.scale.value) if s.scale else None, "zero": s.zero, "bits": s.bits, "value": hexed(s.value),
            "terms": terms,
        }  # fmt: skip

    def _term(self, source: Origin, t: Term, aligned: int | None, kept: int | None, s: SumStep) -> dict[str, Any]:
        out: dict[str, Any] = {"source": source.kind, "number": source.number}
        if source.kind == "product":
            out |= {"k": self.positions[source.number], "a": self.a[source.number], "b": self.b[source.number]}
        out |= {"significand": t.significand, "exponent": t.exponent, "fraction": t.fraction, "value": hexed(t.value)}
        return {**out, "aligned": aligned, "kept": kept, "cut": hexed(cut(t, s))}


def explain_element(
    arithmetic: DotKey | Form,
    device: str,
    a: Sequence[int],
    b: Sequence[int],
    c: int = 0,
    *,
    imm_scale_a: int = 1,
    imm_scale_b: int = 1,
    scale_a: Sequence[int] = (),
    scale_b: Sequence[int] = (),
    positions: Sequence[int] = (),
) -> ElementSum:
    """The record of one output element. All operands are raw bits, as lists or arrays.

    arithmetic: a matrix instruction's form, or the key of its arithmetic.
    device: name of a device, such as `sm_90`.
    a: a row of A; of a sparse one the elements that are kept.
    b: the elements of B that meet them, as many.
    c: the element of C.
    imm_scale_a, imm_scale_b: 1 or -1.
    scale_a, scale_b: scale factors along k, in block scaling.
    positions: k of each product in the dense matrices, if A is sparse; default: 0, 1, 2 and so on.

    What is longer than one instruction's k is a chain of instructions: the result of each is the C of the next. The last is
    filled with zeros. Raises UnsupportedError if the device has no such arithmetic.
    """
    key = arithmetic if isinstance(arithmetic, DotKey) else dot_key(arithmetic)
    size, blocks = key.products, key.scale_blocks
    count = max(1, -(-len(a) // size))
    missing = count * size - len(a)
    row, column = ((*map(int, x), *(0,) * missing) for x in (a, b))
    one = SCALE_OF_ONE.get(key.stype or "", 0)
    sa, sb = ((*map(int, x), *(one,) * (count * blocks - len(x))) for x in (scale_a, scale_b))
    sign, c = imm_scale_a * imm_scale_b, int(c)
    done: list[SumStep] = []
    step_key = key
    for n in range(count):
        here, factors = slice(n * size, n * size + size), slice(n * blocks, n * blocks + blocks)
        if n and key.ctype != key.dtype:  # D of another type than C: from here on, D is C
            if key.dtype == "f16":
                done.append(converted((Origin("step", len(done) - 1), done[-1].result), F16, F32.name))
            else:
                step_key = replace(key, ctype=key.dtype)
        done = steps(
            step_key, device, row[here], column[here], c, sign=sign, scale_a=sa[factors], scale_b=sb[factors],
            before=done, first=n * size,
        )  # fmt: skip
    where = (*map(int, positions),) or (*range(len(a)),)
    where += tuple(range(where[-1] + 1 if where else 0, (where[-1] + 1 if where else 0) + missing))
    return ElementSum(key, device, row, column, c, sa, sb, sign, where, tuple(done))


def number(t: ElementType, bits: int) -> Number:
    """The exact value of one raw element."""
    if t.is_float:
        return term(t, bits).value
    negative = t.kind == "signed" and bits >> t.bits - 1 & 1
    return Fraction((bits & (1 << t.bits) - 1) - (negative << t.bits))


def cut(t: Term, s: SumStep) -> Number:
    """The part that truncation took from a term of a step."""
    value = t.value
    if s.special or not isinstance(value, Fraction):
        return Fraction(0)
    return value - t.truncated(s.quantum) * Fraction(2) ** s.quantum


def _count(parts: Sequence[Fraction]) -> str:
    return f"{sum(x != 0 for x in parts)} of {len(parts)} steps"


def lost(s: SumStep) -> tuple[Fraction, Fraction]:
    """The parts that truncation took from the terms of a step, and that the rounding added; 0 for NaN and infinities."""
    value, total = s.value, s.total * Fraction(2) ** s.quantum
    if not isinstance(value, Fraction) or s.bits is None:
        return Fraction(0), Fraction(0)
    taken = sum((x for t in s.terms if isinstance(x := cut(t, s), Fraction)), Fraction(0))
    return taken, value - total


def hexed(value: Number) -> str:
    """An exact number as a hexadecimal float of any length, such as 0x1.8p-3; an integer beyond 2**53, too."""
    if not isinstance(value, Fraction):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    numerator, low = abs(value.numerator), value.denominator.bit_length() - 1
    if value.denominator != 1 << low:
        raise ValueError(f"{value} is no binary number")
    if not numerator:
        return "0x0p+0"
    top = numerator.bit_length() - 1
    digits = f"{(numerator - (1 << top)) << -top % 4:0{-(-top // 4)}x}".rstrip("0") if top else ""
    return f"{'-' * (value < 0)}0x1{'.' * bool(digits)}{digits}p{top - low:+d}"


def ulps(t: ElementType, x: int, y: int) -> int | None:
    """Steps between two results of a type, as raw bits; None where one of them is NaN."""
    both = from_raw(t, np.array([x, y], container(t)))
    return None if np.isnan(both.astype(np.float64)).any() else int(distances(both[:1], both[1:])[0])


def ulps_off(t: ElementType, bits: int, exact: Number) -> Fraction | None:
    """How far a result is from the exact sum, in units of its own last place; None where one of them is not finite."""
    got = number(t, bits)
    if not isinstance(got, Fraction) or not isinstance(exact, Fraction):
        return None
    return (got - exact) / last_place(t, bits)


def last_place(t: ElementType, bits: int) -> Fraction:
    """The unit of the last place of a finite number; 1 of an integer."""
    return Fraction(2) ** (term(t, bits).exponent - t.mantissa if t.is_float else 0)


def parted(x: ElementSum, y: ElementSum) -> int | None:
    """The least number of products after which two sums that both hold them differ; None if they never do."""
    left, right = x.running(), y.running()
    return next((n for n in sorted(left.keys() & right.keys()) if left[n].value != right[n].value), None)
