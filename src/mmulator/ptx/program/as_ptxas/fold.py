"""Arithmetic that NVIDIA's assembler evaluates: approximate functions of constants, and operations that cancel.

A division by a constant becomes a multiplication by its reciprocal, and an approximate function of a constant becomes a number.
Both are rounded correctly, while the special-function unit may be off by some units. Found by experiment with ptxas:
docs/explanation/arithmetic.md.
Floating-Point Instructions: div, rcp, sqrt, rsqrt, lg2, ex2, sin, cos, mul, neg, abs; selp (PTX ISA 9.1).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar

from mmulator.isa.effects import FUNCTIONS, Algebra, Ends
from mmulator.matrix.numerics.sfu.arithmetic import F32, INFINITY, SIGN, f32_bits, flushed, is_nan, multiply
from mmulator.matrix.numerics.sfu.constants import constant, scale_of, unit
from mmulator.ptx.program.as_ptxas.products import form_of
from mmulator.ptx.program.as_ptxas.quotient import instruction, scales
from mmulator.ptx.program.uses import uses_and_defs
from mmulator.ptx.tree import Function, Immediate, Instruction, Label, Operand, Reg, Statement

_UNIT = (Algebra.RECIPROCAL, Algebra.EXPONENTIAL)
_SIGNS = (Algebra.NEGATION, Algebra.MAGNITUDE)
_ACTS_ON = (*_UNIT, *_SIGNS, Algebra.QUOTIENT, Algebra.PRODUCT, Algebra.SELECTION, *FUNCTIONS)
_PLAIN = (*_SIGNS, Algebra.COPY, Algebra.SUM, Algebra.DIFFERENCE, Algebra.PRODUCT, Algebra.CONVERSION)
_LEAVES = (Ends.BRANCH, Ends.INDEXED, Ends.CALL, Ends.RETURN, Ends.EXIT)
_RAW = {Algebra.NEGATION: ("xor", SIGN), Algebra.MAGNITUDE: ("and", SIGN - 1)}
_NOTHING = Algebra.NONE, None  # made of nothing that is known
QUIET = 1 << 22
_ONE, _MINUS_ONE = f32_bits(1.0), f32_bits(-1.0)


def fold(function: Function) -> Function:
    """The function with all foldable arithmetic evaluated. The function is pure, and takes time linear in the size of its
    argument.
    """
    return _Folder(function).function() if any(map(_starts, function.instructions)) else function


def _starts(ins: Instruction) -> bool:
    """Whether an instruction may be folded regardless of the instructions around it."""
    return (_acts_on(ins) and ins.effects.algebra is not Algebra.SELECTION) or _is_signed_constant(ins)


def _acts_on(ins: Instruction) -> bool:
    if ins.effects.algebra not in _ACTS_ON:  # most are not: not even a call
        return False
    form = ins.form
    if form["type"] != "f32" or form["rnd"] or not isinstance(ins.operands[0], Reg):
        return False
    if form.effects.algebra is Algebra.PRODUCT:
        return _is_plain_product(ins) and _ONE in map(_bits, ins.operands[1:])
    return form.effects.algebra not in _SIGNS or not form["ftz"]


def _is_signed_constant(ins: Instruction) -> bool:
    form = form_of(ins, *_SIGNS)
    return form is not None and form["type"] == "f32" and isinstance(ins.operands[-1], Immediate)


def _is_plain_product(ins: Instruction) -> bool:
    form = form_of(ins, Algebra.PRODUCT)
    return form is not None and form["type"] == "f32" and not any(form[m] for m in ("rnd", "ftz", "sat"))


def _bits(operand: Operand) -> int | None:
    return operand.bits("f32") if isinstance(operand, Immediate) else None


class _Folder:
    def __init__(self, function: Function) -> None:
        self.fn = function
        self.registers = dict(function.registers)
        written: Counter[str] = Counter()
        self.reads: Counter[str] = Counter()
        self.constants: dict[str, int] = {}  # registers that only ever hold one
        self.made: dict[str, tuple[Algebra, Reg]] = {}  # register -> (operation, source register)
        self.held: set[str] = set()  # registers that stand in it
        self.lasting: set[str] = set()  # of these, those that hold on every way from here on
        self.start = True  # is every statement behind these executed after them?
        for ins in function.instructions:
            reads, writes = uses_and_defs(ins)
            self.reads.update(reads)
            for name in writes:
                written[name] += 1 if ins.guard is None else 2
        self.only = {name for name, count in written.items() if count == 1}  # written once, unguarded
        for ins in function.instructions:  # in order: most are written before they are read
            if ins.effects.algebra in _PLAIN:
                self._learn(ins)

    def function(self) -> Function:
        body: list[Statement] = []
        for statement in self.fn.body:
            if isinstance(statement, Instruction):
                body += self._step(statement)
                self.start &= statement.effects.ends not in _LEAVES
                self._make(statement)
            else:
                body.append(statement)
                if isinstance(statement, Label):
                    self.start = False
                    self.made = {name: of for name, of in self.made.items() if name in self.lasting}
        return replace(self.fn, body=tuple(body), registers=self.registers)

    def _make(self, ins: Instruction) -> None:
        """Record what a statement's result holds, and forget facts about registers that it overwrites."""
        for name in uses_and_defs(ins)[1] & self.held if self.made else ():
            self.made = {n: (op, of) for n, (op, of) in self.made.items() if name not in (n, of.name)}
        algebra = ins.effects.algebra
        if not _acts_on(ins) or ins.guard is not None or algebra not in (*_UNIT, *_SIGNS):
            return
        target, source = ins.operands
        if isinstance(target, Reg) and isinstance(source, Reg) and target.name != source.name:
            if algebra in _UNIT and "ftz" not in ins.modifiers:
                return
            self.made[target.name] = algebra, source
            self.held |= {target.name, source.name}
            if self.start and {target.name, source.name} <= self.only:
                self.lasting.add(target.name)

    def _learn(self, ins: Instruction) -> None:
        target = ins.operands[0] if ins.operands else None
        if not isinstance(target, Reg) or target.name not in self.only:
            return
        values = [self._constant(o) for o in ins.operands[1:]]
        if None not in values:
            result = _plain(ins, [v for v in values if v is not None])
            if result is not None:
                self.constants[target.name] = result

    def _constant(self, operand: Operand) -> int | None:
        return self.constants.get(operand.name) if isinstance(operand, Reg) else _bits(operand)

    def _step(self, ins: Instruction) -> list[Instruction]:
        """The instructions that replace an instruction."""
        if not _acts_on(ins):
            algebra = ins.effects.algebra
            if algebra in _PLAIN:
                self._learn(ins)
                known = self._constant(ins.operands[0])
                if known is not None and algebra is not Algebra.COPY:
                    return [self._move(ins, _number(known, ins))]
                if _is_plain_product(ins) and _ONE in map(self._constant, ins.operands[1:]):
                    return self._product(ins)
            return self._selection(ins) if algebra is Algebra.COPY and ins.guard is not None else [ins]
        code = self._ACTIONS.get(ins.effects.algebra, _Folder._function)(self, ins)
        self._learn(code[-1])
        return code

    def _function(self, ins: Instruction) -> list[Instruction]:
        """The replacement of a function: a number for a constant argument. The reciprocal of a reciprocal is the original
        value, if both are computed by the unit alone.
        """
        target, source = ins.operands
        x = self._constant(source)
        ftz = "ftz" in ins.modifiers
        if x is not None:
            return [self._move(ins, _number(constant(ins.opcode, x, ftz), ins))]
        if ins.effects.algebra is not Algebra.RECIPROCAL or not ftz or not isinstance(target, Reg) or not isinstance(source, Reg):
            return [ins]
        code, inverse = self._inverse(source, ins)
        return [*code, self._move(ins, inverse)] if inverse is not None else [ins]

    def _inverse(self, operand: Operand, ins: Instruction) -> tuple[list[Instruction], Operand | None]:
        """(code, operand) that give the unit's reciprocal of a register without computing it; no operand if that is not
        possible.

        For a register that holds a reciprocal: its argument. For 2**x that nothing else reads: 2**-x.
        """
        made, source = self.made.get(operand.name, _NOTHING) if isinstance(operand, Reg) else _NOTHING
        if source is None or not isinstance(operand, Reg) or made not in _UNIT:
            return [], None
        if made is Algebra.RECIPROCAL:
            return [], source
        if self.reads[operand.name] != 1:
            return [], None
        negative, inverse = self._fresh(ins), self._fresh(ins)
        return [
            instruction(ins, "neg", ("f32",), (negative, source), None),
            instruction(ins, "ex2", ("approx", "ftz", "f32"), (inverse, negative), None),
        ], inverse

    def _sign(self, ins: Instruction) -> list[Instruction]:
        """The replacement of a change of sign that undoes another: a move, which leaves a NaN as it is. Under a guard it is a
        selection.
        """
        target, source = ins.operands
        x = self._constant(source)
        if x is not None:
            return [self._move(ins, _number(_signed(ins.effects.algebra, x), ins))]
        made, of = self.made.get(source.name, _NOTHING) if isinstance(source, Reg) else _NOTHING
        algebra = ins.effects.algebra
        if algebra is made is Algebra.NEGATION and of is not None:
            return [self._move(ins, of)]
        if ins.guard is None:
            return [ins]
        code: list[Instruction] = []
        opcode, mask = _RAW[algebra]
        source = self._raw(source, ins, code)
        return [*code, instruction(ins, opcode, ("b32",), (target, source, Immediate(mask, "int", ins.span)), ins.guard)]

    def _selection(self, ins: Instruction) -> list[Instruction]:
        """The replacement of a selection, or of a guarded instruction that becomes one: it changes signs itself, also
        of a NaN.
        """
        code: list[Instruction] = []
        sources = [self._raw(o, ins, code) for o in ins.operands[1:]]
        operands = ins.operands[0], *sources
        return [*code, replace(ins, operands=operands, made_from=ins.original)] if code else [ins]

    def _raw(self, operand: Operand, ins: Instruction, code: list[Instruction]) -> Operand:
        """The register behind changes of sign, with these changes made to its bits."""
        made, of = self.made.get(operand.name, _NOTHING) if isinstance(operand, Reg) else _NOTHING
        if of is None or made not in _SIGNS:
            return operand
        source, result = self._raw(of, ins, code), self._fresh(ins)
        opcode, mask = _RAW[made]
        code.append(instruction(ins, opcode, ("b32",), (result, source, Immediate(mask, "int", ins.span)), None))
        return result

    def _product(self, ins: Instruction) -> list[Instruction]:
        """The replacement of a product by 1: a copy, which keeps NaNs."""
        a, b = ins.operands[1:]
        return [self._move(ins, a if self._constant(b) == _ONE else b)]

    def _quotient(self, ins: Instruction) -> list[Instruction]:
        form = ins.form
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
        """The replacement of 1/x and -1/x: the unit alone."""
        target, _, b = ins.operands
        if numerator == _ONE:
            return [instruction(ins, "rcp", ("approx", "ftz", "f32"), (target, b), ins.guard)]
        inverse = self._fresh(ins)
        return [
            instruction(ins, "rcp", ("approx", "ftz", "f32"), (inverse, b), None),
            instruction(ins, "neg", ("ftz", "f32"), (target, inverse), ins.guard),
        ]

    _ACTIONS: ClassVar[dict[Algebra, Callable[[_Folder, Instruction], list[Instruction]]]] = {
        Algebra.QUOTIENT: _quotient, Algebra.PRODUCT: _product, Algebra.SELECTION: _selection,
        **dict.fromkeys(_SIGNS, _sign),
    }  # fmt: skip

    def _move(self, ins: Instruction, source: Operand) -> Instruction:
        return instruction(ins, "mov", ("f32",), (ins.operands[0], source), ins.guard)

    def _fresh(self, ins: Instruction) -> Reg:
        name = f"%fold.{len(self.registers)}"  # no PTX identifier has a dot
        self.registers[name] = "f32"
        return Reg(name, "f32", ins.span)


def _plain(ins: Instruction, values: list[int]) -> int | None:
    """The bits of ordinary arithmetic with constants that ptxas evaluates; None for fma and for other roundings."""
    form, algebra = ins.form, ins.effects.algebra
    ftz = "ftz" in ins.modifiers
    if algebra is Algebra.COPY:
        return values[0]
    if algebra is Algebra.CONVERSION:
        kind = form["atype"]
        if form["type"] != "f32" or form["rnd"] != "rn" or kind not in ("s32", "u32") or form["sat"]:
            return None
        return F32.rounded(values[0] - (values[0] >> 31 << 32 if kind == "s32" else 0), 0)
    if form["type"] != "f32":
        return None
    a, b = (flushed(v) if ftz else v for v in (values * 2)[:2])
    if algebra in _SIGNS:
        return _signed(algebra, a)
    if any(map(is_nan, values)):
        return None
    if form["rnd"] not in ("", "rn") or form["sat"]:
        return None
    if algebra is Algebra.PRODUCT:
        return multiply(a, b, ftz=ftz)
    if INFINITY in (a & INFINITY, b & INFINITY):
        return None
    if algebra is Algebra.DIFFERENCE:
        b ^= SIGN
    result = F32.rounded(F32.integer(a) + F32.integer(b), F32.scale, bool(a & b & SIGN))
    return flushed(result) if ftz else result


def _signed(algebra: Algebra, x: int) -> int:
    """neg or abs of a constant's bits: only the sign changes, but a signalling NaN becomes quiet."""
    x |= QUIET if is_nan(x) else 0
    return x ^ SIGN if algebra is Algebra.NEGATION else x & ~SIGN


def _number(bits: int, ins: Instruction) -> Immediate:
    return Immediate(bits, "f32", ins.span)
