"""The rewriting of a function's body with its chosen sums fused."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

from mmulator.base.errors import must_be
from mmulator.isa.effects import Algebra
from mmulator.ptx.program.as_ptxas.facts import FunctionFacts
from mmulator.ptx.program.as_ptxas.products import TYPES, HeldProduct, Multiplication, scaled
from mmulator.ptx.program.as_ptxas.quotient import factors, instruction, one, quotient_sum
from mmulator.ptx.tree import Function, Immediate, Instruction, Operand, Reg, Statement


class Rewriter:
    """The writer of a function's body with its chosen sums fused."""

    def __init__(self, facts: FunctionFacts, fused: Mapping[int, int], scaled: Mapping[int, tuple[Multiplication, int]]) -> None:
        self.f, self.fused, self.scaled = facts, fused, scaled
        self.registers = dict(facts.fn.registers)
        self.before: dict[int, list[Statement]] = defaultdict(list)
        self.replaced: dict[int, Instruction] = {}
        self.copies: dict[tuple[int, int], Operand] = {}
        self.gone: set[int] = set()
        self.written: dict[str, list[tuple[int, int]]] = {}  # places of a register's definitions, in order

    def function(self) -> Function:
        for n, j in self.fused.items():
            self._fuse(n, j)
        for n, (product, power) in self.scaled.items():
            self._scale(n, product, power)
        body: list[Statement] = []
        for n, statement in enumerate(self.f.fn.body):
            body += self.before.get(n, ())
            if n not in self.gone:
                body.append(self.replaced.get(n, statement))
        return replace(self.f.fn, body=tuple(body), registers=self.registers)

    def _fuse(self, n: int, j: int) -> None:
        ins = self.f.instruction(n)
        held = must_be(self.f.sums[n][j], HeldProduct)
        product = held.product
        kind = product.type
        if all(self.fused.get(m) == i for m, i, _ in product.uses):
            self._drop(product, [m for m, _, _ in product.uses])
        whole = self._whole(product, n)
        a, b = whole or (self._factor(product, number, n) for number in (0, 1))
        c = ins.operands[2 - j]
        negated = held.negated
        if ins.effects.algebra is Algebra.DIFFERENCE:
            if j == 0:
                c = self._negated(c, kind, n, ins)
            else:
                negated = not negated
        if negated:
            if isinstance(a, Reg) and isinstance(b, Immediate) and not whole:
                a, b = b, a
            a = self._negated(a, kind, n, ins)
        if whole:
            division = self.f.instruction(product.at)
            self.replaced[n] = quotient_sum(division, ins, (ins.operands[0], a, b, c))
            return
        modifiers = ("rn", *(m for m in ("ftz", "sat") if ins.form[m]), kind)
        self.replaced[n] = instruction(ins, "fma", modifiers, (ins.operands[0], a, b, c), ins.guard)

    def _scale(self, n: int, product: Multiplication, power: int) -> None:
        ins = self.f.instruction(n)
        self._drop(product, [n])
        a, b = (self._factor(product, number, n) for number in (0, 1))
        *code, self.replaced[n] = scaled(ins, a, b, power, lambda kind: self._fresh(kind, ins))
        self.before[n] += code

    def _drop(self, product: Multiplication, readers: list[int]) -> None:
        """Remove a quotient that only these statements read, without a copy between: LLVM would keep its call."""
        division = self.f.instruction(product.at)
        name = division.operands[0].name if isinstance(division.operands[0], Reg) else ""
        if division.effects.algebra is not Algebra.PRODUCT and all(name in self.f.regions.accesses[n][0] for n in readers):
            self.gone.add(product.at)

    def _whole(self, product: Multiplication, n: int) -> tuple[Operand, Operand] | None:
        """(numerator, divisor) of a quotient that only one near sum reads, so that one operation computes both;
        otherwise None.
        """
        division = self.f.instruction(product.at)
        near = self.f.regions.place[product.at][0] == self.f.regions.place[n][0]
        if division.effects.algebra is Algebra.PRODUCT or len(product.uses) > 1 or not near:
            return None
        *numerator, b = (self._kept(product, number, n) for number in range(len(division.operands) - 1))
        return numerator[0] if numerator else one(division), b

    def _factor(self, product: Multiplication, number: int, n: int) -> Operand:
        """A factor of the product as an operand of statement n."""
        mul = self.f.instruction(product.at)
        key = product.at, number
        if mul.effects.algebra is not Algebra.PRODUCT:
            if key not in self.copies:
                code, *parts = factors(mul, lambda kind: self._fresh(kind, mul))
                self.before[product.at] += code
                self.copies |= {(product.at, n): part for n, part in enumerate(parts)}
            return self.copies[key]
        return self._kept(product, number, n)

    def _kept(self, product: Multiplication, number: int, n: int) -> Operand:
        """A source of the product where statement n reads it: its register, or a copy if the register may have changed."""
        mul = self.f.instruction(product.at)
        key = product.at, number
        operand = mul.operands[1 + number]
        if not isinstance(operand, Reg) or not self._changes(operand.name, product.at, n):
            return operand
        if key not in self.copies:
            copy = self.copies[key] = self._fresh(operand.type, operand)
            size = {"f32": "b32", "f64": "b64", "f32x2": "b64"}.get(product.type, "b32" if product.type.endswith("x2") else "b16")
            self.before[product.at].append(instruction(mul, "mov", (size,), (copy, operand), None))
        return self.copies[key]

    def _changes(self, name: str, start: int, end: int) -> bool:
        place = self.f.regions.place
        if place[start][0] != place[end][0]:
            return True
        if name not in self.written:
            self.written[name] = sorted(place[m] for m in self.f.definitions.get(name, ()))
        written = self.written[name]
        return bisect_left(written, place[start]) < bisect_left(written, place[end])

    def _negated(self, operand: Operand, kind: str, n: int, ins: Instruction) -> Operand:
        """The operand with its sign changed; for a register in a new register, written before statement n."""
        sign = TYPES[kind][1]
        if isinstance(operand, Immediate):
            literal = kind if kind in ("f32", "f64") else "int"
            return Immediate(operand.bits(kind) ^ sign, literal, operand.span)  # type: ignore[arg-type]
        result = self._fresh(must_be(operand, Reg).type, must_be(operand, Reg))
        change = ("xor", ("b64",), (result, operand, Immediate(sign, "int", operand.span)))  # there is no neg of pairs of f32
        opcode, modifiers, operands = change if kind == "f32x2" else ("neg", (kind,), (result, operand))
        self.before[n].append(instruction(ins, opcode, modifiers, operands, None))
        return result

    def _fresh(self, type_name: str, like: Reg | Instruction) -> Reg:
        name = f"%contract.{len(self.registers)}"  # no PTX identifier has a dot
        self.registers[name] = type_name
        return Reg(name, type_name, like.span)
