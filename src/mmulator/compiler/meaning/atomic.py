"""atom and red (PTX ISA 9.1, Parallel Synchronization and Communication Instructions)."""

from mmulator.base.codegen.lang import Native
from mmulator.base.codegen.ops import mask_bits
from mmulator.base.codegen.values import Value
from mmulator.base.errors import must_be
from mmulator.compiler.emit.block import LANES
from mmulator.compiler.emit.emitter import Emitter
from mmulator.compiler.lowering.binding import means
from mmulator.compiler.lowering.operands import elements, write_result
from mmulator.compiler.meaning.memory import ordering, place_of
from mmulator.isa.types import type_bits
from mmulator.ptx.program.addresses import SLOT_SHARED, SLOT_SHIFT
from mmulator.ptx.tree import Address, Instruction, Operand, Reg, Sink
from mmulator.runtime.native.memory.atomic import atomic_function, sum_up
from mmulator.runtime.native.memory.combine import combiner


@means("atom", "red")
def atom(e: Emitter, ins: Instruction) -> None:
    """Write an atomic operation; each element of a vector is a separate one."""
    form = ins.form
    operands = list(ins.operands)
    target: Operand | None = None if isinstance(operands[0], Address) else operands.pop(0)
    address = must_be(operands.pop(0), Address)
    op, type_name = form["op"], form["type"]
    space, where = place_of(e, ins, address)
    vector = combiner(op, type_name, False)[0].vec(LANES)
    sources = [
        e.spill(*(vector(e.source(o, f"b{type_bits(type_name)}")) for o in elements(operand)))
        for operand in operands[: 2 if op == "cas" else 1]
    ]
    count = len(elements(operands[0]))
    if isinstance(target, Sink) or (isinstance(target, Reg) and target.name in e.frame.unread):
        target = None  # ptxas makes a red of it
    place = e.room(vector, count)
    at = e.spill(where)
    with ordering(e, ins, space, at):
        for function, lanes in _functions(e, ins, space, where, count, target is None):
            e.call(function, e.w, lanes, at, sources[0], sources[-1], place, e.site)
    if target is not None:
        for n, operand in enumerate(elements(target)):
            write_result(e, operand, e.fetch(place, vector, n), ins)


def _may_wait(e: Emitter, ins: Instruction, space: str, count: int) -> bool:
    """Whether an addition without a result may be merged with later ones (runtime/native/memory/sums.py). Some instruments watch
    the memory, so each is executed at its place.
    """
    form = ins.form
    waits = (space, form["op"], count) == ("global", "add", 1) and form["type"] in ("u32", "s32")
    return waits and form["sem"] in ("", None, "relaxed") and (e.events is None or e.events.waits)


def _functions(e: Emitter, ins: Instruction, space: str, where: Value, count: int, alone: bool) -> list[tuple[Native, Value]]:
    """The (function, lanes) that execute an operation. For a generic address there are two, because shared memory adds floats
    in a different way. alone: whether no result is needed.
    """
    op, type_name = ins.form["op"], ins.form["type"]
    lanes = e.lanes_of(ins)

    noftz = type_name == "f32" and bool(ins.form["noftz"])  # subnormals stay, as in shared memory

    def function(shared: bool) -> Native:
        ty, combine, suffix = combiner(op, type_name, shared or noftz)
        return atomic_function(space, op, ty, count, combine, suffix)

    if alone and _may_wait(e, ins, space, count):
        return [(sum_up, lanes)]
    if space != "generic" or (op, type_name) not in (("add", "f32"), ("add", "f64")):
        return [(function(space.startswith("shared")), lanes)]
    shared = mask_bits((where >> SLOT_SHIFT) == SLOT_SHARED)
    return [(function(True), lanes & shared), (function(False), lanes & ~shared)]
