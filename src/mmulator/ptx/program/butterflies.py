"""Sums that a butterfly of shuffles computes: the lanes of a warp that hold one sum, up to rounding.

Each lane adds its partner's value to its own, where the partner's number differs in one bit. After one step both hold one sum,
and after five steps all 32 lanes. If the added value is a product, compilers fuse it with the first step (Triton 3.8 does):
each lane rounds its partner's product but not its own, so the sums of partners may differ in the last bit.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence

from mmulator.isa.effects import Algebra, Flow, MemoryEffect, Together
from mmulator.ptx.program.uses import registers_of, uses_and_defs
from mmulator.ptx.tree import Address, Immediate, Instruction, Operand, Reg, VectorOperand

ALL = 31  # the bits of a lane's number
_MOVES = Algebra.COPY, Algebra.CONVERSION


def _written(operand: Operand) -> str:
    """An operand as text, without its place in the source."""
    match operand:
        case Reg(name=name):
            return name
        case Immediate(value=value, literal=literal):
            return f"{literal} {value}"
    return str(operand)


class _Sums:
    """The sums of a kernel.

    defined: register -> the only instruction that writes it.
    places: register -> places where it is written.
    alike: register -> mask of the bits of lane numbers in which lanes that hold one value may differ.
    """

    def __init__(self, sites: Sequence[Instruction]) -> None:
        written = [uses_and_defs(ins)[1] for ins in sites]
        count = Counter(name for names in written for name in names)
        self.places: dict[str, list[int]] = defaultdict(list)
        self.defined: dict[str, tuple[int, Instruction]] = {}
        for n, (ins, names) in enumerate(zip(sites, written)):
            for name in names:
                self.places[name].append(n)
                if count[name] == 1 and ins.guard is None:
                    self.defined[name] = n, ins.original if uses_and_defs(ins.original)[1] == names else ins
        self.alike: dict[str, int] = {}
        for name in self.defined:
            self.alike[name] = self._alike(name)

    def of(self, operand: Operand) -> int:
        found = ALL if isinstance(operand, Immediate | Reg | VectorOperand) else 0
        for name in registers_of(operand):
            found &= self.alike.get(name, 0)
        return found

    def _alike(self, name: str) -> int:
        n, ins = self.defined[name]
        effects = ins.effects
        if effects.together is not Together.ALONE or effects.memory is not MemoryEffect.NONE or not effects.pure or effects.carry:
            return 0
        _, *given = ins.operands
        if not given or not all(isinstance(o, Reg | Immediate | VectorOperand) for o in given):
            return 0
        found = ALL
        for o in given:
            found &= self.of(o)
        for mine, other in self._added(n, ins):
            step = self._partner(other)
            if step is not None and step[0] == mine:
                found |= step[1]
        return found

    def _added(self, n: int, ins: Instruction) -> list[tuple[Hashable, Operand]]:
        """The two summands in both orders: one as a term, the other as an operand."""
        _, *given = ins.operands
        if ins.effects.algebra is Algebra.FUSED:
            return [(self._product(n, given[0], given[1]), given[2])]
        if ins.effects.algebra is Algebra.SUM:
            return [(self._term(given[0]), given[1]), (self._term(given[1]), given[0])]
        return []

    def _partner(self, operand: Operand) -> tuple[Hashable, int] | None:
        """(term that the lane's partner has for a value, mask of the bits in which the two lanes may differ); None if the value
        is not from a partner. Values of 64 bits come in halves.
        """
        place = self._through(operand)
        if place is None:
            return None
        halves: tuple[Operand, ...] = (operand,)
        if place[1].effects.algebra in _MOVES and isinstance(place[1].operands[1], VectorOperand):
            halves = place[1].operands[1].elements
        found = [half for half in map(self._shuffled, halves) if half is not None]
        same = {(term, alike) for term, _, alike in found}
        return same.pop() if [part for _, part, _ in found] == [*range(len(halves))] and len(same) == 1 else None

    def _through(self, operand: Operand) -> tuple[int, Instruction] | None:
        """(place, instruction) that computed a value, skipping moves and conversions."""
        while True:
            place = self.defined.get(operand.name) if isinstance(operand, Reg) else None
            if place is None or place[1].effects.algebra not in _MOVES or not isinstance(place[1].operands[1], Reg):
                return place
            if not isinstance(place[1].operands[0], Reg):
                return place
            operand = place[1].operands[1]

    def _shuffled(self, operand: Operand) -> tuple[Hashable, int, int] | None:
        """(term of a value from the lane's partner, which part of it, mask of the bits in which the lanes may differ); None if
        the value is not shuffled.
        """
        place = self._through(operand)
        if place is None or place[1].effects.flow is not Flow.LANES or place[1].form["mode"] != "bfly":
            return None
        d, a, *numbers = place[1].operands
        bits = [o.bits("b32") if isinstance(o, Immediate) else None for o in numbers]
        if not isinstance(d, Reg) or bits[0] is None or bits[1:] != [31, 0xFFFFFFFF]:
            return None
        part = 0
        source = self.defined.get(a.name) if isinstance(a, Reg) else None
        if source is not None and isinstance(source[1].operands[0], VectorOperand) and source[1].effects.algebra in _MOVES:
            part = [*registers_of(source[1].operands[0])].index(_written(a))
            a = source[1].operands[1]
        return self._term(a), part, self.of(a) | bits[0] & ALL

    def _term(self, operand: Operand) -> Hashable:
        """A key that is equal for values that are equal up to rounding."""
        place = self._through(operand)
        if place is not None and place[1].effects.algebra is Algebra.PRODUCT:
            return self._product(place[0], *place[1].operands[1:3])
        return _written(operand if place is None else place[1].operands[0])

    def _product(self, n: int, a: Operand, b: Operand) -> Hashable:
        """The key of a product: two factors with the values that they have at a site."""
        return "*", *sorted((_written(o), sum(bisect_left(self.places[name], n) for name in registers_of(o))) for o in (a, b))


def stored_sums(sites: Sequence[Instruction]) -> list[int]:
    """For each site that stores registers, the mask of bits in which lanes that store one sum may differ. Takes linear time."""
    if not any(ins.effects.flow is Flow.LANES and ins.form["mode"] == "bfly" for ins in sites):
        return [0] * len(sites)
    sums = _Sums(sites)
    found = []
    for ins in sites:
        values = [o for o in ins.operands if not isinstance(o, Address)]
        alike = ALL if ins.effects.memory is MemoryEffect.WRITE and values else 0
        for value in values:
            alike &= sums.of(value)
        found.append(alike)
    return found
