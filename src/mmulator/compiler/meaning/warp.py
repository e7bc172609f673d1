"""Warp-level instructions: shfl, vote, match, redux, elect, activemask (PTX ISA 9.1)."""

from mmulator.base.codegen.ops import bits_mask, iota, mask_bits, select, shuffle, trailing_zeros
from mmulator.base.codegen.types import i32, u32, u64
from mmulator.base.codegen.values import constant, extract, splat
from mmulator.base.errors import InternalError
from mmulator.compiler.emit.block import LANES
from mmulator.compiler.emit.emitter import Emitter
from mmulator.compiler.lowering.binding import means
from mmulator.compiler.lowering.floatbits import FORMATS, is_nan_bits, ordered_key
from mmulator.compiler.lowering.operands import pair, write_result
from mmulator.isa.types import type_bits
from mmulator.ptx.program.uniform import takes_one_lane
from mmulator.ptx.tree import Immediate, Instruction
from mmulator.runtime.native.hooks.events import warp_met
from mmulator.runtime.native.threads import warp as rt

U32, I32 = u32.vec(LANES), i32.vec(LANES)


@means("shfl.sync")
def shfl(e: Emitter, ins: Instruction) -> None:
    target, a, b, c = ins.operands[:4]
    d, p = pair(target)
    mode, value = ins.form["mode"], U32(e.source(a, "b32"))
    if isinstance(b, Immediate) and isinstance(c, Immediate):
        sources = rt.shfl_sources(mode, b.bits("b32"), c.bits("b32"))
        result = extract(value, sources[0][0]) if takes_one_lane(ins) else shuffle(value, None, [lane for lane, _ in sources])
        ok = constant(e.b, u32, sum(inside << lane for lane, (_, inside) in enumerate(sources)))
    else:
        place = e.room(U32)
        spilled = [e.spill(value), *(e.spill(U32(e.source(o, "b32"))) for o in (b, c))]
        ok = e.call(rt.shfl_function(mode), *spilled, place)
        result = e.fetch(place, U32)
    write_result(e, d, result, ins)
    if p is not None:
        write_result(e, p, bits_mask(ok), ins)


@means("vote.sync")
def vote(e: Emitter, ins: Instruction) -> None:
    target, source = ins.operands[:2]
    mode = ins.form["mode"]
    active = e.lanes_of(ins)
    yes = mask_bits(e.source(source, "pred")) & active
    members = U32(e.source(ins.operands[2], "b32")) if len(ins.operands) > 2 else splat(e.mask, LANES)
    members = members & active
    agreeing = members & yes
    match mode:
        case "all":
            result = agreeing == members
        case "any":
            result = agreeing != 0
        case "uni":
            result = (agreeing == 0) | (agreeing == members)
        case "ballot":
            result = agreeing
        case _:
            raise InternalError(f"vote.{mode}")
    write_result(e, target, result, ins)


@means("match.any.sync", "match.all.sync")
def match_(e: Emitter, ins: Instruction) -> None:
    target, a, members = ins.operands
    d, p = pair(target)
    type_name = ins.form["type"]
    ty = u64 if type_bits(type_name) == 64 else u32
    place = e.room(U32)
    value = e.spill(ty.vec(LANES)(e.source(a, f"b{ty.bits}")))
    mask = e.spill(U32(e.source(members, "b32")))
    e.call(warp_met, e.w, e.lanes_of(ins), e.site)  # in libcu++ the chosen lane then acts for the others
    agree = e.call(rt.match_function("all" in ins.modifiers, ty), value, mask, e.lanes_of(ins), place)
    write_result(e, d, e.fetch(place, U32), ins)
    if p is not None:
        write_result(e, p, bits_mask(agree), ins)


@means("redux.sync")
def redux(e: Emitter, ins: Instruction) -> None:
    target, a, members = ins.operands
    form = ins.form
    type_name, op = form["type"], form["op"]
    if type_name == "f32":
        _redux_float(e, ins, op)
        return
    ty = i32 if type_name == "s32" else u32
    place = e.spill(constant(e.b, ty.vec(LANES), 0))
    value = e.spill(ty.vec(LANES)(e.source(a, type_name)))
    e.call(rt.redux_function(op, ty.signed), value, e.spill(U32(e.source(members, "b32"))), e.lanes_of(ins), place)
    write_result(e, target, e.fetch(place, ty.vec(LANES)), ins)


def _redux_float(e: Emitter, ins: Instruction, op: str) -> None:
    """The least or greatest number, with -0 below +0; NaN if all are NaN, or with .NaN if any is."""
    target, a, members = ins.operands
    form = ins.form
    bits = U32(e.source(a, "b32"))
    if form["abs"]:
        bits = bits & 0x7FFFFFFF
    nan = is_nan_bits(bits, FORMATS["f32"])
    neutral = 0x7FFFFFFF if op == "min" else -0x80000000
    keys = select(nan, neutral, ordered_key(bits))
    every = form["NaN"] == ""
    mask, active = e.spill(U32(e.source(members, "b32"))), e.lanes_of(ins)
    best, bad = e.spill(constant(e.b, I32, 0)), e.spill(constant(e.b, U32, 0))
    e.call(rt.redux_function(op, True), e.spill(keys), mask, active, best)
    e.call(rt.redux_function("and" if every else "or", False), e.spill(U32(nan)), mask, active, bad)
    result = U32(ordered_key(U32(e.fetch(best, I32))))
    write_result(e, target, select(e.fetch(bad, U32) != 0, 0x7FFFFFFF, result), ins)


@means("elect.sync")
def elect(e: Emitter, ins: Instruction) -> None:
    d, p = pair(ins.operands[0])
    members = U32(e.source(ins.operands[1], "b32")) & e.lanes_of(ins)
    leader = trailing_zeros(members)
    write_result(e, d, leader, ins)
    if p is not None:
        write_result(e, p, leader == iota(U32), ins)


@means("activemask")
def activemask(e: Emitter, ins: Instruction) -> None:
    write_result(e, ins.operands[0], splat(e.lanes_of(ins), LANES), ins)
