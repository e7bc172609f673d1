"""Facts about a function's registers: the statements that write them, constants, and statements without effect; and a walk that
finds the product which each register holds where a sum reads it, and the other readers of products.
"""

from collections import Counter, defaultdict
from dataclasses import replace

from mmulator.base.errors import must_be
from mmulator.isa.effects import Algebra, MemoryEffect
from mmulator.isa.form import Form
from mmulator.ptx.program.as_ptxas.products import (
    POWERS,
    TYPES,
    HeldProduct,
    Multiplication,
    form_of,
    is_copy,
    is_negation,
    is_product,
    is_sum,
    may_scale,
)
from mmulator.ptx.program.as_ptxas.quotient import scales
from mmulator.ptx.program.as_ptxas.regions import CodeRegions, regions_of
from mmulator.ptx.program.blocks import blocks_from
from mmulator.ptx.program.flow import live_out, solve
from mmulator.ptx.tree import Address, Function, Immediate, Instruction, Operand, Reg, Symbol

_COPIES = (Algebra.COPY, Algebra.NEGATION, Algebra.MAGNITUDE)


class FunctionFacts:
    """Facts about a function: the contents of its registers and, after a walk, the products that its
    sums read.
    """

    def __init__(self, function: Function) -> None:
        self.fn = function
        self.regions: CodeRegions = regions_of(function)
        self.definitions = {name: dict.fromkeys(where) for name, where in self.regions.definitions.items()}
        self.dead = self._dead()
        if self.dead & self.regions.cuts:
            self.regions = regions_of(function, self.dead)
        self.constants = self._constants()
        self.resident = self._resident()
        self.order = sorted((place, n) for n, place in self.regions.place.items() if n not in self.dead)
        self.sums: dict[int, tuple[HeldProduct | None, HeldProduct | None]] = {}
        self.scalings: dict[int, tuple[Multiplication, int]] = {}  # a product by a power of two -> the product that it scales

    def instruction(self, n: int) -> Instruction:
        return must_be(self.fn.body[n], Instruction)

    def only(self, name: str) -> int | None:
        """The only statement that writes a register, without a guard; None if there are several or it is guarded."""
        where = self.definitions.get(name, ())
        return next(iter(where)) if len(where) == 1 and self.regions.guarded.isdisjoint(where) else None

    def _dead(self) -> set[int]:
        """Statements without effect: not reached, or writing only registers that nothing reads."""
        accesses = self.regions.accesses
        dead = {n for n in accesses if n not in self.regions.place}
        count: Counter[str] = Counter()
        for n, (reads, writes) in accesses.items():
            if n in dead:
                for name in writes:
                    del self.definitions[name][n]
            else:
                count.update(reads)

        def removable(n: int) -> bool:
            ins, (reads, writes) = self.instruction(n), accesses[n]
            return (
                n not in dead and bool(writes) and ins.effects.pure
                and all(count[name] <= (name in reads) for name in writes)  # its own: of a guarded write, what it may leave
            )  # fmt: skip

        waiting = [n for n in accesses if removable(n)]
        while waiting:
            n = waiting.pop()
            if n in dead:
                continue
            dead.add(n)
            reads, writes = accesses[n]
            for name in writes:
                del self.definitions[name][n]
            count.subtract(reads)
            waiting += [m for name in reads if count[name] <= 1 for m in self.definitions.get(name, ()) if removable(m)]
        return dead

    def _constants(self) -> dict[str, Immediate]:
        """Registers that only ever hold one constant."""
        found = {}
        for name in self.definitions:
            n = self.only(name)
            ins = None if n is None else self.instruction(n)
            if ins is not None and ins.effects.algebra is Algebra.COPY and isinstance(ins.operands[1], Immediate):
                found[name] = ins.operands[1]
        return found

    def _resident(self) -> set[str]:
        """Registers whose value an instruction can read in the constant bank: constants, kernel parameters, .const."""
        found = set(self.constants)
        copies: dict[str, list[str]] = defaultdict(list)
        for name in self.definitions:
            n = self.only(name)
            ins = None if n is None else self.instruction(n)
            if ins is None or len(ins.operands) < 2:
                continue
            source = ins.operands[1]
            if isinstance(source, Address):
                if isinstance(source.base, Symbol) and self._is_resident(ins):
                    found.add(name)
            elif isinstance(source, Reg) and (form := form_of(ins, *_COPIES)) is not None and not form["ftz"]:
                copies[source.name].append(name)
        return blocks_from(found, lambda name: copies.get(name, ()))

    def _is_resident(self, load: Instruction) -> bool:
        reads = load.effects.memory is MemoryEffect.READ and not load.form.is_matrix
        space = load.form["space"].partition("::")[0] if reads else ""
        return space == "const" or (space == "param" and self.fn.is_entry)

    def constant(self, operand: Operand, type_name: str) -> int | None:
        """Bits of a constant operand."""
        if isinstance(operand, Reg):
            operand = self.constants.get(operand.name, operand)
        return operand.bits(type_name) if isinstance(operand, Immediate) else None

    def is_resident(self, operand: Operand) -> bool:
        return isinstance(operand, Immediate) or (isinstance(operand, Reg) and operand.name in self.resident)


# the product in a register --------------------------------------------------------------------------------------------
_CARRIES_PRODUCT = (Algebra.NEGATION, Algebra.MAGNITUDE, Algebra.PRODUCT, Algebra.QUOTIENT, Algebra.RECIPROCAL)
_SEVERAL = -1  # in place of a definition: it depends on the way there


def carries_product(ins: Instruction) -> bool:
    """Whether the result of an instruction may be a product, or a product that it reads, as `Walk` has it."""
    return is_copy(ins) or form_of(ins, *_CARRIES_PRODUCT) is not None


class Walk:
    """One walk over the instructions that finds which definition each register holds where it is read.

    Where several definitions of a register meet, none is used, and products among them count as read otherwise.
    """

    def __init__(self, facts: FunctionFacts) -> None:
        self.f = facts
        self.held: dict[int, HeldProduct | None] = {}  # by the statement that wrote the register
        self.early: set[int] = set()  # read before they were walked over: round a loop
        self.current: dict[str, int] = {}

    def run(self) -> None:
        f = self.f
        entry, meetings = self._reaching()
        region = -1
        for (here, _), n in f.order:
            if here != region:
                region = here
                self.current = dict(entry.get(here, ()))
            self._step(n, f.instruction(n))
        for definition in meetings:
            self._block(definition)

    def _definition(self, name: str) -> int | None:
        """The statement whose value a register holds at this point; None if there are several."""
        only = self.f.only(name)
        definition = self.current.get(name) if only is None else only
        if definition is not None and definition not in self.held:
            self.early.add(definition)
        return definition

    def _value(self, operand: Operand) -> HeldProduct | None:
        definition = self._definition(operand.name) if isinstance(operand, Reg) else None
        return None if definition is None else self.held.get(definition)

    def _block(self, definition: int | None) -> None:
        held = None if definition is None else self.held.get(definition)
        if held is not None:
            if held.behind:
                held.product.through += 1
            else:
                held.product.readers += 1

    def _step(self, n: int, ins: Instruction) -> None:
        reads, writes = self.f.regions.accesses[n]
        guarded = n in self.f.regions.guarded
        held = None
        if is_sum(ins):
            self._sum(n, ins)
        else:
            held = None if guarded else self._result(n, ins)
            if may_scale(ins):
                self._scaling(n, ins)
            if held is None or held.product.at == n:  # no copy
                for name in reads.intersection([o.name for o in ins.leaves if isinstance(o, Reg)]):
                    self._block(self._definition(name))
        for name in writes:
            if guarded:  # what it may leave is read, too
                self._block(self._definition(name))
            self.current[name] = n
        self.held[n] = held
        if n in self.early:
            self._block(n)

    def _sum(self, n: int, ins: Instruction) -> None:
        first, second = (self._value(o) for o in ins.operands[1:3])
        if ins.effects.algebra is Algebra.DIFFERENCE and second is not None and second.behind:
            # the sum that ptxas makes of it, subtracted
            second.product.through += 1
            second = None
        self.f.sums[n] = first, second
        for j, held in enumerate((first, second)):
            if held is not None:
                held.product.uses.append((n, j, held.negated))
                held.product.direct += not held.behind

    def _scaling(self, n: int, ins: Instruction) -> None:
        """Record a product by a power of two whose other factor is a product."""
        for factor, other in (ins.operands[1:], ins.operands[:0:-1]):
            power, held = self.f.constant(factor, "f32"), self._value(other)
            if power is None or power not in POWERS or held is None or held.negated or held.product.type != "f32":
                continue
            self.f.scalings[n] = held.product, power

    def _result(self, n: int, ins: Instruction) -> HeldProduct | None:
        """The product that an instruction writes to its register, directly or as a copy; None for any other result."""
        if is_copy(ins):
            return self._value(ins.operands[1])
        form = form_of(ins, *_CARRIES_PRODUCT)
        algebra = ins.effects.algebra
        if form is not None and algebra is Algebra.MAGNITUDE:
            return self._square(_copied(self._value(ins.operands[1]), form, False))
        if form is None or not (is_negation(ins) or is_product(ins)):
            return None
        if algebra is Algebra.NEGATION:
            return _copied(self._value(ins.operands[1]), form, True)
        f, kind, factors = self.f, form["type"], ins.operands[1:]
        if algebra is not Algebra.PRODUCT:
            resident = algebra is Algebra.QUOTIENT and not any(scales(form)) and f.is_resident(factors[0])
            return HeldProduct(Multiplication(n, kind, bool(form["ftz"]), resident), False)
        constants = [f.constant(o, kind) for o in factors]
        if None not in constants:
            return None  # computed beforehand
        one, sign = TYPES[kind]
        for constant, other in zip(constants, reversed(factors)):
            if constant in (one, one ^ sign):  # times 1 or -1: a copy
                return _copied(self._value(other), form, constant != one)
        return HeldProduct(Multiplication(n, kind, bool(form["ftz"]), any(map(f.is_resident, factors))), False)

    def _square(self, held: HeldProduct | None) -> HeldProduct | None:
        """The magnitude of a product: a square itself; None for other products."""
        mul = None if held is None else self.f.instruction(held.product.at)
        if held is None or mul is None or mul.effects.algebra is not Algebra.PRODUCT or not isinstance(mul.operands[1], Reg):
            return None
        return (
            HeldProduct(held.product, False) if mul.operands[1] == replace(mul.operands[2], span=mul.operands[1].span) else None
        )

    def _reaching(self) -> tuple[dict[int, dict[str, int]], set[int]]:
        """For registers with several definitions: (the definition that reaches the start of each region, if it is the only one;
        the definitions that meet others before a read).
        """
        f = self.f
        accesses, successors = f.regions.accesses, f.regions.successors
        names = {
            name for _, n in f.order for name in accesses[n][1]
            if f.only(name) is None and any(is_(f.instruction(n)) for is_ in (is_product, is_copy, is_negation))
        }  # fmt: skip
        if not names:
            return {}, set()
        reads: dict[int, set[str]] = defaultdict(set)
        last: dict[int, dict[str, int]] = defaultdict(dict)
        for (region, _), n in f.order:
            reads[region] |= (accesses[n][0] & names).difference(last[region])
            for name in accesses[n][1] & names:
                last[region][name] = n
        order = sorted({place[0] for place, _ in f.order} | set(successors))
        ways = {r: sorted(successors.get(r, ())) for r in order}
        out = live_out(ways, reads, {r: last[r].keys() for r in order})

        def leaves(r: int, into: dict[str, int]) -> dict[str, int]:
            return {name: n for name, n in {**into, **last[r]}.items() if name in out[r]}

        def meet(a: dict[str, int], b: dict[str, int]) -> dict[str, int]:
            return {**a, **b, **{name: _SEVERAL for name in a.keys() & b.keys() if a[name] != b[name]}}

        nothing: dict[str, int] = {}
        found = solve(dict.fromkeys(reversed(order), nothing), ways.__getitem__, leaves, meet)
        live = {r: reads[r] | (out[r] - last[r].keys()) for r in order}
        entry = {r: {name: n for name, n in into.items() if name in live[r]} for r, into in found.items()}
        meetings = {
            n for r in order for s in ways[r] for name, n in leaves(r, entry[r]).items() if entry[s].get(name) == _SEVERAL
        }
        return entry, meetings


def _copied(held: HeldProduct | None, form: Form, negate: bool) -> HeldProduct | None:
    """The product behind a copy or a change of sign, or None. .ftz does not change a product that is already flushed."""
    if held is None or held.behind or held.product.type != form["type"] or (form["ftz"] and not held.product.ftz):
        return None
    return HeldProduct(held.product, held.negated != negate, bool(form["ftz"]))
