"""Loads, stores, address conversion and asynchronous copies (PTX ISA 9.1, Data Movement and Conversion)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mmulator.codegen.ops import select
from mmulator.codegen.types import Ty, u8, u16, u32, u64, u128
from mmulator.codegen.values import Value, constant, splat
from mmulator.errors import UnsupportedError
from mmulator.isa.scalar import type_bits
from mmulator.machine.compile.block import LANES, vector_type
from mmulator.machine.meaning import lower
from mmulator.machine.runtime import copies, pending, watch
from mmulator.machine.runtime import memory as rt
from mmulator.machine.state import COPIES
from mmulator.program.addresses import FIRST_GLOBAL_SLOT, SLOT_CONST, SLOT_LOCAL, SLOT_PARAM, SLOT_SHARED, SLOT_SHIFT
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
    from mmulator.machine.compile.control import Emitter


def space_of(ins: Instruction) -> str:
    """State space of an access: `global`, `shared`, ..., or `generic`."""
    text = ins.form["space"] if ins.form is not None else ""  # type: ignore[index]
    return text.partition("::")[0] or "generic"


def elements(operand: Operand) -> tuple[Operand, ...]:
    """Of a vector operand; any other is its only one."""
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


def place_of(e: Emitter, ins: Instruction, address: Address) -> tuple[str, Value]:
    """(space, address of each lane). A function that is no kernel has its parameters in local memory."""
    local = _local_address(e, address)
    if local is not None:
        return "local", local
    space = space_of(ins)
    if space == "param" and not e.is_entry and ins.form["space"] != "param::entry":  # type: ignore[index]
        space = "local"
    return space, e.address(address)


@lower("ld", "ldu")
def ld(e: Emitter, ins: Instruction) -> None:
    target, address = ins.operands[:2]
    if not isinstance(address, Address):
        raise UnsupportedError("a load takes an address", span=ins.span)
    names = elements(target)
    type_name = ins.form["type"]  # type: ignore[index]
    size, parts = _parts(type_name)
    count = len(names) * parts
    at = _parameter_offset(e, address, size * count)
    if at is not None:
        _load_parameter(e, ins, names, type_name, at)
        return
    space, where = place_of(e, ins, address)
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


def _parameter_offset(e: Emitter, address: Address, size: int) -> int | None:
    """Constant offset of an access that lies in the kernel's parameters and is aligned; others are checked when they run."""
    if not isinstance(address.base, Symbol):
        return None
    start = e.kernel_parameter(address.base.name)
    if start is None:
        return None
    at = start + address.base.offset + address.offset
    return at if 0 <= at <= e.jit.parameter_bytes - size and at % size == 0 else None


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
    space, where = place_of(e, ins, address)
    size, parts = _parts(type_name)
    ty = _ELEMENT[size].vec(LANES)
    values: list[Value] = []
    for operand in elements(source):
        bits = e.source(operand, f"b{max(type_bits(type_name), 8)}")
        values += [ty(bits)] if parts == 1 else list(_halves(bits))
    place = e.spill(*values)
    at = e.spill(where)
    e.call(rt.store_function(space, size, len(values)), e.w, e.lanes_of(ins), at, place, e.site)
    watch_stores(e, ins, space, at, size * len(values))


def watch_stores(e: Emitter, ins: Instruction, space: str, at: Value, size: int) -> None:
    """Note stores to watched memory, which is global, in a kernel compiled for that."""
    if e.jit.watch and space in ("global", "generic"):
        e.call(watch.note_stores, e.w, e.lanes_of(ins), at, size, e.site)


@lower("applypriority", "discard")
def touch(e: Emitter, ins: Instruction) -> None:
    """No effect on a value that may be read, but as on hardware there must be global memory: for discard, which loses what
    is in it, all the bytes; for applypriority, which hardware takes at any address, one."""
    address, size = ins.operands
    assert isinstance(address, Address) and isinstance(size, Immediate)
    count, access = (size.value, rt.WRITE) if ins.opcode == "discard" else (1, rt.READ)
    e.call(rt.SPACES["global"], e.w, e.lanes_of(ins), e.spill(e.address(address)), count, access, e.site, e.room(U64))


@lower("prefetch", "prefetchu", "cp.async.bulk.prefetch", "createpolicy", "griddepcontrol",
       "setmaxnreg", "pmevent", "nanosleep", "brkpt")  # fmt: skip
def nothing(e: Emitter, ins: Instruction) -> None:
    """Hints: no effect on any value. A destination (a cache policy) becomes zero."""
    specs = getattr(ins.form, "operands", ())
    for spec, operand in zip(specs, ins.operands):
        if spec.access == "w" and isinstance(operand, Reg):
            e.write(operand.name, constant(e.b, vector_type(e.frame.types[operand.name]), 0), e.guard(ins))


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
            value = value & ((1 << SLOT_SHIFT) - 1) | (slot << SLOT_SHIFT)
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
    e.uses(COPIES, copies.carry_out_copy)
    e.call(copies.cp_async, e.w, e.lanes_of(ins), e.spill(where), e.spill(e.address(source)), size.value, e.spill(valid), e.site)


@lower("cp.async.commit_group")
def cp_async_commit(e: Emitter, ins: Instruction) -> None:
    e.call(pending.commit, e.w, COPIES.queue)


@lower("cp.async.wait_group")
def cp_async_wait(e: Emitter, ins: Instruction) -> None:
    groups = ins.operands[0]
    if not isinstance(groups, Immediate):
        raise UnsupportedError("cp.async.wait_group takes a constant", span=ins.span)
    e.call(pending.wait, e.w, COPIES.queue, groups.value)


@lower("cp.async.wait_all")
def cp_async_wait_all(e: Emitter, ins: Instruction) -> None:
    e.call(pending.wait_all, e.w, COPIES.queue)


@lower("membar", "fence", "fence.proxy", "fence.proxy.async", "fence.mbarrier_init", "fence.proxy.alias",
       "fence.proxy.tensormap", "bar.warp.sync", "barrier.warp.sync")  # fmt: skip
def fence(e: Emitter, ins: Instruction) -> None:
    """A real fence: other blocks run on other threads."""
    e.b.line("fence seq_cst")
