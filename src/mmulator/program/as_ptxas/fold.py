"""What NVIDIA's assembler computes beforehand: approximate arithmetic with constants, and what undoes itself.

A division by a constant becomes a multiplication by its reciprocal, and an approximate function of a constant becomes a
number. Both are rounded correctly where the special-function unit may be off by some units. Found by experiment with
ptxas: docs/contraction.md.
Floating-Point Instructions: div, rcp, sqrt, rsqrt, lg2, ex2, sin, cos, mul, neg, abs; selp (PTX ISA 9.1).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar

from mmulator.isa.form import Form
from mmulator.numerics.sfu.constants import FUNCTIONS, constant, scale_of, unit
from mmulator.numerics.sfu.operations import F32, f32_bits, flushed, multiply
from mmulator.numerics.sfu.unit import INFINITY, SIGN, is_nan
from mmulator.program.as_ptxas.products import form_of
from mmulator.program.as_ptxas.quotient import instruction, scales
from mmulator.program.blocks import uses_and_defs
from mmulator.ptx.tree import Function, Immediate, Instruction, Label, Operand, Reg, Statement

_ACTS_ON = frozenset(("div", "mul", "neg", "abs", "selp", *FUNCTIONS))
_LEAVES = frozenset(("bra", "brx", "call", "ret", "exit"))
_PLAIN = frozenset(("mov", "neg", "abs", "add", "sub", "mul", "cvt"))
_RAW = {"neg": ("xor", SIGN), "abs": ("and", SIGN - 1)}
QUIET = 1 << 22
_ONE, _MINUS_ONE = f32_bits(1.0), f32_bits(-1.0)


def fold(function: Function) -> Function:
    """The function with what is known of its arithmetic computed. Pure, and linear in its size."""
    wanted = any((_acts_on(i) and i.opcode != "selp") or _is_signed_constant(i) for i in function.instructions)
    return _Folder(function).function() if wanted else function


def _acts_on(ins: Instruction) -> bool:
    if ins.opcode not in _ACTS_ON:
        return False
    form = form_of(ins, *_ACTS_ON)
    if form is None or form["type"] != "f32" or form["rnd"] or not isinstance(ins.operands[0], Reg):
        return False
    if ins.opcode == "mul":
        return _is_plain_product(ins) and _ONE in map(_bits, ins.operands[1:])
    return ins.opcode not in ("neg", "abs") or not form["ftz"]


def _is_signed_constant(ins: Instruction) -> bool:
    form = form_of(ins, *_RAW) if ins.opcode in _RAW else None
    return form is not None and form["type"] == "f32" and isinstance(ins.operands[-1], Immediate)


def _is_plain_product(ins: Instruction) -> bool:
    form = form_of(ins, "mul")
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
        self.made: dict[str, tuple[str, Reg]] = {}  # register -> the operation that made it of which other
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
            if ins.opcode in _PLAIN:
                self._learn(ins)

    def function(self) -> Function:
        body: list[Statement] = []
        for statement in self.fn.body:
            if isinstance(statement, Instruction):
                body += self._step(statement)
                self.start &= statement.opcode not in _LEAVES
                self._make(statement)
            else:
                body.append(statement)
                if isinstance(statement, Label):
                    self.start = False
                    self.made = {name: of for name, of in self.made.items() if name in self.lasting}
        return replace(self.fn, body=tuple(body), registers=self.registers)

    def _make(self, ins: Instruction) -> None:
        """What is known of the register that a statement writes, and no longer of others."""
        for name in uses_and_defs(ins)[1] & self.held if self.made else ():
            self.made = {n: (op, of) for n, (op, of) in self.made.items() if name not in (n, of.name)}
        if not _acts_on(ins) or ins.guard is not None or ins.opcode not in ("rcp", "ex2", "neg", "abs"):
            return
        target, source = ins.operands
        if isinstance(target, Reg) and isinstance(source, Reg) and target.name != source.name:
            if ins.opcode in ("rcp", "ex2") and "ftz" not in ins.modifiers:
                return
            self.made[target.name] = ins.opcode, source
            self.held |= {target.name, source.name}
            if self.start and {target.name, source.name} <= self.only:
                self.lasting.add(target.name)

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
                known = self._constant(ins.operands[0])
                if known is not None and ins.opcode != "mov":
                    return [self._move(ins, _number(known, ins))]
                if _is_plain_product(ins) and _ONE in map(self._constant, ins.operands[1:]):
                    return self._product(ins)
            return self._selection(ins) if ins.opcode == "mov" and ins.guard is not None else [ins]
        code = self._ACTIONS.get(ins.opcode, _Folder._function)(self, ins)
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
        return [*code, self._move(ins, inverse)] if inverse is not None else [ins]

    def _inverse(self, operand: Operand, ins: Instruction) -> tuple[list[Instruction], Operand | None]:
        """What the unit's reciprocal of a register is without computing it, and the code for that.

        The unit's reciprocal: what it came from. Two to a power that nothing else reads: two to minus that power.
        """
        made, source = self.made.get(operand.name, ("", None)) if isinstance(operand, Reg) else ("", None)
        if source is None or not isinstance(operand, Reg) or made not in ("rcp", "ex2"):
            return [], None
        if made == "rcp":
            return [], source
        if self.reads[operand.name] != 1:
            return [], None
        negative, inverse = self._fresh(ins), self._fresh(ins)
        return [
            instruction(ins, "neg", ("f32",), (negative, source), None),
            instruction(ins, "ex2", ("approx", "ftz", "f32"), (inverse, negative), None),
        ], inverse

    def _sign(self, ins: Instruction) -> list[Instruction]:
        """A change of sign undone is no arithmetic: it leaves a NaN as it is. Under a guard it is a selection."""
        target, source = ins.operands
        x = self._constant(source)
        if x is not None:
            return [self._move(ins, _number(_signed(ins.opcode, x), ins))]
        made, of = self.made.get(source.name, ("", None)) if isinstance(source, Reg) else ("", None)
        if ins.opcode == made == "neg" and of is not None:
            return [self._move(ins, of)]
        if ins.guard is None:
            return [ins]
        code: list[Instruction] = []
        opcode, mask = _RAW[ins.opcode]
        source = self._raw(source, ins, code)
        return [*code, instruction(ins, opcode, ("b32",), (target, source, Immediate(mask, "int", ins.span)), ins.guard)]

    def _selection(self, ins: Instruction) -> list[Instruction]:
        """A selection, or what a guard makes one, changes signs itself, and that of a NaN with them."""
        code: list[Instruction] = []
        sources = [self._raw(o, ins, code) for o in ins.operands[1:]]
        operands = ins.operands[0], *sources
        return [*code, replace(ins, operands=operands)] if code else [ins]

    def _raw(self, operand: Operand, ins: Instruction, code: list[Instruction]) -> Operand:
        """A register behind changes of sign, these made to its bits."""
        made, of = self.made.get(operand.name, ("", None)) if isinstance(operand, Reg) else ("", None)
        if of is None or made not in ("neg", "abs"):
            return operand
        source, result = self._raw(of, ins, code), self._fresh(ins)
        opcode, mask = _RAW[made]
        code.append(instruction(ins, opcode, ("b32",), (result, source, Immediate(mask, "int", ins.span)), None))
        return result

    def _product(self, ins: Instruction) -> list[Instruction]:
        """Times 1: a copy, NaNs and all."""
        a, b = ins.operands[1:]
        return [self._move(ins, a if self._constant(b) == _ONE else b)]

    def _quotient(self, ins: Instruction) -> list[Instruction]:
        form = ins.form
        assert isinstance(form, Form)
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

    _ACTIONS: ClassVar[dict[str, Callable[[_Folder, Instruction], list[Instruction]]]] = {
        "div": _quotient, "mul": _product, "neg": _sign, "abs": _sign, "selp": _selection,
    }  # fmt: skip

    def _move(self, ins: Instruction, source: Operand) -> Instruction:
        return instruction(ins, "mov", ("f32",), (ins.operands[0], source), ins.guard)

    def _fresh(self, ins: Instruction) -> Reg:
        name = f"%fold.{len(self.registers)}"  # no PTX identifier has a dot
        self.registers[name] = "f32"
        return Reg(name, "f32", ins.span)


def _plain(ins: Instruction, values: list[int]) -> int | None:
    """The ordinary arithmetic that ptxas computes beforehand, too; fma and other roundings it does not."""
    form = ins.form
    assert isinstance(form, Form)
    ftz = "ftz" in ins.modifiers
    if ins.opcode == "mov":
        return values[0]
    if ins.opcode == "cvt":
        kind = form["atype"]
        if form["type"] != "f32" or form["rnd"] != "rn" or kind not in ("s32", "u32") or form["sat"]:
            return None
        return F32.rounded(values[0] - (values[0] >> 31 << 32 if kind == "s32" else 0), 0)
    if form["type"] != "f32":
        return None
    a, b = (flushed(v) if ftz else v for v in (values * 2)[:2])
    if ins.opcode in ("neg", "abs"):
        return _signed(ins.opcode, a)
    if any(map(is_nan, values)):
        return None
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


def _signed(opcode: str, x: int) -> int:
    """neg or abs of a constant: its sign alone, and of a signalling NaN a quiet one."""
    x |= QUIET if is_nan(x) else 0
    return x ^ SIGN if opcode == "neg" else x & ~SIGN


def _number(bits: int, ins: Instruction) -> Immediate:
    return Immediate(bits, "f32", ins.span)
