"""Loads, stores, atomics, address conversion and asynchronous copies (PTX ISA 9.1, Data Movement and Conversion)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from mmulator.codegen.lang import Native
from mmulator.codegen.ops import bitcast, is_nan, select
from mmulator.codegen.types import Ty, f32, f64, u8, u16, u32, u64, u128
from mmulator.codegen.values import Value, constant, splat
from mmulator.errors import UnsupportedError
from mmulator.isa.scalar import type_bits
from mmulator.machine.emit import LANES, vector_type
from mmulator.machine.lower import lower
from mmulator.machine.runtime import memory as rt
from mmulator.machine.runtime import watch
from mmulator.machine.state import FIRST_GLOBAL_SLOT, SLOT_CONST, SLOT_LOCAL, SLOT_PARAM, SLOT_SHARED, SLOT_SHIFT
from mmulator.ptx.tree import (
    Address,
    Immediate,
    Instruction,
    NegatedPredicate,
    Operand,
    Reg,
    Symbol,
    VectorOperand,
)

U64, U32 = u64.vec(LANES), u32.vec(LANES)
_ELEMENT: dict[int, Ty] = {1: u8, 2: u16, 4: u32, 8: u64}
_SLOTS = {"shared": SLOT_SHARED, "local": SLOT_LOCAL, "const": SLOT_CONST, "param": SLOT_PARAM}


if TYPE_CHECKING:
    from mmulator.machine.emitter import Emitter


def space_of(ins: Instruction) -> str:
    """State space of an access: `global`, `shared`, ..., or `generic`."""
    text = ins.form["space"] if ins.form is not None else ""  # type: ignore[index]
    return text.partition("::")[0] or "generic"


def _elements(operand: Operand) -> tuple[Operand, ...]:
    return operand.elements if isinstance(operand, VectorOperand) else (operand,)


def write_result(e: Emitter, operand: Operand, value: Value, ins: Instruction) -> None:
    """Put a computed value into a destination register, unless it is `_`."""
    if isinstance(operand, Reg):
        e.write(operand.name, value, e.guard(ins))


def _local_address(e: Emitter, address: Address) -> Value | None:
    """Address in this frame's local memory, if `address` is a variable that lives there."""
    if isinstance(address.base, Symbol):
        offset = e.frame_offset(address.base.name)
        if offset is not None:
            return U64(e.local_base()) + (offset + address.base.offset + address.offset)
    return None


def _place(e: Emitter, ins: Instruction, address: Address) -> tuple[str, Value]:
    """(space, address of each lane)."""
    local = _local_address(e, address)
    if local is not None:
        return "local", local
    space, where = space_of(ins), e.address(address)
    if space in ("const", "param"):  # windows of generic addresses: an offset into them gets their slot
        where = (where & ((1 << SLOT_SHIFT) - 1)) | (_SLOTS[space] << SLOT_SHIFT)
    return space, where


@lower("ld", "ldu")
def ld(e: Emitter, ins: Instruction) -> None:
    target, address = ins.operands[:2]
    if not isinstance(address, Address):
        raise UnsupportedError("a load takes an address", span=ins.span)
    names = _elements(target)
    type_name = ins.form["type"]  # type: ignore[index]
    if isinstance(address.base, Symbol) and (at := e.kernel_parameter(address.base.name)) is not None:
        _load_parameter(e, ins, names, type_name, at + address.base.offset + address.offset)
        return
    space, where = _place(e, ins, address)
    size, parts = _parts(type_name)
    count = len(names) * parts
    ty = _ELEMENT[size].vec(LANES)
    place = e.room(ty, count)
    e.call(rt.load_function(space, size, count), e.w, e.lanes_of(ins), e.spill(where), place, e.site)
    values = [e.fetch(place, ty, n) for n in range(count)]
    for n, operand in enumerate(names):
        value = values[n] if parts == 1 else _join(values[2 * n], values[2 * n + 1])
        write_result(e, operand, _as_type(value, type_name), ins)


def _parts(type_name: str) -> tuple[int, int]:
    """(bytes of a memory element, elements of a register): 128 bits are two of 64."""
    size = max(type_bits(type_name), 8) // 8
    return (8, 2) if size == 16 else (size, 1)


def _join(low: Value, high: Value) -> Value:
    wide = u128.vec(LANES)
    return wide(low) | (wide(high) << 64)


def _halves(value: Value) -> tuple[Value, Value]:
    return U64(value), U64(value >> 64)


def _as_type(value: Value, type_name: str) -> Value:
    ty = vector_type(type_name)
    return value if ty.kind == "float" else ty(value)


def _load_parameter(e: Emitter, ins: Instruction, names: tuple[Operand, ...], type_name: str, at: int) -> None:
    """A kernel parameter at a constant offset is the same for all lanes."""
    size, parts = _parts(type_name)
    base = e.launch_field("params")
    for n, operand in enumerate(names):
        values = []
        for part in range(parts):
            place = base + (at + (n * parts + part) * size)
            values.append(splat(e.b.load(_ELEMENT[size], place, align=1), LANES))
        value = values[0] if parts == 1 else _join(*values)
        write_result(e, operand, _as_type(value, type_name), ins)


@lower("st")
def st(e: Emitter, ins: Instruction) -> None:
    address, source = ins.operands[:2]
    if not isinstance(address, Address):
        raise UnsupportedError("a store takes an address", span=ins.span)
    type_name = ins.form["type"]  # type: ignore[index]
    space, where = _place(e, ins, address)
    size, parts = _parts(type_name)
    ty = _ELEMENT[size].vec(LANES)
    values: list[Value] = []
    for operand in _elements(source):
        bits = e.source(operand, f"b{max(type_bits(type_name), 8)}")
        values += [ty(bits)] if parts == 1 else list(_halves(bits))
    place = e.spill(*values)
    at = e.spill(where)
    e.call(rt.store_function(space, size, len(values)), e.w, e.lanes_of(ins), at, place, e.site)
    _watch(e, ins, space, at, size * len(values))


def _watch(e: Emitter, ins: Instruction, space: str, at: Value, size: int) -> None:
    """Note stores to watched memory, which is global, in a kernel compiled for that."""
    if e.jit.watch and space in ("global", "generic"):
        e.call(watch.note_stores, e.w, e.lanes_of(ins), at, size, e.site)


@lower("prefetch", "prefetchu", "applypriority", "discard", "cp.async.bulk.prefetch", "createpolicy", "griddepcontrol",
       "setmaxnreg", "pmevent", "nanosleep", "brkpt")  # fmt: skip
def nothing(e: Emitter, ins: Instruction) -> None:
    """Hints: no effect on any value. A destination (a cache policy) becomes zero."""
    specs = getattr(ins.form, "operands", ())
    for spec, operand in zip(specs, ins.operands):
        if spec.access == "w" and isinstance(operand, Reg):
            e.write(operand.name, constant(e.b, vector_type(e.frame.types[operand.name]), 0), e.guard(ins))


Combine = Callable[[Value, Value], Value]


# atomics ------------------------------------------------------------------------------------------------------------
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


QUIET = 0x0008000000000000


def _flush(x: Value) -> Value:
    """Subnormals to zero of their sign."""
    bits = bitcast(u32, x)
    small = (bits & 0x7F800000) == 0
    return bitcast(f32, select(small, bits & 0x80000000, bits))


def _half_add(bfloat: bool) -> Combine:
    from mmulator.codegen.types import f16

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


def _packed(one: Combine) -> Combine:
    def combine(old: Value, operand: Value) -> Value:
        low = one(u16(old), u16(operand))
        high = one(u16(old >> 16), u16(operand >> 16))
        return u32(low) | (u32(high) << 16)

    return combine


def _combiner(op: str, type_name: str, space: str) -> tuple[Ty, Combine | None, str]:
    """(element type, macro or None where LLVM has the operation, suffix of its name)."""
    if op == "add":
        match type_name:
            case "f32":
                # global atomics flush subnormals, shared ones keep them (PTX ISA, atom)
                flush = space != "shared"
                return u32, _f32_add(flush), "_f32" + ("_ftz" if flush else "")
            case "f64":
                return u64, _f64_add(space == "shared"), "_f64" + ("_shared" if space == "shared" else "")
            case "f16" | "bf16":
                return u16, _half_add(type_name == "bf16"), "_" + type_name
            case "f16x2" | "bf16x2":
                return u32, _packed(_half_add(type_name == "bf16x2")), "_" + type_name
    bits = type_bits(type_name)
    if bits == 128:
        return u128, None, ""
    ty = vector_type(type_name).element
    if ty.kind == "float":
        raise UnsupportedError(f"atom.{op}.{type_name} is not supported")
    return ty, None, ""


@lower("atom", "red")
def atom(e: Emitter, ins: Instruction) -> None:
    """Vector forms are one atomic operation an element."""
    form = ins.form
    assert form is not None
    operands = list(ins.operands)
    target: Operand | None = None if ins.opcode == "red" else operands.pop(0)
    address = operands.pop(0)
    if not isinstance(address, Address):
        raise UnsupportedError("an atomic operation takes an address", span=ins.span)
    op, type_name = form["op"], form["type"]  # type: ignore[index]
    space, where = _place(e, ins, address)
    ty, combine, suffix = _combiner(op, type_name, space)
    function = rt.atomic_function(space, op, ty, combine, suffix)
    targets = _elements(target) if target is not None else ()
    sources = [_elements(o) for o in operands[: 2 if op == "cas" else 1]]
    for n in range(len(sources[0])):
        old = _one_atomic(e, ins, function, ty, where + n * ty.size, [s[n] for s in sources], type_name)
        if targets:
            write_result(e, targets[n], old, ins)


def _one_atomic(
    e: Emitter, ins: Instruction, function: Native, ty: Ty, where: Value, sources: list[Operand], type_name: str
) -> Value:
    vector = ty.vec(LANES)
    values = [vector(e.source(o, f"b{type_bits(type_name)}")) for o in sources]
    if len(values) == 1:
        values.append(values[0])
    place = e.room(vector)
    spilled = [e.spill(v) for v in values]
    at = e.spill(where)
    e.call(function, e.w, e.lanes_of(ins), at, *spilled, place, e.site)
    _watch(e, ins, space_of(ins), at, ty.size)
    return e.fetch(place, vector)


# addresses ----------------------------------------------------------------------------------------------------------
@lower("cvta", "cvta.to")
def cvta(e: Emitter, ins: Instruction) -> None:
    """Between an address of a state space and a generic address: the slot's number in the upper bits."""
    target, source = ins.operands
    value = U64(e.source(source, ins.form["type"]))  # type: ignore[index]
    slot = _SLOTS.get(space_of(ins))
    if slot is not None:
        if form_is_to(ins):
            value = value & ((1 << SLOT_SHIFT) - 1)
        else:
            value = value | (slot << SLOT_SHIFT)
    write_result(e, target, value, ins)


def form_is_to(ins: Instruction) -> bool:
    return "to" in ins.modifiers


@lower("isspacep")
def isspacep(e: Emitter, ins: Instruction) -> None:
    target, source = ins.operands
    slot = U64(e.source(source, "u64")) >> SLOT_SHIFT
    space = space_of(ins)
    # parameters lie in global memory, an H100 says
    answer = slot == _SLOTS[space] if space in _SLOTS else (slot >= FIRST_GLOBAL_SLOT) | (slot == SLOT_PARAM)
    write_result(e, target, answer, ins)


_RANK_SHIFT, _RANK = 24, 0xFF000000


@lower("mapa")
def mapa(e: Emitter, ins: Instruction) -> None:
    """A block is a cluster of its own: rank 0 is its shared memory, any other lies outside, one window of 16 MiB a rank."""
    own = U64(e.source(ins.operands[1], ins.form["type"]))  # type: ignore[index]
    rank = U64(e.source(ins.operands[2], "u32"))
    write_result(e, ins.operands[0], (own & (0xFFFFFFFFFFFFFFFF ^ _RANK)) | ((rank << _RANK_SHIFT) & _RANK), ins)


@lower("getctarank")
def getctarank(e: Emitter, ins: Instruction) -> None:
    own = U64(e.source(ins.operands[1], ins.form["type"]))  # type: ignore[index]
    write_result(e, ins.operands[0], U32((own & _RANK) >> _RANK_SHIFT), ins)


# cp.async -----------------------------------------------------------------------------------------------------------
@lower("cp.async")
def cp_async(e: Emitter, ins: Instruction) -> None:
    to, source, size, *rest = ins.operands
    if not isinstance(to, Address) or not isinstance(source, Address) or not isinstance(size, Immediate):
        raise UnsupportedError("cp.async takes two addresses and a size", span=ins.span)
    valid = constant(e.b, U32, size.value)
    for operand in rest:
        if isinstance(operand, NegatedPredicate) or (isinstance(operand, Reg) and operand.type == "pred"):
            valid = select(e.source(operand, "pred"), constant(e.b, U32, 0), valid)  # ignore-src
        elif not (isinstance(operand, Reg) and type_bits(operand.type) == 64):  # 64 bits: a cache policy
            valid = U32(e.source(operand, "u32"))  # src-size
    where = e.address(to)
    e.call(rt.cp_async, e.w, e.lanes_of(ins), e.spill(where), e.spill(e.address(source)), size.value, e.spill(valid), e.site)


@lower("cp.async.commit_group")
def cp_async_commit(e: Emitter, ins: Instruction) -> None:
    e.call(rt.cp_async_commit, e.w)


@lower("cp.async.wait_group")
def cp_async_wait(e: Emitter, ins: Instruction) -> None:
    pending = ins.operands[0]
    if not isinstance(pending, Immediate):
        raise UnsupportedError("cp.async.wait_group takes a constant", span=ins.span)
    e.call(rt.cp_async_wait, e.w, pending.value)


@lower("cp.async.wait_all")
def cp_async_wait_all(e: Emitter, ins: Instruction) -> None:
    e.call(rt.cp_async_wait_all, e.w)


@lower("membar", "fence", "fence.proxy", "fence.proxy.async", "fence.mbarrier_init", "fence.proxy.alias",
       "fence.proxy.tensormap", "bar.warp.sync", "barrier.warp.sync")  # fmt: skip
def fence(e: Emitter, ins: Instruction) -> None:
    """A real fence: other blocks run on other threads."""
    e.b.line("fence seq_cst")
