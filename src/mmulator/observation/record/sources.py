"""The sources of a value, however far back: elements that the launch found in device memory, and parameters.

A tree of causes (why.py) ends at a depth; this goes on to the end, to each value once. On its way it looks at the index
arithmetic of what is read: a product of which only the low bits are left is told.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from mmulator.isa.effects import Algebra, Flow, Pointer
from mmulator.isa.types import TYPES, type_bits
from mmulator.observation.record.addresses import InCell, InMemory, InRegister, MemoryWrite, Place, space_of, value_of
from mmulator.observation.record.cause import Cause, place_text
from mmulator.observation.record.memory import last_write, loads
from mmulator.observation.record.names import DeviceArray, DeviceNames
from mmulator.observation.record.origins import summary
from mmulator.observation.record.products import ProductElement
from mmulator.observation.record.trail import TrailStep
from mmulator.observation.record.why import SHOWN, Explainer, Way
from mmulator.ptx.program.uses import signature_of
from mmulator.ptx.tree import Address, Instruction, Reg

MOST = 30_000  # values that are looked at
FAR = 48  # instructions of an address that are looked at
# What a whole number is without a limit of its bits, and how it is written, by what the instruction does.
_EXACT: dict[Algebra | Pointer, tuple[str, Callable[[int, int, int], int]]] = {
    Algebra.MULTIPLE: ("{} * {}", lambda a, b, c: a * b), Pointer.ADDEND: ("{} * {} + {}", lambda a, b, c: a * b + c),
    Pointer.SUM: ("{} + {}", lambda a, b, c: a + b), Pointer.DIFFERENCE: ("{} - {}", lambda a, b, c: a - b),
    Algebra.CONVERSION: ("{}", lambda a, b, c: a),
}  # fmt: skip
_STUB = Cause("", 0, "b32", "")


class Sources(Explainer):
    """The sources of one value.

    leaves: address -> name of what the launch found.
    parameters: names of the kernel's parameters.
    indices: address -> name and value of each element that the address of one of them was computed from.
    wrapped: sentences about products of index arithmetic that do not fit.
    whole: whether all was looked at.
    """

    shortens = False

    def __init__(self, explainer: Explainer) -> None:
        super().__init__(explainer.trail, explainer.names, explainer.device, MOST)
        self.origins = explainer.origins
        self.leaves: dict[int, str] = {}
        self.parameters: dict[str, None] = {}
        self.indices: dict[int, tuple[str, int]] = {}
        self.wrapped: dict[str, None] = {}
        self._queue: deque[Callable[[], Any]] = deque()
        self._seen: set[object] = set()
        self._addressed: set[tuple[int, int]] = set()

    def gather(self, found: MemoryWrite, type_name: str, size: int) -> Sources:
        """Go back from a write to the ends. type_name, size: of the value in memory."""
        self._put(("written", found.step.number, found.lane, found.byte), partial(self._written, found, type_name, size))
        while self._queue and len(self._seen) < MOST:
            self._queue.popleft()()
        self.whole = not self._queue
        return self

    def sentences(self) -> Iterator[str]:
        """The sentences about a value and its sources."""
        arrays: dict[str, list[str]] = {}
        for _, name in sorted(self.leaves.items()):
            arrays.setdefault(name.partition("[")[0], []).append(name)
        said = [*map(summary, arrays.values()), *self.parameters]
        if said:
            yield f"computed from {', '.join(said)}" + ("" if self.whole else f", and what is behind {MOST:,} further values")
        if self.indices:
            each = [one for _, one in sorted(self.indices.items())]
            values = ", ".join(str(value) for _, value in each[:SHOWN]) + ", ..." * (len(each) > SHOWN)
            yield f"addressed by {summary([name for name, _ in each])} = {values}"
        at = self.names.at if isinstance(self.names, DeviceNames) else lambda _: None
        gaps: dict[str, list[str]] = {}
        read = dict[str, DeviceArray]()
        for address, name in sorted(self.leaves.items()):
            if (array := at(address)) is None:
                continue
            read[array.name] = array
            if not array.owns(address):
                where = f"no element of {array.name}, a view of shape {array.shape} with strides {array.strides} bytes"
                gaps.setdefault(where, []).append(name)
        yield from (f"{a.name} was allocated by {place}" for a in read.values() if (place := a.maker()))
        yield from (f"{summary(names)}: {where}: the kernel reads between its rows" for where, names in gaps.items())
        yield from self.wrapped

    # what why.py tells, as items of a queue -------------------------------------------------------------------------------
    def _put(self, key: object, item: Callable[[], Any]) -> Cause:
        if key not in self._seen:
            self._seen.add(key)
            self._queue.append(item)
        return _STUB

    def register(self, step: TrailStep, lane: int, name: str, type_name: str, low: int, width: int, path: Way = ()) -> Cause:
        writer = self.trail.writer(step, name, lane)
        key = "register", None if writer is None else writer.number, lane, name, low, width
        return self._put(key, partial(super().register, step, lane, name, type_name, low, width))

    def memory(
        self, step: TrailStep, lane: int, address: int, bits: int, type_name: str, size: int, path: Way,
        before: int | None = None,
    ) -> Cause:  # fmt: skip
        space = space_of(address)
        moment = step.number if before is None else before
        own = (step, lane) if space == "local" else None
        found = last_write(self.trail, moment, address, own)
        if self._is_split(found, moment, address, size, own):
            for at in range(size):
                self.memory(step, lane, address + at, 0, "b8", 1, (), before)
            return _STUB
        if found is not None:
            key = "written", found.step.number, found.lane, address
            return self._put(key, partial(self._written, found, type_name, size))
        if space in ("global", "const"):
            self.leaves[address] = self.names(address, size) if space == "global" else "constants"
        self._look_at_address(step, lane)
        return _STUB

    def _gets_zero(self, step: TrailStep, lane: int, address: int, size: int, cause: Cause, why: str) -> Cause:
        self._look_at_address(step, lane)
        return _STUB

    def _written(self, found: MemoryWrite, type_name: str, size: int) -> None:
        self._look_at_address(found.step, found.lane)
        self.written(found, "", 0, type_name, size, ())

    def _as_found(self, address: int, cause: Cause) -> Cause:
        self.leaves[address] = self.names(address, type_bits(cause.type) // 8)
        return _STUB

    def _parameter(self, step: TrailStep, ins: Instruction, cause: Cause) -> Cause:
        self.parameters[super()._parameter(step, ins, cause).name] = None
        return _STUB

    def cell(self, place: InCell, bits: int, type_name: str, width: int, path: Way) -> Cause:
        return self._put(place, partial(super().cell, place, bits, type_name, width, ()))

    def _product(self, step: TrailStep, product: ProductElement, cause: Cause, path: Way) -> Cause:
        for operands, kind in ((product.a_at, product.a_type), (product.b_at, product.b_type)):
            for place in operands:
                self._operand_of(step, place, kind.name, kind.bits)
        for place in (*product.scale_a_at, *product.scale_b_at):
            self._operand_of(step, place, "b8", 8)
        if product.c_at is not None:
            self._go_on(step, product.c_at, product.key.ctype, product.d_bits)
        return cause

    def _operand_of(self, step: TrailStep, place: Place, type_name: str, bits: int) -> None:
        origin = self.origins.of(place, step, bits)
        if origin.address is not None:
            self.leaves[origin.address] = origin.name
            self._look_at_address(*origin.reader or (step, 0))
        else:
            self._go_on(step, place, type_name, bits)

    def _go_on(self, step: TrailStep, place: Place, type_name: str, bits: int) -> None:
        """Go back from an element of a product."""
        match place:
            case InRegister():
                self.register(step, place.lane, place.name, type_name, place.low, bits)
            case InCell():
                self.cell(place, 0, type_name, bits, ())
            case InMemory():
                found = last_write(self.trail, place.before, place.address)
                if found is not None:
                    key = "written", found.step.number, found.lane, place.address
                    self._put(key, partial(self._written, found, type_name, max(1, bits // 8)))

    # index arithmetic -----------------------------------------------------------------------------------------------------
    def _look_at_address(self, step: TrailStep, lane: int) -> None:
        """Look for products that do not fit, and for elements of memory, in the address of an access."""
        if (step.number, lane) in self._addressed:
            return
        self._addressed.add((step.number, lane))
        address = next((o for o in self.trail.instruction(step).operands if isinstance(o, Address)), None)
        if address is None or not isinstance(address.base, Reg):
            return
        left = [(step, address.base.name)]
        for _ in range(FAR):
            if not left:
                return
            reader, name = left.pop()
            writer = self.trail.writer(reader, name, lane)
            if writer is None or ("index", writer.number, lane) in self._seen:
                continue
            self._seen.add(("index", writer.number, lane))
            ins = self.trail.instruction(writer)
            self._look_at_number(writer, lane, ins)
            if ins.effects.flow is Flow.LOADED and not ins.form["space"].startswith("param"):
                found, places = self.trail.register(reader, name), loads(self.trail, writer)
                at = next((int(a[lane]) for o, a, _, _ in places if isinstance(o, Reg) and o.name == name), 0)
                if found is not None and space_of(at) == "global":
                    self.indices[at] = self.names(at, type_bits(ins.form["type"]) // 8), int(found[lane])
            left += [(writer, o.name) for o in ins.operands[1:] if isinstance(o, Reg)]

    def _look_at_number(self, step: TrailStep, lane: int, ins: Instruction) -> None:
        """Tell a product, and of 16 bits or fewer a sum or a conversion, too, of which only the low bits are kept."""
        t, mode = TYPES.get(ins.form["type"]), ins.form["mode"]
        does, exactly = _EXACT.get(ins.effects.algebra) or _EXACT.get(ins.effects.pointer) or ("", None)
        if t is None or exactly is None or t.kind not in ("signed", "unsigned") or ".sat" in ins.original.mnemonic:
            return
        if mode != "lo" and (mode or t.bits > 16):
            return
        kinds = [TYPES.get(spec.type, t) for spec in signature_of(ins.form, ins.operands)[1:]]
        values = [value_of(self.trail, step, lane, o, kind.name) for o, kind in zip(ins.operands[1:], kinds)]
        if len(values) != does.count("{}") or None in values or any(k.kind not in ("signed", "unsigned") for k in kinds):
            return
        each = [(v or 0) - ((v or 0) >> k.bits - 1 << k.bits) * (k.kind == "signed") for v, k in zip(values, kinds)]
        exact = exactly(*(*each, 0, 0)[:3])
        low = -(1 << t.bits - 1) if t.kind == "signed" else 0
        if not low <= exact < low + (1 << t.bits):
            left = (exact - low) % (1 << t.bits) + low
            said = does.format(*each) + f" = {exact}" * (len(each) > 1)
            self.wrapped[
                f"an index overflows: {ins.original.mnemonic} at {place_text(self.at(step, lane))} makes {left} of "
                f"{said}, which {t.bits} bits do not hold"
            ] = None
