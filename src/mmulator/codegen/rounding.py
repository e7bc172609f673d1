"""Floating-point operations in every rounding mode, by setting the CPU's own."""

from __future__ import annotations

from mmulator.codegen.types import Ty, boolean, i32, void
from mmulator.codegen.values import WIDE, Builder, Value, constant, mangle

STRICT = f"{WIDE} strictfp"
_MODES = {"rz": 0, "rn": 1, "rp": 2, "rm": 3}
_DYNAMIC = 'metadata !"round.dynamic", metadata !"fpexcept.ignore"'


def _set_rounding(b: Builder, mode: str) -> None:
    b.call("llvm.set.rounding", void, [constant(b, i32, _MODES[mode])])


def _constrained(operation: str, ty: Ty, args: tuple[Value, ...]) -> Value:
    b = args[0].b
    suffix = mangle(ty) if ty == args[0].ty else f"{mangle(ty)}.{mangle(args[0].ty)}"
    name = f"llvm.experimental.constrained.{operation}.{suffix}"
    types = ", ".join(a.ty.llvm for a in args)
    b.declared[name] = f"declare {ty.llvm} @{name}({types}, metadata, metadata)"
    return b.emit(ty, f"call {ty.llvm} @{name}({', '.join(a.typed for a in args)}, {_DYNAMIC}) strictfp")


def directed(operation: str, mode: str, ty: Ty, *args: Value) -> Value:
    """`fadd`, `fsub`, `fmul`, `fdiv`, `fma`, `sqrt`, `fptrunc`, `sitofp`, `uitofp` rounded by `mode`.

    Only inside a function with the attributes `STRICT`; the mode is to nearest before and after.
    """
    b = args[0].b
    _set_rounding(b, mode)
    result = _constrained(operation, ty, args)
    _set_rounding(b, "rn")
    return result


__all__ = ["STRICT", "boolean", "directed"]
