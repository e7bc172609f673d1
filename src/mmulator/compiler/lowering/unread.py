"""For an instrument: what becomes of values whose loads may stay unread (program/undefined.py)."""

from mmulator.compiler.emit.emitter import Emitter
from mmulator.native.hooks.unread import LOADED, READ, WRITTEN, value_moves
from mmulator.program.uses import uses_and_defs
from mmulator.ptx.tree import Instruction


def follow(e: Emitter, ins: Instruction) -> None:
    """Before an instruction: report that it reads or writes registers of such a load. A block reports the first read alone."""
    held = e.kernel.held.get(e.function_name)
    if not held or not e.hears(value_moves):
        return
    uses, defs = uses_and_defs(ins)
    for number in sorted({n for name in uses & held.keys() for n in held[name]} - e.read_before):
        e.call(value_moves, e.w, e.mask, number, READ)
        e.read_before.add(number)
    loaded = e.kernel.unread.get(ins)
    for number in sorted({n for name in defs & held.keys() for n in held[name]}):
        e.call(value_moves, e.w, e.lanes_of(ins), number, LOADED if number == loaded else WRITTEN)
        e.read_before.discard(number)
