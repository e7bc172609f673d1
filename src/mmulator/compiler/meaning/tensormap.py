"""Tensor maps made by a kernel (PTX ISA 9.1: tensormap.replace, tensormap.cp_fenceproxy)."""

from mmulator.base.codegen.types import u32, u64
from mmulator.base.codegen.values import constant
from mmulator.base.errors import must_be
from mmulator.compiler.emit.block import LANES
from mmulator.compiler.emit.emitter import Emitter
from mmulator.compiler.lowering.binding import means
from mmulator.compiler.meaning.memory import place_of
from mmulator.ptx.tree import Address, Immediate, Instruction
from mmulator.runtime.native.asynchrony import maps as rt

U32, U64 = u32.vec(LANES), u64.vec(LANES)


@means("tensormap.replace")
def replace(e: Emitter, ins: Instruction) -> None:
    """Write a field of a tensor map; some fields need an ordinal."""
    address, *ordinals, value = ins.operands
    field, type_name = ins.form["field"], ins.form["type"]
    ordinal = must_be(ordinals[0], Immediate).value if ordinals else 0
    space, where = place_of(e, ins, must_be(address, Address))
    if field == "elemtype":
        given = constant(e.b, U64, rt.element_code(must_be(value, Immediate).value))
    else:
        given = U64(e.source(value, "u" + type_name[1:]))
    function = rt.replace_function(space, field, ordinal)
    e.call(function, e.w, e.lanes_of(ins), e.spill(where), e.spill(given), e.site)


@means("tensormap.cp_fenceproxy")
def publish(e: Emitter, ins: Instruction) -> None:
    """Copy a tensor map to global memory. The copy is also a release of the host, because its other threads may read
    the map.
    """
    to, at, _ = ins.operands
    places = [e.spill(e.address(must_be(operand, Address))) for operand in (to, at)]
    e.call(rt.copy_map, e.w, e.lanes_of(ins), *places, e.site)
    e.b.line("fence seq_cst")
