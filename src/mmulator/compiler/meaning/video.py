"""Scalar and SIMD video instructions (PTX ISA 9.1) on selected bytes and halves.

`scalar`, `mad` and `simd` are pure functions of the operands; selectors are the suffixes of the registers.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from mmulator.base.codegen.ops import absolute, maximum, minimum, select
from mmulator.base.codegen.types import Ty
from mmulator.base.codegen.values import Value, constant
from mmulator.compiler.emit.emitter import Emitter
from mmulator.compiler.lowering.binding import Lanes, means
from mmulator.compiler.lowering.operands import write_result
from mmulator.compiler.lowering.scope import I32, I64, U32, U64, Mods, Scope, mods, outline, to
from mmulator.isa.row import Row
from mmulator.isa.video import MAD, SCALAR, SIMD
from mmulator.ptx.tree import Instruction, Operand, Reg


class Selectors(NamedTuple):
    """Selectors of d, a and b, without the dot. signs: whether a, b and c are negated."""

    d: str = ""
    a: str = ""
    b: str = ""
    signs: tuple[bool, bool, bool] = (False, False, False)

    @property
    def key(self) -> str:
        signs = "".join("n" if s else "p" for s in self.signs)
        return "_".join((self.d or "d", self.a or "a", self.b or "b", signs))


def _place(selector: str) -> tuple[int, int]:
    """(lowest bit, bits) of a selected byte or half."""
    if not selector:
        return 0, 32
    width = 8 if selector[0] == "b" else 16
    return int(selector[1]) * width, width


def _part(value: Value, low: int, width: int, signed: bool, ty: Ty) -> Value:
    """Bits low .. low + width - 1 of a word, extended to a signed type."""
    word = to(U32, value) << (32 - low - width) if low + width < 32 else to(U32, value)
    part = to(I32, word) if signed else word
    return to(ty, part >> (32 - width) if width < 32 else part)


def _clamp(value: Value, bits: int, signed: bool) -> Value:
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    return maximum(minimum(value, constant(value.b, value.ty, high)), constant(value.b, value.ty, low))


def _low(value: Value) -> Value:
    """The low word, read as signed."""
    return to(I64, to(I32, value))


def _saturated(op: str, value: Value, signed: bool, width: int) -> Value:
    """.sat as in the instruction sequences of ptxas 13.5 (verified on an NVIDIA H100).

    A shift keeps 34 bits and is clamped to a word, whatever part of it is merged. Other operations clamp to the range of a
    merged byte or half from above, negative numbers too; a word is clamped at 0 if it is unsigned, and on both sides if it is
    signed.
    """
    if op in ("vshl", "vshr"):
        return _low(_clamp((value << 30) >> 30, 32, signed))
    if width < 32:
        most = (1 << (width - signed)) - 1
        return select((value < 0) | (value > most), most, value)
    if signed:
        return _clamp(value, 32, True)
    return select(value < 0, 0, _low(value) if op in ("vadd", "vsub") else value)


def _average(a: Value, b: Value) -> Value:
    """The average; halves are rounded away from zero."""
    total = a + b
    return select(total >= 0, total + 1, total) >> 1


_COMPARE: dict[str, Callable[[Value, Value], Value]] = {
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b, "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
}  # fmt: skip
_PRIMARY: dict[str, Callable[[Value, Value], Value]] = {
    "vadd": lambda a, b: a + b, "vsub": lambda a, b: a - b, "vabsdiff": lambda a, b: absolute(a - b),
    "vmin": minimum, "vmax": maximum, "vavrg": _average,
}  # fmt: skip
_SECOND = ("add", "min", "max")


def _second(op: str, value: Value, c: Value, signed: bool) -> Value:
    """The secondary operation on two 64-bit numbers. If the type is unsigned, a negative first number counts as the
    greatest.
    """
    if op == "add":
        return value + c
    left, right = (value, c) if signed else (to(U64, value), to(U64, c))
    return to(I64, (minimum if op == "min" else maximum)(left, right))


def _primary(m: Mods, op: str, a: Value, b: Value) -> Value:
    if op == "vset":
        return to(a.ty, _COMPARE[m.one(_COMPARE)](a, b))
    return _PRIMARY[op](a, b)


def _shift(m: Mods, a: Value, b: Value) -> Value:
    amount = b & 31 if m.has("wrap") else minimum(b, constant(b.b, b.ty, 32))
    return a << amount if m.op == "vshl" else a >> amount


def scalar(x: Scope, m: Mods, s: Selectors, a: Value, b: Value, c: Value | None = None) -> Value:
    """vadd, vsub, vabsdiff, vmin, vmax, vset, vshl, vshr: a primary operation, then a merge or a second one."""
    *_, atype, btype = m.types
    signed = m.types[0] == "s32"  # for vset that is the type of a

    def body(a: Value, b: Value, c: Value | None = None) -> Value:
        ta, tb = (_part(v, *_place(p), t == "s32", I64) for v, p, t in ((a, s.a, atype), (b, s.b, btype)))
        value = _shift(m, ta, tb) if m.op in ("vshl", "vshr") else _primary(m, m.op, ta, tb)
        low, width = _place(s.d)
        if m.has("sat"):
            value = _saturated(m.op, value, signed, width)
        elif m.op in ("vadd", "vsub", "vabsdiff"):
            value = _low(value)
        second = m.one(_SECOND)
        if second and c is not None:
            value = _second(second, value, _part(c, 0, 32, signed, I64), signed)
        elif s.d and c is not None:
            mask = ((1 << width) - 1) << low
            return ((to(U32, value) << low) & mask) | (to(U32, c) & (0xFFFFFFFF ^ mask))
        return to(U32, value)

    sources = (a, b) if c is None else (a, b, c)
    return outline(x, f"ptx_{m.key}_{s.key}_{len(sources)}", U32, body, *sources)


def mad(x: Scope, m: Mods, s: Selectors, a: Value, b: Value, c: Value) -> Value:
    """vmad: a * b + c, where the product or c may be negated, or 1 added; then shifted and clamped.

    As in the sequence for Hopper, the product is of two signed words whatever their types, and c is signed.
    """
    _, atype, btype = m.types
    negate = s.signs[0] != s.signs[1]
    signed = "s32" in (atype, btype) or negate or s.signs[2]

    def body(a: Value, b: Value, c: Value) -> Value:
        ta, tb = (_low(_part(v, *_place(p), t == "s32", I64)) for v, p, t in ((a, s.a, atype), (b, s.b, btype)))
        third, product = _part(c, 0, 32, True, I64), ta * tb
        value = third - product if negate else product - third if s.signs[2] else product + third
        if m.has("po"):
            value = value + 1
        shift = {"shr7": 7, "shr15": 15}.get(m.one(("shr7", "shr15")), 0)
        if shift:
            value = value >> shift if signed else to(I64, to(U64, value) >> shift)
        return to(U32, _clamp(value, 32, signed) if m.has("sat") else value)

    return outline(x, f"ptx_{m.key}_{s.key}", U32, body, a, b, c)


def simd(x: Scope, m: Mods, s: Selectors, a: Value, b: Value, c: Value) -> Value:
    """vadd2, vset4 and others: an operation on each pair of elements, then a merge, or a sum with c."""
    count = int(m.op[-1])
    width = 32 // count
    *result, atype, btype = m.types
    signed = result == ["s32"]
    first, second = ("h10", "h32") if count == 2 else ("b3210", "b7654")
    written = {int(n) for n in (s.d or first)[1:]}

    def element(a: Value, b: Value, selector: str, n: int, type: str) -> Value:
        index = int(selector[::-1][n])  # the last digit is of element 0
        source = a if index < count else b
        return _part(source, index % count * width, width, type == "s32", I32)

    def body(a: Value, b: Value, c: Value) -> Value:
        total = to(U32, c)
        for n in sorted(written):
            left, right = element(a, b, s.a or first, n, atype), element(a, b, s.b or second, n, btype)
            value = _primary(m, m.op[:-1], left, right)
            if m.has("sat"):
                value = _clamp(value, width, signed)
            if m.has("add"):
                total = total + to(U32, value)
            else:
                mask = ((1 << width) - 1) << (n * width)
                total = ((to(U32, value) << (n * width)) & mask) | (total & (0xFFFFFFFF ^ mask))
        return total

    return outline(x, f"ptx_{m.key}_{s.key}", U32, body, a, b, c)


# operands with their selectors ---------------------------------------------------------------------------------------


def _selector(operand: Operand) -> str:
    return operand.component if isinstance(operand, Reg) else ""


def _negated(operand: Operand) -> bool:
    return isinstance(operand, Reg) and operand.negated


def _named(rows: Iterable[Row]) -> list[str]:
    return sorted({row.opcode for row in rows})


def _video(e: Emitter, ins: Instruction, compute: Callable[..., Value]) -> None:
    """Write the result of a video instruction. compute: from lanes, modifiers, selectors and the values of the sources."""
    d, a, b, *rest = ins.operands
    signs = (_negated(a), _negated(b), bool(rest) and _negated(rest[0]))
    selectors = Selectors(_selector(d), _selector(a), _selector(b), signs)
    values = [e.source(o, "u32") for o in (a, b, *rest)]
    write_result(e, d, compute(Lanes(e, ins), mods(ins.form), selectors, *values), ins)


@means(*_named(SCALAR))
def scalar_video(e: Emitter, ins: Instruction) -> None:
    _video(e, ins, scalar)


@means(*_named(MAD))
def mad_video(e: Emitter, ins: Instruction) -> None:
    _video(e, ins, mad)


@means(*_named(SIMD))
def simd_video(e: Emitter, ins: Instruction) -> None:
    _video(e, ins, simd)
