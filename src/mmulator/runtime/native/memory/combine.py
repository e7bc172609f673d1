"""The arithmetic of atomic operations and reductions: macros on bits, with the results of a GPU's memory.

Measured on an H100 and an H200. An integer operation that the host has too is a name of LLVM's.
"""

from collections.abc import Callable
from functools import cache

from mmulator.base.codegen.lang import Native
from mmulator.base.codegen.ops import atomic_rmw, bitcast, cast_ptr, compare_exchange, is_nan, select
from mmulator.base.codegen.types import Ty, f16, f32, f64, i16, i32, i64, ptr, u8, u16, u32, u64, u128
from mmulator.base.codegen.values import Value, constant
from mmulator.base.errors import InternalError

Combine = Callable[[Value, Value], Value]  # the new value of the old one and the operand

QUIET = 0x0008000000000000
_UNSIGNED = {8: u8, 16: u16, 32: u32, 64: u64, 128: u128}
_SIGNED = {16: i16, 32: i32, 64: i64}


# integers -----------------------------------------------------------------------------------------------------------
def _inc(old: Value, operand: Value) -> Value:
    return select(old >= operand, operand * 0, old + 1)


def _dec(old: Value, operand: Value) -> Value:
    return select((old == 0) | (old > operand), operand, old - 1)


# LLVM's names, for unsigned and signed integers; inc and dec have none.
RMW = {"add": ("add", "add"), "and": ("and", "and"), "or": ("or", "or"), "xor": ("xor", "xor"), "exch": ("xchg", "xchg"),
       "min": ("umin", "min"), "max": ("umax", "max")}  # fmt: skip
OWN: dict[str, Combine] = {"inc": _inc, "dec": _dec}
INTEGER_OPERATIONS = frozenset((*RMW, *OWN, "cas"))


# floats -------------------------------------------------------------------------------------------------------------
def _flush(bits: Value) -> Value:
    """Subnormals to zero of their sign, as f32."""
    small = (bits & 0x7F800000) == 0
    return bitcast(_of(f32, bits), select(small, bits & 0x80000000, bits))


def _of(ty: Ty, like: Value) -> Ty:
    """A type with as many lanes as a value has."""
    return ty.vec(like.ty.lanes) if like.ty.lanes else ty


def _f32_add(flush: bool) -> Combine:
    def combine(old: Value, operand: Value) -> Value:
        a, c = ((_flush(x) if flush else bitcast(_of(f32, x), x)) for x in (old, operand))
        total = bitcast(old.ty, a + c)
        result = bitcast(old.ty, _flush(total)) if flush else total
        return select(is_nan(a + c), constant(old.b, old.ty, 0x7FFFFFFF), result)

    return combine


def _f64_add(shared: bool) -> Combine:
    """f64 addition with NaNs as measured: in global memory the operand's payload is preferred to the old value's, unchanged; in
    shared memory the old value's to the operand's, quieted.
    """

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
    """min and max: -0 is less than +0; a number is preferred to a NaN, two NaNs give the canonical one."""
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


def combiner(op: str, type_name: str, shared: bool) -> tuple[Ty, Combine | None, str]:
    """(element type, macro or None for an integer operation of the host, suffix of its name). shared: whether it is an atomic
    in shared memory, where float additions differ from those in global memory.
    """
    if type_name in _HALVES and op in ("add", "min", "max"):
        kind, packed = _HALVES[type_name]
        one = _half(op, kind)
        return (u32, _packed(one), "_" + type_name) if packed else (u16, one, "_" + type_name)
    if (op, type_name) == ("add", "f32"):
        return u32, _f32_add(flush=not shared), "_f32" + ("" if shared else "_ftz")
    if (op, type_name) == ("add", "f64"):
        return u64, _f64_add(shared), "_f64" + ("_shared" if shared else "")
    if op in INTEGER_OPERATIONS and type_name[0] in "usb" and type_name[1:].isdigit():
        return (_SIGNED if type_name[0] == "s" else _UNSIGNED)[int(type_name[1:])], None, ""
    raise InternalError(f"atomic {op} of .{type_name} has no meaning")


# reductions ----------------------------------------------------------------------------------------------------------
@cache
def reduce_function(op: str, kind: str, shared: bool = False) -> Native:
    """A function (target, source, count): target[i] = target[i] op source[i], element by element, in order.

    op: the operation.
    kind: a PTX type; `f32` keeps subnormals here, unlike atom.global.add, and `f32.ftz` does not.
    shared: whether the target is in shared memory, which only one thread of the host accesses.

    Both pointers are aligned to an element.
    """
    ty, combine, suffix = combiner(op, kind.removesuffix(".ftz"), kind == "f32")
    own = combine or OWN.get(op)
    rmw = "" if own else RMW[op][ty.signed]

    def reduce(target: ptr, source: ptr, count: u64) -> None:
        into, of = cast_ptr(ty, target), cast_ptr(ty, source)
        for i in range(count):
            if own is None:
                atomic_rmw(rmw, into + i, of[i])
            elif shared:
                into[i] = own(into[i], of[i])
            else:
                old = into[i]
                seen = compare_exchange(into + i, old, own(old, of[i]))
                while seen != old:
                    old = seen
                    seen = compare_exchange(into + i, old, own(old, of[i]))

    return Native(reduce, f"reduce_{op}_{ty.name}{suffix}{'_shared' if shared else ''}")
