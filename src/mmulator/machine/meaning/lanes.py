"""Warp-level instructions: shfl, vote, match, redux, elect, activemask; and mov, which moves packs and addresses too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mmulator.codegen.ops import bits_mask, iota, mask_bits, select, trailing_zeros
from mmulator.codegen.types import i32, u32, u64
from mmulator.codegen.values import Value, constant, splat
from mmulator.errors import UnsupportedError
from mmulator.isa.types import type_bits
from mmulator.machine.compile.block import LANES, storage_type
from mmulator.machine.meaning import lower
from mmulator.machine.meaning.floatbits import FORMATS, is_nan_bits, ordered_key
from mmulator.machine.meaning.memory import elements, write_result
from mmulator.machine.runtime import lanes as rt
from mmulator.ptx.tree import Instruction, Operand, PredicatePair, SpecialRegister, VectorOperand

U32, I32 = u32.vec(LANES), i32.vec(LANES)


if TYPE_CHECKING:
    from mmulator.machine.compile.control import Emitter


def _pair(operand: Operand) -> tuple[Operand, Operand | None]:
    return (operand.p, operand.q) if isinstance(operand, PredicatePair) else (operand, None)


@lower("shfl.sync", "shfl")
def shfl(e: Emitter, ins: Instruction) -> None:
    target, a, b, c = ins.operands[:4]
    d, p = _pair(target)
    place = e.room(U32)
    spilled = [e.spill(U32(e.source(o, "b32"))) for o in (a, b, c)]
    ok = e.call(rt.shfl_function(ins.form["mode"]), *spilled, place)
    write_result(e, d, e.fetch(place, U32), ins)
    if p is not None:
        write_result(e, p, bits_mask(ok), ins)


@lower("vote.sync", "vote")
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
            raise UnsupportedError(f"vote.{mode}", span=ins.span)
    write_result(e, target, result, ins)


@lower("match.any.sync", "match.all.sync", "match.sync", "match")
def match_(e: Emitter, ins: Instruction) -> None:
    target, a, members = ins.operands
    d, p = _pair(target)
    type_name = ins.form["type"]
    ty = u64 if type_bits(type_name) == 64 else u32
    place = e.room(U32)
    value = e.spill(ty.vec(LANES)(e.source(a, f"b{ty.bits}")))
    mask = e.spill(U32(e.source(members, "b32")))
    agree = e.call(rt.match_function("all" in ins.modifiers, ty), value, mask, e.lanes_of(ins), place)
    write_result(e, d, e.fetch(place, U32), ins)
    if p is not None:
        write_result(e, p, bits_mask(agree), ins)


@lower("redux.sync", "redux")
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
    """Least or greatest of the numbers, -0 below +0; NaN if all are, or with .NaN if any is."""
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


@lower("elect.sync", "elect")
def elect(e: Emitter, ins: Instruction) -> None:
    d, p = _pair(ins.operands[0])
    members = U32(e.source(ins.operands[1], "b32")) & e.lanes_of(ins)
    leader = trailing_zeros(members)
    write_result(e, d, leader, ins)
    if p is not None:
        write_result(e, p, leader == iota(U32), ins)


@lower("activemask")
def activemask(e: Emitter, ins: Instruction) -> None:
    write_result(e, ins.operands[0], splat(e.lanes_of(ins), LANES), ins)


# mov ----------------------------------------------------------------------------------------------------------------
@lower("mov")
def mov(e: Emitter, ins: Instruction) -> None:
    target, source = ins.operands
    type_name = ins.form["type"]
    if ins.form["vec"] and isinstance(target, VectorOperand):
        for each, part in zip(target.elements, _elements(source)):
            write_result(e, each, e.source(part, type_name), ins)
    elif isinstance(source, VectorOperand):
        write_result(e, target, _pack(e, source, type_name), ins)
    elif isinstance(target, VectorOperand):
        _unpack(e, target, source, type_name, ins)
    else:
        write_result(e, target, e.source(source, type_name), ins)


def _elements(source: Operand) -> tuple[Operand, ...]:
    """Of a vector, or the components of a special register."""
    if isinstance(source, SpecialRegister):
        return tuple(SpecialRegister(f"{source.name}.{axis}", source.span) for axis in "xyzw")
    return elements(source)


def _pack(e: Emitter, source: VectorOperand, type_name: str) -> Value:
    """Elements side by side, the first in the low bits."""
    bits = type_bits(type_name)
    each = bits // len(source.elements)
    wide = storage_type(f"b{bits}")
    result: Value | None = None
    for n, element in enumerate(source.elements):
        part = wide(e.source(element, f"b{each}"))
        part = part << (n * each) if n else part
        result = part if result is None else result | part
    assert result is not None
    return result


def _unpack(e: Emitter, target: VectorOperand, source: Operand, type_name: str, ins: Instruction) -> None:
    bits = type_bits(type_name)
    each = bits // len(target.elements)
    value = storage_type(f"b{bits}")(e.source(source, f"b{bits}"))
    narrow = storage_type(f"b{each}")
    parts = [narrow(value >> (n * each) if n else value) for n in range(len(target.elements))]
    for element, part in zip(target.elements, parts):
        write_result(e, element, part, ins)
