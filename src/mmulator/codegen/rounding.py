"""Floating-point operations in every rounding mode, by setting the CPU's mode."""

from functools import cache

from mmulator.codegen.ops import bitcast, select, shuffle
from mmulator.codegen.types import Ty, boolean, i32, u32, void
from mmulator.codegen.values import WIDE, Builder, Value, constant, mangle

STRICT = f"{WIDE} strictfp"
_MODES = {"rz": 0, "rn": 1, "rp": 2, "rm": 3}
_DYNAMIC = 'metadata !"round.dynamic", metadata !"fpexcept.ignore"'


def set_rounding(mode: str) -> None:
    """Set the rounding mode of `strict`: rz, rn, rp or rm. Callers must set it back to rn at the end."""
    b = Builder.current()
    b.call("llvm.set.rounding", void, [constant(b, i32, _MODES[mode])])


def strict(operation: str, ty: Ty, *args: Value, attributes: str = "") -> Value:
    """`fadd`, `fsub`, `fmul`, `fdiv`, `fma`, `sqrt`, `fptrunc`, `sitofp` or `uitofp` in the current rounding mode."""
    b = args[0].b
    suffix = mangle(ty) if ty == args[0].ty else f"{mangle(ty)}.{mangle(args[0].ty)}"
    name = f"llvm.experimental.constrained.{operation}.{suffix}"
    types = ", ".join(a.ty.llvm for a in args)
    b.declared[name] = f"declare {ty.llvm} @{name}({types}, metadata, metadata)"
    given = ", ".join(a.typed for a in args)
    return b.emit(ty, f"call {ty.llvm} @{name}({given}, {_DYNAMIC}) {attributes}".rstrip())


def directed(operation: str, mode: str, ty: Ty, *args: Value) -> Value:
    """An operation of `strict` rounded by `mode`.

    Only inside a function with the attributes `STRICT`; the mode is to nearest before and after.
    """
    set_rounding(mode)
    result = strict(operation, ty, *args, attributes="strictfp")
    set_rounding("rn")
    return result


@cache
def has_own_rounding() -> bool:
    """Whether instructions can specify their rounding mode (AVX-512)."""
    from mmulator.codegen.engine import has_feature

    return has_feature("avx512f")


_DOWN, _UP, _TO_ZERO = 9, 10, 11  # with no exceptions


def odd_fma(a: Value, c: Value, d: Value) -> Value:
    """a * c + d of f32 lanes (a multiple of 16) rounded to odd, if `has_own_rounding`: toward zero, with the last bit set if
    that was inexact, so that a later rounding to fewer bits gives the same result as a single rounding.
    """
    b, wide, bits = a.b, a.ty.element.vec(16), u32.vec(16)
    parts = []
    for at in range(0, a.ty.lanes, 16):
        sources = [shuffle(v, None, range(at, at + 16)) for v in (a, c, d)]
        down, up, near = (
            b.call("llvm.x86.avx512.vfmadd.ps.512", wide, [*sources, constant(b, i32, mode)]) for mode in (_DOWN, _UP, _TO_ZERO)
        )
        inexact = b.emit(boolean.vec(16), f"fcmp one {down.typed}, {up.text}")
        word = bitcast(bits, near)
        parts.append(bitcast(wide, select(inexact, word | 1, word)))
    while len(parts) > 1:
        parts = [shuffle(x, y, range(2 * x.ty.lanes)) for x, y in zip(parts[::2], parts[1::2])]
    return parts[0]
