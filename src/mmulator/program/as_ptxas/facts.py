"""Facts about a function's registers: the statements that write them, constants, and statements without effect."""

from collections import Counter, defaultdict

from mmulator.errors import must_be
from mmulator.isa.effects import Algebra, MemoryEffect
from mmulator.program.as_ptxas.products import HeldProduct, Multiplication, form_of
from mmulator.program.as_ptxas.regions import CodeRegions, regions_of
from mmulator.program.blocks import blocks_from
from mmulator.ptx.tree import Address, Function, Immediate, Instruction, Operand, Reg, Symbol

_COPIES = (Algebra.COPY, Algebra.NEGATION, Algebra.MAGNITUDE)


class FunctionFacts:
    """Facts about a function: the contents of its registers and, after a walk (reaching.py), the products that its
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
