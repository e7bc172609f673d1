"""Why a value is what it is: from a store backwards through the instructions of a trail, with the values that each read.

A `Trail` of the CTA that stored comes in; a tree of `Cause` leaves, whose nodes are values and whose branches are what each was
computed from. Operands are those that the machine read. A matrix product is explained by the exact model (numerics/element.py),
and the model's result has to be the machine's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from mmulator.errors import InternalError
from mmulator.isa.effects import Ends, Flow
from mmulator.isa.types import TYPES, type_bits
from mmulator.native.state import LANES
from mmulator.numerics.element import ElementSum, explain_element
from mmulator.program.addresses import SLOT_SHIFT
from mmulator.program.operands import call_operands
from mmulator.program.uses import accesses, signature_of
from mmulator.ptx.tree import (
    Address,
    Immediate,
    Instruction,
    NegatedPredicate,
    Operand,
    Reg,
    Symbol,
    flatten,
)
from mmulator.record.addresses import MemoryWrite, elements, space_of, value_of
from mmulator.record.matrices import loaded_from
from mmulator.record.memory import last_write, loads
from mmulator.record.origins import Origins, summary
from mmulator.record.parts import part_of, shuffle_lane
from mmulator.record.products import ProductElement, product_element
from mmulator.record.trail import Trail, TrailStep
from mmulator.record.values import parts_of, text_of
from mmulator.source import Span

DEPTH = 6  # instructions between the stored value and the last one that is told
AGAIN = 2  # times that one instruction is told on one way, as in a loop
LEFT_OUT = 4  # instructions without effect that are told for one value
Named = Callable[[int], str]


@dataclass(frozen=True)
class CauseAt:
    """Where an instruction of a thread is.

    file, line: of the PTX.
    source, quoted: line of the program, `mm.py:17`, and its text; "" where it is not known.
    block, thread: (x, y, z).
    step: number of the step in the launch.
    """

    file: str
    line: int
    source: str
    quoted: str
    block: tuple[int, int, int]
    thread: tuple[int, int, int]
    step: int


@dataclass(frozen=True)
class Cause:
    """A value and what it was computed from.

    name: register, element or constant, as the instruction that used it has it.
    bits, type: the value, and the PTX type by which it was used.
    how: instruction or other origin: `add.f32`, `argument 0 (x)`, `as the launch found it`.
    at: where the instruction is, if there is one.
    inputs: the values that it read.
    remarks: sentences about it: what was left out under a predicate, which of two was selected.
    element: the sum, of a matrix product.
    products: how many matrix products follow each other in this sum.
    more: whether its causes exist and are not told.
    """

    name: str
    bits: int
    type: str
    how: str
    at: CauseAt | None = None
    inputs: tuple[Cause, ...] = ()
    remarks: tuple[str, ...] = ()
    element: ElementSum | None = field(default=None, compare=False)
    products: int = 0
    more: bool = False

    @property
    def text(self) -> str:
        """The value in its type."""
        return text_of(self.bits, self.type)

    def walk(self) -> Iterator[Cause]:
        """This cause and all behind it, each before its inputs."""
        yield self
        for one in self.inputs:
            yield from one.walk()


class Explainer:
    """Answers about values of a trail.

    trail: the steps of the CTA.
    names: the name of the byte at a generic address, `A[3,5]`.
    device: whose arithmetic products have.
    depth: how many instructions are told one behind the other.
    """

    def __init__(self, trail: Trail, names: Named, device: str, depth: int = DEPTH) -> None:
        self.trail, self.names, self.device, self.depth = trail, names, device, depth
        self.origins = Origins(trail, names)

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
    def register(
        self, step: TrailStep, lane: int, name: str, type_name: str, low: int, width: int, path: tuple[int, ...] = ()
    ) -> Cause:
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
                return replace(cause, remarks=(*left_out, *cause.remarks)) if left_out else cause
            if len(left_out) < LEFT_OUT:
                left_out.append(self._without_effect(writer, lane))
        given = self._given(step, lane, name, type_name, low, width, path)
        return given or Cause(name, bits, type_name, "never written: whatever was there", remarks=tuple(left_out))

    def _given(
        self, step: TrailStep, lane: int, name: str, type_name: str, low: int, width: int, path: tuple[int, ...]
    ) -> Cause | None:
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
        assert ins.guard is not None
        register, negated = ins.guard
        held = bool(self.trail.guard(step) >> lane & 1) != negated
        said = f"{register.name} is {'true' if held else 'false'}"
        why = self._condition(step, lane, register.name)
        where, there = self.at(step, lane), span_text(store.original.span)
        return (
            f"{thread_text(where)}: {ins.original.mnemonic} at {place_text(where)} leads past {store.original.mnemonic} at "
            f"{there}, which would store it: {said}" + (f": {why}" if why else "")
        )

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
    def _made(
        self, step: TrailStep, lane: int, name: str, bits: int, type_name: str, low: int, width: int, path: tuple[int, ...]
    ) -> Cause:
        """The cause of bits of a register that a step wrote; parameters as those of `register`."""
        ins = self.trail.instruction(step)
        flow = ins.effects.flow
        part = part_of(ins, name, low, width)
        if part is not None:
            return self._followed(step, lane, part[0], type_name, part[1], width, path, copied=True)
        cause = Cause(name, bits, type_name, ins.original.mnemonic, self.at(step, lane))
        if len(path) >= self.depth or path.count(step.site) >= AGAIN:
            return replace(cause, more=True)
        path = (*path, step.site)
        if ins.effects.multiplies and ins.form.is_matrix:
            return self._product(step, lane, name, low, cause, path)
        teller = _TELLERS.get(flow)
        return (teller(self, step, lane, name, low, width, cause, path) if teller else None) or self._lanewise(
            step, lane, cause, path
        )

    def _followed(
        self, step: TrailStep, lane: int, operand: Operand, type_name: str, low: int, width: int, path: tuple[int, ...],
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

    def _lanewise(self, step: TrailStep, lane: int, cause: Cause, path: tuple[int, ...]) -> Cause:
        """An instruction that computes in each lane for itself."""
        ins = self.trail.instruction(step)
        inputs = []
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
                type_name = _known_type(given, one)
                inputs.append(self._followed(step, lane, one, type_name, 0, type_bits(type_name), path))
        return replace(cause, inputs=tuple(inputs))

    def _choice(
        self, step: TrailStep, lane: int, name: str, low: int, width: int, cause: Cause, path: tuple[int, ...]
    ) -> Cause | None:
        """selp and its kin: the source that the condition chooses."""
        ins = self.trail.instruction(step)
        if len(ins.operands) != 4:
            return None
        _, a, b, condition = ins.operands
        held = value_of(self.trail, step, lane, condition, "pred")
        if held is None or ins.form["type"] not in TYPES or condition.span.text.startswith("{"):
            return None
        if type_bits(_known_type(signature_of(ins.form, ins.operands)[3].type, condition)) != 1:
            return None
        why = self._condition(step, lane, condition.name) if isinstance(condition, Reg) else ""
        chosen = a if held else b
        remark = f"{condition.span.text} is {'true' if held else 'false'}" + (f": {why}" if why else "")
        return replace(
            cause, inputs=(self._followed(step, lane, chosen, cause.type, low, width, path),),
            remarks=(*cause.remarks, remark),
        )  # fmt: skip

    def _shuffled(
        self, step: TrailStep, lane: int, name: str, low: int, width: int, cause: Cause, path: tuple[int, ...]
    ) -> Cause | None:
        """shfl: the value of another lane."""
        ins = self.trail.instruction(step)
        source = ins.operands[1]
        numbers = [value_of(self.trail, step, lane, o, "b32") for o in ins.operands[2:4]]
        if not isinstance(source, Reg) or None in numbers or _is_predicate(ins, name):
            return None
        other, taken = shuffle_lane(ins.form["mode"], lane, *(int(n or 0) for n in numbers))
        remark = f"from lane {other}" if taken else f"lane {lane} keeps its own value: lane {other} is not in its segment"
        given = self.register(step, other if taken else lane, source.name, cause.type, low, width, path)
        return replace(cause, inputs=(given,), remarks=(*cause.remarks, remark))

    def _loaded(
        self, step: TrailStep, lane: int, name: str, low: int, width: int, cause: Cause, path: tuple[int, ...]
    ) -> Cause | None:
        """ld: the bytes at the lane's address."""
        ins = self.trail.instruction(step)
        if ins.form["space"].startswith("param"):
            return self._parameter(step, ins, cause)
        for target, at, size, _ in loads(self.trail, step):
            if isinstance(target, Reg) and target.name == name:
                address = int(at[lane]) + low // 8
                size = min(size, max(1, width // 8))
                return replace(cause, inputs=(self.memory(step, lane, address, cause.bits, cause.type, size, path),))
        return None

    def _parameter(self, step: TrailStep, ins: Instruction, cause: Cause) -> Cause:
        address = ins.operands[1]
        base = address.base if isinstance(address, Address) else None
        said = base.name if isinstance(base, Symbol) else "a parameter"
        return replace(cause, name=said, how="a parameter of the kernel", at=None)

    def _rows(
        self, step: TrailStep, lane: int, name: str, low: int, width: int, cause: Cause, path: tuple[int, ...]
    ) -> Cause | None:
        """ldmatrix and wmma.load: an element of a matrix whose address another lane may have."""
        address = loaded_from(self.trail, step, lane, name, low)
        if address is None:
            return None
        return replace(cause, inputs=(self.memory(step, lane, address, cause.bits, cause.type, max(1, width // 8), path),))

    # memory ---------------------------------------------------------------------------------------------------------
    def memory(
        self, step: TrailStep, lane: int, address: int, bits: int, type_name: str, size: int, path: tuple[int, ...]
    ) -> Cause:
        """The cause of bytes in memory.

        step, lane: who reads them.
        address: generic address of the first.
        bits, type_name, size: their value, its type and their number.
        """
        space = space_of(address)
        name = self.names(address) if space == "global" else f"{space}+{address & ((1 << SLOT_SHIFT) - 1)}"
        found = last_write(self.trail, step.number, address, (step, lane) if space == "local" else None)
        if found is None:
            how = "as the launch found it" if space in ("global", "const") else "not written by what was recorded"
            return Cause(name, bits, type_name, how)
        return self.written(found, name, bits, type_name, size, path)

    def written(self, found: MemoryWrite, name: str, bits: int, type_name: str, size: int, path: tuple[int, ...]) -> Cause:
        """The cause of bytes that a step wrote."""
        step, lane = found.step, found.lane
        ins = self.trail.instruction(step).original
        cause = Cause(name, bits, type_name, ins.mnemonic, self.at(step, lane))
        if len(path) >= self.depth:
            return replace(cause, more=True)
        path = (*path, step.site)
        if found.remark:
            cause = replace(cause, remarks=(*cause.remarks, found.remark))
        if found.source is not None:
            source = self.memory(step, lane, found.source, bits, type_name, size, path)
            return replace(cause, inputs=(source,))
        if found.operand is None:
            return replace(cause, remarks=(*cause.remarks, "filled with zeros: outside of what is copied"))
        type_at = type_name if type_bits(type_name) == 8 * size else found.type
        given = self._followed(step, lane, found.operand, type_at, 8 * found.byte, 8 * size, path)
        return replace(cause, inputs=(given,))

    # matrix products ------------------------------------------------------------------------------------------------
    def _product(self, step: TrailStep, lane: int, name: str, low: int, cause: Cause, path: tuple[int, ...]) -> Cause:
        """A matrix product, with those before it in the accumulator."""
        chain: list[tuple[TrailStep, ProductElement]] = []
        here, register, at = step, name, low
        first: Cause | None = None
        while True:
            found = product_element(self.trail, here, lane, register, at)
            if found is None:
                break
            chain.append((here, found))
            if found.c_register is None:
                break
            register, at = found.c_register
            before = self.trail.writer(here, register, lane)
            if before is None or not self._adds(before, found):
                first = self.register(here, lane, register, str(found.form.ctype or found.form.dtype), at, low_bits(found), path)
                break
            here = before
        if not chain:
            return replace(cause, remarks=(*cause.remarks, "its operands are not told"))
        chain.reverse()
        form = chain[0][1].form
        a, b, scale_a, scale_b = (
            tuple(x for _, e in chain for x in getattr(e, part)) for part in ("a", "b", "scale_a", "scale_b")
        )
        k = form.k
        places = tuple(p + n * k for n, (_, e) in enumerate(chain) for p in e.positions)
        element = explain_element(
            form, self.device, a, b, chain[0][1].c or 0, imm_scale_a=chain[0][1].sign, positions=places,
            scale_a=scale_a, scale_b=scale_b,
        )  # fmt: skip
        _, last = chain[-1]
        if element.bits != cause.bits & (1 << low_bits(last)) - 1:
            raise InternalError(
                f"{form} on {self.device}: the model gives {element.bits:#x} for row {last.row}, column {last.column} of D, "
                f"and the machine {cause.bits:#x}"
            )
        remarks = [f"row {last.row}, column {last.column} of D", *self._sources(chain)]
        return replace(
            cause, element=element, products=len(chain), inputs=(first,) if first is not None else (),
            remarks=(*cause.remarks, *remarks),
        )  # fmt: skip

    def _sources(self, chain: list[tuple[TrailStep, ProductElement]]) -> Iterator[str]:
        """Sentences about where the row of A and the column of B come from, and whether they had arrived."""
        for side in "ab":
            names: list[str] = []
            late: list[str] = []
            for n, (step, e) in enumerate(chain):
                bits = (e.form.atype if side == "a" else e.form.btype).bits
                places, raw = (e.a_at, e.a) if side == "a" else (e.b_at, e.b)
                for k, place, value in zip(e.positions, places, raw):
                    origin = self.origins.of(place, step, bits)
                    names.append(origin.name)
                    if origin.address is not None and bits >= 8 and self._differs(origin.address, value, bits):
                        late.append(f"k[{k + n * e.form.k}]")
            yield f"{'row of A' if side == 'a' else 'column of B'}: {summary(names)}"
            if late:
                yield (
                    f"at {summary(late)} the machine read other bits than these have: the copy had not arrived, or they were "
                    "written since"
                )
            factors = [(step, place) for step, e in chain for place in (e.scale_a_at if side == "a" else e.scale_b_at)]
            if factors:
                yield f"scale factors of {side.upper()}: {summary([self.origins.of(at, step, 8).name for step, at in factors])}"

    def _differs(self, address: int, value: int, bits: int) -> bool:
        """Whether device memory has other bits at an address than a product read."""
        if self.trail.read is None:
            return False
        return int.from_bytes(self.trail.read(address, bits // 8), "little") != value

    def _adds(self, step: TrailStep, behind: ProductElement) -> bool:
        """Whether a step is a product of one arithmetic with the one behind it, into whose sum it goes."""
        ins = self.trail.instruction(step)
        return ins.effects.multiplies and ins.form.is_matrix and ins.form == behind.form


def low_bits(element: ProductElement) -> int:
    """Bits of an element of D."""
    return element.form.dtype.bits


def thread_text(at: CauseAt) -> str:
    """`block (0, 0, 0), thread (14, 0, 0)`."""
    return f"block {at.block}, thread {at.thread}"


def place_text(at: CauseAt) -> str:
    """`k.ptx:81 (add.py:9)`."""
    return f"{at.file}:{at.line}" + (f" ({at.source})" if at.source else "")


def span_text(span: Span) -> str:
    """`k.ptx:81 (add.py:9)` of a place in a text."""
    return f"{span.source.name}:{span.line}" + (f" ({span.brief})" if span.brief else "")


def _known_type(given: str, operand: Operand) -> str:
    """The type of an operand: as the instruction has it, else as the register is declared."""
    try:
        type_bits(given)
    except KeyError:
        return operand.type if isinstance(operand, Reg) else "pred" if isinstance(operand, NegatedPredicate) else "b32"
    return given


def _is_predicate(ins: Instruction, name: str) -> bool:
    """Whether a register is a result of type .pred."""
    return any(isinstance(o, Reg) and o.name == name and o.type == "pred" for o in flatten(ins.operands[:1]))


def _converted(
    self: Explainer, step: TrailStep, lane: int, name: str, low: int, width: int, cause: Cause, path: tuple[int, ...]
) -> Cause | None:
    """cvt of two numbers to a packed type: the one that the bits are made of."""
    ins = self.trail.instruction(step)
    sources = ins.operands[1:]
    element, count = parts_of(ins.form["type"])
    if ins.opcode != "cvt" or count != 2 or len(sources) < 2:
        return None
    half = type_bits(ins.form["type"]) // 2
    if low // half != (low + width - 1) // half:
        return None
    operand = sources[0] if low // half else sources[1]  # a is the upper half
    given = _known_type(signature_of(ins.form, ins.operands)[1].type, operand)
    return replace(
        cause, type=element if width == half else cause.type,
        inputs=(self._followed(step, lane, operand, given, 0, type_bits(given), path),),
    )  # fmt: skip


_TELLERS: dict[Flow, Any] = {
    Flow.CHOICE: Explainer._choice, Flow.LANES: Explainer._shuffled, Flow.LOADED: Explainer._loaded,
    Flow.ROWS: Explainer._rows, Flow.TILE: Explainer._rows, Flow.BESIDE: _converted,
}  # fmt: skip
