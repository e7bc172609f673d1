"""Where a NaN or an infinity was born: from a store back through the operands that carry it, through any number of instructions.

A tree of causes (why.py) has all operands, down to a depth; this follows one of them, and ends where no operand is a NaN (or
infinite): at the instruction that made it, or at what the launch found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmulator.base.source import Span
from mmulator.isa.effects import Algebra
from mmulator.isa.types import TYPES, type_bits
from mmulator.observation.record.addresses import InCell, InRegister, MemoryWrite, Place
from mmulator.observation.record.cause import Cause, CauseAt, place_text, thread_text
from mmulator.observation.record.chains import ProductChain
from mmulator.observation.record.products import ProductElement
from mmulator.observation.record.sources import MOST
from mmulator.observation.record.trail import TrailStep
from mmulator.observation.record.values import dtype_of, parts_of
from mmulator.observation.record.why import DEPTH, Explainer, Way

NAN, INFINITY = "NaN", "infinity"
_SIGNS = {
    Algebra.SUM: "{} + {}", Algebra.DIFFERENCE: "{} - {}", Algebra.PRODUCT: "{} * {}", Algebra.QUOTIENT: "{} / {}",
    Algebra.FUSED: "{} * {} + {}",
}  # fmt: skip


def numbers(raw: Sequence[int], type_name: str) -> NDArray[np.float64]:
    """Raw elements of a floating-point type as numbers."""
    dtype = dtype_of(type_name)
    with np.errstate(all="ignore"):
        return np.array(raw, np.uint64).astype(f"u{dtype.itemsize}").view(dtype).astype(np.float64)


def _part(bits: int, low: int, width: int) -> int:
    return bits >> low & (1 << width) - 1


def _floats(type_name: str) -> bool:
    t = TYPES.get(parts_of(type_name)[0])
    return t is not None and t.kind == "float"


def _where(at: CauseAt | None) -> str:
    """The line of the program; of PTX alone that of the PTX."""
    return "" if at is None else at.source or f"{at.file}:{at.line}"


def kind_of(bits: int, type_name: str) -> str:
    """NAN or INFINITY, if bits of a type are one, or a part of a packed type is; else ""."""
    if not _floats(type_name):
        return ""
    element, count = parts_of(type_name)
    size = type_bits(type_name) // count
    found = numbers([_part(bits, n * size, size) for n in range(count)], element)
    return NAN if np.isnan(found).any() else INFINITY if np.isinf(found).any() else ""


@dataclass(frozen=True)
class BirthOperand(Cause):
    """A value that an instruction read, whose cause is not yet looked for.

    go: finds it, of `width` bits from bit `low` on, as a type.
    when: number of the step that wrote it.
    """

    go: Callable[[str, int, int], Cause] = field(default=Cause, compare=False)  # type: ignore[assignment]
    when: int = 0
    low: int = 0
    width: int = 0

    def of(self) -> Cause:
        return self.go(self.type, self.low, self.width)

    def within(self, type_name: str, low: int, width: int) -> BirthOperand:
        """Some of its bits as another type."""
        return replace(self, bits=_part(self.bits, low, width), type=type_name, low=self.low + low, width=width)


@dataclass(frozen=True)
class Birth:
    """Where a NaN or an infinity was born.

    kind: NAN or INFINITY.
    where, what, by: `x.py:22: `, `sub.f32 -inf - -inf`, `, block (0, 0, 0), thread (5, 0, 0)`; or what the launch found.
    made: whether an instruction of the launch made it of other values.
    span: the instruction.
    links: the values that led to it, the stored one first.
    of: births of the infinities that it was made of.
    depth: how many lines of the program are told.
    """

    kind: str
    where: str
    what: str
    by: str = ""
    made: bool = False
    span: Span | None = field(default=None, compare=False)
    links: tuple[Cause, ...] = ()
    of: tuple[tuple[str, str], ...] = ()
    depth: int = DEPTH

    @property
    def said(self) -> str:
        return f"{self.where}{self.what}{self.by}"

    def as_dict(self) -> dict[str, Any]:
        """The birth as JSON can hold it."""
        return {"kind": self.kind, "said": self.said, "made": self.made, "of": [f"{v} since {said}" for v, said in self.of]}

    def lines(self) -> Iterator[str]:
        """Lines about the way from the stored value back to the birth."""
        for value, said in self.of:
            yield f"  {value} since {said}"
        placed = (link for link in self.links if link.at is not None)
        groups = [[*group] for _, group in groupby(placed, lambda c: _where(c.at))]  # of one line of the program
        first, last = -(-self.depth // 2), max(1, self.depth // 2)
        left_out = groups[first:-last] if len(groups) > first + last + 1 else []
        for number, group in enumerate(groups):
            if not first <= number < first + len(left_out):
                yield from self._told(group)
            elif number == first:
                yield self._between(left_out, len(groups))

    def _told(self, group: list[Cause]) -> Iterator[str]:
        link = group[0]
        assert link.at is not None
        inputs = ", ".join(c.name if c.name == c.text else f"{c.name} = {c.text}" for c in link.inputs[:4] if c.name)
        more = f", {len(group) - 1} more of this line" if len(group) > 1 else ""
        yield f"  {link.name} = {link.text} <- {link.how}" + (f"({inputs})" if inputs else "") + more
        yield f"    at {place_text(link.at)}, thread {link.at.thread}" + (f"  {link.at.quoted}" if link.at.quoted else "")

    def _between(self, left_out: list[list[Cause]], depth: int) -> str:
        """A line about links that are not told: the loop that they run through, and the option that shows them."""
        ((where, _), rounds), *_ = Counter((_where(c.at), c.at and c.at.line) for c in self.links).most_common(1)
        loop = f"{rounds} rounds of the loop at {where}, " if rounds > 1 else ""
        return f"  ... {loop}{sum(map(len, left_out))} instructions; --why-depth {depth} shows them"


class Births(Explainer):
    """Answers about births of values of a trail. explainer: what else is known of them."""

    shortens = False

    def __init__(self, explainer: Explainer) -> None:
        super().__init__(explainer.trail, explainer.names, explainer.device, MOST)
        self.shown = explainer.depth
        self.origins = explainer.origins

    def of(self, found: MemoryWrite, name: str, bits: int, type_name: str, size: int) -> Birth | None:
        """The birth of a value that a write left in memory; None for a value that is no NaN and not infinite.

        name, bits, type_name, size: the element, its value, its type and its bytes.
        """
        kind = kind_of(bits, type_name)
        return self._from(self.written(found, name, bits, type_name, size, ()), kind) if kind else None

    def _from(self, cause: Cause, kind: str) -> Birth:
        links: list[Cause] = []
        while True:
            while isinstance(cause, BirthOperand):
                cause = cause.of()
            links.append(cause)
            carrier = _carrier(cause, kind)
            if carrier is None:
                break
            cause = carrier
        others = {c.text: c for c in cause.inputs if kind == NAN and kind_of(c.bits, c.type) == INFINITY}
        of = tuple((text, self._from(c, INFINITY).said) for text, c in others.items())
        return replace(self._born(kind, links), links=tuple(links), of=of, depth=self.shown)

    def _born(self, kind: str, links: list[Cause]) -> Birth:
        """Where the last of some values was born."""
        born = links[-1]
        at = next((c.at for c in reversed(links) if c.at is not None), None)
        where, by = ("", "") if at is None else (f"{_where(at)}: ", f", {thread_text(at)}")
        if not born.inputs and not born.products:
            if born.at is None and born.how.startswith(("as the launch", "a parameter", "not written", "never written")):
                return Birth(kind, "", f"{born.name.partition(', byte')[0]} = {born.text}, {born.how}")
            if born.how in ("a constant", "a special register"):
                return Birth(kind, where, f"the constant {born.text}" if born.how == "a constant" else born.name)
            return Birth(kind, where, born.how, by)
        assert at is not None
        step = self.trail.at(at.step)
        assert step is not None
        ins, values = self.trail.instruction(step), [one.text for one in born.inputs]
        form = _SIGNS.get(ins.effects.algebra, "")
        formed = form.format(*values) if form.count("{}") == len(values) else f"of {', '.join(values)}"
        said = born.remarks[-1] if born.products else formed
        made = bool(born.products) or (_floats(born.type) and parts_of(ins.form["type"])[0] == parts_of(born.type)[0])
        return Birth(kind, where, f"{born.how} {said}", by + self._round(step), made, ins.original.span)

    def _round(self, step: TrailStep) -> str:
        """`, round 1 of 4`: how often the warp was there before."""
        here = step.site, step.place.address, step.block
        times = [s.number for s in self.trail.steps if (s.site, s.place.address, s.block) == here]
        return f", round {times.index(step.number) + 1} of {len(times)}" if len(times) > 1 else ""

    # what why.py tells, as operands -----------------------------------------------------------------------------------
    def register(self, step: TrailStep, lane: int, name: str, type_name: str, low: int, width: int, path: Way = ()) -> Cause:
        found, writer = self.trail.register(step, name), self.trail.writer(step, name, lane)
        bits = 0 if found is None else _part(int(found[lane]), low, width)
        go = partial(super().register, step, lane, name)
        return BirthOperand(name, bits, type_name, "", go=go, when=0 if writer is None else writer.number, low=low, width=width)

    def memory(
        self, step: TrailStep, lane: int, address: int, bits: int, type_name: str, size: int, path: Way,
        before: int | None = None,
    ) -> Cause:  # fmt: skip
        def go(name: str, low: int, width: int) -> Cause:
            return Explainer.memory(self, step, lane, address + low // 8, _part(bits, low, width), name, width // 8, (), before)

        return BirthOperand("", bits, type_name, "", go=go, width=8 * size)

    def cell(self, place: InCell, bits: int, type_name: str, width: int, path: Way) -> Cause:
        def go(name: str, low: int, width: int) -> Cause:
            return Explainer.cell(self, replace(place, low=place.low + low), _part(bits, low, width), name, width, ())

        return BirthOperand(place.text, bits, type_name, "", go=go, width=width)

    def _product(self, step: TrailStep, product: ProductElement, cause: Cause, path: Way) -> Cause:
        """Products into one accumulator: what in the first of them is a NaN or infinite, or how it becomes one."""
        links = ProductChain.behind(self.trail, step, product).links
        step, first = links[0]
        if first.a_type.kind != "float" or cause.at is None:
            return cause
        kind = kind_of(cause.bits, cause.type)
        ends: list[Cause] = []  # infinite operands
        signs = set[float]()
        if first.c_at is not None and first.c is not None:
            c = self._operand_of(step, first.c_at, first.c, first.key.ctype, first.d_bits)
            if kind_of(c.bits, c.type) == kind:
                return replace(cause, inputs=(c,), products=len(links))
            if kind_of(c.bits, c.type):
                ends, signs = [c], {*np.sign(numbers([c.bits], c.type)).tolist()}
        said = f"of {len(links)} finite products, whose sum is beyond the largest {first.key.dtype}"
        found: list[Cause] = []
        for number, (step, one) in enumerate(links):
            with np.errstate(all="ignore"):
                a, b = numbers(one.a, one.key.atype), numbers(one.b, one.key.btype)
                made = one.sign * a * b
            sides = ((a, one.a, one.a_at, one.key.atype), (b, one.b, one.b_at, one.key.btype))
            odd = [
                self._operand_of(step, places[k], raw[k], t, type_bits(t))
                for values, raw, places, t in sides for k in np.flatnonzero(~np.isfinite(values)).tolist()
            ]  # fmt: skip
            for raw, places in ((one.scale_a, one.scale_a_at), (one.scale_b, one.scale_b_at)):
                t = one.key.stype or "ue8m0"
                scales = enumerate(np.isnan(numbers(raw, t)).tolist() if raw else ())
                odd += [self._operand_of(step, places[k], raw[k], t, 8) for k, wrong in scales if wrong]
            found = [x for x in odd if kind_of(x.bits, x.type) == kind]
            ends += [x for x in odd if kind_of(x.bits, x.type) == INFINITY]
            signs |= {*np.sign(made[np.isinf(made)]).tolist()}
            zero = np.flatnonzero(np.isnan(made) & ~np.isnan(a) & ~np.isnan(b))
            if kind == NAN and len(zero):
                k = int(zero[0])
                names = [self.origins.of(places[k], step, type_bits(t)).name for _, _, places, t in sides]
                said = f"{a[k]} * {b[k]}, {names[0]} times {names[1]}, k = {one.positions[k] + number * one.k}"
            elif kind == NAN and len(signs) > 1:
                said = "inf - inf in one sum"
            if found or (kind == NAN and (len(zero) or len(signs) > 1)):
                break
        said = f"row {first.row}, column {first.column} of D: {said}"
        at = replace(self.at(step, 0), thread=cause.at.thread)
        return replace(cause, at=at, inputs=tuple(found or ends), products=len(links), remarks=(said,))

    def _operand_of(self, step: TrailStep, place: Place, bits: int, type_name: str, width: int) -> Cause:
        match place:
            case InRegister():
                return self.register(step, place.lane, place.name, type_name, place.low, width)
            case InCell():
                return self.cell(place, bits, type_name, width, ())
        return self.memory(step, 0, place.address, bits, type_name, max(1, width // 8), (), place.before)


def _carrier(cause: Cause, kind: str) -> Cause | None:
    """The input from which a value is a NaN, or infinite: of several the one that was written first; None if there is none."""
    found = [c for c in cause.inputs if kind_of(c.bits, c.type) == kind] or list(_hidden(cause, kind))
    return min(found, key=lambda c: c.when if isinstance(c, BirthOperand) else 0) if found else None


def _hidden(cause: Cause, kind: str) -> Iterator[Cause]:
    """Inputs without a sign or a point that hold the bits of a value: as they are, or those of its bytes that are not zero."""
    if not kind_of(cause.bits, cause.type):
        return
    width = type_bits(cause.type)
    zeros = (cause.bits & -cause.bits).bit_length() - 1
    some, kept = cause.bits >> zeros // 8 * 8, width - zeros // 8 * 8
    for c in cause.inputs:
        if not isinstance(c, BirthOperand) or not c.width or _floats(c.type):
            continue
        if c.width == width and kind_of(c.bits, cause.type) == kind:
            yield c.within(cause.type, 0, width)
        for low in range(0, c.width - 15, 8):
            if kept == 16 and c.bits >> low & 0xFFFF == some:
                yield c.within("bf16" if width == 32 else cause.type, low, 16)
