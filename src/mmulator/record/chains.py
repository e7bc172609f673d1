"""Matrix products that follow each other in one accumulator: found from the last one back, and explained as one sum."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from mmulator.errors import InternalError
from mmulator.numerics.element import ElementSum, explain_element, number
from mmulator.numerics.formats import element_type
from mmulator.record.cause import span_text
from mmulator.record.origins import OperandOrigin, Origins, summary
from mmulator.record.places import InCell, InRegister, Place
from mmulator.record.products import ProductElement, halved, product_element
from mmulator.record.tensor.cells import ProductCell, cells_of
from mmulator.record.tensor.products import tensor_product
from mmulator.record.tiles import astray
from mmulator.record.trail import Trail, TrailStep

Link = tuple[TrailStep, ProductElement]
Read = Callable[[int, int], bytes]
FACTORS = 5  # scale factors that are told


@dataclass(frozen=True)
class ProductChain:
    """Products of one arithmetic, each of which adds to the one before it.

    links: the step that issued each product, and the product; in the order of their execution.
    """

    links: tuple[Link, ...]

    @classmethod
    def behind(cls, trail: Trail, step: TrailStep, product: ProductElement) -> ProductChain:
        """The chain that ends in a product. step: that issued it."""
        found = [(step, product)]
        while product.c_at is not None and not product.halved:
            before = product_at(trail, product.c_at, step)
            if before is None or before[1].key != product.key:
                break
            step, product = before
            found.append(before)
        return cls(tuple(reversed(found)))

    @property
    def first(self) -> Link:
        """The first product."""
        return self.links[0]

    @property
    def last(self) -> ProductElement:
        """The last product."""
        return self.links[-1][1]

    def explain(self, device: str) -> ElementSum:
        """The sum as the exact model makes it. device: whose arithmetic it has."""
        _, first = self.first
        if first.c_at is not None and first.c is None:
            raise InternalError(f"what row {first.row}, column {first.column} of D is added to was not kept")
        products = [product for _, product in self.links]
        positions = tuple(p + n * product.k for n, product in enumerate(products) for p in product.positions)
        a, b, scale_a, scale_b = (
            tuple(x for product in products for x in getattr(product, part)) for part in ("a", "b", "scale_a", "scale_b")
        )
        c = 0 if first.c is None else halved(first.c, first.d_bits, first.halved)
        return explain_element(
            first.key, device, a, b, c, imm_scale_a=first.sign, positions=positions, scale_a=scale_a, scale_b=scale_b
        )

    def operands(self, origins: Origins) -> tuple[tuple[OperandOrigin, ...], tuple[OperandOrigin, ...]]:
        """Where the elements of A and of B along k come from. origins: answers about places."""
        a = tuple(origins.of(place, step, e.a_type.bits) for step, e in self.links for place in e.a_at)
        b = tuple(origins.of(place, step, e.b_type.bits) for step, e in self.links for place in e.b_at)
        return a, b

    def sentences(self, origins: Origins, read: Read | None) -> Iterator[str]:
        """Sentences about where the row of A and the column of B come from, and whether they had arrived.

        origins: answers about places. read: gives bytes of device memory; None: of memory nothing is known.
        """
        yield f"row {self.last.row}, column {self.last.column} of D"
        if self.first[1].halved:
            yield f"D is divided by {1 << self.first[1].halved} before the sum (scale-input-d)"
        yield from self._lost(origins.trail)
        positions = [k + n * e.k for n, (_, e) in enumerate(self.links) for k in e.positions]
        for side, named in zip("ab", self.operands(origins)):
            raw = [x for _, e in self.links for x in (e.a if side == "a" else e.b)]
            bits = (self.last.a_type if side == "a" else self.last.b_type).bits
            late = [
                f"k[{k}]" for k, origin, value in zip(positions, named, raw)
                if read is not None and origin.address is not None and bits >= 8
                and int.from_bytes(read(origin.address, bits // 8), "little") != value
            ]  # fmt: skip
            if (self.last.key.kind or "").endswith("f8f6f4") and bits < 8:
                yield f"elements of {side.upper()} have {bits} bits, padded to 8 each: the padding is not read"
            yield f"{'row of A' if side == 'a' else 'column of B'}: {summary([origin.name for origin in named])}"
            if led := astray(origins.trail, origins.names, *self.first, side):
                yield led
            if late:
                yield (
                    f"at {summary(late)} the machine read other bits than these have: the copy had not arrived, or they were "
                    "written since"
                )
            factors = [(step, place) for step, e in self.links for place in (e.scale_a_at if side == "a" else e.scale_b_at)]
            if factors:
                given = summary([origins.of(at, step, 8).name for step, at in factors])
                yield f"scale factors of {side.upper()}: {given}, which multiply by {', '.join(self._scaled(side))}"

    def _lost(self, trail: Trail) -> Iterator[str]:
        """A sentence that the first product throws away what products before it left in the accumulator, which nothing read."""
        step, first = self.first
        at = first.d_at
        before = product_at(trail, at, step) if at is not None and first.c_at is None else None
        if at is not None and before is not None and not trail.is_read(at.name, before[0], step):
            span = trail.instruction(step).original.span
            many, place = len(ProductChain.behind(trail, *before).links), span_text(span)
            held = f"sum of the {many} products" if many > 1 else "product"
            yield f"scale-d is 0 at {place}: the {held} before it, which the accumulator held, is lost"

    def _scaled(self, side: str) -> list[str]:
        """The scale factors of a side and their products: `2 (k 0..31)`, some of many."""
        kind, said = element_type(self.last.key.stype or ""), []
        for n, (_, e) in enumerate(self.links):
            raw = e.scale_a if side == "a" else e.scale_b
            size = len(e.positions) // len(raw)
            ends = ((e.positions[i] + n * e.k, e.positions[i + size - 1] + n * e.k) for i in range(0, size * len(raw), size))
            said += [f"{float(number(kind, bits)):g} (k {first}..{last})" for bits, (first, last) in zip(raw, ends)]
        return said if len(said) <= FACTORS else [*said[: FACTORS - 1], f"and {len(said) - FACTORS + 1} more"]


def product_at(trail: Trail, place: Place, step: TrailStep) -> Link | None:
    """The product that wrote the element at a place which a step reads; None if something else did."""
    if isinstance(place, InRegister):
        writer = trail.writer(step, place.name, place.lane)
        if writer is None or not trail.instruction(writer).effects.multiplies or not trail.instruction(writer).form.is_matrix:
            return None
        found = product_element(trail, writer, place.lane, place.name, place.low)
        return None if found is None else (writer, found)
    made = cells_of(trail).last(place) if isinstance(place, InCell) else None
    if not isinstance(made, ProductCell) or made.operation.step is None:
        return None
    return made.operation.step, tensor_product(made)
