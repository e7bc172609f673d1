"""Approximate arithmetic with constants, as NVIDIA's assembler computes it beforehand.

A division by a constant becomes a multiplication by its reciprocal, and an approximate function of a constant becomes a
number. Both are rounded correctly where the special-function unit may be off by some units. Found by experiment with
ptxas: docs/contraction.md. Floating-Point Instructions: div, rcp, sqrt, rsqrt, lg2, ex2, sin, cos, mul (PTX ISA 9.1).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from mmulator.isa.scalar import ScalarForm
from mmulator.machine.products import form_of
from mmulator.machine.program import uses_and_defs
from mmulator.machine.quotient import instruction, scales
from mmulator.numerics.approx.constants import FUNCTIONS, constant, scale_of, unit
from mmulator.numerics.approx.operations import F32, f32_bits, flushed, multiply
from mmulator.numerics.approx.unit import INFINITY, SIGN, is_nan
from mmulator.ptx.tree import Function, Immediate, Instruction, Operand, Reg, Statement

_ACTS_ON = frozenset(("div", "mul", *FUNCTIONS))
_PLAIN = frozenset(("mov", "neg", "abs", "add", "sub", "mul", "cvt"))
_ONE, _MINUS_ONE = f32_bits(1.0), f32_bits(-1.0)


def fold(function: Function) -> Function:
    """The function with its approximate arithmetic on constants computed. Pure, and linear in its size."""
    return _Folder(function).function() if any(map(_acts_on, function.instructions)) else function


def _acts_on(ins: Instruction) -> bool:
    if ins.opcode not in _ACTS_ON:
        return False
    form = form_of(ins, *_ACTS_ON)
    if form is None or form["type"] != "f32" or form["rnd"] or not isinstance(ins.operands[0], Reg):
        return False
    return ins.opcode != "mul" or (not form["ftz"] and not form["sat"] and _ONE in map(_bits, ins.operands[1:]))


def _bits(operand: Operand) -> int | None:
    return operand.bits("f32") if isinstance(operand, Immediate) else None


class _Folder:
    def __init__(self, function: Function) -> None:
        self.fn = function
        self.registers = dict(function.registers)
        written: Counter[str] = Counter()
        self.reads: Counter[str] = Counter()
        self.constants: dict[str, int] = {}  # registers that only ever hold one
        self.reciprocals: dict[str, Reg] = {}  # register -> what it holds the reciprocal of
        self.powers: dict[str, Reg] = {}  # register -> the exponent of the power of two that it holds
        for ins in function.instructions:
            reads, writes = uses_and_defs(ins)
            self.reads.update(reads)
            for name in writes:
                written[name] += 1 if ins.guard is None else 2
        self.only = {name for name, count in written.items() if count == 1}  # written once, unguarded
        for ins in function.instructions:  # in order: most are written before they are read
            if ins.opcode in _PLAIN:
                self._learn(ins)
            elif ins.opcode == "ex2" and "ftz" in ins.modifiers and _acts_on(ins):
                target, source = ins.operands
                if isinstance(target, Reg) and isinstance(source, Reg) and {target.name, source.name} <= self.only:
                    self.powers[target.name] = source

    def function(self) -> Function:
        body: list[Statement] = []
        for statement in self.fn.body:
            if isinstance(statement, Instruction):
                body += self._step(statement)
            else:
                body.append(statement)
        return replace(self.fn, body=tuple(body), registers=self.registers)

    def _learn(self, ins: Instruction) -> None:
        target = ins.operands[0] if ins.operands else None
        if not isinstance(target, Reg) or target.name not in self.only:
            return
        values = [self._constant(o) for o in ins.operands[1:]]
        if None not in values and form_of(ins, *_PLAIN) is not None:
            result = _plain(ins, [v for v in values if v is not None])
            if result is not None:
                self.constants[target.name] = result

    def _constant(self, operand: Operand) -> int | None:
        return self.constants.get(operand.name) if isinstance(operand, Reg) else _bits(operand)

    def _step(self, ins: Instruction) -> list[Instruction]:
        """What stands in place of an instruction."""
        if not _acts_on(ins):
            if ins.opcode in _PLAIN:
                self._learn(ins)
            return [ins]
        code = {"div": self._quotient, "mul": self._product}.get(ins.opcode, self._function)(ins)
        self._learn(code[-1])
        return code

    def _function(self, ins: Instruction) -> list[Instruction]:
        """Of a constant a number; the reciprocal of a reciprocal is what it came from, if both are the unit's alone."""
        target, source = ins.operands
        x = self._constant(source)
        ftz = "ftz" in ins.modifiers
        if x is not None:
            return [self._move(ins, _number(constant(ins.opcode, x, ftz), ins))]
        if ins.opcode != "rcp" or not ftz or not isinstance(target, Reg) or not isinstance(source, Reg):
            return [ins]
        code, inverse = self._inverse(source, ins)
        if {source.name, target.name} <= self.only:
            self.reciprocals[target.name] = source
        return [*code, self._move(ins, inverse)] if inverse is not None else [ins]

    def _inverse(self, operand: Operand, ins: Instruction) -> tuple[list[Instruction], Operand | None]:
        """What the unit's reciprocal of a register is without computing it, and the code for that.

        The unit's reciprocal: what it came from. Two to a power that nothing else reads: two to minus that power.
        """
        if not isinstance(operand, Reg) or operand.name not in self.only:
            return [], None
        if operand.name in self.reciprocals:
            return [], self.reciprocals[operand.name]
        power = self.powers.get(operand.name)
        if power is None or self.reads[operand.name] != 1:
            return [], None
        negative, inverse = self._fresh(ins), self._fresh(ins)
        return [
            instruction(ins, "neg", ("f32",), (negative, power), None),
            instruction(ins, "ex2", ("approx", "ftz", "f32"), (inverse, negative), None),
        ], inverse

    def _product(self, ins: Instruction) -> list[Instruction]:
        """Times 1: a copy, NaNs and all."""
        a, b = ins.operands[1:]
        return [self._move(ins, a if _bits(b) == _ONE else b)]

    def _quotient(self, ins: Instruction) -> list[Instruction]:
        form = ins.form
        assert isinstance(form, ScalarForm)
        a, b = ins.operands[1:]
        x, y = self._constant(a), self._constant(b)
        down, up = scales(form)
        if y is None and not down and not up:
            code, inverse = self._inverse(b, ins)
            if inverse is not None:
                return [*code, instruction(ins, "mul", ("ftz", "f32"), (ins.operands[0], inverse, a), ins.guard)]
        if y is None:
            return self._reciprocal(ins, x) if not down and not up and x in (_ONE, _MINUS_ONE) else [ins]
        if is_nan(y):
            return [ins]  # NaN in any case
        ftz = bool(form["ftz"])
        scale = scale_of(y, down, up)
        r = unit("rcp", multiply(y, scale))
        if x is not None:
            return [self._move(ins, _number(multiply(r, multiply(x, scale, ftz=ftz), ftz=ftz), ins))]
        code = []
        multiplied = ("ftz", "f32") if ftz else ("f32",)
        if scale != _ONE:
            scaled = self._fresh(ins)
            code.append(instruction(ins, "mul", multiplied, (scaled, a, _number(scale, ins)), None))
            a = scaled
        if r == _ONE and not ftz:
            return [*code, self._move(ins, a)]
        return [*code, instruction(ins, "mul", multiplied, (ins.operands[0], a, _number(r, ins)), ins.guard)]

    def _reciprocal(self, ins: Instruction, numerator: int) -> list[Instruction]:
        """1/x and -1/x by the unit alone."""
        target, _, b = ins.operands
        if numerator == _ONE:
            return [instruction(ins, "rcp", ("approx", "ftz", "f32"), (target, b), ins.guard)]
        inverse = self._fresh(ins)
        return [
            instruction(ins, "rcp", ("approx", "ftz", "f32"), (inverse, b), None),
            instruction(ins, "neg", ("ftz", "f32"), (target, inverse), ins.guard),
        ]

    def _move(self, ins: Instruction, source: Operand) -> Instruction:
        return instruction(ins, "mov", ("f32",), (ins.operands[0], source), ins.guard)

    def _fresh(self, ins: Instruction) -> Reg:
        name = f"%fold.{len(self.registers)}"  # no PTX identifier has a dot
        self.registers[name] = "f32"
        return Reg(name, "f32", ins.span)


def _plain(ins: Instruction, values: list[int]) -> int | None:
    """The ordinary arithmetic that ptxas computes beforehand, too; fma and other roundings it does not."""
    form = ins.form
    assert isinstance(form, ScalarForm)
    ftz = "ftz" in ins.modifiers
    if ins.opcode == "mov":
        return values[0]
    if ins.opcode == "cvt":
        kind = form["atype"]
        if form["type"] != "f32" or form["rnd"] != "rn" or kind not in ("s32", "u32") or form["sat"]:
            return None
        return F32.rounded(values[0] - (values[0] >> 31 << 32 if kind == "s32" else 0), 0)
    if form["type"] != "f32" or any(map(is_nan, values)):
        return None
    a, b = (flushed(v) if ftz else v for v in (values * 2)[:2])
    if ins.opcode in ("neg", "abs"):
        return a ^ SIGN if ins.opcode == "neg" else a & ~SIGN
    if form["rnd"] not in ("", "rn") or form["sat"]:
        return None
    if ins.opcode == "mul":
        return multiply(a, b, ftz=ftz)
    if INFINITY in (a & INFINITY, b & INFINITY):
        return None
    if ins.opcode == "sub":
        b ^= SIGN
    result = F32.rounded(F32.integer(a) + F32.integer(b), F32.scale, bool(a & b & SIGN))
    return flushed(result) if ftz else result


def _number(bits: int, ins: Instruction) -> Immediate:
    return Immediate(bits, "f32", ins.span)
