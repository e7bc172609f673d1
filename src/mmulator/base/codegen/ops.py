"""Operations on Values without an operator: selection, bit counting, shuffles, reductions, bit casts, float helpers."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from mmulator.base.codegen.types import CodeError, Ty, boolean, i64, ptr, ptr_to, u8, u16, u32, u64, void
from mmulator.base.codegen.values import Builder, Value, as_value, constant, lanes_constant, mangle, splat, unify


def select(condition: Any, yes: Any, no: Any) -> Value:
    """condition ? yes : no, lane by lane for vectors."""
    if not isinstance(yes, Value) and not isinstance(no, Value):
        raise CodeError("select needs one typed arm")
    a, c = unify(yes, no) if isinstance(yes, Value) else unify(no, yes)[::-1]
    if condition.ty.lanes and not a.ty.lanes:
        a, c = splat(a, condition.ty.lanes), splat(c, condition.ty.lanes)
    return a.b.emit(a.ty, f"select {condition.typed}, {a.typed}, {c.typed}")


def bitcast(ty: Ty, value: Value) -> Value:
    """The bits of a value as another type."""
    if ty.llvm == value.ty.llvm:
        return Value(value.b, ty, value.text)
    return value.b.emit(ty, f"bitcast {value.typed} to {ty.llvm}")


def _same(name: str, value: Value, *extra: Value) -> Value:
    return value.b.intrinsic(name, value.ty, [value, *extra])


def _of_one(name: str, about: str, zero: bool = False) -> Callable[[Any], Value]:
    """An operation of LLVM's on one value. zero: whether LLVM wants to know that zero is allowed."""

    def operation(value: Any) -> Value:
        return _same(name, value, *([constant(value.b, boolean, 0)] if zero else ()))

    operation.__doc__ = about
    return operation


def _of_two(signed: str, unsigned: str, about: str) -> Callable[[Any, Any], Value]:
    """An operation of LLVM's on two integers, one of which may be a Python number, by the type's sign."""

    def operation(a: Any, c: Any) -> Value:
        a, c = unify(a, c) if isinstance(a, Value) else unify(c, a)
        return _same(signed if a.ty.signed else unsigned, a, c)

    operation.__doc__ = about
    return operation


def _of_lanes(signed: str, unsigned: str, about: str) -> Callable[[Value], Value]:
    """An operation of LLVM's on the lanes of a vector, by the type's sign."""

    def operation(value: Value) -> Value:
        name = signed if value.ty.signed else unsigned
        return value.b.intrinsic(f"vector.reduce.{name}", value.ty.element, [value])

    operation.__doc__ = about
    return operation


minimum = _of_two("smin", "umin", "Integer minimum, by the type's sign.")
maximum = _of_two("smax", "umax", "Integer maximum, by the type's sign.")
add_saturating = _of_two("sadd.sat", "uadd.sat", "The sum, clamped to the type's range.")
sub_saturating = _of_two("ssub.sat", "usub.sat", "The difference, clamped to the type's range.")
popcount = _of_one("ctpop", "Number of bits that are set.")
leading_zeros = _of_one("ctlz", "Number of leading zeros; the width for zero.", zero=True)
trailing_zeros = _of_one("cttz", "Number of trailing zeros; the width for zero.", zero=True)
bit_reverse = _of_one("bitreverse", "The bits in the opposite order.")
sqrt = _of_one("sqrt", "Square root, rounded to nearest even.")
floor = _of_one("floor", "The greatest integer that is not greater, as a float.")
ceil = _of_one("ceil", "The least integer that is not less, as a float.")
trunc = _of_one("trunc", "The integer part, as a float.")
round_even = _of_one("roundeven", "The nearest integer, ties to even, as a float.")
reduce_or = _of_lanes("or", "or", "The bitwise or of all lanes.")
reduce_add = _of_lanes("add", "add", "The sum of all lanes.")
reduce_max = _of_lanes("smax", "umax", "The greatest lane.")
reduce_min = _of_lanes("smin", "umin", "The least lane.")
any_lane = _of_lanes("or", "or", "Whether a boolean holds in any lane.")
all_lanes = _of_lanes("and", "and", "Whether a boolean holds in all lanes.")


def funnel_left(high: Value, low: Value, count: Value) -> Value:
    """Upper word of (high:low) << (count mod width)."""
    return _same("fshl", high, low, count)


def funnel_right(high: Value, low: Value, count: Value) -> Value:
    """Lower word of (high:low) >> (count mod width)."""
    return _same("fshr", high, low, count)


def copysign(value: Value, sign: Value) -> Value:
    """The magnitude of a value with the sign of another one."""
    return _same("copysign", value, sign)


def absolute(value: Value) -> Value:
    """The magnitude of a number. That of the least integer is itself."""
    if value.ty.kind == "float":
        return _same("fabs", value)
    return _same("abs", value, constant(value.b, boolean, 0))


def bits_of(mask: Any) -> Iterator[Value]:
    """The numbers of the bits of a mask that are set, from the lowest: `for lane in bits_of(mask)` is a loop at run time."""
    raise CodeError("bits_of is for loops of native functions, which lang.py reads")


def fma(a: Value, c: Any, d: Any) -> Value:
    """Fused multiply-add, round to nearest even."""
    return _same("fma", a, unify(a, c)[1], unify(a, d)[1])


def is_nan(value: Value) -> Value:
    """Whether a float is a NaN."""
    ty = boolean.vec(value.ty.lanes) if value.ty.lanes else boolean
    return value.b.emit(ty, f"fcmp uno {value.typed}, {value.text}")


def to_int_saturating(ty: Ty, value: Value) -> Value:
    """Float to integer toward zero, clamped to the type's range; NaN gives 0."""
    name = "fptosi.sat" if ty.signed else "fptoui.sat"
    return value.b.intrinsic(name, ty, [value], f"{mangle(ty)}.{mangle(value.ty)}")


# vectors ------------------------------------------------------------------------------------------------------------
def shuffle(a: Value, c: Value | None, lanes: Sequence[int]) -> Value:
    """Lanes of a, then of c, by compile-time numbers (-1: any)."""
    ty = a.ty.element.vec(len(lanes))
    other = c.text if c is not None else "poison"
    index = ", ".join("i32 poison" if n < 0 else f"i32 {n}" for n in lanes)
    return a.b.emit(ty, f"shufflevector {a.typed}, {a.ty.llvm} {other}, <{len(lanes)} x i32> <{index}>")


def concat(vectors: Sequence[Value]) -> Value:
    """Vectors of one length joined into one; their number is a power of two."""
    while len(vectors) > 1:
        lanes = range(2 * vectors[0].ty.lanes)
        vectors = [shuffle(a, b, lanes) for a, b in zip(vectors[::2], vectors[1::2])]
    return vectors[0]


def insert(vector: Value, index: Any, value: Any) -> Value:
    """The vector with another value in one lane."""
    at = index.typed if isinstance(index, Value) else f"i32 {index}"
    item = as_value(vector.b, value, vector.ty.element)
    return vector.b.emit(vector.ty, f"insertelement {vector.typed}, {item.typed}, {at}")


def iota(ty: Ty, start: int = 0, step: int = 1) -> Value:
    """The vector start, start + step, start + 2 step and so on."""
    return lanes_constant(Builder.current(), ty, [start + step * n for n in range(ty.lanes)])


def mask_bits(mask: Value) -> Value:
    """A vector of n booleans as an n-bit integer, lane 0 lowest (n 8, 16, 32 or 64)."""
    return bitcast({8: u8, 16: u16, 32: u32, 64: u64}[mask.ty.lanes], mask)


def bits_mask(bits: Value) -> Value:
    """An n-bit integer as n booleans."""
    return bitcast(boolean.vec(bits.ty.bits), bits)


# memory -------------------------------------------------------------------------------------------------------------
def address(field: Any) -> Any:
    """In native code: a pointer to a field of a struct, as `address(log.count)`. base/codegen/lang.py writes the call."""
    raise CodeError("address() is for native code alone")


def load(ty: Ty, pointer: Any, index: Any = 0, align: int | None = None) -> Value:
    """A `ty` at pointer + index * (size of what the pointer points to)."""
    b = pointer.b
    return b.load(ty, b.offset(pointer, index), align)


def store(value: Value, pointer: Any, index: Any = 0, align: int | None = None) -> None:
    """Store a value at pointer + index * (size of what the pointer points to)."""
    b = pointer.b
    b.store(value, b.offset(pointer, index), align)


def masked_load(ty: Ty, pointer: Value, mask: Value, otherwise: Value | None = None, align: int | None = None) -> Value:
    """A vector of whose lanes those in `mask` are loaded; the others are those of `otherwise`, or arbitrary."""
    b = pointer.b
    other = otherwise if otherwise is not None else Value(b, ty, "poison")
    name = f"llvm.masked.load.{mangle(ty)}.p0"
    b.declared[name] = f"declare {ty.llvm} @{name}(ptr, i32, {mask.ty.llvm}, {ty.llvm})"
    if _masked_align_is_attribute():
        b.declared[name] = f"declare {ty.llvm} @{name}(ptr, {mask.ty.llvm}, {ty.llvm})"
        return b.emit(ty, f"call {ty.llvm} @{name}(ptr align {align or ty.align} {pointer.text}, {mask.typed}, {other.typed})")
    return b.emit(ty, f"call {ty.llvm} @{name}(ptr {pointer.text}, i32 {align or ty.align}, {mask.typed}, {other.typed})")


def masked_store(value: Value, pointer: Value, mask: Value, align: int | None = None) -> None:
    """Store the lanes in `mask`. Load, select and store would not be equivalent: other memory may be unmapped or shared."""
    b, ty = pointer.b, value.ty
    name = f"llvm.masked.store.{mangle(ty)}.p0"
    if _masked_align_is_attribute():
        b.declared[name] = f"declare void @{name}({ty.llvm}, ptr, {mask.ty.llvm})"
        b.line(f"call void @{name}({value.typed}, ptr align {align or ty.align} {pointer.text}, {mask.typed})")
        return
    b.declared[name] = f"declare void @{name}({ty.llvm}, ptr, i32, {mask.ty.llvm})"
    b.line(f"call void @{name}({value.typed}, ptr {pointer.text}, i32 {align or ty.align}, {mask.typed})")


def gather(ty: Ty, pointers: Value, mask: Value) -> Value:
    """One element from each pointer of a vector of pointers, 0 in lanes outside `mask`."""
    b = pointers.b
    other = constant(b, ty, 0)
    name = f"llvm.masked.gather.{mangle(ty)}.v{ty.lanes}p0"
    vec = f"<{ty.lanes} x ptr>"
    if _masked_align_is_attribute():
        b.declared[name] = f"declare {ty.llvm} @{name}({vec}, {mask.ty.llvm}, {ty.llvm})"
        return b.emit(ty, f"call {ty.llvm} @{name}({vec} align 1 {pointers.text}, {mask.typed}, {other.typed})")
    b.declared[name] = f"declare {ty.llvm} @{name}({vec}, i32, {mask.ty.llvm}, {ty.llvm})"
    return b.emit(ty, f"call {ty.llvm} @{name}({vec} {pointers.text}, i32 1, {mask.typed}, {other.typed})")


def _masked_align_is_attribute() -> bool:
    """Whether LLVM has the alignment of masked memory intrinsics as an attribute (from LLVM 22 on) instead of an argument."""
    from mmulator.base.codegen.engine import llvm_version

    return llvm_version() >= 22


def copy_bytes(to: Value, source: Value, size: Any) -> None:
    """Copy bytes; the two ranges do not overlap."""
    b = to.b
    n = i64(as_value(b, size, i64))
    b.call("llvm.memcpy.p0.p0.i64", void, [ptr(to), ptr(source), n, constant(b, boolean, 0)])


def prefetch(pointer: Value, write: bool = False) -> None:
    """A hint that the line of memory at a pointer will be read (or written) soon; the pointer may lead anywhere."""
    b = pointer.b
    b.call("llvm.prefetch.p0", void, [ptr(pointer), *(constant(b, u32, n) for n in (int(write), 3, 1))])


def rarely(condition: Value) -> Value:
    """A condition, with the hint that it seldom holds."""
    return condition.b.call("llvm.expect.i1", boolean, [condition, constant(condition.b, boolean, 0)])


def cycles() -> Value:
    """The host's cycle counter (u64), or its other time counter."""
    return Builder.current().call("llvm.readcyclecounter", u64, [])


def atomic_rmw(op: str, pointer: Value, value: Value) -> Value:
    """An atomic operation, LLVM's atomicrmw; returns the old value."""
    return value.b.emit(value.ty, f"atomicrmw {op} ptr {pointer.text}, {value.typed} seq_cst, align {value.ty.size}")


def keep_order(order: str) -> None:
    """Macro: order accesses to memory that the host's other threads see, as x86 orders all of its own: there the compiler alone
    has to be told.

    order: "release" before a store that another thread may wait for; "acquire" behind a load of what another thread has stored;
        "acq_rel" for both.
    """
    from mmulator.base.codegen.cpus import X86
    from mmulator.base.codegen.engine import architecture

    scope = 'syncscope("singlethread") ' if architecture() == X86 else ""
    Builder.current().line(f"fence {scope}{order}")


def compare_exchange(pointer: Value, expected: Value, new: Value) -> Value:
    """A compare and exchange, LLVM's cmpxchg; returns the old value."""
    b, ty = expected.b, expected.ty.llvm
    text = f"cmpxchg ptr {pointer.text}, {expected.typed}, {new.typed} seq_cst seq_cst, align {expected.ty.size}"
    pair = b.emit(expected.ty, text)
    return b.emit(expected.ty, f"extractvalue {{ {ty}, i1 }} {pair.text}, 0")


def fill_bytes(to: Value, byte: int, size: Any) -> None:
    """Set all bytes of a range to one number."""
    b = to.b
    n = i64(as_value(b, size, i64))
    b.call("llvm.memset.p0.i64", void, [ptr(to), constant(b, u8, byte), n, constant(b, boolean, 0)])


def advance(pointers: Value, bytes: int) -> Value:
    """A vector of pointers, each advanced by a number of bytes."""
    return pointers.b.emit(pointers.ty, f"getelementptr i8, {pointers.typed}, i64 {bytes}")


def elements_at(pointer: Value, indices: Value) -> Value:
    """Pointers to the elements with these indices (a vector of integers)."""
    at = (i64 if indices.ty.signed else u64).vec(indices.ty.lanes)(indices)
    ty = pointer.ty.vec(at.ty.lanes)
    return pointer.b.emit(ty, f"getelementptr [{pointer.ty.to.size} x i8], {pointer.typed}, {at.typed}")


def cast_ptr(to: Any, pointer: Value) -> Value:
    """A pointer to another type, with the address of `pointer`."""
    return Value(pointer.b, ptr_to(to), pointer.text)


def stack(ty: Any, count: int = 1) -> Value:
    """Stack space for `count` elements, taken once at entry; pointer to the first."""
    return Builder.current().alloca(ty, count)


def null(to: Any) -> Value:
    """The null pointer to a type or struct."""
    return Value(Builder.current(), ptr_to(to), "null")
