"""A loop that has not ended: the words of memory that it looks at, what they hold, and what it compares them with."""

from __future__ import annotations

from collections.abc import Iterator

from mmulator.diagnostics.faults.memory import argument_of, named
from mmulator.diagnostics.mbarriers import place_text
from mmulator.diagnostics.whereabouts import LaneGroup
from mmulator.isa.effects import Algebra, MemoryEffect
from mmulator.isa.types import TYPES, type_bits
from mmulator.launch.arena import bytes_at
from mmulator.launch.grid import Grid
from mmulator.launch.resident import ResidentCta
from mmulator.native.state import LANES
from mmulator.numerics.element import number
from mmulator.program.blocks import blocks_from, instructions
from mmulator.program.frames import slot_bytes
from mmulator.program.uses import uses_and_defs
from mmulator.ptx.tree import Address, Immediate, Instruction, Operand, Reg

FEW = 8  # words of an argument that are told where it is not known which the loop reads
MOST = 2  # words and comparisons that are told
_LOOKS = (MemoryEffect.READ, MemoryEffect.ATOMIC)


def waits_for(grid: Grid, cta: ResidentCta, group: LaneGroup) -> str:
    """`; the loop there reads byte 0 of argument 1 (lock), which holds 3, at ..., and compares with 2 at ...`; "" of a loop that
    stores something, or of none.
    """
    blocks = grid.kernel.program.blocks
    if group.state != "runs" or not 0 <= group.pc < len(blocks):
        return ""
    ahead = blocks_from([group.pc], lambda n: blocks[n].targets)
    loop = [n for n in sorted(ahead) if group.pc in blocks_from(blocks[n].targets, lambda k: blocks[k].targets)]
    inside = [i for n in loop for i in instructions(blocks[n])]
    if any(i.effects.memory is MemoryEffect.WRITE and i.form["space"] in ("", "global") for i in inside):
        return ""
    name = next(name for name, item in grid.kernel.program.functions.items() if item is blocks[group.pc].function)
    changing = {register for i in inside for register in uses_and_defs(i)[1]}

    def value(ins: Instruction, operand: Operand | None, type_name: str) -> int | None:
        """Bits of an operand that the loop does not change, in the first lane."""
        if isinstance(operand, Immediate):
            return operand.bits(type_name) if type_name in TYPES else None
        frame = grid.kernel.frames[name]
        if not isinstance(operand, Reg) or operand.name in changing or operand.name not in frame.slots:
            return None
        kind = frame.types[operand.name]
        at, size = int(cta.warps["regs"][group.warp]) + group.frame + frame.slots[operand.name], slot_bytes(kind) // LANES
        lane = (group.lanes & -group.lanes).bit_length() - 1
        return int.from_bytes(bytes_at(at + lane * size, size).tobytes(), "little") if size in (2, 4, 8) else None

    def words() -> Iterator[str]:
        for ins in inside:
            where = next((o for o in ins.operands if isinstance(o, Address)), None)
            if where is None or ins.effects.memory not in _LOOKS or ins.form["space"] not in ("", "global"):
                continue
            base, type_name = value(ins, where.base, "b64"), ins.form["type"]
            if not type_name:
                continue
            size, argument = type_bits(type_name) // 8, argument_of(grid, ins) if base is None else None
            address = base + where.offset if base is not None else argument[0] if argument is not None else -1
            m = next((m for m in named(grid) if m.start <= address <= m.end - size), None)
            if m is None:
                continue
            count = 1 if base is not None else min(m.size // size, FEW)
            raw = bytes_at(m.host + address - m.start, count * size).tobytes()
            each = (int.from_bytes(raw[n : n + size], "little") for n in range(0, len(raw), size))
            held = ", ".join(_text(bits, type_name) for bits in each) + ", ..." * (base is None and m.size > len(raw))
            at = f"byte {address - m.start} of " if base is not None else ""
            yield f"{at}{m.label}, which holds {held}, at {place_text(ins.original)}"

    def compared() -> Iterator[str]:
        for ins in inside:
            if ins.effects.algebra is Algebra.COMPARISON and len(ins.operands) > 2:
                type_name = ins.form["type"]
                given = (value(ins, o, type_name) for o in ins.operands[1:3])
                yield from (f"{_text(bits, type_name)} at {place_text(ins.original)}" for bits in given if bits is not None)

    found, with_ = [*dict.fromkeys(words())][:MOST], [*dict.fromkeys(compared())][:MOST]
    if not found:
        return ""
    return f"; the loop there reads {' and '.join(found)}" + (f", and compares with {' and '.join(with_)}" if with_ else "")


def _text(bits: int, type_name: str) -> str:
    """A value: a number, with a sign if its type has one; bits of floating point as they are."""
    t = TYPES[type_name]
    return f"0x{bits:x}" if t.kind == "float" else str(number(t, bits))
