"""Steps of addresses: by how much they probably rise from one lane of a warp to the next.

Addresses that rise by the bytes of an access lie side by side. This is a guess, from the text alone, by one pass: code that
relies on it asks the addresses themselves first (runtime/native/memory/straight.py).
"""

from collections.abc import Callable, Collection

from mmulator.base.errors import must_be
from mmulator.isa.effects import Algebra, MemoryEffect, Pointer
from mmulator.ptx.program.blocks import FunctionBlocks
from mmulator.ptx.program.uses import uses_and_defs
from mmulator.ptx.tree import Address, Immediate, Instruction, Operand, Reg, SpecialRegister, Symbol

_LANES = 31
_MOST = 1 << 32  # bytes; a larger step is that of no access, and a long chain of products would make numbers of any length
_SPECIAL = {"tid.x": 1, "laneid": 1}
_VARYING = ("tid", "lane", "clock", "globaltimer")

Step = int | None  # None: unknown
Rule = Callable[[list[Operand], list[Step]], Step]


def _number(operand: Operand) -> int | None:
    return operand.bits("b32") if isinstance(operand, Immediate) else None


def _product(operands: list[Operand], steps: list[Step]) -> Step:
    if steps[0] == steps[1] == 0:
        return 0
    for factor, step in ((operands[0], steps[1]), (operands[1], steps[0])):
        number = _number(factor)
        if number is not None and step is not None:
            return number * step
    return None


def _sum(steps: list[Step]) -> Step:
    return None if None in steps else sum(s for s in steps if s is not None)


def _difference(operands: list[Operand], steps: list[Step]) -> Step:
    return None if steps[0] is None or steps[1] is None else steps[0] - steps[1]


def _and(operands: list[Operand], steps: list[Step]) -> Step:
    """A mask that keeps the bits in which lanes differ keeps the step."""
    for mask, step in zip(operands[::-1], steps):
        number = _number(mask)
        if step and number is not None:
            return step if (_LANES * step) & ~number == 0 else None
    return 0 if steps == [0, 0] else None


def _beside(operands: list[Operand], steps: list[Step]) -> Step:
    """Bits that are set or changed beside those in which lanes differ keep the step."""
    for other, step, its in zip(operands[::-1], steps, steps[::-1]):
        if step and its == 0:
            return None if (_LANES * step) & (_number(other) or 0) else step
    return 0 if steps == [0, 0] else None


def _shifted(operands: list[Operand], steps: list[Step]) -> Step:
    number = _number(operands[1])
    if steps == [0, 0]:
        return 0
    return None if steps[0] is None or number is None else steps[0] << (number & 63)


_OF_POINTERS: dict[Pointer, Rule] = {
    Pointer.SAME: lambda _, steps: steps[0],
    Pointer.SUM: lambda _, steps: _sum(steps),
    Pointer.DIFFERENCE: _difference,
    Pointer.ADDEND: lambda operands, steps: _sum([_product(operands, steps), steps[2]]),
}
_OF_NUMBERS: dict[Algebra, Rule] = {
    Algebra.AND: _and,
    Algebra.OR: _beside,
    Algebra.XOR: _beside,
    Algebra.SHIFT: _shifted,
    Algebra.MULTIPLE: _product,
}


def steps_of(function: FunctionBlocks, uniform: Collection[str]) -> dict[Instruction, int]:
    """The steps that are guessed, by instruction, of the first address in a register. uniform: registers with one value for all
    lanes.
    """
    known: dict[str, int] = {}
    found: dict[Instruction, int] = {}

    def step(operand: Operand) -> Step:
        match operand:
            case Reg(name=name):
                return 0 if name in uniform else known.get(name)
            case Immediate() | Symbol():
                return 0
            case SpecialRegister(name=name):
                return _SPECIAL.get(name, None if name.startswith(_VARYING) else 0)
        return None

    for block in function.blocks:
        for ins in block.body:
            if ins.effects.memory is not MemoryEffect.NONE:
                address = next((o.base for o in ins.operands if isinstance(o, Address)), None)
                its = step(address) if isinstance(address, Reg) else None
                if its is not None:
                    found[ins] = its
            _note(ins, step, known)
    return found


def _note(ins: Instruction, step: Callable[[Operand], Step], known: dict[str, int]) -> None:
    """Record the step of an instruction's result."""
    if not ins.operands:
        return
    effects, target, made = ins.effects, ins.operands[0], None
    if effects.pointer is not Pointer.OTHER or effects.algebra is not Algebra.NONE:
        rule = _OF_POINTERS.get(effects.pointer) or _OF_NUMBERS.get(effects.algebra)
        if rule is not None and isinstance(target, Reg):
            sources = [*ins.operands[1:]]
            made = rule(sources, [step(o) for o in sources])
    if made is not None and abs(made) <= _MOST:
        known[must_be(target, Reg).name] = made
    elif known:
        for name in uses_and_defs(ins)[1]:
            known.pop(name, None)
