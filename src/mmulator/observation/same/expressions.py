"""The expression of each byte that a launch stored, from its trail: bits that move stay bits, each operation is a node.

A trail of all blocks comes in (observation/record/trail.py); pieces of nodes of an `ExpressionGraph` leave. Bits that no input
decides are constant, as the machine had them. Conditions and addresses are no part of an expression: where they depend on inputs,
`leans` says so.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from mmulator.base.errors import MmulatorError
from mmulator.isa.effects import Algebra, Ends, Flow, MemoryEffect, Stored, Together
from mmulator.isa.types import TYPES, type_bits
from mmulator.observation.record.addresses import InCell, InRegister, MemoryWrite, Place, elements, space_of
from mmulator.observation.record.addresses import value_of as concrete
from mmulator.observation.record.cause import span_text
from mmulator.observation.record.memory import (
    Writes,
    combined,
    combines,
    impossible,
    last_writes,
    loaded_from,
    loads,
    values_of,
    writes_first,
)
from mmulator.observation.record.parts import is_predicate, known_type, part_of, shuffle_lane
from mmulator.observation.record.tensor_cells import (
    CopiedCell,
    MovedCell,
    ProductCell,
    StoredCell,
    cells_of,
    copied_from,
    loads_cells,
    tensor_product,
)
from mmulator.observation.record.trail import NEAR, Trail, TrailStep
from mmulator.observation.record.values import parts_of
from mmulator.observation.same.calls import PassedValues
from mmulator.observation.same.control import note_product, note_rows
from mmulator.observation.same.graph import ExpressionGraph, Pieces, constant, cut, is_closed, joined, value_of, width_of
from mmulator.observation.same.moves import moved_bits
from mmulator.observation.same.operations import modifiers, operation
from mmulator.observation.same.products import Products
from mmulator.ptx.program.uses import accesses, call_operands, signature_of
from mmulator.ptx.tree import Address, Instruction, NegatedPredicate, Operand, Reg, Symbol, flatten
from mmulator.runtime.native.state import LANES

Inputs = Callable[[int, int], Pieces | None]  # pieces of the bytes of an input at a generic address; None: of no input
ORDER_FREE = ("add", "min", "max", "and", "or", "xor")  # operations of atomics that may come in any order, on whole numbers


class Uncovered(MmulatorError):
    """An operation that no expression stands for yet."""


class Unordered(Uncovered):
    """A result that depends on an order that the hardware chooses."""


class Expressions:
    """Expressions of what one launch stored.

    trail: the steps of all its blocks.
    graph: has the nodes.
    inputs: what of device memory is an input.
    parameter: the pieces of bytes of a parameter that is an input, by its name; None: of another.
    device: whose arithmetic products have.
    """

    def __init__(
        self, trail: Trail, graph: ExpressionGraph, inputs: Inputs, parameter: Callable[[str, int, int], Pieces | None],
        device: str,
    ) -> None:  # fmt: skip
        self.trail, self.graph, self.inputs, self.parameter, self.device = trail, graph, inputs, parameter, device
        self.places: dict[int, TrailStep] = {}  # node -> the first step that made it
        self.noted: set[int] = set()  # steps whose operands have been looked at
        self.leans: dict[str, str] = {}  # place in the source -> what depends on inputs there
        self._read: dict[tuple[int, int, int, int, int], Pieces] = {}  # elements that products read in memory
        self._elements: dict[tuple[int, int, int, int, int], Pieces] = {}  # the same, by the step that wrote them
        self._known: dict[tuple[int, int, str, int, int], Pieces] = {}
        self.calls = PassedValues(self)
        self.products = Products(trail, graph, device, self.at, self.many, self.note)

    def stored(self, address: int, size: int, bits: int) -> Pieces:
        """The pieces of bytes of device memory as the launch left them. bits: their value."""
        return self._memory(None, 0, address, size, bits, None)

    def place(self, node: int) -> str:
        """The source line of the first step that made a node: `k.ptx:20 (k.py:9)`; "" if none did."""
        step = self.places.get(node)
        return "" if step is None else span_text(self.trail.instruction(step).original.span)

    # registers ------------------------------------------------------------------------------------------------------
    def _register(self, step: TrailStep, lane: int, name: str, low: int, width: int) -> Pieces:
        """Bits of a register as a step reads it."""
        for writer, took in self.trail.writers(step, name, lane):
            key = writer.number, lane, name, low, width
            if key in self._known:
                return self._known[key]
            ins = self.trail.instruction(writer)
            guard = constant(1, 1) if ins.guard is None else self._register(writer, lane, ins.guard[0].name, 0, 1)
            if is_closed(guard):
                if not took:
                    continue
                made = self.part(writer, lane, name, low, width, self._bits(step, lane, name, low))
            elif ins.effects.memory is MemoryEffect.NONE and ins.effects.together is Together.ALONE:
                bits = self._bits(step, lane, name, low) if took else None
                made = self._either(writer, lane, name, low, width, bits, guard)
            else:
                self.lean(writer, "the condition")
                if not took:
                    continue
                made = self.part(writer, lane, name, low, width, self._bits(step, lane, name, low))
            self._known[key] = made
            return made
        given = self._given(step, lane, name, low, width)
        return constant(self._bits(step, lane, name, low), width) if given is None else given

    def _bits(self, step: TrailStep, lane: int, name: str, low: int) -> int:
        found = self.trail.register(step, name)
        return 0 if found is None else int(found[lane]) >> low

    def _either(self, step: TrailStep, lane: int, name: str, low: int, width: int, bits: int | None, guard: Pieces) -> Pieces:
        """Bits of a register that a step wrote if its guard held, which inputs decide. bits: what it wrote; None: it did not."""
        kind = self.trail.instruction(step).form["type"]
        each = width // parts_of(kind)[1]
        if each < width == type_bits(kind):
            return joined([
                self._either(step, lane, name, n, each, None if bits is None else bits >> n, guard) for n in range(0, width, each)
            ])  # fmt: skip
        made = self._made(step, lane, name, low, width, bits or 0)
        if made is None and bits is None:
            self.lean(step, "the condition")
            return self._register(step, lane, name, low, width)
        made = constant(bits or 0, width) if made is None else made
        before = self._register(step, lane, name, low, width)
        found = self.trail.instruction(step).guard
        sides = (before, made) if found is not None and found[1] else (made, before)
        return self._node(step, "SELECTION", (), [self.graph.whole(p) for p in (*sides, guard)], width)

    def part(self, step: TrailStep, lane: int, name: str, low: int, width: int, bits: int) -> Pieces:
        """Bits of a register that a step wrote. bits: their value."""
        made = self._made(step, lane, name, low, width, bits)
        return constant(bits, width) if made is None else made

    def _given(self, step: TrailStep, lane: int, name: str, low: int, width: int) -> Pieces | None:
        """The argument of the call that gave a register of a function its value."""
        function = self.trail.kernel.program.functions[self.trail.function_of(step)].function
        number = next((n for n, p in enumerate(function.params) if p.name == name), None)
        call = self.trail.call_of(step, lane) if number is not None and not function.is_entry else None
        if call is None or number is None:
            return None
        return self.operand(call, lane, call_operands(self.trail.instruction(call))[1][number], low, width)

    def note_open(self, step: TrailStep, lane: int, operand: Operand | None, what: str) -> None:
        """Note an operand that depends on inputs and is no part of an expression."""
        if isinstance(operand, Reg) and not is_closed(self._register(step, lane, operand.name, 0, type_bits(operand.type))):
            self.lean(step, what)

    def lean(self, step: TrailStep, what: str) -> None:
        self.leans.setdefault(span_text(self.trail.instruction(step).original.span), what)

    def operand(self, step: TrailStep, lane: int, operand: Operand, low: int, width: int, type_name: str = "b64") -> Pieces:
        """Bits of a source operand of a step."""
        if isinstance(operand, Reg):
            return self._register(step, lane, operand.name, low, width)
        if isinstance(operand, NegatedPredicate):
            given = self._register(step, lane, operand.register.name, 0, 1)
            made = constant(value_of(given) ^ 1, 1) if is_closed(given) else None
            return made or self.graph.result("NOT", ("pred",), (self.graph.whole(given),), 1)
        value = concrete(self.trail, step, lane, operand, type_name)
        return constant((value or 0) >> low, width)

    # instructions ---------------------------------------------------------------------------------------------------
    def _made(self, step: TrailStep, lane: int, name: str, low: int, width: int, bits: int) -> Pieces | None:
        """Bits of a register that a step wrote; None where no input decides them. bits: their value."""
        ins = self.trail.instruction(step)
        part = part_of(ins, name, low, width)
        if part is not None:
            return self.operand(step, lane, part[0], part[1], width, ins.form["type"] or "b64")
        if ins.effects.multiplies and ins.form.is_matrix:
            note_product(self, step)
            product = self.products.of_warp(step, lane, name, low)
            if product is None:
                raise self.uncovered(ins)
            return cut(product, 0, width)
        if ins.effects.ends is Ends.CALL:
            return self.calls.returned(step, lane, name, low, width, bits)
        if loads_cells(ins):
            return self._from_cells(step, lane, name, low, width, bits)
        match ins.effects.flow:
            case Flow.LOADED:
                return self._loaded(step, lane, name, low, width, bits)
            case Flow.ROWS | Flow.TILE:
                note_rows(self, step)
                address = loaded_from(self.trail, step, lane, name, low)
                if address is None:
                    raise self.uncovered(ins)
                return self._memory(step, lane, address, max(1, width // 8), bits, step.number)
            case Flow.LANES:
                return self._shuffled(step, lane, name, low, width)
            case Flow.WARP | Flow.REDUCED:
                return self._of_all(step, lane, name, low, width)
            case Flow.MOVED | Flow.ANSWER | Flow.PRODUCT | Flow.WGMMA:
                raise self.uncovered(ins)
        moved = moved_bits(ins, partial(self.operand, step, lane), low, width)
        return moved if moved is not None else self._computed(step, lane, ins, name, low, width, bits)

    def uncovered(self, ins: Instruction) -> Uncovered:
        return Uncovered(f"{ins.original.mnemonic} at {span_text(ins.original.span)} is not followed")

    def _known_value(self, step: TrailStep, lane: int, operand: Operand) -> int | None:
        """The value of an operand that no input decides; None of others."""
        given = self.operand(step, lane, operand, 0, 32, "b32")
        return value_of(given) if is_closed(given) else None

    def _sources(self, step: TrailStep, lane: int, ins: Instruction, low: int, width: int) -> Iterator[Pieces]:
        """The operands of an instruction in a lane: of packed types the element that is wanted alone."""
        specs = signature_of(ins.form, ins.operands)
        for number, (access, operand) in enumerate(accesses(ins)):
            if "r" not in access or isinstance(operand, Address):
                continue
            given = specs[number].type if number < len(specs) else "b32"
            for one in elements(operand):
                type_name = known_type(given, one)
                _, count = parts_of(type_name)
                if count > 1 and parts_of(ins.form["type"])[1] == count and width * count == type_bits(ins.form["type"]):
                    bits = type_bits(type_name) // count
                    yield self.operand(step, lane, one, low // width * bits, bits, type_name)
                else:
                    yield self.operand(step, lane, one, 0, type_bits(type_name), type_name)

    def _computed(
        self, step: TrailStep, lane: int, ins: Instruction, name: str, low: int, width: int, bits: int
    ) -> Pieces | None:
        """The result of an instruction that computes in each lane for itself."""
        if ins.effects.ends is Ends.BARRIER or ins.effects.carry:
            raise self.uncovered(ins)
        kind, count = parts_of(ins.form["type"])
        if ins.effects.flow is Flow.BESIDE and ins.form["atype"] and count > 1 and parts_of(ins.form["atype"])[1] != count:
            if count != 2 or len(ins.operands) != 3 or ins.form["scaled"]:
                raise self.uncovered(ins)  # random bits and scale factors are not followed
            return self._beside(step, lane, ins, kind, low, width)
        if count > 1 and width == (size := type_bits(ins.form["type"])):
            return joined([self.part(step, lane, name, at, size // count, bits >> at) for at in range(0, size, size // count)])
        given = [*self._sources(step, lane, ins, low, width)]
        if all(is_closed(p) for p in given):
            return None
        if ins.effects.algebra is Algebra.SELECTION and width_of(given[-1]) == 1 and is_closed(given[-1]):
            return cut(given[0 if value_of(given[-1]) else 1], low, width)
        targets = [o.name for o in flatten(ins.operands[:1]) if isinstance(o, Reg)]
        packed = count > 1 and width * count == type_bits(ins.form["type"])
        detail = (*modifiers(ins, kind if packed else ins.form["type"]), targets.index(name) if len(targets) > 1 else 0)
        size = 1 if is_predicate(ins, name) else width if packed else type_bits(known_type(ins.form["type"], ins.operands[0]))
        if not packed and isinstance(ins.operands[0], Reg) and not is_predicate(ins, name):
            size = type_bits(ins.operands[0].type)
        made = self._node(step, *operation(self.graph, ins, detail, [self.graph.whole(p) for p in given]), size)
        return cut(made, 0 if packed else low, width)

    def _beside(self, step: TrailStep, lane: int, ins: Instruction, kind: str, low: int, width: int) -> Pieces | None:
        """A conversion of two numbers that stand side by side in the result; the first source is the upper half."""
        half = type_bits(ins.form["type"]) // 2
        if low // half != (low + width - 1) // half:
            parts = (self._beside(step, lane, ins, kind, at, half) for at in (0, half))
            both = [constant(0, 0) if p is None else p for p in parts]
            return None if any(not width_of(p) for p in both) else cut(joined(both), low, width)
        source = ins.operands[1] if low // half else ins.operands[2]
        given = known_type(signature_of(ins.form, ins.operands)[1].type, source)
        pieces = self.operand(step, lane, source, 0, type_bits(given), given)
        if is_closed(pieces):
            return None
        detail = (*modifiers(ins, kind), 0)
        return cut(self._node(step, ins.form.name, detail, [self.graph.whole(pieces)], half), low % half, width)

    def _node(self, step: TrailStep, kind: str, detail: tuple[object, ...], nodes: list[int], bits: int) -> Pieces:
        """The result of a node that a step makes."""
        made = self.graph.result(kind, detail, nodes, bits)
        self.places.setdefault(made[0].node, step)
        return made

    def _loaded(self, step: TrailStep, lane: int, name: str, low: int, width: int, bits: int) -> Pieces | None:
        """Ld: the bytes at the lane's address."""
        ins = self.trail.instruction(step)
        if ins.effects.memory not in (MemoryEffect.READ, MemoryEffect.ATOMIC):
            raise self.uncovered(ins)
        each = type_bits(ins.form["type"])
        if low + width > each:  # a register that is wider than what is loaded
            inner = None if low else self._loaded(step, lane, name, 0, each, bits & (1 << each) - 1)
            if low or inner is None or is_closed(inner):
                if low and (low < each or TYPES[ins.form["type"]].kind == "signed"):
                    raise self.uncovered(ins)
                return None
            if TYPES[ins.form["type"]].kind == "signed":
                return self._node(step, "extension", (), [self.graph.whole(inner)], width)
            return joined([inner, constant(0, width - each)])
        size = max(1, width // 8)
        if ins.form["space"].startswith("param"):
            return self._parameter(step, lane, ins, name, low, size)
        for target, at, _, _ in loads(self.trail, step):
            if isinstance(target, Reg) and target.name == name:
                address = int(at[lane]) + low // 8
                self.note_address(step, lane, ins)
                if impossible(self.trail, step, lane):
                    return None
                if ins.effects.memory is MemoryEffect.ATOMIC and not writes_first(self.trail, step, lane, int(at[lane])):
                    raise Unordered(f"{self._said(ins)}its answer depends on the order of the writes to that address")
                return cut(self._memory(step, lane, address, size, bits, step.number), 0, width)
        raise self.uncovered(ins)

    def _parameter(self, step: TrailStep, lane: int, ins: Instruction, name: str, low: int, size: int) -> Pieces | None:
        where = next(o for o in ins.operands if isinstance(o, Address))
        function = self.trail.kernel.program.entry.function
        inside = self.trail.kernel.program.functions[self.trail.function_of(step)].function
        if not isinstance(where.base, Symbol):
            raise self.uncovered(ins)
        number = [o.name for o in elements(ins.operands[0]) if isinstance(o, Reg)].index(name)
        at = where.offset + number * type_bits(ins.form["type"]) // 8 + low // 8
        if inside is function and where.base.name in [p.name for p in function.params]:
            return self.parameter(where.base.name, at, size)
        return self.calls.passed(step, lane, where.base.name, at, size)

    def note_address(self, step: TrailStep, lane: int, ins: Instruction) -> None:
        """Note addresses that depend on inputs."""
        for where in (o.base for o in ins.operands if isinstance(o, Address)):
            self.note_open(step, lane, where if isinstance(where, Reg) else None, "the address")

    def _shuffled(self, step: TrailStep, lane: int, name: str, low: int, width: int) -> Pieces | None:
        """Shfl: bits of another lane."""
        ins = self.trail.instruction(step)
        numbers = [self._known_value(step, lane, o) for o in ins.operands[2:4]]
        source = ins.operands[1]
        if not isinstance(source, Reg) or None in numbers:
            raise self.uncovered(ins)
        if is_predicate(ins, name):
            return None
        other, taken = shuffle_lane(ins.form["mode"], lane, *(int(n or 0) for n in numbers))
        return self._register(step, other if taken else lane, source.name, low, width)

    def _of_all(self, step: TrailStep, lane: int, name: str, low: int, width: int) -> Pieces | None:
        """Redux, vote and match: of the values of all lanes that take part."""
        ins = self.trail.instruction(step)
        source = next((o for o in ins.operands[1:] if isinstance(o, (Reg, NegatedPredicate))), None)
        if source is None:
            return None
        self.note_open(step, lane, ins.operands[-1], "which lanes take part")
        taking, members = self.trail.guard(step), concrete(self.trail, step, lane, ins.operands[-1], "b32")
        lanes = [n for n in range(LANES) if taking >> n & 1 and (members is None or members >> n & 1)]
        type_name = known_type(signature_of(ins.form, ins.operands)[1].type, source)
        given = [self.operand(step, n, source, 0, type_bits(type_name), type_name) for n in lanes]
        if all(is_closed(p) for p in given):
            return None
        mode, nodes, detail = ins.form["mode"], [self.graph.whole(p) for p in given], modifiers(ins, ins.form["type"])
        if ins.effects.flow is Flow.WARP and mode not in ("any", "all", "uni"):  # bits of lanes
            detail = (*detail, tuple(lanes), -1 if mode else lane)
        else:
            nodes.sort()
        return cut(self._node(step, ins.form.name, detail, nodes, 1 if is_predicate(ins, name) else 32), low, width)

    # memory ---------------------------------------------------------------------------------------------------------
    def _memory(self, step: TrailStep | None, lane: int, address: int, size: int, bits: int, before: int | None) -> Pieces:
        """Pieces of bytes in memory.

        step, lane: who reads them; None: nobody, the launch is over.
        address: generic address of the first.
        size, bits: their number and their value.
        before: number of the step before which they are read; None: the end.
        """
        space, found = space_of(address), None
        near = address // NEAR == (address + size - 1) // NEAR
        reader = (step, lane) if step is not None else None
        writes = next(last_writes(self.trail, before, address, size, reader), None) if near else [None]
        if writes is not None:
            found = writes[0]
            if found is None or not all(_is_next(found, one, n) for n, one in enumerate(writes)):
                half = size // 2
                parts = ((0, half), (half, size - half))
                return joined([self._memory(step, lane, address + at, n, bits >> 8 * at, before) for at, n in parts])
        if found is None:
            if space in ("shared", "local"):
                raise Uncovered(f"a read of {space} memory that no store of the launch is known to have written is not followed")
            given = self.inputs(address, size) if space == "global" else None
            if given is None:
                return constant(bits, 8 * size)
            first = self.trail.read(address, size) if self.trail.read is not None else b""
            if first and int.from_bytes(first, "little") != bits & (1 << 8 * size) - 1:
                raise Uncovered("what wrote to an input is not followed")
            return given
        return self._written(found, address, size, bits)

    def _written(self, found: MemoryWrite, address: int, size: int, bits: int) -> Pieces:
        """Pieces of bytes that a step wrote."""
        step, lane, ins = found.step, found.lane, self.trail.instruction(found.step)
        if combines(ins) and ins.form["op"] in ORDER_FREE:
            return self._combined(found, address, size)
        if ins.effects.memory is MemoryEffect.REDUCE or (ins.effects.stored is Stored.COMBINED and ins.form["op"] != "exch"):
            raise Uncovered(f"{self._said(ins)}what it combines is not followed")
        if found.source is not None:
            return self._memory(step, lane, found.source, size, bits, step.number)
        if found.operand is None:
            return constant(bits, 8 * size)
        return self.operand(step, lane, found.operand, 8 * found.byte, 8 * size, found.type)

    def _combined(self, found: MemoryWrite, address: int, size: int) -> Pieces:
        """Pieces of what atomic operations left: of whole numbers in whatever order they came, of others if there was but one."""
        ins, kind = self.trail.instruction(found.step), found.type
        done, before = combined(self.trail, found, address)
        if len(done) > 1 and (TYPES[kind].kind == "float" or parts_of(kind)[1] > 1):
            raise Unordered(f"{self._said(ins)}the order in which it adds is no part of an expression")
        forms = {(i.form["op"], i.form["type"]) for i in (self.trail.instruction(step) for step, _ in done)}
        lost = (before is not None and before.operand is None) or len(values_of(ins)) > 1
        if lost or found.byte or 8 * size != type_bits(kind) or space_of(address) != "global" or len(forms) > 1:
            raise Uncovered(f"{self._said(ins)}what it combines is not followed")
        bits = int.from_bytes(self.trail.read(address, size), "little") if self.trail.read is not None else 0
        first = done[0][0].number
        given = [self._memory(found.step, 0, address, size, bits, first)]
        given += [self.operand(step, lane, values_of(self.trail.instruction(step))[0], 0, 8 * size, kind) for step, lane in done]
        nodes = [self.graph.whole(p) for p in given]
        return self._node(found.step, "atomic", (kind, "", ins.form["op"]), sorted(nodes) if len(done) > 1 else nodes, 8 * size)

    def _said(self, ins: Instruction) -> str:
        return f"{ins.original.mnemonic} at {span_text(ins.original.span)}: "

    # matrix products and tensor memory ------------------------------------------------------------------------------
    def at(self, step: TrailStep, place: Place, width: int, value: int) -> Pieces:
        """Pieces of an element that a product read. value: of one in memory, as it was read."""
        if isinstance(place, InRegister):
            if not place.name:
                raise self.uncovered(self.trail.instruction(step))
            return self._register(step, place.lane, place.name, place.low, width)
        if isinstance(place, InCell):
            return self._cell(step, place, width, value)
        key = self.trail.cluster_of(step.block), place.address, place.low, width, place.before
        if key not in self._read:
            size = max(1, -(-(place.low + width) // 8))
            self._read[key] = cut(self._memory(step, 0, place.address, size, value << place.low, place.before), place.low, width)
        return self._read[key]

    def many(self, step: TrailStep, places: list[int], size: int, values: list[int], before: int) -> list[Pieces]:
        """Pieces of elements in memory, as `at` gives them for one. places: their generic addresses. size: their bytes."""
        known, cluster, near = self._elements, self.trail.cluster_of(step.block), dict[int, list[Writes]]()
        found = []
        for address, value in zip(places, values):
            first, away = address // NEAR * NEAR, address % NEAR
            if first not in near:
                near[first] = [*last_writes(self.trail, before, first, NEAR, (step, 0))]
            written = next((w for writes in near[first] if any(w := writes[away : away + size])), None)
            one = written[0] if written is not None else None
            key = cluster, one.step.number if one is not None else -1, address, size, value
            if key not in known:
                known[key] = self._memory(step, 0, address, size, value, before)
            found.append(known[key])
        return found

    def note(self, node: int, step: TrailStep) -> None:
        """Remember the first step that made a node."""
        self.places.setdefault(node, step)

    def _from_cells(self, step: TrailStep, lane: int, name: str, low: int, width: int, bits: int) -> Pieces:
        """tcgen05.ld: a cell, or the low halves of two."""
        cells = cells_of(self.trail, step.block).loaded(step, lane, name)
        if not cells:
            raise self.uncovered(self.trail.instruction(step))
        if len(cells) == 1:
            return self._cell(step, replace(cells[0], low=low), width, bits)
        first, last = low // 16, (low + width - 1) // 16
        if first == last:
            return self._cell(step, replace(cells[first], low=low % 16), width, bits)
        return joined([self._cell(step, cells[n], 16, bits >> 16 * n) for n in range(2)])

    def _cell(self, reader: TrailStep, place: InCell, width: int, bits: int) -> Pieces:
        """Pieces of bits in tensor memory."""
        found = cells_of(self.trail, reader.block).last(place)
        match found:
            case None:
                raise Uncovered("a read of tensor memory that nothing is known to have written is not followed")
            case StoredCell():
                low = found.low + place.low
                return self.operand(found.step, found.lane, found.operand, low, min(width, 32 - low))
            case MovedCell():
                return self._cell(reader, replace(found.place, low=place.low), width, bits)
        step = found.operation.step
        assert step is not None
        if isinstance(found, ProductCell):
            return cut(self.products.of_cell(step, tensor_product(found)), place.low, width)
        assert isinstance(found, CopiedCell)
        parts = copied_from(found, self.trail.instruction(step), place.low, width)
        return joined([self._memory(step, 0, at.address, size, value, at.before) for at, value, size in parts])


def _is_next(first: MemoryWrite, one: MemoryWrite | None, away: int) -> bool:
    """Whether a byte was written with the first one: `away` bytes behind it, by one operand of one store."""
    if one is None or one.lane != first.lane or one.operand is not first.operand:
        return False
    if one.source is None or first.source is None:
        return one.source is first.source and one.byte - away == first.byte
    return one.source - away == first.source
