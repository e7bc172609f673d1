"""Lanes whose access is impossible: if a launch continues after faults (CompileOptions.keep_going), they are left out of the
instruction.

An instrument is told about them before the access (events.screened). A load gives them zeros, a store does nothing for them.
Instructions for several lanes together (matrices, bulk and tensor copies) end the launch as usual.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from mmulator.base.codegen.ops import bits_mask, load, mask_bits
from mmulator.base.codegen.types import u32
from mmulator.base.codegen.values import Value, constant
from mmulator.base.errors import must_be
from mmulator.compiler.emit.block import LANES, storage_type
from mmulator.compiler.emit.emitter import Emitter
from mmulator.compiler.meaning.memory import place_of
from mmulator.isa.effects import Addressed, Ends, MemoryEffect
from mmulator.ptx.program.addresses import RANK_SHIFT, SLOT_CONST, SLOT_LOCAL, SLOT_SHARED, SLOT_SHIFT
from mmulator.ptx.program.provenance import accessed_bytes
from mmulator.ptx.program.uses import accesses, registers_of
from mmulator.ptx.tree import Address, Instruction, Reg, Symbol
from mmulator.runtime.native.hooks import events
from mmulator.runtime.native.hooks.events import left_variable

_SLOTS = {"shared": SLOT_SHARED, "shared::cluster": SLOT_SHARED, "local": SLOT_LOCAL, "const": SLOT_CONST}
_ACCESS = {MemoryEffect.READ: events.READ, MemoryEffect.WRITE: events.WRITE}
EACH = ("memory", "atomic")  # classes of instructions in which each lane has its own access


def lost(e: Emitter, lanes: Value, space: str, at: Value, bytes: int, access: int) -> Value:
    """Mask of the lanes that cannot access their addresses; each becomes a finding.

    e: the emitter.
    lanes: the lanes that access memory.
    space: state space.
    at: addresses.
    bytes: bytes of each access.
    access: read, write or both.
    """
    place, only = e.room(u32), {"shared": events.Only.OWN, "global": events.Only.GLOBAL}.get(space, events.Only.ANY)
    base = _SLOTS.get(space, 0) << SLOT_SHIFT
    e.call(events.screened, e.w, lanes, e.spill(at), base, bytes, only, access, e.site, place)
    return load(u32, place)


@contextmanager
def screened(e: Emitter, ins: Instruction) -> Iterator[None]:
    """A context around the code of an instruction that leaves out lanes with an impossible access."""
    address = next((o for o in ins.operands if isinstance(o, Address)), None)
    bytes = accessed_bytes(ins) if address is not None and ins.effects.counted_as in EACH else 0
    if not e.kernel.options.keep_going or not bytes:
        yield
        return
    space, at = place_of(e, ins, must_be(address, Address))
    if space == "param":
        yield
        return
    e.dropped = dropped = lost(e, e.lanes_of(ins), space, at, bytes, _ACCESS.get(ins.effects.memory, events.BOTH))
    yield
    e.dropped = None
    for how, operand in accesses(ins):
        if "w" in how and not isinstance(operand, Address):
            for name in registers_of(operand):
                if e.shadow is not None:
                    e.shadow.set(name, None, dropped)
                e.write(name, constant(e.b, storage_type(e.frame.types[name]), 0), bits_mask(dropped))


# variables -----------------------------------------------------------------------------------------------------------


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
