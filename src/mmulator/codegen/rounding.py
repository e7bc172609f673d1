"""Floating-point operations in every rounding mode, by setting the CPU's own."""

from __future__ import annotations

from mmulator.codegen.types import Ty, i32, void
from mmulator.codegen.values import WIDE, Builder, Value, constant, mangle

STRICT = f"{WIDE} strictfp"
_MODES = {"rz": 0, "rn": 1, "rp": 2, "rm": 3}
_DYNAMIC = 'metadata !"round.dynamic", metadata !"fpexcept.ignore"'


def set_rounding(mode: str) -> None:
    """rz, rn, rp or rm, until it is set again: for `strict`. Whoever sets it sets it to rn at the end."""
    b = Builder.current()
    b.call("llvm.set.rounding", void, [constant(b, i32, _MODES[mode])])


def strict(operation: str, ty: Ty, *args: Value, attributes: str = "") -> Value:
    """`fadd`, `fsub`, `fmul`, `fdiv`, `fma`, `sqrt`, `fptrunc`, `sitofp`, `uitofp` in the rounding mode of the moment."""
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


__all__ = ["STRICT", "directed", "set_rounding", "strict"]
