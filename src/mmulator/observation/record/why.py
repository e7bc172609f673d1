"""Why a value is what it is: from a store backwards through the instructions of a trail, with the values that each read.

A `Trail` of the CTA that stored comes in; a tree of `Cause` leaves, whose nodes are values and whose branches are what each was
computed from. Operands are those that the machine read. A matrix product is explained by the exact model
(matrix/numerics/element.py), and the model's result has to be the machine's.
"""

from dataclasses import replace
from functools import partial
from typing import Any

from mmulator.base.errors import InternalError
from mmulator.isa.effects import Ends, Flow
from mmulator.isa.types import TYPES, type_bits
from mmulator.observation.record.addresses import (
    InCell,
    InRegister,
    MemoryWrite,
    addresses,
    elements,
    space_of,
    space_text,
    value_of,
)
from mmulator.observation.record.cause import Cause, CauseAt, place_text, span_text, thread_text
from mmulator.observation.record.chains import ProductChain
from mmulator.observation.record.detours import chosen
from mmulator.observation.record.losses import cut_said, rounded
from mmulator.observation.record.memory import combined, combines, impossible, last_write, loaded_from, loads, values_of
from mmulator.observation.record.origins import Named, Origins
from mmulator.observation.record.parts import is_predicate, known_type, part_of, shuffle_lane
from mmulator.observation.record.products import ProductElement, product_element
from mmulator.observation.record.tensor_cells import (
    CopiedCell,
    MovedCell,
    ProductCell,
    StoredCell,
    cells_of,
    copied_from,
    loads_cells,
    tensor_product,
)  # fmt: skip
from mmulator.observation.record.trail import Trail, TrailStep
from mmulator.observation.record.values import parts_of, text_of
from mmulator.ptx.program.parameters import names
from mmulator.ptx.program.uses import accesses, call_operands, signature_of
from mmulator.ptx.tree import Address, Immediate, Instruction, NegatedPredicate, Operand, Reg, Symbol, flatten
from mmulator.runtime.native.state import LANES

DEPTH = 6  # instructions between the stored value and the last one that is told, if nothing is said
AGAIN = 2  # times that one instruction is told on one way, as in a loop
AS_FOUND = "as the launch found it"
SHOWN = 4  # values of lanes, or contributions to a sum, that are told
Way = tuple[int, ...]  # sites of the instructions that lead from the store to a value
LEFT_OUT = 4  # instructions without effect that are told for one value


class Explainer:
    """Answers about values of a trail.

    trail: the steps of the CTA.
    names: the name of the byte at a generic address, `A[3,5]`, from the bytes that are read there.
    device: whose arithmetic products have.
    depth: how many instructions are told one behind the other.
    """

    shortens = True  # of many values beside each other a few are told

    def __init__(self, trail: Trail, names: Named, device: str, depth: int = DEPTH) -> None:
        self.trail, self.names, self.device, self.depth = trail, names, device, depth
        self.origins = Origins(trail, names)
        self.foreign: dict[int, int] = {}  # address -> bytes of what other blocks stored
        self._deeper = f"--why-depth {2 * depth} goes on from here"

    # places and values ----------------------------------------------------------------------------------------------
    def at(self, step: TrailStep, lane: int) -> CauseAt:
        """Where a step of a lane is."""
        ins = self.trail.instruction(step).original
        location = ins.span.location
        shape = self.trail.shape
        return CauseAt(
            ins.span.source.name, ins.span.line, ins.span.brief, (location.quote() or "").strip() if location else "",
            shape.block_at(step.block), shape.thread_at(step.place.warp * LANES + lane), step.number,
        )  # fmt: skip

    # registers ------------------------------------------------------------------------------------------------------
    def register(self, step: TrailStep, lane: int, name: str, type_name: str, low: int, width: int, path: Way = ()) -> Cause:
        """The cause of the bits of a register that a step reads.

        step, lane: who reads.
        name, type_name: the register, and the type of the bits that are wanted.
        low, width: the bits.
        path: sites of the instructions that lead from the store to here.
        """
        found = self.trail.register(step, name)
        bits = 0 if found is None else int(found[lane]) >> low & (1 << width) - 1
        left_out: list[str] = []
        for writer, took in self.trail.writers(step, name, lane):
            if took:
                cause = self._made(writer, lane, name, bits, type_name, low, width, path)
                if cause.how == "a constant" and self.shortens:
                    told = partial(self._branch, lane=lane)
                    left_out += chosen(self.trail, told, step, writer, lane, name)
                return replace(cause, remarks=(*left_out, *cause.remarks)) if left_out else cause
            if len(left_out) < LEFT_OUT:
                left_out.append(self._without_effect(writer, lane))
        given = self._given(step, lane, name, type_name, low, width, path)
        return given or Cause(name, bits, type_name, "never written: whatever was there", remarks=tuple(left_out))

    def _given(self, step: TrailStep, lane: int, name: str, type_name: str, low: int, width: int, path: Way) -> Cause | None:
        """The cause of a parameter of a function in a register: the argument of the call."""
        function = self.trail.kernel.program.functions[self.trail.function_of(step)].function
        number = next((n for n, p in enumerate(function.params) if p.name == name), None)
        call = self.trail.call_of(step, lane) if number is not None and not function.is_entry else None
        if call is None or number is None:
            return None
        return self._followed(call, lane, call_operands(self.trail.instruction(call))[1][number], type_name, low, width, path)

    def left_out(self, step: TrailStep, lane: int) -> str:
        """A sentence about a store whose guard did not hold."""
        return f"{thread_text(self.at(step, lane))}: {self._without_effect(step, lane)}"

    def led_past(self, step: TrailStep, lane: int, store: Instruction) -> str:
        """A sentence about a branch that leads a lane past a store."""
        ins = self.trail.instruction(step)
        where, there = self.at(step, lane), span_text(store.original.span)
        return (
            f"{thread_text(where)}: {ins.original.mnemonic} at {place_text(where)} leads past {store.original.mnemonic} at "
            f"{there}, which would store it: {self.condition_of(step, lane)}"
        )

    def _branch(self, step: TrailStep, lane: int) -> tuple[str, str]:
        return place_text(self.at(step, lane)), self.condition_of(step, lane)

    def condition_of(self, step: TrailStep, lane: int) -> str:
        """The guard of a branch with the comparison that made it: `p is true: setp.lt.s32 999, 999 at k.ptx:7`."""
        ins = self.trail.instruction(step)
        assert ins.guard is not None
        register, negated = ins.guard
        held = bool(self.trail.guard(step) >> lane & 1) != negated
        why = self._condition(step, lane, register.name)
        return f"{register.name} is {'true' if held else 'false'}" + (f": {why}" if why else "")

    def _without_effect(self, step: TrailStep, lane: int) -> str:
        """A sentence about an instruction whose guard did not hold."""
        ins = self.trail.instruction(step)
        assert ins.guard is not None
        register, negated = ins.guard
        where = self.at(step, lane)
        why = self._condition(step, lane, register.name)
        said = f"{'!' * negated}{register.name} is false" + (f": {why}" if why else "")
        return f"{ins.original.mnemonic} at {place_text(where)} was predicated off: {said}"

    def _condition(self, step: TrailStep, lane: int, name: str) -> str:
        """The comparison that a predicate is the result of, with its values: `setp.lt.s32 999 < 999`."""
        writer = self.trail.writer(step, name, lane)
        if writer is None:
            return ""
        ins = self.trail.instruction(writer)
        parts = []
        for spec, operand in zip(signature_of(ins.form, ins.operands), ins.operands):
            if spec.access == "r":
                value = value_of(self.trail, writer, lane, operand, spec.type)
                parts.append("?" if value is None else text_of(value, spec.type if spec.type in TYPES else "b64"))
        return f"{ins.original.mnemonic} {', '.join(parts)} at {place_text(self.at(writer, lane))}"

    # instructions ---------------------------------------------------------------------------------------------------
    def _made(self, step: TrailStep, lane: int, name: str, bits: int, type_name: str, low: int, width: int, path: Way) -> Cause:
        """The cause of bits of a register that a step wrote; parameters as those of `register`."""
        ins = self.trail.instruction(step)
        flow = ins.effects.flow
        part = part_of(ins, name, low, width)
        if part is not None:
            return self._followed(step, lane, part[0], type_name, part[1], width, path, copied=True)
        cause = Cause(name, bits, type_name, ins.original.mnemonic, self.at(step, lane))
        if path.count(step.site) >= max(AGAIN, self.depth // 3):
            return replace(cause, more=f"the loop has more rounds: {self._deeper}")
        if len(path) >= self.depth:
            return replace(cause, more=self._deeper)
        path = (*path, step.site)
        if ins.effects.multiplies and ins.form.is_matrix:
            product = product_element(self.trail, step, lane, name, low)
            if product is None:
                return replace(cause, remarks=(*cause.remarks, "its operands are not told"))
            return self._product(step, product, cause, path)
        if loads_cells(ins):
            return self._from_cells(step, lane, name, low, width, cause, path)
        teller = _TELLERS.get(flow)
        made = teller(self, step, lane, name, low, width, cause, path) if teller else None
        made = made or self._lanewise(step, lane, low, width, cause, path)
        return replace(made, remarks=(*made.remarks, *rounded(made)))

    def _followed(
        self, step: TrailStep, lane: int, operand: Operand, type_name: str, low: int, width: int, path: Way,
        copied: bool = False,
    ) -> Cause:  # fmt: skip
        """The cause of a source operand of a step. copied: the instruction does nothing else, and a constant is told as its."""
        match operand:
            case Reg(name=name):
                return self.register(step, lane, name, type_name, low, width, path)
            case NegatedPredicate(register=register):
                found = self.register(step, lane, register.name, type_name, 0, 1, path)
                return replace(found, name=f"!{found.name}", bits=1 - found.bits)
        value = value_of(self.trail, step, lane, operand, type_name)
        bits = 0 if value is None else value >> low & (1 << width) - 1
        how = "a constant" if isinstance(operand, Immediate) else "a special register"
        name = operand.span.text
        if isinstance(operand, Symbol):
            how = "the address of a variable"
        at = self.at(step, lane) if copied else None
        return Cause(name, bits, type_name, how if value is not None or isinstance(operand, Symbol) else "not told", at)

    def _lanewise(self, step: TrailStep, lane: int, low: int, width: int, cause: Cause, path: Way) -> Cause:
        """An instruction that computes in each lane for itself, and in each part of a packed type. low, width: the bits."""
        ins, inputs = self.trail.instruction(step), []
        specs = signature_of(ins.form, ins.operands)
        if ins.effects.ends is Ends.CALL:
            arguments = (o for argument in call_operands(ins)[1] for o in flatten((argument,)))
            types = ((o, o.type if isinstance(o, Reg) else "b32") for o in arguments)
            return replace(cause, inputs=tuple(self._followed(step, lane, o, t, 0, type_bits(t), path) for o, t in types))
        for number, (access, operand) in enumerate(accesses(ins)):
            if "r" not in access or isinstance(operand, Address):
                continue
            given = specs[number].type if number < len(specs) else "b32"
            for one in elements(operand):
                type_name = known_type(given, one)
                element, count = parts_of(type_name)
                if count > 1 and parts_of(ins.form["type"])[1] == count and width * count == type_bits(ins.form["type"]):
                    bits = type_bits(type_name) // count
                    inputs.append(self._followed(step, lane, one, element, low // width * bits, bits, path))
                else:
                    inputs.append(self._followed(step, lane, one, type_name, 0, type_bits(type_name), path))
        return replace(cause, inputs=tuple(inputs))

    def _choice(self, step: TrailStep, lane: int, name: str, low: int, width: int, cause: Cause, path: Way) -> Cause | None:
        """selp and its kin: the source that the condition chooses."""
        ins = self.trail.instruction(step)
        if len(ins.operands) != 4:
            return None
        _, a, b, condition = ins.operands
        held = value_of(self.trail, step, lane, condition, "pred")
        if held is None or ins.form["type"] not in TYPES or condition.span.text.startswith("{"):
            return None
        if type_bits(known_type(signature_of(ins.form, ins.operands)[3].type, condition)) != 1:
            return None
        why = self._condition(step, lane, condition.name) if isinstance(condition, Reg) else ""
        chosen = a if held else b
        remark = f"{condition.span.text} is {'true' if held else 'false'}" + (f": {why}" if why else "")
        return replace(
            cause, inputs=(self._followed(step, lane, chosen, cause.type, low, width, path),),
            remarks=(*cause.remarks, remark),
        )  # fmt: skip

    def _shuffled(self, step: TrailStep, lane: int, name: str, low: int, width: int, cause: Cause, path: Way) -> Cause | None:
        """shfl: the value of another lane."""
        ins = self.trail.instruction(step)
        source = ins.operands[1]
        numbers = [value_of(self.trail, step, lane, o, "b32") for o in ins.operands[2:4]]
        if not isinstance(source, Reg) or None in numbers or is_predicate(ins, name):
            return None
        other, taken = shuffle_lane(ins.form["mode"], lane, *(int(n or 0) for n in numbers))
        remark = f"from lane {other}" if taken else f"lane {lane} keeps its own value: lane {other} is not in its segment"
        given = self.register(step, other if taken else lane, source.name, cause.type, low, width, path)
        return replace(cause, inputs=(given,), remarks=(*cause.remarks, remark))

    def _loaded(self, step: TrailStep, lane: int, name: str, low: int, width: int, cause: Cause, path: Way) -> Cause | None:
        """ld: the bytes at the lane's address."""
        ins = self.trail.instruction(step)
        if ins.form["space"].startswith("param"):
            return self._parameter(step, ins, cause)
        for target, at, size, _ in loads(self.trail, step):
            if isinstance(target, Reg) and target.name == name:
                address = int(at[lane]) + low // 8
                size = min(size, max(1, width // 8))
                if zero := impossible(self.trail, step, lane):
                    return self._gets_zero(step, lane, address, size, cause, zero)
                return replace(cause, inputs=(self.memory(step, lane, address, cause.bits, cause.type, size, path),))
        return None

    def _gets_zero(self, step: TrailStep, lane: int, address: int, size: int, cause: Cause, why: str) -> Cause:
        """The cause of the zero that a load gives where its access cannot be."""
        name = self.names(address, size) if why == "misaligned" else "memory of no argument"
        return replace(cause, inputs=(Cause(name, cause.bits, cause.type, f"{why}: the load gets 0"),))

    def _parameter(self, step: TrailStep, ins: Instruction, cause: Cause) -> Cause:
        address = ins.operands[1]
        base = address.base if isinstance(address, Address) else None
        function = self.trail.kernel.program.entry.function
        known = dict(zip((p.name for p in function.params), names(function)))
        said = known.get(base.name, base.name) if isinstance(base, Symbol) else "a parameter"
        return replace(cause, name=said, how="a parameter of the kernel", at=None)

    def _rows(self, step: TrailStep, lane: int, name: str, low: int, width: int, cause: Cause, path: Way) -> Cause | None:
        """ldmatrix and wmma.load: an element of a matrix whose address another lane may have."""
        address = loaded_from(self.trail, step, lane, name, low)
        if address is None:
            return None
        return replace(cause, inputs=(self.memory(step, lane, address, cause.bits, cause.type, max(1, width // 8), path),))

    # memory ---------------------------------------------------------------------------------------------------------
    def memory(
        self, step: TrailStep, lane: int, address: int, bits: int, type_name: str, size: int, path: Way,
        before: int | None = None,
    ) -> Cause:  # fmt: skip
        """The cause of bytes in memory.

        step, lane: who reads them.
        address: generic address of the first.
        bits, type_name, size: their value, its type and their number.
        before: number of the step before which they are read; None: when the step executes.
        """
        space = space_of(address)
        name = self.names(address, size) if space == "global" else space_text(address)
        moment = step.number if before is None else before
        own = (step, lane) if space == "local" else None
        found = last_write(self.trail, moment, address, own)
        if self._is_split(found, moment, address, size, own):
            half = size // 2
            parts = (
                self.memory(step, lane, address + at, bits >> 8 * at & (1 << 8 * half) - 1, f"b{8 * half}", half, path, before)
                for at in (0, half)
            )
            return Cause(name, bits, type_name, "bytes of several stores", self.at(step, lane), tuple(parts))
        if found is None:
            how = AS_FOUND if space in ("global", "const") else "not written by what was recorded"
            begun = self.trail.begun(address, size) if self.trail.begun is not None and space == "global" else None
            if begun is not None and begun != bits.to_bytes(size, "little"):
                self.foreign[address], how = size, "stored by another block of this launch"
            return Cause(name, bits, type_name, how)
        return self.written(found, name, bits, type_name, size, path)

    def _is_split(
        self, first: MemoryWrite | None, moment: int, address: int, size: int, own: tuple[TrailStep, int] | None
    ) -> bool:
        """Whether the first and the last of some bytes were not written together. first: the write to the first."""
        if size not in (2, 4, 8):
            return False
        last = last_write(self.trail, moment, address + size - 1, own)
        if last is None or first is None:
            return last is not first
        return (last.step, last.lane) != (first.step, first.lane)

    def written(self, found: MemoryWrite, name: str, bits: int, type_name: str, size: int, path: Way) -> Cause:
        """The cause of bytes that a step wrote."""
        step, lane = found.step, found.lane
        ins = self.trail.instruction(step).original
        cause = Cause(name, bits, type_name, ins.mnemonic, self.at(step, lane))
        if len(path) >= self.depth:
            return replace(cause, more=self._deeper)
        path = (*path, step.site)
        if found.remark:
            cause = replace(cause, remarks=(*cause.remarks, found.remark))
        if found.source is not None:
            source = self.memory(step, lane, found.source, bits, type_name, size, path)
            return replace(cause, inputs=(source,))
        if found.operand is None:
            return replace(cause, remarks=(*cause.remarks, "filled with zeros: outside of what is copied"))
        type_at = type_name if type_bits(type_name) == 8 * size else found.type
        if combines(self.trail.instruction(step)):
            return self._contributions(found, cause, type_at, size, path)
        given = self._followed(step, lane, found.operand, type_at, 8 * found.byte, 8 * size, path)
        return replace(cause, inputs=(given,))

    def _contributions(self, found: MemoryWrite, cause: Cause, type_name: str, size: int, path: Way) -> Cause:
        """An element that atomic operations have combined: the first and the last of what they were given."""
        address = self._target_of(found)
        each, before = combined(self.trail, found, address)
        shown = each if len(each) <= SHOWN else [*each[: SHOWN // 2], *each[-SHOWN // 2 :]]
        inputs = []
        for step, lane in shown if self.shortens else each:
            operand = values_of(self.trail.instruction(step))[0]
            inputs.append(self._followed(step, lane, operand, type_name, 8 * found.byte, 8 * size, path))
        stored = None if before is None else value_of(self.trail, before.step, before.lane, before.operand, before.type)
        if before is not None and stored is not None:
            bits = stored >> 8 * before.byte & (1 << 8 * size) - 1
            inputs.append(self.written(before, "what was there", bits, type_name, size, path))
        begun = self.trail.begun(address, size) if before is None and self.trail.begun is not None else None
        if begun is not None and any(begun):
            inputs.append(self._as_found(address, Cause(cause.name, int.from_bytes(begun, "little"), type_name, AS_FOUND)))
        threads = {(s.block, s.place.warp, lane) for s, lane in each}
        said = f"{len(each):,} contributions of {len(threads):,} threads of this block" if len(each) > 1 else ""
        said += f"; told are the first {SHOWN // 2} and the last {SHOWN // 2}" if len(each) > SHOWN else ""
        said += f"{'; ' if said else ''}combined with what was there" if before is None else ""
        return replace(cause, inputs=tuple(inputs), remarks=(*cause.remarks, said) if said else cause.remarks)

    def _as_found(self, address: int, cause: Cause) -> Cause:
        """The cause of a value that was in memory before the first of several that add to it."""
        return cause

    def _target_of(self, found: MemoryWrite) -> int:
        """The address of the byte that a write of a register wrote."""
        ins = self.trail.instruction(found.step)
        operand = next(o for o in ins.operands if isinstance(o, Address))
        at = addresses(self.trail, found.step, operand, ins.form["space"])
        assert at is not None
        return int(at[found.lane]) + found.byte

    def _of_all(self, step: TrailStep, lane: int, name: str, low: int, width: int, cause: Cause, path: Way) -> Cause | None:
        """redux, vote and match: the values of all lanes that take part, told of a few."""
        ins = self.trail.instruction(step)
        source = next((o for o in ins.operands[1:] if isinstance(o, (Reg, NegatedPredicate))), None)
        if source is None:
            return None
        taking = self.trail.guard(step)
        members = value_of(self.trail, step, lane, ins.operands[-1], "b32")
        lanes = [n for n in range(LANES) if taking >> n & 1 and (members is None or members >> n & 1)]
        shown = [lane, *(n for n in lanes if n != lane)][: SHOWN if self.shortens else LANES]
        type_name = known_type(signature_of(ins.form, ins.operands)[1].type, source)
        given = [self._followed(step, n, source, type_name, 0, type_bits(type_name), path) for n in shown]
        more = f"; told are {len(shown)} of them" if len(shown) < len(lanes) else ""
        said = f"of the {len(lanes)} lanes that take part{more}"
        return replace(cause, inputs=tuple(given), remarks=(*cause.remarks, said))

    # matrix products and tensor memory ------------------------------------------------------------------------------
    def _product(self, step: TrailStep, product: ProductElement, cause: Cause, path: Way) -> Cause:
        """A matrix product, with those before it in the accumulator. step: that issued it."""
        chain = ProductChain.behind(self.trail, step, product)
        element = chain.explain(self.device)
        if element.bits != cause.bits & (1 << product.d_bits) - 1:
            raise InternalError(
                f"{cause.how} on {self.device}: the model gives {element.bits:#x} for row {product.row}, column {product.column} "
                f"of D, and the machine {cause.bits:#x}"
            )
        names = [tuple(origin.name for origin in side) for side in chain.operands(self.origins)]
        here, begin = chain.first
        added = begin.c_at
        inputs: tuple[Cause, ...] = ()
        if isinstance(added, InRegister):
            inputs = (self.register(here, added.lane, added.name, begin.key.ctype, added.low, begin.d_bits, path),)
        elif isinstance(added, InCell):
            inputs = (self.cell(added, begin.c or 0, begin.key.ctype, begin.d_bits, path),)
        return replace(
            cause, element=element, products=len(chain.links), inputs=inputs, operands=(names[0], names[1]),
            remarks=(*cause.remarks, *chain.sentences(self.origins, self.trail.read), *cut_said(element, cause.at)),
        )  # fmt: skip

    def _from_cells(self, step: TrailStep, lane: int, name: str, low: int, width: int, cause: Cause, path: Way) -> Cause:
        """tcgen05.ld: a cell, or the low halves of two."""
        cells = cells_of(self.trail).loaded(step, lane, name)
        if not cells:
            return replace(cause, remarks=(*cause.remarks, "the least or greatest of what the warp loads here"))
        if len(cells) == 1:
            return replace(cause, inputs=(self.cell(replace(cells[0], low=low), cause.bits, cause.type, width, path),))
        first, last = low // 16, (low + width - 1) // 16
        if first == last:
            return replace(cause, inputs=(self.cell(replace(cells[first], low=low % 16), cause.bits, cause.type, width, path),))
        halves = ((n, cause.bits >> 16 * n & 0xFFFF) for n in range(2))
        return replace(cause, inputs=tuple(self.cell(cells[n], bits, "b16", 16, path) for n, bits in halves))

    def cell(self, place: InCell, bits: int, type_name: str, width: int, path: Way) -> Cause:
        """The cause of bits in tensor memory. bits, type_name, width: their value, its type and their number."""
        found = cells_of(self.trail).last(place)
        if found is None:
            return Cause(place.text, bits, type_name, "never written: whatever was there")
        step, lane = (found.step, found.lane) if isinstance(found, StoredCell) else (found.operation.step, found.operation.lane)
        assert step is not None
        ins = self.trail.instruction(step)
        cause = Cause(place.text, bits, type_name, ins.original.mnemonic, self.at(step, lane))
        if len(path) >= self.depth:
            return replace(cause, more=self._deeper)
        path = (*path, step.site)
        match found:
            case ProductCell():
                return self._product(step, tensor_product(found), cause, path)
            case StoredCell():
                low = found.low + place.low
                size = min(width, 32 - low)  # a cell may hold half a register
                given = self._followed(step, lane, found.operand, type_name, low, size, path)
            case MovedCell():
                given = self.cell(replace(found.place, low=place.low), bits, type_name, width, path)
            case CopiedCell():
                parts = copied_from(found, ins, place.low, width)
                types = [type_name] if len(parts) == 1 else [f"b{8 * size}" for *_, size in parts]
                return replace(cause, inputs=tuple(
                    self.memory(step, lane, at.address, value, t, size, path, at.before)
                    for (at, value, size), t in zip(parts, types)
                ))
        return replace(cause, inputs=(given,))

    def _converted(self, step: TrailStep, lane: int, name: str, low: int, width: int, cause: Cause, path: Way) -> Cause | None:
        """cvt of two numbers to a packed type: the one that the bits are made of."""
        ins = self.trail.instruction(step)
        sources = ins.operands[1:]
        element, count = parts_of(ins.form["type"])
        if ins.effects.flow is not Flow.BESIDE or count != 2 or len(sources) < 2:
            return None
        half = type_bits(ins.form["type"]) // 2
        if low // half != (low + width - 1) // half:
            return None
        operand = sources[0] if low // half else sources[1]  # a is the upper half
        given = known_type(signature_of(ins.form, ins.operands)[1].type, operand)
        source = self._followed(step, lane, operand, given, 0, type_bits(given), path)
        return replace(cause, type=element if width == half else cause.type, inputs=(source,))


_TELLERS: dict[Flow, Any] = {
    Flow.CHOICE: Explainer._choice, Flow.LANES: Explainer._shuffled, Flow.LOADED: Explainer._loaded,
    Flow.REDUCED: Explainer._of_all, Flow.WARP: Explainer._of_all,
    Flow.ROWS: Explainer._rows, Flow.TILE: Explainer._rows, Flow.BESIDE: Explainer._converted,
}  # fmt: skip
