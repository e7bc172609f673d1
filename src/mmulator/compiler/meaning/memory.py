"""Loads, stores and hints about memory (PTX ISA 9.1, Data Movement and Conversion Instructions)."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from mmulator.base.codegen.ops import cast_ptr, keep_order
from mmulator.base.codegen.types import Ty, u8, u16, u32, u64, u128
from mmulator.base.codegen.values import Value, constant
from mmulator.base.errors import must_be
from mmulator.compiler.emit.block import LANES, shaped, vector_type
from mmulator.compiler.emit.emitter import Emitter
from mmulator.compiler.lowering.binding import means
from mmulator.compiler.lowering.operands import elements, space_of, write_result
from mmulator.isa.effects import MemoryEffect
from mmulator.isa.types import type_bits
from mmulator.ptx.program.addresses import SLOT_CONST, SLOT_LOCAL, SLOT_PARAM, SLOT_SHARED, SLOT_SHIFT
from mmulator.ptx.program.choices import is_sum
from mmulator.ptx.program.frames import unread_results
from mmulator.ptx.program.uniform import is_plain_load, neighbours
from mmulator.ptx.program.uniform import runs as uniform_runs
from mmulator.ptx.tree import Address, Immediate, Instruction, Operand, Reg, Symbol
from mmulator.runtime.native.hooks import events
from mmulator.runtime.native.hooks.events import order_of
from mmulator.runtime.native.memory import memory as rt
from mmulator.runtime.native.memory import straight, uniform, windows
from mmulator.runtime.native.memory.sums import settle_of

U64 = u64.vec(LANES)
_ELEMENT: dict[int, Ty] = {1: u8, 2: u16, 4: u32, 8: u64}


def _local_address(e: Emitter, address: Address) -> Value | None:
    """Address in this frame's local memory, if `address` is a variable that lives there."""
    if isinstance(address.base, Symbol):
        offset = e.frame_offset(address.base.name)
        if offset is not None:
            return U64(e.local_base()) + (offset + address.base.offset + address.offset)
    return None


def place_of(e: Emitter, ins: Instruction, address: Address) -> tuple[str, Value]:
    """(space, address of each lane). A called function has its parameters in local memory."""
    local = _local_address(e, address)
    if local is not None:
        return "local", local
    space = space_of(ins)
    if space == "param" and not e.is_entry and ins.form["space"] != "param::entry":
        space = "local"
    return space, e.address(address)


_SLOT = {"shared": SLOT_SHARED, "local": SLOT_LOCAL, "const": SLOT_CONST, "param": SLOT_PARAM}
_DEFAULTS = {MemoryEffect.ATOMIC: "relaxed"}
_DOES = {MemoryEffect.READ: events.LOADS, MemoryEffect.WRITE: events.STORES}


@contextmanager
def ordering(e: Emitter, ins: Instruction, space: str, at: Value) -> Iterator[None]:
    """A context around an access that orders it for the threads of other blocks, and reports its semantics to an instrument,
    unless it is weak.

    e, ins: the emitter and the instruction.
    space: state space.
    at: a vector of addresses, or the place where they are spilled.
    """
    form = ins.form
    sem = form["sem"] or _DEFAULTS.get(ins.effects.memory, "weak")
    if sem == "weak":
        yield
        return
    if ins.effects.memory is MemoryEffect.READ:
        e.call(settle_of, e.w)
    base = _SLOT.get(space.partition("::")[0], 0) << SLOT_SHIFT
    does = _DOES.get(ins.effects.memory, events.LOADS | events.STORES)
    element = type_bits(form["type"]) // (16 if form["type"].endswith("x2") else 8)  # the two of a packed type are accessed alone
    how = order_of(sem, form["scope"] or "gpu") | does | (element.bit_length() - 1) << events.SIZE_SHIFT
    if e.events is not None and ins.effects.memory is MemoryEffect.ATOMIC and is_sum(ins, unread_results(e.block.function)):
        how |= events.SUM
    told = e.w, e.lanes_of(ins), e.spill(at) if at.ty.lanes else at, base, how
    e.call(events.ordered, *told, 0, e.site)
    others = space in ("global", "generic") and ins.effects.memory is not MemoryEffect.ATOMIC  # an atomic operation orders itself
    if others and does & events.STORES:
        keep_order("release")
    yield
    if others and does & events.LOADS:
        keep_order("acquire")
    e.call(events.ordered, *told, 1, e.site)


@means("ld", "ldu")
def ld(e: Emitter, ins: Instruction) -> None:
    target, address = ins.operands[0], must_be(ins.operands[1], Address)
    names = elements(target)
    type_name = ins.form["type"]
    size, parts = _parts(type_name)
    count = len(names) * parts
    at = _parameter_offset(e, address, size * count)
    if at is not None:
        _load_parameter(e, ins, names, type_name, at)
        return
    if _load_run(e, ins) or (is_plain_load(ins) and _load_one(e, ins, names, type_name)):
        return
    space, where = place_of(e, ins, address)
    ty = _ELEMENT[size].vec(LANES)
    if ins in e.neighbours and space != "local":
        write_result(e, names[0], _as_type(_load_neighbour(e, ins, space, where), type_name), ins)
        return
    if size == 4 and count == 1 and space != "local":
        function = straight.load_row_word_function(space) if _in_row(e, ins, space, 4) else rt.load_word_function(space)
        with ordering(e, ins, space, where):
            word = e.call(function, e.w, e.lanes_of(ins), where, e.site)
        write_result(e, names[0], _as_type(word, type_name), ins)
        return
    place = e.room(ty, count)
    load = straight.load_row_function if _in_row(e, ins, space, size * count) else rt.load_function
    with ordering(e, ins, space, spilled := e.spill(where)):
        e.call(load(space, size, count), e.w, e.lanes_of(ins), spilled, place, e.site)
    values = [e.fetch(place, ty, n) for n in range(count)]
    for n, operand in enumerate(names):
        value = values[n] if parts == 1 else _join(values[2 * n], values[2 * n + 1])
        write_result(e, operand, _as_type(value, type_name), ins)


def _in_row(e: Emitter, ins: Instruction, space: str, bytes: int) -> bool:
    """Whether lanes are expected to access memory side by side, without ordering other accesses."""
    weak = e.events is None and space in straight.SPACES and (ins.form["sem"] or "weak") == "weak"
    return weak and e.frame.steps.get(ins) == bytes


def prepare_runs(e: Emitter) -> None:
    """Find loads of the block that are done together."""
    if e.events is None:
        for run in uniform_runs(e.block, e.frame.uniform):
            waiting: list[tuple[Instruction, Value, int]] = []
            e.runs |= {ins: (waiting, ins is run[-1]) for ins in run}
        for group in neighbours(e.block, e.frame.uniform):
            e.neighbours |= dict.fromkeys(group, _Neighbours(group))


@dataclass
class _Neighbours:
    """Loads of neighbouring words. there: whether all are loaded, to the memory `words`; set where the first is written."""

    loads: list[Instruction]
    words: Value | None = None
    there: Value | None = None


def _load_neighbour(e: Emitter, ins: Instruction, space: str, at: Value) -> Value:
    """Load a word, or take it if it was loaded with the first of its neighbours."""
    group: _Neighbours = e.neighbours[ins]
    number = group.loads.index(ins)
    if group.words is None or group.there is None:
        count = len(group.loads)
        group.words = e.b.alloca(u8, 4 * LANES * count)
        function = rt.words_function(space, count)
        group.there = e.call(function, e.w, e.mask, at - 4 * number, group.words, e.site)
    return e.call(rt.kept_function(space), e.w, e.mask, at, group.there, group.words + 4 * LANES * number, e.site)


def _load_run(e: Emitter, ins: Instruction) -> bool:
    """Collect a load that is done with others at the place of the last; False for other loads."""
    if ins not in e.runs:
        return False
    waiting, last = e.runs[ins]
    at = must_be(e.one_address(must_be(ins.operands[1], Address)), Value)
    waiting.append((ins, at, e.site))
    if not last:
        return True
    targets = [elements(i.operands[0]) for i, _, _ in waiting]  # of one register each
    names = [must_be(o, Reg).name for (o,) in targets]
    size = type_bits(ins.form["type"]) // 8
    places, sites = e.room(u64, len(waiting)), e.room(u32, len(waiting))
    for n, (_, at, site) in enumerate(waiting):
        places[n], sites[n] = at, site
    there = e.words_of(names) if all(type_bits(e.frame.types[n]) == 8 * size for n in names) else None
    words = e.room(u64, len(waiting)) if there is None else there
    e.call(uniform.run_function(space_of(ins), size), e.w, e.mask, places, words, len(waiting), sites)
    for n, (load, _, _) in enumerate(waiting):
        if there is None:
            value = _ELEMENT[size](e.fetch(words, u64, n))
            write_result(e, targets[n][0], _as_type(value, load.form["type"]), load)
        else:
            e.written(names[n])
    return True


def _load_one(e: Emitter, ins: Instruction, names: tuple[Operand, ...], type_name: str) -> bool:
    """Load once for all lanes if they have one address; False if that is not known."""
    address = must_be(ins.operands[1], Address)
    size, parts = _parts(type_name)
    at = e.one_address(address) if parts == 1 and (e.is_entry or space_of(ins) != "param") else None
    guard = e.guard(ins)
    if at is None or (guard is not None and e.one_of(guard) is None):
        return False
    element = _ELEMENT[size]
    place = e.room(element, len(names))
    e.call(uniform.load_function(space_of(ins), size, len(names)), e.w, e.lanes_of(ins), at, place, e.site)
    for n, operand in enumerate(names):
        write_result(e, operand, _as_type(e.fetch(place, element, n), type_name), ins)
    return True


def _parts(type_name: str) -> tuple[int, int]:
    """(bytes of a memory element, elements of a register): 128 bits are two of 64."""
    size = max(type_bits(type_name), 8) // 8
    return (8, 2) if size == 16 else (size, 1)


def _join(low: Value, high: Value) -> Value:
    wide = shaped(u128.vec(LANES), low)
    return wide(low) | (wide(high) << 64)


def _halves(value: Value) -> tuple[Value, Value]:
    return U64(value), U64(value >> 64)


def _as_type(value: Value, type_name: str) -> Value:
    ty = vector_type(type_name)
    return value if ty.kind == "float" else shaped(ty, value)(value)


def _parameter_offset(e: Emitter, address: Address, size: int) -> int | None:
    """Constant offset of an aligned access within the kernel's parameters; None for others, which are checked at run time."""
    if not isinstance(address.base, Symbol):
        return None
    start = e.kernel_parameter(address.base.name)
    if start is None:
        return None
    at = start + address.base.offset + address.offset
    return at if 0 <= at <= e.kernel.parameter_bytes - size and at % size == 0 else None


def _load_parameter(e: Emitter, ins: Instruction, names: tuple[Operand, ...], type_name: str, at: int) -> None:
    """Load a kernel parameter at a constant offset, once for all lanes."""
    size, parts = _parts(type_name)
    base = windows.parameter(e, ins, at, size * len(names) * parts)
    for n, operand in enumerate(names):
        values = []
        for part in range(parts):
            place = base + (n * parts + part) * size
            values.append(e.b.load(_ELEMENT[size], place, align=1))
        value = values[0] if parts == 1 else _join(*values)
        write_result(e, operand, _as_type(value, type_name), ins)


@means("st")
def st(e: Emitter, ins: Instruction) -> None:
    address, source = must_be(ins.operands[0], Address), ins.operands[1]
    type_name = ins.form["type"]
    space, where = place_of(e, ins, address)
    size, parts = _parts(type_name)
    ty = _ELEMENT[size].vec(LANES)
    values: list[Value] = []
    for operand in elements(source):
        bits = e.source(operand, f"b{max(type_bits(type_name), 8)}")
        values += [ty(bits)] if parts == 1 else list(_halves(bits))
    place = e.spill(*values)
    store = straight.store_row_function if _in_row(e, ins, space, size * len(values)) else rt.store_function
    with ordering(e, ins, space, spilled := e.spill(where)):
        e.call(store(space, size, len(values)), e.w, e.lanes_of(ins), spilled, place, e.site)
    if space != "local" and (ins.form["sem"] or "weak") == "weak" and e.hears(events.lanes_stored):
        if len(values) > 1:
            place = e.room(ty, len(values))
            rt.put(rt.joined(values), place)
        base = _SLOT.get(space.partition("::")[0], 0) << SLOT_SHIFT
        image = cast_ptr(u8, place)
        e.call(events.lanes_stored, e.w, e.lanes_of(ins), spilled, base, size * len(values), image, 0, e.site)


@means("applypriority", "discard")
def touch(e: Emitter, ins: Instruction) -> None:
    """Check that there is global memory, as on hardware: for discard, which loses its content, all bytes; for applypriority,
    which hardware accepts at any address, one byte. The bytes stay as they are; the sanitizer knows that they are lost.
    """
    at, size = e.spill(e.address(must_be(ins.operands[0], Address))), must_be(ins.operands[1], Immediate).value
    if ins.effects.memory is MemoryEffect.WRITE:
        e.call(windows.SPACES["global"], e.w, e.lanes_of(ins), at, size, events.WRITE, e.site, e.room(U64))
        e.call(windows.lose_each, e.w, e.lanes_of(ins), at, size)
    else:
        e.call(windows.hold_each, e.w, e.lanes_of(ins), at, 1, e.site)


@means("prefetch", "prefetchu")
def prefetch(e: Emitter, ins: Instruction) -> None:
    """Write nothing, because no value changes. With .valid_addr a chip (sm_90) loads a byte, which must exist."""
    if ins.form["valid"]:
        e.call(windows.hold_each, e.w, e.lanes_of(ins), e.spill(e.address(must_be(ins.operands[0], Address))), 1, e.site)


@means("createpolicy")
def createpolicy(e: Emitter, ins: Instruction) -> None:
    """Write zero as the policy: a cache policy has no effect on values."""
    write_result(e, ins.operands[0], constant(e.b, U64, 0), ins)
