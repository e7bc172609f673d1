"""Loads of vectors without the elements that `.pragma "used_bytes_mask n"` leaves out.

nvcc loads four elements where three are wanted: the fourth may lie behind the array, or another thread may write it at that time.
An element stays if an instruction reads its register all the same (nvcc 13.0 writes such masks).
"""

from collections.abc import Iterator
from dataclasses import replace

from mmulator.isa.effects import MemoryEffect
from mmulator.isa.match import match
from mmulator.isa.types import type_bits
from mmulator.ptx.program.uses import registers_of, uses_and_defs
from mmulator.ptx.tree import Address, Function, Instruction, Operand, VectorOperand


def narrow(function: Function) -> Function:
    """The function with loads of used elements alone; the same function if no load has a mask."""
    if all(ins.used_bytes is None for ins in function.instructions):
        return function
    read = {name for ins in function.instructions for name in uses_and_defs(ins)[0]}
    parts = (_narrowed(s, read) if isinstance(s, Instruction) else (s,) for s in function.body)
    return replace(function, body=tuple(statement for part in parts for statement in part))


def _narrowed(ins: Instruction, read: set[str]) -> list[Instruction]:
    used, vector = ins.used_bytes, ins.form["vec"] if ins.effects.memory is MemoryEffect.READ else ""
    target, address = ins.operands[:2] if vector else (None, None)
    if used is None or not vector or not isinstance(target, VectorOperand) or not isinstance(address, Address):
        return [ins]
    size = type_bits(ins.form["type"]) // 8
    names = [{*registers_of(element)} for element in target.elements]
    wanted = [bool(used >> n * size & (1 << size) - 1) or not name.isdisjoint(read) for n, name in enumerate(names)]
    if all(wanted) or not any(wanted):
        return [ins]
    base, loads = {*registers_of(address)}, []
    for first, width in sorted(_pieces(wanted), key=lambda piece: any(base & name for name in names[piece[0] : sum(piece)])):
        words = tuple(f"v{width}" if word == vector else word for word in ins.modifiers if word != vector or width > 1)
        elements = target.elements[first : first + width]
        into: Operand = VectorOperand(elements, target.span) if width > 1 else elements[0]
        operands = into, replace(address, offset=address.offset + first * size), *ins.operands[2:]
        loads.append(replace(ins, modifiers=words, found=match(ins.opcode, words), operands=operands, made_from=ins.original))
    return loads


def _pieces(wanted: list[bool]) -> Iterator[tuple[int, int]]:
    """(first element, number of elements) of aligned pieces that are wanted as a whole."""
    first = 0
    while first < len(wanted):
        width = next((w for w in (4, 2, 1) if first % w == 0 and [*wanted[first : first + w]] == [True] * w), 0)
        if width:
            yield first, width
        first += width or 1
