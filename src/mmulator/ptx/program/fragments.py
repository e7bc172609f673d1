"""The origin of registers of wmma fragments: the element of a fragment that each register holds, and the operations on it
since.

A forward walk over the blocks of a function. Uncertain cases count as correct: different values that meet from two paths, bits
taken apart, exchanges between lanes, registers that went through memory.

Matrix Fragments for WMMA (PTX ISA 9.1): fragments are used with the shape, layout and type with which they were loaded;
elements are operated on uniformly across threads, with the same parameters, and their order is not changed; accumulators are
not converted between .f16 and .f32.

Registers that depend on the lane but on nothing that was loaded, and basic blocks that only some lanes may reach, are known, too
(`LaneFacts`): what is done to elements there is not done to all.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from enum import Enum
from typing import TypeAlias

from mmulator.base.classes import dataclass
from mmulator.isa.effects import Algebra, Ends, MemoryEffect, Queue, Together
from mmulator.isa.types import type_bits
from mmulator.ptx.program.blocks import Block, FunctionBlocks, blocks_from
from mmulator.ptx.program.flow import settle, solve
from mmulator.ptx.program.uses import accesses, uses_and_defs
from mmulator.ptx.tree import Address, Immediate, Instruction, Operand, Reg, SpecialRegister, Symbol, VectorOperand, flatten

Done: TypeAlias = "frozenset[tuple[str, tuple[int, ...]]]"  # operations: name, and constant operands


class Misuse(Enum):
    """The error in the use of a fragment."""

    MATRIX = "matrix"
    SHAPE = "shape"
    LAYOUT = "layout"
    TYPE = "type"
    CONVERTED = "converted"
    REORDERED = "reordered"
    UNEVEN = "uneven"


@dataclass(frozen=True)
class FragmentKind:
    """The kind of a fragment: `a`, `b` or `c` (an accumulator), with shape and type, and for A and B a layout."""

    matrix: str
    shape: str
    type: str
    layout: str = ""

    def __str__(self) -> str:
        return " ".join(filter(None, (self.matrix.upper(), self.layout, self.shape, self.type)))


@dataclass(frozen=True)
class FragmentElement:
    """An element of a fragment in a register.

    done: operations on it since it was loaded; None if they depend on the path.
    converted: whether it was converted between floating-point types.
    by: instructions that operated on it where lanes may differ.
    """

    element: int
    done: Done | None = frozenset()
    converted: bool = False
    by: frozenset[Instruction] = frozenset()


@dataclass(frozen=True)
class HeldFragment:
    """The content of a register: elements of one fragment, the low bits first. origin: the instruction that made the
    fragment.
    """

    kind: FragmentKind
    parts: tuple[FragmentElement, ...]
    origin: Instruction = field(compare=False, repr=False)


class OtherValue(Enum):
    CONSTANT = 0
    UNKNOWN = 1


Value: TypeAlias = "HeldFragment | OtherValue"
State: TypeAlias = "dict[str, Value]"


@dataclass(frozen=True)
class WrongFragment:
    """A fragment that an instruction (at operand `name`) must not use. held: content of a register. slot: number of that
    register.
    """

    misuse: Misuse
    name: str
    wanted: FragmentKind
    held: HeldFragment
    slot: int


@dataclass(frozen=True)
class Fragments:
    """The misuses of fragments in a function.

    wrong: id of an instruction that uses fragments -> the misuses.
    partly: instructions that operate on elements of fragments which are used later, under a condition or with an operand
        that may differ among lanes.
    """

    wrong: Mapping[Instruction, tuple[WrongFragment, ...]]
    partly: frozenset[Instruction]


NONE = Fragments({}, frozenset())


def fragments_of(function: FunctionBlocks) -> Fragments:
    """The misuses of fragments in a function, found once."""
    known: Fragments | None = function.known.get("fragments")
    if known is None:
        every = [i for b in function.blocks for i in _instructions(b)]
        known = _Walk(function).run() if any(map(_has_fragments, every)) else NONE
        function.known["fragments"] = known
    return known


def _has_fragments(ins: Instruction) -> bool:
    return ins.effects.counted_as.startswith("wmma")


def _instructions(block: Block) -> Iterator[Instruction]:
    yield from block.body
    if block.last is not None and block.last.effects.ends is not Ends.BRANCH and block.ending is not Ends.BRANCH:
        yield block.last


def _met(a: Value, b: Value) -> Value:
    """The content of a register where two paths meet."""
    if a == b:
        return a
    if isinstance(a, HeldFragment) and isinstance(b, HeldFragment):
        if a.kind != b.kind or [p.element for p in a.parts] != [p.element for p in b.parts]:
            return OtherValue.UNKNOWN
        parts = tuple(
            FragmentElement(p.element, p.done if p.done == q.done else None, p.converted or q.converted, p.by | q.by)
            for p, q in zip(a.parts, b.parts)
        )
        return HeldFragment(a.kind, parts, a.origin)
    for held, other in ((a, b), (b, a)):  # an accumulator that begins as a constant
        if isinstance(held, HeldFragment) and other is OtherValue.CONSTANT and held.kind.matrix == "c":
            return held
    return OtherValue.UNKNOWN


class _Walk:
    def __init__(self, function: FunctionBlocks) -> None:
        self.function, self.lanes = function, lanes_of(function)
        self.wrong: dict[Instruction, tuple[WrongFragment, ...]] = {}
        self.partly: set[Instruction] = set()
        self.block = function.blocks[0]

    def run(self) -> Fragments:
        first = self.function.entry
        start: State = {}
        solve({first: start}, lambda block: self.function.blocks[block - first].targets, self.through, self.meet)
        return Fragments(self.wrong, frozenset(self.partly))

    def through(self, block: int, before: State) -> State:
        """The contents of registers behind a block."""
        state, self.block = {**before}, self.function.blocks[block - self.function.entry]
        if self.block.after is not None:
            self.forget(self.block.after, state)
        for ins in _instructions(self.block):
            self.step(ins, state)
        return state

    @staticmethod
    def meet(a: State, b: State) -> State:
        return {r: _met(a.get(r, b.get(r, OtherValue.UNKNOWN)), b.get(r, a.get(r, OtherValue.UNKNOWN))) for r in {**a, **b}}

    # instructions ---------------------------------------------------------------------------------------------------
    def step(self, ins: Instruction, state: State) -> None:
        if _has_fragments(ins):
            self.matrix(ins, state)
            return
        effects = ins.effects
        alone = effects.together is Together.ALONE and effects.ends is Ends.NO and effects.queue is Queue.NONE
        if not alone or effects.memory is not MemoryEffect.NONE or not ins.operands:
            self.forget(ins, state)
            return
        written = [o for access, o in accesses(ins) if "w" in access]
        sources = [o for access, o in accesses(ins) if "w" not in access]
        results = self.computed(ins, written, sources, state)
        for name, value in results.items():
            old = state.get(name, OtherValue.UNKNOWN)
            state[name] = (
                value if ins.guard is None else _met(old, value) if isinstance(value, HeldFragment) else _guarded(old, value)
            )

    def forget(self, ins: Instruction, state: State) -> None:
        for name in uses_and_defs(ins)[1]:
            state[name] = OtherValue.UNKNOWN

    def computed(self, ins: Instruction, written: list[Operand], sources: list[Operand], state: State) -> dict[str, Value]:
        """The contents of the results of a lane-wise instruction."""
        names = {o.name for o in written if isinstance(o, Reg)}
        unknown: dict[str, Value] = {n: OtherValue.UNKNOWN for o in written for n in _names(o)}
        if len(written) != 1:
            return unknown
        (target,) = written
        held = [state.get(o.name, OtherValue.UNKNOWN) for o in sources if isinstance(o, Reg)]
        copies = ins.effects.algebra is Algebra.COPY and len(sources) == 1
        if copies and (isinstance(target, VectorOperand) or isinstance(sources[0], VectorOperand)):
            return unknown | _regrouped(target, sources[0], state)
        if not isinstance(target, Reg) or not names:
            return unknown
        found = [h for h in held if isinstance(h, HeldFragment)]
        if not found:
            constant = copies and isinstance(sources[0], Immediate)
            return {target.name: OtherValue.CONSTANT if constant else OtherValue.UNKNOWN}
        if target.type == "pred":
            return unknown
        if copies:
            return {target.name: found[0]}
        return {target.name: self.operated(ins, target, sources, found)}

    def operated(self, ins: Instruction, target: Reg, sources: list[Operand], found: list[HeldFragment]) -> Value:
        """The content of the result of an element-wise operation on registers of fragments."""
        mods, first = ins.modifiers, found[0]
        converted = ins.effects.algebra is Algebra.CONVERSION
        packed = any(m in ("f16x2", "bf16x2") for m in mods)
        if packed and len(found) == 2 == len(sources) and all(len(h.parts) == 1 for h in found):  # two numbers side by side
            high, low = found
            if high.kind == low.kind:
                return HeldFragment(low.kind, tuple(replace(h.parts[0], converted=True) for h in (low, high)), low.origin)
            return OtherValue.UNKNOWN
        if len({tuple(p.element for p in h.parts) for h in found}) != 1 or len(first.parts) != (2 if packed else 1):
            return OtherValue.UNKNOWN  # sums of several elements, or bits of one
        constants = tuple(o.bits(f"b{type_bits(target.type)}") for o in sources if isinstance(o, Immediate))
        done = frozenset() if converted else frozenset({(ins.opcode, constants)})
        partly = self.lanes.under_condition(ins, self.block) or self.lanes.differing(ins)
        by = frozenset({ins}) if partly else frozenset()
        parts = []
        for n in range(len(first.parts)):
            same = [h.parts[n] for h in found]
            known = [p.done for p in same]
            every = None if any(d is None for d in known) else frozenset().union(*(d for d in known if d is not None)) | done
            touched = frozenset().union(*(p.by for p in same)) | by
            parts.append(FragmentElement(same[0].element, every, converted or any(p.converted for p in same), touched))
        return HeldFragment(first.kind, tuple(parts), first.origin)

    # fragments ------------------------------------------------------------------------------------------------------
    def matrix(self, ins: Instruction, state: State) -> None:
        form = ins.form
        if ins.effects.multiplies:
            d, *given = ins.operands
            types = form.atype.name, form.btype.name, form.ctype.name
            layouts = form.alayout, form.blayout, ""
            kinds = [FragmentKind(x, form.shape, t, layout) for x, t, layout in zip("abc", types, layouts)]
            self.used(ins, state, list(zip("abc", given, kinds)))
            self.made(ins, d, FragmentKind("c", form.shape, form.dtype.name), state)
        elif ins.effects.memory is MemoryEffect.READ:
            matrix = form.op[-1]
            self.made(
                ins,
                ins.operands[0],
                FragmentKind(matrix, form.shape, form.type.name, "" if matrix == "c" else form.layout),
                state,
            )
        else:
            self.used(ins, state, [("d", ins.operands[1], FragmentKind("c", form.shape, form.type.name))])

    def made(self, ins: Instruction, operand: Operand, kind: FragmentKind, state: State) -> None:
        registers = operand.elements if isinstance(operand, VectorOperand) else (operand,)
        for n, register in enumerate(registers):
            if isinstance(register, Reg):
                each = max(1, type_bits(register.type) // type_bits(kind.type)) if kind.type not in ("tf32",) else 1
                parts = tuple(FragmentElement(n * each + i) for i in range(each))
                state[register.name] = HeldFragment(kind, parts, ins) if ins.guard is None else OtherValue.UNKNOWN

    def used(self, ins: Instruction, state: State, operands: list[tuple[str, Operand, FragmentKind]]) -> None:
        found = []
        for name, operand, wanted in operands:
            registers = operand.elements if isinstance(operand, VectorOperand) else (operand,)
            values = [state.get(r.name, OtherValue.UNKNOWN) if isinstance(r, Reg) else OtherValue.CONSTANT for r in registers]
            for value in values:
                self.partly.update(n for p in (value.parts if isinstance(value, HeldFragment) else ()) for n in p.by)
            wrong = _wrong(name, wanted, values)
            if wrong is not None:
                found.append(wrong)
        self.wrong[ins] = tuple(found)


def _guarded(old: Value, new: Value) -> Value:
    """The content of a register that holds no fragment and that only some lanes may write."""
    return new if old == new else OtherValue.UNKNOWN


def _names(operand: Operand) -> Iterator[str]:
    for o in operand.elements if isinstance(operand, VectorOperand) else (operand,):
        if isinstance(o, Reg):
            yield o.name


def _regrouped(target: Operand, source: Operand, state: State) -> State:
    """The contents of registers after a mov between a register and a vector of narrower ones."""
    if isinstance(source, Reg) and isinstance(target, VectorOperand):
        held, pieces = state.get(source.name, OtherValue.UNKNOWN), target.elements
        if not isinstance(held, HeldFragment) or len(held.parts) % len(pieces):
            return {}
        each = len(held.parts) // len(pieces)
        return {
            o.name: HeldFragment(held.kind, held.parts[n * each : (n + 1) * each], held.origin)
            for n, o in enumerate(pieces) if isinstance(o, Reg)
        }  # fmt: skip
    if isinstance(source, VectorOperand) and isinstance(target, Reg):
        held_each = [state.get(o.name, OtherValue.UNKNOWN) for o in source.elements if isinstance(o, Reg)]
        found = [h for h in held_each if isinstance(h, HeldFragment)]
        if len(found) == len(source.elements) and len({h.kind for h in found}) == 1:
            return {target.name: HeldFragment(found[0].kind, tuple(p for h in found for p in h.parts), found[0].origin)}
    return {}


def _wrong(name: str, wanted: FragmentKind, values: list[Value]) -> WrongFragment | None:
    """The misuse in the registers of an operand; if there are several, the most specific one."""
    held = [(n, v) for n, v in enumerate(values) if isinstance(v, HeldFragment)]
    for n, v in held:
        k = v.kind
        if k.matrix != wanted.matrix:
            return WrongFragment(Misuse.MATRIX, name, wanted, v, n)
        if k.shape != wanted.shape:
            return WrongFragment(Misuse.SHAPE, name, wanted, v, n)
        if k.layout != wanted.layout:
            return WrongFragment(Misuse.LAYOUT, name, wanted, v, n)
        if k.type != wanted.type:
            return WrongFragment(Misuse.CONVERTED if any(p.converted for p in v.parts) else Misuse.TYPE, name, wanted, v, n)
    if len(held) != len(values):
        lone = held and all(isinstance(v, HeldFragment) or v is OtherValue.CONSTANT for v in values)
        return WrongFragment(Misuse.UNEVEN, name, wanted, held[0][1], held[0][0]) if lone else None
    at = 0
    for n, v in held:
        for p in v.parts:
            if p.element != at:
                return WrongFragment(Misuse.REORDERED, name, wanted, v, n)
            at += 1
    done = [(n, v, p.done) for n, v in held for p in v.parts if p.done is not None]
    some = [(n, v, d) for n, v, d in done if d]
    if some and len(some) < len(done):
        return WrongFragment(Misuse.UNEVEN, name, wanted, some[0][1], some[0][0])
    for n, v, d in some[1:]:
        if any(_constants(d, op) != _constants(some[0][2], op) for op in {op for op, _ in d} & {op for op, _ in some[0][2]}):
            return WrongFragment(Misuse.UNEVEN, name, wanted, v, n)
    return None


def _constants(done: Done, op: str) -> set[tuple[int, ...]]:
    """The constant operands of the operations with a name."""
    return {constants for name, constants in done if name == op}


# dependence on the lane -----------------------------------------------------------------------------------------------
_LANE = {"tid.x", "laneid", "lanemask_eq", "lanemask_lt", "lanemask_le", "lanemask_gt", "lanemask_ge"}
_SAME, _LANES, _ELSE = range(3)  # the same in all lanes, computed from the number of the lane, or from something else


def lanes_of(function: FunctionBlocks) -> LaneFacts:
    """The dependence of a function on the lane, found once."""
    if "lanes" not in function.known:
        function.known["lanes"] = LaneFacts(function)
    found: LaneFacts = function.known["lanes"]
    return found


class LaneFacts:
    """The dependence of a function's registers and blocks on the lane."""

    def __init__(self, function: FunctionBlocks) -> None:
        self.function = function
        self.first = function.blocks[0].index
        self.classes: dict[str, int] = defaultdict(int)
        self._classify([i for b in function.blocks for i in (*b.body, *([b.last] if b.last is not None else []))])
        self.guarded = self._guarded_blocks()

    def of(self, operand: Operand) -> int:
        match operand:
            case Reg(name=name):
                return self.classes[name]
            case SpecialRegister(name=name):
                return _LANES if name in _LANE else _SAME
            case Immediate() | Symbol():
                return _SAME
        return _ELSE

    def _classify(self, every: list[Instruction]) -> None:
        def step() -> dict[str, int]:
            for ins in every:
                new = self._result(ins)
                for access, operand in accesses(ins):
                    for o in flatten((operand,)) if "w" in access and not isinstance(operand, Address) else ():
                        if isinstance(o, Reg):
                            self.classes[o.name] = max(self.classes[o.name], new)
            return {**self.classes}

        settle(step, {})

    def _result(self, ins: Instruction) -> int:
        e = ins.effects
        if e.memory is MemoryEffect.READ and ins.form["space"].startswith("param"):
            return _SAME
        if (
            e.together is not Together.ALONE
            or e.memory is not MemoryEffect.NONE
            or e.queue is not Queue.NONE
            or e.ends is not Ends.NO
        ):
            return _ELSE
        sources = [o for access, x in accesses(ins) if access != "w" for o in _flat(x)]
        guard = [ins.guard[0]] if ins.guard is not None else []
        return max((self.of(o) for o in (*sources, *guard)), default=_SAME)

    def _guarded_blocks(self) -> set[int]:
        """Blocks that lanes reach depending on a branch whose condition depends on the lane."""
        found: set[int] = set()
        for block in self.function.blocks:
            if block.ending is not Ends.BRANCH or block.last is None or block.last.guard is None:
                continue
            if self.classes[block.last.guard[0].name] != _LANES:
                continue
            one, other = (blocks_from([t], self._targets, block.index) for t in block.targets)
            found |= one ^ other
        return found

    def _targets(self, block: int) -> list[int]:
        return self.function.blocks[block - self.first].targets

    def under_condition(self, ins: Instruction, block: Block) -> bool:
        """Whether the lane's number alone decides if a lane executes an instruction."""
        guard = ins.guard is not None and self.classes[ins.guard[0].name] == _LANES
        return guard or block.index in self.guarded

    def differing(self, ins: Instruction) -> list[Reg]:
        """Operands that an instruction reads and whose value depends on the lane's number."""
        sources = (o for access, o in accesses(ins) if "w" not in access)
        return [o for o in sources if isinstance(o, Reg) and o.type != "pred" and self.of(o) == _LANES]


def _flat(operand: Operand) -> tuple[Operand, ...]:
    return operand.elements if isinstance(operand, VectorOperand) else tuple(flatten((operand,)))
