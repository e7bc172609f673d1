"""Mutants of a kernel: its text, changed at one place in a way that people err. Nothing is run here.

A kind is a row of KINDS: a function from an instruction to the statements that may stand in its place. It looks at what the row
of the instruction says (effects, operands, slots of its name), never at an opcode alone. A statement that is not legal there is
left out when the text is verified. Each mutant is a text of its own, so nothing that is kept for the original is found for it.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from mmulator.base.source import Source, Span
from mmulator.isa.effects import Algebra, Effects, Ends, MemoryEffect, Orders, Queue, Step, Stored
from mmulator.isa.form import Form
from mmulator.isa.row import OperandSpec
from mmulator.isa.types import type_bits
from mmulator.ptx.program.uses import registers_of, signature_of, uses_and_defs
from mmulator.ptx.tree import Function, Immediate, Instruction, LabelRef, Operand, Reg, VectorOperand

Edits = Iterator[tuple[str, str]]  # (what is changed, the statement instead)
_SWAPPED = {"lt": "le", "le": "lt", "gt": "ge", "ge": "gt", "lo": "ls", "ls": "lo", "hi": "hs", "hs": "hi", "row": "col",
            "col": "row"}  # fmt: skip
_LINEAR = (Algebra.SUM, Algebra.DIFFERENCE, Algebra.PRODUCT, Algebra.QUOTIENT, Algebra.FUSED)
_ORDERED = (Algebra.DIFFERENCE, Algebra.QUOTIENT, Algebra.SELECTION)
_FLOATS = {"f32": (4, "<f", "0f"), "f64": (8, "<d", "0d")}  # bytes, code of struct, prefix of a constant
_OWN = "mm_changed"  # registers that a statement declares for itself


@dataclass(frozen=True, eq=False)
class Mutant:
    """One change of a module.

    kind: a name among KINDS.
    words: what is changed.
    function: the function that has it.
    instruction: the place, in the tree of the original.
    statement: what stands there instead.
    """

    kind: str
    words: str
    function: str
    instruction: Instruction
    statement: str

    @property
    def source(self) -> Source:
        """The changed module. Lines keep their numbers."""
        return changed([self])

    @property
    def place(self) -> str:
        """`kernel.ptx:12 (kernel.py:7)`"""
        span = self.instruction.span
        return f"{span.source.name}:{span.line}" + (f" ({self.source_line})" if span.location else "")

    @property
    def source_line(self) -> str:
        """The line of the program; else of the PTX."""
        at = self.instruction.span.location
        return f"{at.file.rpartition('/')[2]}:{at.line}" if at else str(self.instruction.span.line)


def changed(mutants: Sequence[Mutant]) -> Source:
    """A module with several changes, each of another instruction. Lines keep their numbers."""
    source = mutants[0].instruction.span.source
    text = source.text
    for m in sorted(mutants, key=lambda m: -m.instruction.span.start):
        span = m.instruction.span
        lines = "\n" * max(0, span.text.count("\n") - m.statement.count("\n"))
        text = text[: span.start] + m.statement + lines + text[span.end :]
    return Source(source.name, text)


class _Site:
    """An instruction that may be changed, with what the kinds ask of it."""

    def __init__(self, function: Function, ins: Instruction, accumulators: frozenset[str]) -> None:
        self.function, self.ins, self.accumulators = function, ins, accumulators
        self.effects: Effects = ins.effects
        self.form: Form = ins.form
        specs = signature_of(ins.form, ins.operands)
        self.named: list[tuple[OperandSpec, Operand]] = list(zip(specs, ins.operands))
        self.guard = ins.span.text[: ins.mnemonic_span.start - ins.span.start]

    def of(self, name: str) -> Operand | None:
        """The operand of a name, if the instruction has it."""
        return next((operand for spec, operand in self.named if spec.name == name), None)

    @property
    def sources(self) -> list[Operand]:
        return [operand for spec, operand in self.named if spec.access == "r"]

    @property
    def results(self) -> list[Operand]:
        return [operand for spec, operand in self.named if "w" in spec.access]

    def but(self, *changes: tuple[Span, str]) -> str:
        """The statement with other words at some places."""
        span, text = self.ins.span, self.ins.span.text
        for at, new in sorted(changes, key=lambda c: -c[0].start):
            text = text[: at.start - span.start] + new + text[at.end - span.start :]
        return text

    def swapped(self, a: Operand, b: Operand) -> str:
        return self.but((a.span, b.span.text), (b.span, a.span.text))

    def within(self, before: str, statement: str, behind: str = "") -> str:
        """The statement between others, in a scope of their own."""
        return " ".join(filter(None, ("{", before, statement, behind, "}")))

    def backward(self) -> bool | None:
        """Whether a branch leads back; None for what is no branch to a label."""
        target = next((o for o in self.ins.operands if isinstance(o, LabelRef)), None)
        if self.effects.ends is not Ends.BRANCH or target is None:
            return None
        return self.function.labels[target.name] < self.function.body.index(self.ins)


def _orders(e: Effects) -> bool:
    """Whether an instruction is there for order: a barrier, a fence, a wait or a commit."""
    orders = e.ends in (Ends.BARRIER, Ends.WAIT) or e.step in (Step.WAIT, Step.FENCE, Step.COMMIT) or e.orders is not Orders.NONE
    orders = orders or (e.counted_as == "barrier" and e.memory is MemoryEffect.NONE)
    return orders and not (e.holds or e.frees or e.resizes)


def _order(s: _Site) -> Edits:
    if not _orders(s.effects):
        return
    answers = [o for o in s.results if isinstance(o, Reg) and o.type == "pred"]
    if len(answers) == len(s.results):
        yes = " ".join(f"{s.guard}setp.eq.u32 {o.span.text}, 0, 0;" for o in answers)
        yield f"{s.ins.mnemonic} is missing", yes


def _bound(s: _Site) -> Edits:
    if s.effects.algebra is not Algebra.COMPARISON:
        return
    word = s.form["cmp"]
    if word in _SWAPPED:
        name = s.ins.mnemonic_span
        yield f"{word} becomes {_SWAPPED[word]}", s.but((name, name.text.replace(f".{word}", f".{_SWAPPED[word]}", 1)))
    for o in s.sources:
        if isinstance(o, Immediate) and o.literal == "int":
            yield f"{o.value} becomes {o.value + 1}", s.but((o.span, str(o.value + 1)))


def _mask(s: _Site) -> Edits:
    if s.ins.guard is None or s.effects.hints:
        return
    name = s.ins.guard[0].name
    if s.effects.memory is not MemoryEffect.NONE and s.effects.ends is Ends.NO:
        yield f"{s.ins.mnemonic} without the mask {name}", s.ins.span.text[len(s.guard) :]
    elif s.effects.ends in (Ends.EXIT, Ends.RETURN) or s.backward() is False:
        yield f"the branch of {name} is not taken", ""


def _tile(s: _Site) -> Edits:
    if s.ins.guard is not None and s.backward():
        yield "the loop does not go on", ""


def _operand(s: _Site) -> Edits:
    a, b = s.of("a-desc"), s.of("b-desc")
    if a is not None and b is not None and a.span.text != b.span.text:
        yield "the descriptors of A and B are swapped", s.swapped(a, b)
    if s.effects.multiplies or s.form.is_matrix or s.effects.stored is Stored.VALUES:
        for spec, vector in s.named:
            parts = vector.elements if isinstance(vector, VectorOperand) else ()
            other = next((o for o in parts[1:] if o.span.text != parts[0].span.text), None)
            if other is not None and spec.name != "c":
                yield f"{parts[0].span.text} and {other.span.text} of {spec.name} are swapped", s.swapped(parts[0], other)
    if s.effects.algebra in _ORDERED or s.effects.algebra is Algebra.FUSED:
        one, two = s.sources[:2] if s.effects.algebra is not Algebra.FUSED else s.sources[1:3]
        if one.span.text != two.span.text:
            yield f"{one.span.text} and {two.span.text} are swapped", s.swapped(one, two)


def _transposed(s: _Site) -> Edits:
    if not s.form.is_matrix:
        return
    for slot in (one.name for one in s.form.row.slots):
        word = s.form[slot]
        new = _SWAPPED.get(word) if word in ("row", "col") else "trans" if slot == "trans" and not word else None
        if new is not None or word == "trans":
            kept = tuple((name, w) for name, w in s.form.modifiers if name != slot)
            changed = Form(s.form.row, (*kept, (slot, new)) if new else kept)
            yield f"{slot} {word or 'plain'} becomes {new or 'plain'}", s.but((s.ins.mnemonic_span, changed.mnemonic))
    for name in ("imm-trans-a", "imm-trans-b"):
        o = s.of(name)
        if isinstance(o, Immediate):
            yield f"{name} {o.value} becomes {1 - o.value}", s.but((o.span, str(1 - o.value)))


def _scale(s: _Site) -> Edits:
    for o in s.sources if s.effects.algebra in _LINEAR else ():
        if isinstance(o, Immediate) and o.literal != "int" and o.number:
            size, code, prefix = _FLOATS[o.literal]
            bits = int.from_bytes(struct.pack(code, 2 * o.number), "little")
            yield f"{o.number:g} becomes {2 * o.number:g}", s.but((o.span, f"{prefix}{bits:0{2 * size}x}"))
    d = s.results[0] if s.results else None
    if s.effects.algebra is Algebra.PRODUCT and isinstance(d, Reg) and all(isinstance(o, Reg) for o in s.sources):
        one, two = s.sources[:2]
        words = f"{one.span.text} is not multiplied by {two.span.text}"
        yield words, f"{s.guard}mov.b{type_bits(d.type)} {d.span.text}, {one.span.text};"
    for name in ("imm-scale-a", "imm-scale-b"):
        sign = s.of(name)
        if isinstance(sign, Immediate):
            yield f"{name} {sign.value} becomes {-sign.value}", s.but((sign.span, str(-sign.value)))


def _type(s: _Site) -> Edits:
    fused = s.effects.algebra is Algebra.FUSED and s.form["type"] == "f32"
    if not fused and not (s.effects.multiplies and s.effects.queue is Queue.NONE and s.form["dtype"] == "f32"):
        return
    d = s.results[0]
    registers = d.elements if isinstance(d, VectorOperand) else (d,)
    rounded = (f"{s.guard}cvt.rn.f16.f32 {_OWN}, {o.span.text}; {s.guard}cvt.f32.f16 {o.span.text}, {_OWN};" for o in registers)
    yield "it adds up in f16", s.within(f".reg .b16 {_OWN};", s.ins.span.text, " ".join(rounded))


def _stale(s: _Site) -> Edits:
    e, c, switch = s.effects, s.of("c"), s.of("scale-d") or s.of("enable-input-d")
    if isinstance(switch, Reg):
        for word, answer in (("ne", "the accumulator is not added"), ("eq", "the accumulator is never zeroed")):
            own = f".reg .pred {_OWN}; setp.{word}.u32 {_OWN}, 0, 0;"
            yield answer, s.within(own, s.but((switch.span, _OWN)))
    elif isinstance(switch, Immediate):
        yield f"scale-d {switch.value} becomes {1 - switch.value}", s.but((switch.span, str(1 - switch.value)))
    elif e.multiplies and c is not None and any(registers_of(c)):
        yield "the accumulator is not added", _zeroed(s, c)
    elif e.algebra is Algebra.FUSED and isinstance(c, Reg) and s.form["type"] in _FLOATS:
        size, _, prefix = _FLOATS[s.form["type"]]
        yield f"{c.span.text} is not added", s.but((c.span, prefix + "0" * 2 * size))
    d = s.results[0] if s.results else None
    if e.algebra is Algebra.COPY and isinstance(d, Reg) and d.name in s.accumulators:
        for o in s.sources:
            if isinstance(o, Immediate) and o.number == 0:
                one = "0d3ff0000000000000" if type_bits(d.type) == 64 else "0f3f800000"
                yield f"{d.span.text} does not begin with 0", s.but((o.span, one))


def _zero(s: _Site) -> Edits:
    if s.effects.memory is MemoryEffect.WRITE and s.effects.stored in (Stored.VALUES, Stored.TILE):
        value = s.sources[1]
        if s.form["space"] in ("", "global") and any(registers_of(value)):
            yield f"{s.ins.mnemonic} stores 0", _zeroed(s, value)


def _zeroed(s: _Site, operand: Operand) -> str:
    """The statement with zeros in place of an operand's registers."""
    parts = operand.elements if isinstance(operand, VectorOperand) else (operand,)
    kind = next(o.type for o in parts if isinstance(o, Reg))
    names = [_OWN] * len(parts)
    new = "{" + ", ".join(names) + "}" if isinstance(operand, VectorOperand) else _OWN
    bits = type_bits(kind)
    zero = f"mov.b{bits} {_OWN}, 0;" if bits in (16, 32, 64) else f"mov.b128 {_OWN}, {{0, 0}};"
    return s.within(f".reg .{kind} {_OWN}; {zero}", s.but((operand.span, new)))


KINDS: dict[str, tuple[str, Callable[[_Site], Edits]]] = {
    "order": ("a barrier, a wait or a fence is missing", _order),
    "bound": ("a bound is off by one", _bound),
    "mask": ("a mask is missing", _mask),
    "operand": ("operands or registers of a fragment are swapped", _operand),
    "transposed": ("a matrix is transposed", _transposed),
    "scale": ("a scale is wrong or missing", _scale),
    "type": ("sums are kept in f16", _type),
    "stale": ("an accumulator is not zeroed, or not added", _stale),
    "tile": ("a loop ends early", _tile),
    "zero": ("an output is 0", _zero),
}


def mutants(functions: Iterable[Function]) -> list[Mutant]:
    """All mutants of a kernel, a kind after the other in turn, so that the first few are of many kinds and places.

    functions: the kernel and the functions that it reaches.
    """
    of_kinds: dict[str, list[Mutant]] = {kind: [] for kind in KINDS}
    for function in functions:
        sums = [i for i in function.instructions if i.effects.multiplies or i.effects.algebra in (Algebra.FUSED, Algebra.SUM)]
        accumulators = frozenset(name for i in sums for name in uses_and_defs(i)[0] & uses_and_defs(i)[1])
        for ins in function.instructions:
            site = _Site(function, ins, accumulators)
            for kind, (_, edits) in KINDS.items():
                of_kinds[kind] += (Mutant(kind, words, function.name, ins, new) for words, new in edits(site))
    turns = zip_longest(*map(_spread, of_kinds.values()))
    return [mutant for turn in turns for mutant in turn if mutant is not None]


def without_order(functions: Iterable[Function]) -> list[Mutant]:
    """A mutant for each barrier, fence, wait and commit of a kernel, in the order of the text. A barrier that also gives a value
    (bar.red) is not changed.
    """
    found: list[Mutant] = []
    for function in functions:
        for ins in filter(lambda ins: _orders(ins.effects), function.instructions):
            site = _Site(function, ins, frozenset())
            asks = ins.effects.ends is Ends.WAIT or not site.results
            edits = _order(site) if asks else [(f"{ins.mnemonic} is missing", ins.span.text)]
            found += (Mutant("order", words, function.name, ins, new) for words, new in edits)
    return sorted(found, key=lambda m: m.instruction.span.start)


def _spread(found: Sequence[Mutant]) -> list[Mutant]:
    """Mutants in another order: of each line of the program one, then a second of each; without lines, from places far apart."""
    seen = Counter[str]()
    turn = {}
    for mutant in found:
        line = mutant.source_line if mutant.instruction.span.location else ""
        turn[mutant] = seen[line] if line else seen[line] % max(1, len(found) // 4)
        seen[line] += 1
    return sorted(found, key=turn.__getitem__)


def useless(functions: Iterable[Function], ins: Instruction) -> bool:
    """Whether nothing that a kernel does depends on an instruction: it computes, and what it computes reaches no other
    instruction that does more. Order and branches are not looked at, so True is proved, and False is not.
    """
    function = next(f for f in functions if ins in f.instructions)
    if not ins.effects.still:
        return False
    reached, waiting = set[str](), list(uses_and_defs(ins)[1])
    while waiting:
        reached.add(name := waiting.pop())
        for other in function.instructions:
            uses, defs = uses_and_defs(other)
            if name in uses:
                if not other.effects.still:
                    return False
                waiting += defs - reached
    return True
