"""Products and sums without a rounding modifier, fused where NVIDIA's assembler fuses them.

Floating-Point Instructions: mul, add, sub (PTX ISA 9.1): mul/add sequences with no rounding modifiers may be optimized
to use fused-multiply-add instructions on the target device. ptxas does so, and a kernel's bits depend on where. Its
rule was found by experiment; docs/contraction.md states it and says how it is checked.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from mmulator.isa.scalar import ScalarForm, match
from mmulator.machine.program import registers_of
from mmulator.machine.regions import Regions, regions_of
from mmulator.ptx.tree import Address, Function, Immediate, Instruction, Operand, Reg, Statement, Symbol

# type -> (bits of 1.0, sign bits)
_TYPES: Mapping[str, tuple[int, int]] = {
    "f32": (0x3F800000, 1 << 31), "f64": (0x3FF << 52, 1 << 63), "f16": (0x3C00, 1 << 15), "bf16": (0x3F80, 1 << 15),
    "f16x2": (0x3C003C00, 0x80008000), "bf16x2": (0x3F803F80, 0x80008000),
    "f32x2": (0x3F8000003F800000, 0x8000000080000000),
}  # fmt: skip
_PURE = {
    "abs", "add", "and", "bfe", "bfi", "bfind", "brev", "clz", "cnot", "copysign", "cos", "cvt", "cvta", "div", "ex2",
    "fma", "ld", "lg2", "lop3", "mad", "max", "min", "mov", "mul", "neg", "not", "or", "popc", "prmt", "rcp", "rem",
    "rsqrt", "selp", "set", "setp", "shf", "shl", "shr", "sin", "slct", "sqrt", "sub", "tanh", "testp", "xor",
}  # fmt: skip


@dataclass(eq=False, slots=True)
class _Product:
    """A mul, and what reads it. resident: a factor can be read from the constant bank.

    uses: (sum, its operand 0 or 1, read with its sign changed). blocked: something that is no sum reads it.
    """

    at: int
    type: str
    ftz: bool
    resident: bool
    uses: list[tuple[int, int, bool]] = field(default_factory=list)
    blocked: bool = False


@dataclass(frozen=True, slots=True)
class _Held:
    """What a register holds: a product, perhaps with its sign changed."""

    product: _Product
    negated: bool


def contract(function: Function) -> Function:
    """The function with each `add` or `sub` that ptxas fuses replaced by `fma.rn` of the same `.ftz` and `.sat`.

    The `mul` stays; where nothing reads it any more, compilation drops it. New registers have names that PTX cannot
    write. Pure, and linear in the size of the function.
    """
    instructions = [s for s in function.body if isinstance(s, Instruction)]
    if not any(map(_is_sum, instructions)) or not any(map(_is_product, instructions)):
        return function
    finder = _Finder(function)
    fused = finder.choose()
    return _Rewriter(finder, fused).function() if fused else function


def _form(ins: Instruction, *names: str) -> ScalarForm | None:
    form = ins.form
    return form if isinstance(form, ScalarForm) and form.name in names and not form.unsupported else None


def _is_sum(ins: Instruction) -> bool:
    form = _form(ins, "add", "sub")
    mixed = form is not None and form["atype"]  # add.f32.f16, which stays an addition of its own
    return form is not None and form["type"] in _TYPES and not form["rnd"] and not mixed and isinstance(ins.operands[0], Reg)


def _is_product(ins: Instruction) -> bool:
    form = _form(ins, "mul")
    return (
        form is not None and form["type"] in _TYPES and not form["rnd"] and not form["sat"]
        and isinstance(ins.operands[0], Reg)
    )  # fmt: skip


def _is_negation(ins: Instruction) -> bool:
    """A neg that folds into its reader; .ftz makes it arithmetic, and there is none for pairs of bf16."""
    form = _form(ins, "neg")
    return form is not None and form["type"] in _TYPES and not form["ftz"] and form["type"] != "bf16x2"


def _is_copy(ins: Instruction) -> bool:
    return _form(ins, "mov") is not None and isinstance(ins.operands[0], Reg) and isinstance(ins.operands[1], Reg)


class _Finder:
    """Who reads which product, and which of its two operands a sum takes."""

    def __init__(self, function: Function) -> None:
        self.fn = function
        self.regions: Regions = regions_of(function)
        self.definitions = {name: list(where) for name, where in self.regions.definitions.items()}
        self.dead = self._dead()
        self.constants = self._constants()
        self.resident = self._resident()
        self.order = sorted((place, n) for n, place in self.regions.place.items() if n not in self.dead)
        self.sums: dict[int, tuple[_Held | None, _Held | None]] = {}
        _Walk(self).run()

    def instruction(self, n: int) -> Instruction:
        ins = self.fn.body[n]
        assert isinstance(ins, Instruction)
        return ins

    def only(self, name: str) -> int | None:
        """The one statement that writes a register, unguarded; None if there is no such."""
        where = self.definitions.get(name, ())
        return where[0] if len(where) == 1 and where[0] not in self.regions.guarded else None

    def _dead(self) -> set[int]:
        """Statements that act on nothing: not reached, or without effect but for registers that nothing reads."""
        accesses = self.regions.accesses
        dead = {n for n in accesses if n not in self.regions.place}
        count: Counter[str] = Counter()
        for n, (reads, writes) in accesses.items():
            if n in dead:
                for name in writes:
                    self.definitions[name].remove(n)
            else:
                count.update(reads)

        def removable(n: int) -> bool:
            ins, writes = self.instruction(n), accesses[n][1]
            own = ins.guard is not None  # a guarded write counts as a read of what it may leave
            return (
                n not in dead and bool(writes) and ins.opcode in _PURE and not {"cc", "volatile"} & set(ins.modifiers)
                and all(count[name] <= own for name in writes)
            )  # fmt: skip

        waiting = [n for n in accesses if removable(n)]
        while waiting:
            n = waiting.pop()
            if n in dead:
                continue
            dead.add(n)
            reads, writes = accesses[n]
            for name in writes:
                self.definitions[name].remove(n)
            count.subtract(reads)
            waiting += [m for name in reads if count[name] <= 1 for m in self.definitions.get(name, ()) if removable(m)]
        return dead

    def _constants(self) -> dict[str, Immediate]:
        """Registers that only ever hold one constant."""
        found = {}
        for name in self.definitions:
            n = self.only(name)
            ins = None if n is None else self.instruction(n)
            if ins is not None and _form(ins, "mov") and isinstance(ins.operands[1], Immediate):
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
            if _form(ins, "ld") and isinstance(source, Address) and isinstance(source.base, Symbol):
                spaces = {m.partition("::")[0] for m in ins.modifiers}
                if "const" in spaces or ("param" in spaces and self.fn.is_entry):
                    found.add(name)
            elif isinstance(source, Reg) and (_form(ins, "mov", "neg", "abs") and "ftz" not in ins.modifiers):
                copies[source.name].append(name)
        waiting = list(found)
        while waiting:
            for name in copies.pop(waiting.pop(), ()):
                found.add(name)
                waiting.append(name)
        return found

    def constant(self, operand: Operand, type_name: str) -> int | None:
        """Bits of a constant operand."""
        if isinstance(operand, Reg):
            operand = self.constants.get(operand.name, operand)
        return operand.bits(type_name) if isinstance(operand, Immediate) else None

    def is_resident(self, operand: Operand) -> bool:
        return isinstance(operand, Immediate) or (isinstance(operand, Reg) and operand.name in self.resident)

    # choice ---------------------------------------------------------------------------------------------------------
    def choose(self) -> dict[int, int]:
        """Sum -> the operand (0 or 1) whose product it takes.

        First products that are read once, then the others; a sum of two products takes the one read less often, then
        the first. A product is given up once a sum has taken its other operand, which leaves this one to be added.
        """
        fused: dict[int, int] = {}
        sums = [n for _, n in self.order if n in self.sums]
        alike = {n for n in sums if self._alike(n)}

        def free(held: _Held | None) -> bool:
            return (
                held is not None
                and not held.product.blocked
                and all(fused.get(n, j) == j and self._matches(n, held.product) for n, j, _ in held.product.uses)
                and not any(n in alike for n, _, _ in held.product.uses)
            )

        for once in (True, False):
            for n in sums:
                if n in fused:
                    continue
                choice = [
                    (len(held.product.uses), j)
                    for j, held in enumerate(self.sums[n])
                    if held is not None and (len(held.product.uses) == 1 or not once) and free(held)
                ]
                if choice:
                    fused[n] = min(choice)[1]
        return fused

    def _matches(self, n: int, product: _Product) -> bool:
        """Can this sum be one instruction with that product? In another region if that needs no more registers."""
        form = self.instruction(n).form
        assert isinstance(form, ScalarForm)
        here, there = self.regions.place[n], self.regions.place[product.at]
        near = here[0] == there[0] and there < here
        return (
            form["type"] == product.type and bool(form["ftz"]) == product.ftz
            and (near or (product.resident and here[0] != there[0]))
        )  # fmt: skip

    def _alike(self, n: int) -> bool:
        """x + x of one product, or of two with the same factors, is not fused."""
        first, second = self.sums[n]
        if first is None or second is None:
            return False
        if first.product is second.product:
            return True
        pair = first.product, second.product
        if self.instruction(n).opcode != "add" or first.negated != second.negated:
            return False
        return min(len(p.uses) for p in pair) == 1 and self._factors(pair[0]) == self._factors(pair[1])

    def _factors(self, product: _Product) -> list[str]:
        ins = self.instruction(product.at)
        return sorted(o.name if isinstance(o, Reg) else str(self.constant(o, product.type)) for o in ins.operands[1:])


class _Walk:
    """One walk over the instructions: which definition each register holds where it is read, and what that computed.

    Where definitions of a register meet, none is known, and products among them count as read by something else.
    """

    def __init__(self, finder: _Finder) -> None:
        self.f = finder
        self.held: dict[int, _Held | None] = {}  # by the statement that wrote the register
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
        """The statement whose value a register holds here."""
        only = self.f.only(name)
        definition = self.current.get(name) if only is None else only
        if definition is not None and definition not in self.held:
            self.early.add(definition)
        return definition

    def _value(self, operand: Operand) -> _Held | None:
        definition = self._definition(operand.name) if isinstance(operand, Reg) else None
        return None if definition is None else self.held.get(definition)

    def _block(self, definition: int | None) -> None:
        held = None if definition is None else self.held.get(definition)
        if held is not None:
            held.product.blocked = True

    def _step(self, n: int, ins: Instruction) -> None:
        reads, writes = self.f.regions.accesses[n]
        guarded = n in self.f.regions.guarded
        held = None
        if _is_sum(ins):
            self._sum(n, ins)
        else:
            held = None if guarded else self._result(n, ins)
            if held is None or held.product.at == n:  # no copy
                for name in {r for o in ins.operands for r in registers_of(o)} & reads:
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
        self.f.sums[n] = first, second
        for j, held in enumerate((first, second)):
            if held is not None:
                held.product.uses.append((n, j, held.negated))

    def _result(self, n: int, ins: Instruction) -> _Held | None:
        """What an instruction puts into its register: a product, a copy of one, or neither (None)."""
        if _is_copy(ins):
            return self._value(ins.operands[1])
        form = _form(ins, "neg", "mul")
        if form is None or not (_is_negation(ins) or _is_product(ins)):
            return None
        if form.name == "neg":
            return _copied(self._value(ins.operands[1]), form["type"], True)
        f, kind, factors = self.f, form["type"], ins.operands[1:3]
        constants = [f.constant(o, kind) for o in factors]
        if None not in constants:
            return None  # computed beforehand
        one, sign = _TYPES[kind]
        for constant, other in zip(constants, reversed(factors)):
            if constant in (one, one ^ sign) and not form["ftz"]:  # times 1 or -1: a copy
                return _copied(self._value(other), kind, constant != one)
        return _Held(_Product(n, kind, bool(form["ftz"]), any(map(f.is_resident, factors))), False)

    def _reaching(self) -> tuple[dict[int, dict[str, int]], set[int]]:
        """For registers with several definitions: which one reaches the start of each region, if it is one alone; and
        the definitions that meet others where the register is read afterwards."""
        f = self.f
        accesses, successors = f.regions.accesses, f.regions.successors
        holders = (n for _, n in f.order if any(is_(f.instruction(n)) for is_ in (_is_product, _is_copy, _is_negation)))
        names = {name for n in holders for name in accesses[n][1] if f.only(name) is None}
        if not names:
            return {}, set()
        reads: dict[int, set[str]] = defaultdict(set)
        last: dict[int, dict[str, int]] = defaultdict(dict)
        for (region, _), n in f.order:
            reads[region] |= (accesses[n][0] & names).difference(last[region])
            for name in accesses[n][1] & names:
                last[region][name] = n
        order = sorted({place[0] for place, _ in f.order} | set(successors))
        live: dict[int, set[str]] = {r: set(reads[r]) for r in order}
        leaves: dict[int, dict[str, int]] = {r: dict(last[r]) for r in order}
        entry: dict[int, dict[str, int]] = {r: {} for r in order}
        changed = True
        while changed:
            changed = False
            for r in reversed(order):
                into = set().union(*(live[s] for s in successors.get(r, ()))).difference(last[r])
                changed |= not into <= live[r]
                live[r] |= into
        waiting = list(order)
        while waiting:
            r = waiting.pop()
            for s in successors.get(r, ()):
                for name, definition in leaves[r].items():
                    if name in live[s] and entry[s].get(name) not in (definition, _SEVERAL):
                        meets = name in entry[s]
                        entry[s][name] = _SEVERAL if meets else definition
                        if name not in last[s]:
                            leaves[s][name] = entry[s][name]
                            waiting.append(s)
        meetings = {
            leaves[r][name]
            for r in order
            for s in successors.get(r, ())
            for name, definition in entry[s].items()
            if definition == _SEVERAL and name in leaves[r]
        }
        return entry, meetings


_SEVERAL = -1  # in place of a definition: it depends on the way there


def _copied(held: _Held | None, kind: str, negate: bool) -> _Held | None:
    return _Held(held.product, held.negated != negate) if held is not None and held.product.type == kind else None


class _Rewriter:
    """The body with sums fused."""

    def __init__(self, finder: _Finder, fused: Mapping[int, int]) -> None:
        self.f, self.fused = finder, fused
        self.registers = dict(finder.fn.registers)
        self.before: dict[int, list[Statement]] = defaultdict(list)
        self.replaced: dict[int, Instruction] = {}
        self.copies: dict[tuple[int, int], Reg] = {}

    def function(self) -> Function:
        for n, j in self.fused.items():
            self._fuse(n, j)
        body: list[Statement] = []
        for n, statement in enumerate(self.f.fn.body):
            body += self.before.get(n, ())
            body.append(self.replaced.get(n, statement))
        return replace(self.f.fn, body=tuple(body), registers=self.registers)

    def _fuse(self, n: int, j: int) -> None:
        ins = self.f.instruction(n)
        held = self.f.sums[n][j]
        assert held is not None and isinstance(ins.form, ScalarForm)
        product = held.product
        kind = product.type
        a, b = (self._factor(product, number, n) for number in (0, 1))
        c = ins.operands[2 - j]
        negated = held.negated
        if ins.opcode == "sub":
            if j == 0:
                c = self._negated(c, kind, n, ins)
            else:
                negated = not negated
        if negated:
            if isinstance(a, Reg) and isinstance(b, Immediate):
                a, b = b, a
            a = self._negated(a, kind, n, ins)
        modifiers = ("rn", *(m for m in ("ftz", "sat") if ins.form[m]), kind)
        self.replaced[n] = _instruction(ins, "fma", modifiers, (ins.operands[0], a, b, c), ins.guard)

    def _factor(self, product: _Product, number: int, n: int) -> Operand:
        """A factor of the product as an operand of statement n: its register, or a copy if that may have changed."""
        mul = self.f.instruction(product.at)
        operand = mul.operands[1 + number]
        if not isinstance(operand, Reg) or not self._changes(operand.name, product.at, n):
            return operand
        key = product.at, number
        if key not in self.copies:
            copy = self.copies[key] = self._fresh(operand.type, operand)
            size = {"f32": "b32", "f64": "b64"}.get(product.type, "b32" if product.type.endswith("x2") else "b16")
            self.before[product.at].append(_instruction(mul, "mov", (size,), (copy, operand), None))
        return self.copies[key]

    def _changes(self, name: str, start: int, end: int) -> bool:
        place = self.f.regions.place
        if place[start][0] != place[end][0]:
            return True
        places = [place[m] for m in self.f.definitions.get(name, ())]
        return any(place[start] <= p < place[end] for p in places)

    def _negated(self, operand: Operand, kind: str, n: int, ins: Instruction) -> Operand:
        """The operand with its sign changed; a register's in a new register, written before statement n."""
        sign = _TYPES[kind][1]
        if isinstance(operand, Immediate):
            literal = kind if kind in ("f32", "f64") else "int"
            return Immediate(operand.bits(kind) ^ sign, literal, operand.span)  # type: ignore[arg-type]
        assert isinstance(operand, Reg)
        result = self._fresh(operand.type, operand)
        self.before[n].append(_instruction(ins, "neg", (kind,), (result, operand), None))
        return result

    def _fresh(self, type_name: str, like: Reg) -> Reg:
        name = f"%contract.{len(self.registers)}"  # no PTX identifier has a dot
        self.registers[name] = type_name
        return Reg(name, type_name, like.span)


def _instruction(
    like: Instruction, opcode: str, modifiers: tuple[str, ...], operands: tuple[Operand, ...],
    guard: tuple[Reg, bool] | None,
) -> Instruction:  # fmt: skip
    form = match(opcode, modifiers)
    assert isinstance(form, ScalarForm), form
    return Instruction(opcode, modifiers, form, operands, guard, like.span, like.mnemonic_span)
