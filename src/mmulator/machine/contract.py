"""Products and sums without a rounding modifier, fused where NVIDIA's assembler fuses them.

Floating-Point Instructions: mul, add, sub (PTX ISA 9.1): without a rounding modifier, "mul/add sequences [...] may be
optimized aggressively by the code optimizer [...] to use fused-multiply-add instructions on the target device". ptxas
does, and so a kernel's bits depend on where. Its rule was found by experiment; docs/contraction.md states it and
says how it is checked. In short, a `mul` is fused into the `add` and `sub` that use it if they are all that uses it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from mmulator.isa.scalar import ScalarForm, match, type_bits
from mmulator.machine.program import registers_of, uses_and_defs
from mmulator.machine.regions import Regions, guard_of, regions_of
from mmulator.ptx.tree import Address, Function, Immediate, Instruction, Operand, Reg, Statement, Symbol

# type -> bits of 1.0, sign bits
_ONE: Mapping[str, tuple[int, int]] = {
    "f32": (0x3F800000, 1 << 31), "f64": (0x3FF << 52, 1 << 63), "f16": (0x3C00, 1 << 15), "bf16": (0x3F80, 1 << 15),
    "f16x2": (0x3C003C00, 0x80008000), "bf16x2": (0x3F803F80, 0x80008000),
}  # fmt: skip
_NEGATION_FOLDS = ("f32", "f64", "f16", "f16x2", "bf16")  # neg.bf16x2 becomes an instruction of its own
_PURE = frozenset(
    "abs add and bfe bfi bfind brev clz cnot copysign cos cvt cvta div ex2 fma ld lg2 lop3 mad max min mov mul neg not or "
    "popc prmt rcp rem rsqrt selp set setp shf shl shr sin slct sqrt sub tanh testp xor".split()
)


@dataclass(eq=False, slots=True)
class _Product:
    """A mul and what reads it. uses: (statement, operand, negated) of sums. blocked: something else reads it."""

    at: int
    type: str
    ftz: bool
    resident: bool
    uses: list[tuple[int, int, bool]] = field(default_factory=list)
    blocked: bool = False


_Alias = tuple[_Product, bool]  # a product, negated?


def contract(function: Function) -> Function:
    """The function with each `add` or `sub` that ptxas fuses replaced by `fma.rn` of the same `.ftz` and `.sat`.

    The mul stays (what nothing reads costs nothing once compiled). Pure and linear in the size of the function.
    """
    body = function.body
    sums = [n for n, s in enumerate(body) if isinstance(s, Instruction) and _is_sum(s)]
    if not sums or not any(isinstance(s, Instruction) and _is_product(s) for s in body):
        return function
    finder = _Finder(function)
    fused = finder.choose()
    return _rewrite(function, finder, fused) if fused else function


def _form(ins: Instruction, *names: str) -> ScalarForm | None:
    form = ins.form
    return form if isinstance(form, ScalarForm) and form.name in names and not form.unsupported else None


def _is_sum(ins: Instruction) -> bool:
    form = _form(ins, "add", "sub")
    return form is not None and form["type"] in _ONE and not form["rnd"] and isinstance(ins.operands[0], Reg)


def _is_product(ins: Instruction) -> bool:
    form = _form(ins, "mul")
    return (
        form is not None and form["type"] in _ONE and not form["rnd"] and not form["sat"] and isinstance(ins.operands[0], Reg)
    )


class _Finder:
    """Who reads which product, and which of the two a sum takes."""

    def __init__(self, function: Function) -> None:
        self.function, self.body = function, function.body
        self.definitions: dict[str, list[int]] = defaultdict(list)
        self.reads: dict[int, set[str]] = {}
        self._tables()
        self.constants = self._constants()
        self.regions: Regions = regions_of(function, self.constants)
        self.place = self.regions.place
        self.order = sorted((self.place[n], n) for n in self.reads if n in self.place)
        self.resident = self._resident()
        self.tracked = self._tracked()
        self.products: dict[int, _Product] = {}
        self.sums: dict[int, list[_Alias | None]] = {}
        self._scan()

    # tables ---------------------------------------------------------------------------------------------------------
    def _tables(self) -> None:
        """Definitions by register, reads by statement; instructions whose results nothing reads are left out."""
        writes: dict[int, set[str]] = {}
        count: Counter[str] = Counter()
        for n, ins in enumerate(self.body):
            if isinstance(ins, Instruction):
                self.reads[n], writes[n] = uses_and_defs(ins)
                count.update(self.reads[n])
                for name in writes[n]:
                    self.definitions[name].append(n)
        waiting = [n for n in writes if self._removable(n, writes[n], count)]
        while waiting:
            n = waiting.pop()
            if n not in self.reads:
                continue
            reads = self.reads.pop(n)
            for name in writes[n]:
                self.definitions[name].remove(n)
            count.subtract(reads)
            for name in reads:
                if not count[name]:
                    waiting += [m for m in self.definitions[name] if self._removable(m, writes[m], count)]

    def _removable(self, n: int, writes: set[str], count: Counter[str]) -> bool:
        ins = self.body[n]
        assert isinstance(ins, Instruction)
        own = writes if ins.guard is not None else set()  # a guarded write counts as a read of what it may leave
        return (
            bool(writes) and ins.opcode in _PURE and "cc" not in ins.modifiers and "volatile" not in ins.modifiers
            and all(count[name] <= (name in own) for name in writes)
        )  # fmt: skip

    def instruction(self, n: int) -> Instruction:
        ins = self.body[n]
        assert isinstance(ins, Instruction)
        return ins

    def _single(self, name: str) -> int | None:
        """The one statement that writes a register, if there is one."""
        where = self.definitions.get(name, ())
        return where[0] if len(where) == 1 else None

    def _constants(self) -> dict[str, Immediate]:
        """Registers that hold one constant."""
        found: dict[str, Immediate] = {}
        for name, where in self.definitions.items():
            if len(where) == 1:
                ins = self.instruction(where[0])
                if ins.opcode == "mov" and ins.guard is None and isinstance(ins.operands[1], Immediate):
                    found[name] = ins.operands[1]
        return found

    def _resident(self) -> set[str]:
        """Registers whose value an instruction can take from the constant bank: parameters, constants, .const data."""
        found = set(self.constants)
        waiting = []
        readers: dict[str, list[int]] = defaultdict(list)
        for name, where in self.definitions.items():
            if len(where) != 1 or name in found:
                continue
            ins = self.instruction(where[0])
            if ins.guard is not None:
                continue
            if ins.opcode == "ld" and self._fixed(ins):
                found.add(name)
            elif _copies(ins) or (_form(ins, "abs") and "ftz" not in ins.modifiers):
                source = ins.operands[1]
                if isinstance(source, Reg):
                    readers[source.name].append(where[0])
        waiting = list(found)
        while waiting:
            for n in readers.pop(waiting.pop(), ()):
                target = self.instruction(n).operands[0]
                if isinstance(target, Reg) and target.name not in found:
                    found.add(target.name)
                    waiting.append(target.name)
        return found

    def _fixed(self, ins: Instruction) -> bool:
        """A load of a kernel parameter or of .const data at a fixed address."""
        address = ins.operands[1]
        space = {m.partition("::")[0] for m in ins.modifiers}
        return (
            isinstance(address, Address) and isinstance(address.base, Symbol)
            and ("const" in space or ("param" in space and self.function.is_entry))
        )  # fmt: skip

    def _tracked(self) -> set[str]:
        """Registers that can hold a product: written by a mul, or copied from such a register."""
        found: set[str] = set()
        copies: dict[str, list[str]] = defaultdict(list)
        for n in self.reads:
            ins = self.instruction(n)
            target = ins.operands[0] if ins.operands else None
            if isinstance(target, Reg):
                if _is_product(ins):
                    found.add(target.name)
                    # times 1.0: a copy
                for source in (o for o in ins.operands[1:] if isinstance(o, Reg)):
                    if _copies(ins) or _is_product(ins):
                        copies[source.name].append(target.name)
        waiting = list(found)
        while waiting:
            for name in copies.pop(waiting.pop(), ()):
                if name not in found:
                    found.add(name)
                    waiting.append(name)
        return found

    # data flow ------------------------------------------------------------------------------------------------------
    def _scan(self) -> None:
        """One walk in order: what each register holds where it is read. A register that several statements write is
        known from its last write on, within a region only; what it holds at the end may be read elsewhere."""
        single = {name: where[0] for name, where in self.definitions.items() if len(where) == 1 and name in self.tracked}
        several = [name for name, where in self.definitions.items() if len(where) > 1 and name in self.tracked]
        live = self._live_out(several)
        held: dict[int, _Alias | None] = {}  # of a statement whose register is written once
        pending: list[tuple[str, int, int]] = []
        current: dict[str, _Alias | None] = {}
        region = -1

        def leave() -> None:
            for name, alias in current.items():
                if alias is not None and name in live[region]:
                    alias[0].blocked = True
            current.clear()

        # single definitions first, so that a loop may read what stands further down
        for _, n in self.order:
            ins = self.instruction(n)
            target = ins.operands[0] if ins.operands else None
            if isinstance(target, Reg) and single.get(target.name) == n and _is_product(ins) and not guard_of(ins, self.constants):
                product = self._product(n, ins)
                if isinstance(product, _Product):
                    held[n] = (product, False)
        del pending

        def value(operand: Operand) -> _Alias | None:
            if not isinstance(operand, Reg) or operand.name not in self.tracked:
                return None
            return held.get(single[operand.name]) if operand.name in single else current.get(operand.name)

        for place, n in self.order:
            if place[0] != region:
                if region >= 0:
                    leave()
                region = place[0]
            ins = self.instruction(n)
            alias: _Alias | None = None
            product_or_source = self._product(n, ins) if _is_product(ins) else ins if _copies(ins) else None
            unguarded = not guard_of(ins, self.constants)
            if isinstance(product_or_source, _Product):
                product = held[n][0] if n in held and held[n] else product_or_source  # type: ignore[index]
                self.products[n] = product
                self._block(ins.operands[1:], value)
                alias = (product, False)
            elif product_or_source is not None and unguarded:
                alias = self._copied(ins, value)
                if alias is None:
                    self._block(ins.operands[1:], value)
            elif _is_sum(ins):
                found = [value(o) for o in ins.operands[1:]]
                self.sums[n] = found
                for j, a in enumerate(found):
                    if a is not None:
                        a[0].uses.append((n, j, a[1]))
            else:
                for name in self.reads[n] & self.tracked:
                    a = held.get(single[name]) if name in single else current.get(name)
                    if a is not None:
                        a[0].blocked = True
            if not unguarded:
                alias = None
            for name in self._written(n, ins):
                if name in single:
                    if n not in held:
                        held[n] = alias
                    continue
                before = current.get(name)
                if before is not None and not unguarded:
                    before[0].blocked = True  # a write that may leave it: two values meet
                current[name] = alias
        leave()
