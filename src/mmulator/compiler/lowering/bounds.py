"""Checks of addresses that were computed from a variable and have left it, at the instructions that access memory there."""

from mmulator.codegen.ops import mask_bits
from mmulator.codegen.types import u32
from mmulator.codegen.values import constant
from mmulator.compiler.emit.block import LANES
from mmulator.compiler.emit.emitter import Emitter
from mmulator.compiler.meaning.memory import place_of
from mmulator.isa.effects import Addressed, Ends
from mmulator.native.hooks.events import left_variable
from mmulator.program.addresses import RANK_SHIFT, SLOT_CONST, SLOT_LOCAL, SLOT_SHARED, SLOT_SHIFT
from mmulator.program.provenance import accessed_bytes
from mmulator.ptx.tree import Address, Instruction, Reg, Symbol

_SLOTS = {"shared": SLOT_SHARED, "local": SLOT_LOCAL, "const": SLOT_CONST}


def stay_inside(e: Emitter, ins: Instruction) -> None:
    """Before an access, report the lanes whose address has left the variable from which it was computed."""
    if e.shadow is None or ins.effects.ends is not Ends.NO:
        return
    address = next((o for o in ins.operands if isinstance(o, Address)), None)
    size = accessed_bytes(ins) if address is not None else 0
    if address is None or not size:
        return
    known, variables = e.kernel.origins[e.function_name], e.kernel.variables[e.function_name]
    base = address.base
    symbol = known.get(base.name) if isinstance(base, Reg) else base if isinstance(base, Symbol) else None
    variable = variables.get(symbol.name) if symbol is not None else None
    if symbol is None or variable is None:
        return
    start = e.symbol(Symbol(symbol.name, 0, symbol.space, symbol.span))
    _, where = place_of(e, ins, address)
    lanes = e.lanes_of(ins)
    if ins.effects.addressed is Addressed.ROWS:
        lanes = constant(e.b, u32, (1 << 8 * max(1, ins.form.num)) - 1)
    offset = u32.vec(LANES)(where - start)  # whatever the slot says, ...
    if variable.space == "shared":
        offset = offset & ((1 << RANK_SHIFT) - 1)  # ... and the rank
    bad = lanes & mask_bits(offset > variable.size - size if size <= variable.size else offset == offset)
    with e.b.if_(bad != 0):
        at = e.spill(where & 0xFFFFFFFF)
        slot = _SLOTS[variable.space] << SLOT_SHIFT
        begin = e.spill(start)
        e.call(left_variable, e.w, bad, at, slot, begin, size, variable.size, e.site)


