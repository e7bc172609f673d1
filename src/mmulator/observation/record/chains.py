"""Matrix products that follow each other in one accumulator: found from the last one back, and explained as one sum.

Of tiles in shared memory that products read through matrix descriptors, whether a descriptor leads to the elements meant: the
tile was copied from a matrix in device memory, and the descriptor's first element, with those beside it, says which way its
rows and columns run there. What a descriptor with a wrong stride or swizzle reads is elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mmulator.base.errors import InternalError
from mmulator.matrix.layouts import MatrixDescriptor, operand_addresses
from mmulator.matrix.layouts.descriptors import SharedDescriptor
from mmulator.matrix.layouts.instruction_descriptor import Variant
from mmulator.matrix.numerics.element import ElementSum, explain_element, number
from mmulator.matrix.numerics.formats import element_type
from mmulator.observation.record.addresses import InCell, InRegister, Place, operands_of
from mmulator.observation.record.cause import span_text
from mmulator.observation.record.memory import last_write
from mmulator.observation.record.names import DeviceNames
from mmulator.observation.record.origins import OperandOrigin, Origins, summary
from mmulator.observation.record.products import ProductElement, described, halved, product_element
from mmulator.observation.record.tensor_cells import ProductCell, cells_of, element_places, tensor_product
from mmulator.observation.record.trail import Trail, TrailStep
from mmulator.runtime.launch.tensor_tables import unpacking

Index = NDArray[np.int64]


@dataclass(frozen=True)
class TileRead:
    """A matrix in shared memory as a product reads it.

    descriptor: leads to it.
    across: whether M or N is contiguous in it.
    at: address of each element [row of A or column of B, k].
    line: the row or column that is read.
    before: number of the step before which it is read.
    """

    descriptor: MatrixDescriptor | SharedDescriptor
    across: bool
    at: Index
    line: int
    before: int


def astray(trail: Trail, names: object, step: TrailStep, product: ProductElement, side: str) -> str:
    """A sentence about a descriptor that leads to other elements than its matrix has; "" where none is known to.

    trail, step: the steps, and that which issued the product.
    names: of device memory.
    product: the product.
    side: a or b.
    """
    tile = _tile(trail, step, product, side)
    if tile is None or not isinstance(names, DeviceNames) or min(tile.at.shape) < 2:
        return ""
    first, down, beside = (_copied(trail, names, tile, *at) for at in ((0, 0), (1, 0), (0, 1)))
    if first is None or down is None or beside is None:
        return ""
    by_line, by_k = down[1] - first[1], beside[1] - first[1]
    if any(way.sum() != 1 or abs(way).sum() != 1 for way in (by_line, by_k)) or (by_line == by_k).all():
        if len(first[1]) != 2 or "tensorMap" not in operands_of(trail.instruction(first[0])):
            return ""
        down_by, beside_by = by_line, by_k
        by_line, by_k = np.eye(2, dtype=np.int64)[:: -1 if tile.across else 1]  # bytes beside each other stay so in a box
        if not down_by @ by_k and not beside_by @ by_line:  # the box takes every second row, or so
            return ""
    for k in range(tile.at.shape[1]):
        found = _copied(trail, names, tile, tile.line, k)
        if found is None or found[0] is not first[0] or found[2] != first[2]:
            continue
        away = found[1] - first[1]
        line, along = int(away @ by_line), int(away @ by_k)
        if (line, along) != (tile.line, k):
            d, what = tile.descriptor, "row" if along == k else "element"
            meant, led = (tile.line, line) if along == k else ([tile.line, k], [line, along])
            return (
                f"{what} {meant} of the tile was meant: the descriptor ({d.mode.name} swizzle, leading offset "
                f"{d.leading_byte_offset}, stride {d.stride_byte_offset}) leads to {what} {led}"
            )
    return ""


def _copied(trail: Trail, names: DeviceNames, tile: TileRead, line: int, k: int) -> tuple[TrailStep, Index, str] | None:
    """(the step that copied an element of a tile, its index in the matrix of device memory, that matrix), if all are known."""
    found = last_write(trail, tile.before, int(tile.at[line, k]))
    if found is None or found.source is None or trail.instruction(found.step).form["mode"] not in ("", "tile"):
        return None  # rows of gather4 and pixels of im2col are where they like
    array = names.at(found.source)
    return None if array is None or len(array.shape) < 2 else (found.step, np.array(array.index(found.source)[0]), array.name)


def _tile(trail: Trail, step: TrailStep, product: ProductElement, side: str) -> TileRead | None:
    """The tile of A or B, if it is in shared memory."""
    form = trail.instruction(step).form
    bits, own = (product.a_type.bits, product.row) if side == "a" else (product.b_type.bits, product.column)
    op = next((op for op in trail.pipe.operations if op.step is step and op.table is not None), None)
    read = described(trail, step, side)
    if op is not None and op.table is not None and not (side == "a" and op.work["in_cells"]):
        d = Variant.of_number(int(op.table["mode"])).decode(int(op.table["word"]))
        lines, kind, across = (d.m, d.atype, d.transpose_a) if side == "a" else (d.n, d.btype, d.transpose_b)
        lines, word, before = lines // len(op.ctas), int(op.work[side]), op.time
        part, own = divmod(own, lines)
        descriptor: MatrixDescriptor | SharedDescriptor = SharedDescriptor.decode(word)
        cta = op.ctas[part]
        at, _ = element_places(word, lines, len(product.positions), bits, unpacking(d.kind, kind)[0], across)
    elif op is None and read is not None:
        (word, across, (before, _)), cta = read, step.place.cta
        descriptor = MatrixDescriptor.decode(word)
        at = operand_addresses(descriptor, form.m if side == "a" else form.n, len(product.positions), bits, across)
    else:
        return None
    return TileRead(descriptor, across, at + step.place.window(cta), own, before)


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
