"""The writer of one basic block: registers as 32-lane values, operands in and results out, masks at the end."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from mmulator.base.codegen.lang import Instrument, Native
from mmulator.base.codegen.ops import bitcast, bits_mask, cast_ptr, load, mask_bits, select, store, trailing_zeros
from mmulator.base.codegen.types import Ty, boolean, f32, f64, i8, i16, i32, i64, ptr, ptr_to, u8, u16, u32, u64, u128, void
from mmulator.base.codegen.values import Builder, Value, constant, extract, splat
from mmulator.base.errors import InternalError
from mmulator.compiler.emit.code import Names
from mmulator.compiler.emit.shadow import Shadow
from mmulator.isa.types import type_bits
from mmulator.ptx.program.addresses import HEADER_LOCAL
from mmulator.ptx.program.blocks import Block
from mmulator.ptx.program.frames import WORD, Frame, pinned_registers
from mmulator.ptx.tree import Address, Immediate, Instruction, NegatedPredicate, Operand, Reg, Sink, SpecialRegister, Symbol
from mmulator.runtime.native.hooks.events import READ, WRITE, Access, register
from mmulator.runtime.native.state import Warp

LANES = 32
_UNSIGNED: dict[int, Ty] = {8: u8, 16: u16, 32: u32, 64: u64, 128: u128}
_SIGNED: dict[int, Ty] = {8: i8, 16: i16, 32: i32, 64: i64}


def known(value: Value) -> int | None:
    """The number that an integer Value has in every lane (as its type reads it), if it is a known constant; otherwise None."""
    text = value.text
    if text == "zeroinitializer":
        return 0
    if text.startswith("splat ("):
        text = text[:-1].split()[-1]
    elif text[0] not in "-0123456789":
        return None
    number = int(text)
    return number if value.ty.signed else number % (1 << value.ty.bits)


@cache
def vector_type(type_name: str) -> Ty:
    """The 32-lane type in which a PTX type is computed; formats other than f32 and f64 are raw bits."""
    if type_name == "pred":
        return boolean.vec(LANES)
    if type_name in ("f32", "f64"):
        return (f32 if type_name == "f32" else f64).vec(LANES)
    bits = max(type_bits(type_name), 8)
    if type_name[0] == "s" and type_name[1:].isdigit():
        return _SIGNED[bits].vec(LANES)
    return _UNSIGNED[bits].vec(LANES)


@cache
def storage_type(type_name: str) -> Ty:
    """The 32-lane type of a register's bits."""
    if type_name == "pred":
        return boolean.vec(LANES)
    return _UNSIGNED[max(type_bits(type_name), 8)].vec(LANES)


def shaped(ty: Ty, like: Value) -> Ty:
    """A vector type, or its element type if `like` is one value for all lanes."""
    return ty if like.ty.lanes else ty.element


class BlockEmitter:
    """The state of a block that is being written.

    values: registers whose current value is known here.
    dirty: registers whose value must be stored.

    A value that is equal in all lanes is a Value without lanes for callers of `one`; other callers get it in 32 lanes. An
    instrument that reads registers gets 32 lanes for all of them.
    """

    def __init__(
        self, b: Builder, block: Block, frame: Frame, names: Names, locals_bytes: int, events: Instrument | None = None
    ) -> None:
        self.b: Builder = b
        self.block, self.frame = block, frame
        self.w, self.regs, self.mask, _ = b.params
        self._names = names
        self.events = events
        # registers whose every access an instrument sees
        self.seen = pinned_registers(block.function) if events is not None and register.under(events) is not None else set()
        self.late: Collection[Instruction | None] = ()  # instructions that are behind where they stood
        self.local_bytes = locals_bytes
        self.values: dict[str, Value] = {}
        self.dirty: dict[str, None] = {}
        self.known: dict[Any, Any] = {}  # what the block has computed of some value and may need again
        self._ones: dict[str, Value] = {}  # of vectors, by their text, the one value that they were made of
        self._spread: dict[tuple[str, Ty], Value] = {}  # the reverse
        self.natives: dict[str, Native] = {}
        self.active = bits_mask(self.mask)
        self.site = 0
        self.current: Instruction | None = None
        self.lanes = LANES
        self.dropped: Value | None = None  # lanes that an instruction is written without
        self.shadow: Shadow | None = None  # which lanes hold a value in which register, if anybody asks
        self.shares: dict[Instruction, Any] = {}  # of what is done together (compiler/lowering/products.py)
        # loads that are done together, with their addresses and sites, and whether one is the last (compiler/meaning/memory.py)
        self.runs: dict[Instruction, tuple[list[tuple[Instruction, Value, int]], bool]] = {}
        self.neighbours: dict[Instruction, Any] = {}  # loads of neighbouring words, likewise
        self.own = self.regs  # the block's own memory for that
        self._rooms: dict[int, list[str]] = {}  # stack memory by its bytes
        self._taken: dict[int, int] = {}  # how many of each the current instruction has

    # native functions -----------------------------------------------------------------------------------------------
    def call(self, function: Native, *args: Any) -> Value:
        """A call of a native function, in the version for the kernel's instrument; nothing for a hook that the instrument does
        not use.
        """
        called = function.under(self.events)
        if called is None:
            return Value(self.b, void, "")
        self.natives[called.name] = called
        return called(*args)

    def hears(self, event: Native) -> bool:
        """Whether the kernel's instrument uses a hook; if not, its arguments need not be computed."""
        return event.under(self.events) is not None

    # registers ------------------------------------------------------------------------------------------------------
    def read(self, name: str) -> Value:
        """A register's bits, for an instruction that reads it."""
        return self.spread(self._read(name))

    def _read(self, name: str) -> Value:
        if name in self.seen:
            self._note(name, READ)
        return self._value(name)

    def spread(self, value: Value) -> Value:
        """The value in 32 lanes."""
        if value.ty.lanes:
            return value
        key = value.text, value.ty
        if key not in self._spread:
            with self.b.apart():
                made = self._spread[key] = splat(value, LANES)
            self._ones[made.text] = value
        return self._spread[key]

    def one_of(self, value: Value) -> Value | None:
        """The one value that all 32 lanes of a value are known to have; None if they may differ."""
        if not value.ty.lanes:
            return value
        if value.ty.kind == "int" and (number := known(value)) is not None:
            return constant(self.b, value.ty.element, number)
        found = self._ones.get(value.text)
        return Value(self.b, value.ty.element, found.text) if found is not None else None

    def _value(self, name: str) -> Value:
        """The value of a register: in 32 lanes, or one value for all lanes."""
        value = self.values.get(name)
        if value is None:
            with self.b.apart():
                value = self._load(name)
            self.values[name] = value
        return value

    def _note(self, name: str, access: int) -> None:
        lanes = self.mask if self.current is None else self.lanes_of(self.current)
        said = access | Access.LATER if self.current in self.late else access
        self.call(register, self.w, lanes, self.frame.slots[name], said, self.site)

    def _place(self, name: str) -> Value:
        at = self.frame.words[name] if name in self.frame.words else self.frame.slots[name]
        return self.b.emit(ptr_to(u8), f"getelementptr i8, ptr {self.regs.text}, i64 {at}")

    def _load(self, name: str) -> Value:
        ty = storage_type(self.frame.types[name])
        if name in self.frame.words:
            word = ty.element if ty.bits > 1 else u8
            value = self.b.load(word, self._place(name))
            return value if ty.bits > 1 else value != 0
        if name not in self.frame.slots:  # never written on any path that is seen from here: zero
            return constant(self.b, ty, 0)
        if ty.bits == 1:
            return bits_mask(self.b.load(u32, self._place(name)))
        return self.b.load(ty, self._place(name), align=4)

    def write(self, name: str, value: Value, guard: Value | None = None) -> None:
        """Set a register from bits of its size; lanes outside `guard` keep theirs."""
        value = self._as_stored(name, value)
        ty = storage_type(self.frame.types[name])
        bits = self.to_bits(value, ty)
        if value.ty.kind == "float" and value.ty.lanes and value.ty.bits == ty.bits:
            self.known[bits.text, bits.ty, value.ty, False] = value
        value = bits
        if name in self.seen:
            self._note(name, WRITE)
        if guard is not None:
            old = self._value(name)
            whole = self.one_of(guard)
            if whole is None or value.ty != old.ty:
                value, old = self.spread(value), self.spread(old)
            value = select(guard if whole is None else whole, value, old)
        if value.ty.lanes and name in self.frame.uniform:
            raise InternalError(f"{name} was thought to be one value, and is not")
        self.values[name] = value
        self.dirty[name] = None

    def _as_stored(self, name: str, value: Value) -> Value:
        """The value in the form in which a register stores it: one value for a uniform register (of any active lane), 32 lanes
        under an instrument.
        """
        if value.ty.lanes and name in self.frame.uniform:
            one = self.one_of(value)
            return extract(value, trailing_zeros(self.mask)) if one is None else one
        return value if self.events is None else self.spread(value)

    def to_bits(self, value: Value, ty: Ty) -> Value:
        """A computed value as register bits: unchanged, or extended by the value's own sign."""
        if value.ty.kind == "float":
            with self.b.apart():
                value = bitcast(shaped(_UNSIGNED[value.ty.bits].vec(LANES), value), value)
        if ty.bits == 1:
            return value if value.ty.bits == 1 else value != 0
        return shaped(ty, value)(value)

    def flush(self, everything: bool = False) -> None:
        """Store registers that later blocks read, or all registers before an operation that reads the register file
        (`everything`).
        """
        if self.shadow is not None:
            self.shadow.flush()
        live = self.frame.live_out[self.block.index]
        for name in self.dirty:
            if (name in self.frame.slots or name in self.frame.words) and (everything or name in live):
                with self.b.apart():
                    self._store(name)
                self.b.cut()
        if everything:
            self.dirty.clear()

    def _store(self, name: str) -> None:
        value = self.values[name]
        if name in self.frame.words:
            self.b.store(value if value.ty.bits > 1 else u8(value), self._place(name))
            return
        value, place = self.spread(value), self._place(name)
        if value.ty.bits == 1:
            old = self.b.load(u32, place)
            self.b.store((mask_bits(value) & self.mask) | (old & ~self.mask), place)
        else:
            self.b.store(select(self.active, value, self.b.load(value.ty, place, align=4)), place, align=4)

    def store_registers(self, names: list[str]) -> None:
        """Store the current values of these registers, because a native function reads them from the register file."""
        for name in names:
            if name in self.dirty:
                self._store(name)
                del self.dirty[name]

    def place_now(self, name: str, bits: int) -> int | None:
        """Offset in the register file where the current value of a register of `bits` bits lies; None if it is not there."""
        if name in self.dirty or name in self.seen or type_bits(self.frame.types[name]) != bits:
            return None
        return self.frame.slots.get(name)

    def place_then(self, name: str, bits: int) -> int | None:
        """Offset in the register file to which an operation of all lanes may write a register of `bits` bits directly; None if
        the register does not live on.
        """
        if name in self.seen or type_bits(self.frame.types[name]) != bits or name not in self.frame.live_out[self.block.index]:
            return None
        return self.frame.slots.get(name)

    def words_of(self, names: list[str]) -> Value | None:
        """Address of the first word of uniform registers whose words are contiguous; None if they are not."""
        at = [self.frame.words.get(n, -1) for n in names]
        if at[0] < 0 or at != [at[0] + WORD * n for n in range(len(at))]:
            return None
        return cast_ptr(u64, self._place(names[0]))

    def written(self, name: str) -> None:
        """Note that a native function has written a register in the register file."""
        self.values.pop(name, None)
        self.dirty.pop(name, None)

    # operands -------------------------------------------------------------------------------------------------------
    def guard(self, ins: Instruction) -> Value | None:
        """The lanes for which a guarded instruction acts; None without a guard."""
        if ins.guard is None:
            return None
        register, negated = ins.guard
        value = self._read(register.name)
        return self.spread(~value if negated else value)

    def lanes_of(self, ins: Instruction) -> Value:
        """Mask of an instruction's active lanes: the block's lanes without those that the guard excludes."""
        guard = self.guard(ins)
        lanes = self.mask if self.dropped is None else self.mask & ~self.dropped
        if guard is None:
            return lanes
        whole = self.one_of(guard)
        return lanes & mask_bits(guard) if whole is None else select(whole, lanes, 0)

    def source(self, operand: Operand, type_name: str) -> Value:
        """An operand's value in the computing type of a PTX type."""
        return self.spread(self._source(operand, type_name))

    def one(self, operand: Operand, type_name: str) -> Value | None:
        """An operand as one value; None if lanes may differ."""
        if self.events is not None or (isinstance(operand, Reg) and self.one_of(self._value(operand.name)) is None):
            return None
        return self.one_of(self._source(operand, type_name))

    def _source(self, operand: Operand, type_name: str) -> Value:
        ty = vector_type(type_name)
        match operand:
            case Reg(name=name):
                return self.typed(self._read(name), ty, self.frame.types[name])
            case Immediate():
                return self.immediate(operand.bits(type_name), ty)
            case NegatedPredicate(register=register):
                return ~self._read(register.name)
            case SpecialRegister(name=name):
                return self.typed(self._names.special(self, name), ty, "")
            case Symbol():
                return self.typed(self._names.symbol(self, operand), ty, "")
            case Sink():
                return constant(self.b, ty, 0)
        raise InternalError(f"{operand} is no source")

    def typed(self, value: Value, ty: Ty, declared: str) -> Value:
        """Register bits as a computing type; a wider register gives its low bits, a narrower one is extended by its type."""
        key = value.text, value.ty, ty, declared[:1] == "s"
        found = self.known.get(key)
        if found is None:
            found = self.known[key] = self._typed(value, ty, declared)
        return found

    def _typed(self, value: Value, ty: Ty, declared: str) -> Value:
        if ty.bits == 1:
            return value if value.ty.bits == 1 else value != 0
        if ty.kind == "float":
            value = _UNSIGNED[ty.bits].vec(LANES)(self.spread(value))
            with self.b.apart():
                return bitcast(ty, value)
        if ty.bits > value.ty.bits > 1 and declared[:1] == "s":
            value = bitcast(shaped(_SIGNED[value.ty.bits].vec(LANES), value), value)
        return shaped(ty, value)(value)

    def immediate(self, bits: int, ty: Ty) -> Value:
        if ty.kind == "float":
            return bitcast(ty, constant(self.b, _UNSIGNED[ty.bits].vec(LANES), bits))
        return constant(self.b, ty, bits)

    def symbol(self, operand: Symbol) -> Value:
        """Address of a variable (u64 x 32)."""
        return self.spread(self._names.symbol(self, operand))

    def local_base(self) -> Value:
        """Offset of this frame's local memory, per lane (u32 x 32)."""
        place = self.b.emit(ptr_to(u8), f"getelementptr i8, ptr {self.regs.text}, i64 {HEADER_LOCAL}")
        return self.b.load(u32.vec(LANES), place)

    def address(self, operand: Address) -> Value:
        """base + offset, u64 x 32. With a 32-bit register the sum has 32 bits, as on hardware: a negative base and a positive
        offset may give an address in shared memory.
        """
        return self.spread(self._address(operand))

    def one_address(self, operand: Address) -> Value | None:
        """An address as one value; None if lanes may differ."""
        if self.events is not None or (isinstance(operand.base, Reg) and self.one_of(self._value(operand.base.name)) is None):
            return None
        return self.one_of(self._address(operand))

    def _address(self, operand: Address) -> Value:
        match operand.base:
            case Reg(name=name):
                value = self._read(name)
                wide = shaped(u64.vec(LANES), value)
                if value.ty.bits == 32 and operand.offset:
                    value = value + (operand.offset & 0xFFFFFFFF)
                    return wide(value)
                value = wide(value)
            case Symbol() as base:
                value = self._names.symbol(self, base)
            case Immediate() as base:
                value = constant(self.b, u64, base.value)
        return value + operand.offset if operand.offset else value

    # memory for out-of-line functions -------------------------------------------------------------------------------
    def next_site(self, ins: Instruction, sites: list[Instruction]) -> None:
        """Begin an instruction: give it a site number, and free the stack memory of the previous instruction."""
        self.b.cut()
        self.site, self.current = len(sites), ins
        sites.append(ins.original)
        self._taken.clear()

    def _stack(self, ty: Ty, count: int) -> Value:
        size = ty.size * count
        rooms, taken = self._rooms.setdefault(size, []), self._taken.get(size, 0)
        if taken == len(rooms):
            rooms.append(self.b.alloca(ty, count).text)
        self._taken[size] = taken + 1
        return Value(self.b, ptr_to(ty), rooms[taken])

    @contextmanager
    def passing(self) -> Iterator[None]:
        """A context whose stack memory is free again at its end."""
        taken = dict(self._taken)
        yield
        self._taken = taken

    def spill(self, *values: Value) -> Value:
        """Vectors in consecutive stack memory until the instruction's end; a pointer to the first lane of the first."""
        ty = values[0].ty
        place = self._stack(ty, len(values))
        for n, value in enumerate(values):
            store(value, place, n)
        return Value(self.b, ptr_to(ty.element), place.text)

    def room(self, ty: Ty, count: int = 1) -> Value:
        """Stack memory for `count` vectors of `ty`, until the instruction's end."""
        place = self._stack(ty, count)
        return Value(self.b, ptr_to(ty.element), place.text)

    def fetch(self, place: Value, ty: Ty, number: int = 0) -> Value:
        """Vector `number` of stack memory."""
        return load(ty, Value(self.b, ptr_to(ty), place.text), number)

    def warp(self, field: str) -> Any:
        return self.w.field(field)


BLOCK_PARAMS = [("w", ptr_to(Warp)), ("regs", ptr), ("mask", u32), ("pc", i32)]
