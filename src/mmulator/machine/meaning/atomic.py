"""atom and red (PTX ISA 9.1, Parallel Synchronization and Communication Instructions)."""

from __future__ import annotations

from collections.abc import Callable

from mmulator.codegen.lang import Native
from mmulator.codegen.ops import bitcast, is_nan, mask_bits, select
from mmulator.codegen.types import Ty, f16, f32, f64, i32, u16, u32, u64, u128
from mmulator.codegen.values import Value, constant
from mmulator.errors import InternalError, must_be
from mmulator.isa.types import type_bits
from mmulator.machine.emit.block import LANES, vector_type
from mmulator.machine.emit.emitter import Emitter
from mmulator.machine.meaning.binding import means
from mmulator.machine.meaning.memory import place_of
from mmulator.machine.meaning.operands import elements, write_result
from mmulator.machine.runtime.atomic import INTEGER_OPERATIONS, atomic_function
from mmulator.program.addresses import SLOT_SHARED, SLOT_SHIFT
from mmulator.ptx.tree import Address, Instruction, Operand

Combine = Callable[[Value, Value], Value]

QUIET = 0x0008000000000000


def _flush(x: Value) -> Value:
    """Subnormals to zero of their sign."""
    bits = bitcast(u32, x)
    small = (bits & 0x7F800000) == 0
    return bitcast(f32, select(small, bits & 0x80000000, bits))


def _f32_add(flush: bool) -> Combine:
    def combine(old: Value, operand: Value) -> Value:
        a, c = bitcast(f32, old), bitcast(f32, operand)
        if flush:
            a, c = _flush(a), _flush(c)
        total = _flush(a + c) if flush else a + c
        return select(is_nan(total), constant(old.b, u32, 0x7FFFFFFF), bitcast(u32, total))

    return combine


def _f64_add(shared: bool) -> Combine:
    """NaNs as measured: in global memory the operand's payload before the old value's, as it is; in shared memory the old
    value's before the operand's, quieted."""

    def combine(old: Value, operand: Value) -> Value:
        a, c = bitcast(f64, old), bitcast(f64, operand)
        total = a + c
        first, second = (old, operand) if shared else (operand, old)
        payload = select(is_nan(bitcast(f64, first)), first, second)
        if shared:
            payload = payload | QUIET
        made = constant(old.b, u64, 0xFFF8000000000000)
        nan = select(is_nan(a) | is_nan(c), payload, made)
        return select(is_nan(total), nan, bitcast(u64, total))

    return combine


def _half_add(bfloat: bool) -> Combine:
    def widen(x: Value) -> Value:
        return bitcast(f32, u32(x) << 16) if bfloat else f32(bitcast(f16, x))

    def combine(old: Value, operand: Value) -> Value:
        total = widen(old) + widen(operand)
        if bfloat:
            bits = bitcast(u32, total)
            narrow = u16((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16)
        else:
            narrow = bitcast(u16, f16(total))
        return select(is_nan(total), constant(old.b, u16, 0x7FFF), narrow)

    return combine


def _half_extreme(op: str, bfloat: bool) -> Combine:
    """min and max: -0 is less than +0; a NaN gives way to a number, two NaNs give the canonical one."""
    infinity = 0x7F80 if bfloat else 0x7C00

    def key(x: Value) -> Value:
        """An integer of the same order."""
        magnitude = i32(u32(x & 0x7FFF))
        return select((x & 0x8000) != 0, -1 - magnitude, magnitude)

    def combine(old: Value, operand: Value) -> Value:
        first, second = ((x & 0x7FFF) > infinity for x in (old, operand))
        less = key(old) < key(operand)
        chosen = select(less, old, operand) if op == "min" else select(less, operand, old)
        number = select(first, operand, select(second, old, chosen))
        return select(first & second, constant(old.b, u16, 0x7FFF), number)

    return combine


def _packed(one: Combine) -> Combine:
    def combine(old: Value, operand: Value) -> Value:
        low = one(u16(old), u16(operand))
        high = one(u16(old >> 16), u16(operand >> 16))
        return u32(low) | (u32(high) << 16)

    return combine


def _half(op: str, kind: str) -> Combine:
    bfloat = kind == "bf16"
    return _half_add(bfloat) if op == "add" else _half_extreme(op, bfloat)


_HALVES = {"f16": ("f16", False), "bf16": ("bf16", False), "f16x2": ("f16", True), "bf16x2": ("bf16", True)}


def _combiner(op: str, type_name: str, shared: bool) -> tuple[Ty, Combine | None, str]:
    """(element type, macro or None where the operation is one on integers, suffix of its name)."""
    if type_name in _HALVES and op in ("add", "min", "max"):
        kind, packed = _HALVES[type_name]
        one = _half(op, kind)
        return (u32, _packed(one), "_" + type_name) if packed else (u16, one, "_" + type_name)
    if (op, type_name) == ("add", "f32"):
        return u32, _f32_add(flush=not shared), "_f32" + ("" if shared else "_ftz")
    if (op, type_name) == ("add", "f64"):
        return u64, _f64_add(shared), "_f64" + ("_shared" if shared else "")
    if op in INTEGER_OPERATIONS and type_name[0] in "usb" and type_name[1:].isdigit():
        return u128 if type_name == "b128" else vector_type(type_name).element, None, ""
    raise InternalError(f"atomic {op} of .{type_name} has no meaning")


@means("atom", "red")
def atom(e: Emitter, ins: Instruction) -> None:
    """Of the elements of a vector each is an atomic operation of its own."""
    form = ins.form
    operands = list(ins.operands)
    target: Operand | None = None if ins.opcode == "red" else operands.pop(0)
    address = must_be(operands.pop(0), Address)
    op, type_name = form["op"], form["type"]
    space, where = place_of(e, ins, address)
    vector = _combiner(op, type_name, False)[0].vec(LANES)
    sources = [
        e.spill(*(vector(e.source(o, f"b{type_bits(type_name)}")) for o in elements(operand)))
        for operand in operands[: 2 if op == "cas" else 1]
    ]
    count = len(elements(operands[0]))
    place = e.room(vector, count)
    at = e.spill(where)
    for function, lanes in _functions(e, ins, space, where, count):
        e.call(function, e.w, lanes, at, sources[0], sources[-1], place, e.site)
    if target is not None:
        for n, operand in enumerate(elements(target)):
            write_result(e, operand, e.fetch(place, vector, n), ins)


def _functions(e: Emitter, ins: Instruction, space: str, where: Value, count: int) -> list[tuple[Native, Value]]:
    """(function, its lanes). By a generic address, lanes in shared memory add floats as shared memory does."""
    op, type_name = ins.form["op"], ins.form["type"]
    lanes = e.lanes_of(ins)

    def function(shared: bool) -> Native:
        ty, combine, suffix = _combiner(op, type_name, shared)
        return atomic_function(space, op, ty, count, combine, suffix)

    if space != "generic" or (op, type_name) not in (("add", "f32"), ("add", "f64")):
        return [(function(space.startswith("shared")), lanes)]
    shared = mask_bits((where >> SLOT_SHIFT) == SLOT_SHARED)
    return [(function(True), lanes & shared), (function(False), lanes & ~shared)]
