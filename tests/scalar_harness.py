"""Runs a scalar instruction's semantic function on arrays, without a machine around it."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from mmulator.codegen.engine import Library
from mmulator.codegen.lang import Native
from mmulator.codegen.types import Ty, boolean, i64, ptr, ptr_to, u8, u32, void
from mmulator.codegen.values import Builder, Value, constant, module_text, splat
from mmulator.isa.scalar import is_type
from mmulator.machine.emit import vector_type
from mmulator.machine.natives import ensure, symbols
from mmulator.machine.ops import SEMANTICS

LANES = 32


@dataclass(frozen=True)
class TextForm:
    """A form from a mnemonic alone."""

    name: str
    modifiers: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, mnemonic: str) -> TextForm:
        opcode, *rest = mnemonic.split(".")
        return cls(opcode, tuple((f"m{n}", word) for n, word in enumerate(rest)))


@dataclass
class HarnessScope:
    b: Builder
    carry: Value
    natives: dict[str, Native] = field(default_factory=dict)
    lanes: int = LANES

    def call(self, function: Native, *args: Any) -> Value:
        self.natives[function.name] = function
        return function(*args)


def numpy_dtype(ty: Ty) -> np.dtype[Any]:
    if ty.bits == 1:
        return np.dtype(bool)
    return np.dtype(f"{'f' if ty.kind == 'float' else 'i' if ty.signed else 'u'}{ty.bits // 8}")


@dataclass
class Compiled:
    function: Any
    library: Library
    ins: list[Ty]
    outs: list[Ty]
    seconds: float

    def __call__(self, *arrays: Any, carry: Any = None) -> Any:
        """Arrays of any one length; numbers are repeated. Returns an array, or a tuple of them."""
        count = max(np.size(a) for a in arrays)
        padded = -(-count // LANES) * LANES
        places = []
        for array, ty in zip(arrays, self.ins, strict=True):
            place = np.zeros(padded, numpy_dtype(ty))
            source = np.asarray(array)
            if source.dtype != place.dtype and source.dtype.itemsize == place.dtype.itemsize and source.ndim:
                source = source.view(place.dtype)
            place[:count] = source
            places.append(place)
        flags = np.zeros(padded, bool)
        if carry is not None:
            flags[:count] = carry
        results = [np.zeros(padded, numpy_dtype(t)) for t in self.outs]
        pointers = [a.ctypes.data_as(ctypes.c_void_p) for a in (*places, *results, flags)]
        table = (ctypes.c_void_p * len(pointers))(*pointers)
        self.function(table, padded // LANES)
        out = tuple(r[:count] for r in results)
        if carry is not None:
            return *out, flags[:count]
        return out if len(out) > 1 else out[0]


@cache
def compiled(mnemonic: str, types: tuple[str, ...], constants: tuple[tuple[int, int], ...] = ()) -> Compiled:
    """types: PTX type of each source. constants: (place among the sources, number): `imm` sources are ints as they are."""
    import time

    b = Builder("run", void, [("table", ptr_to(ptr)), ("count", i64)])
    begin = time.perf_counter()
    with b:
        table, count = b.params
        scope = HarnessScope(b, constant(b, boolean.vec(LANES), 0))
        ins = [vector_type(t) for t in types]
        fixed = dict(constants)
        outs: list[Ty] = []
        with b.loop(0, count) as n:
            sources: list[Any] = []
            at = 0
            for place in range(len(types) + sum(1 for p in fixed if p < 0)):
                sources.append(_load(b, b.load(ptr, b.offset(table, place)), n, ins[at]))
                at += 1
            sources = [splat_constant(b, ins[i], fixed[i]) if i in fixed else s for i, s in enumerate(sources)]
            if -1 in fixed:
                sources.insert(3, fixed[-1])
            has_carry = mnemonic.startswith(("addc", "subc", "madc")) or ".cc" in mnemonic
            total = len(types)
            form = TextForm.of(mnemonic)
            # results are counted before the place of the carry flags is known: it is passed last
            result = None
            carry_place = None
            if has_carry:
                carry_place = b.load(ptr, b.offset(table, total + 1))
                scope.carry = _load(b, carry_place, n, boolean.vec(LANES))
            result = SEMANTICS[form.name](scope, form, *sources)
            results = result if isinstance(result, tuple) else (result,)
            for k, value in enumerate(results):
                outs.append(value.ty)
                _store(b, value, b.load(ptr, b.offset(table, total + k)), n)
            if carry_place is not None:
                _store(b, scope.carry, carry_place, n)
        b.ret()
    ensure(scope.natives.values())
    library = Library(module_text([b]), 2, symbols(scope.natives))
    seconds = time.perf_counter() - begin
    return Compiled(library.function("run", None, ctypes.c_void_p, ctypes.c_int64), library, ins, outs, seconds)


def splat_constant(b: Builder, ty: Ty, number: int) -> Value:
    return constant(b, ty, number)


def _load(b: Builder, base: Value, n: Value, ty: Ty) -> Value:
    memory = u8.vec(LANES) if ty.bits == 1 else ty
    value = b.load(memory, b.offset(Value(b, ptr_to(memory), base.text), n))
    return value != 0 if ty.bits == 1 else value


def _store(b: Builder, value: Value, base: Value, n: Value) -> None:
    if value.ty.bits == 1:
        value = u8.vec(LANES)(value)
    b.store(value, b.offset(Value(b, ptr_to(value.ty), base.text), n))


def run(mnemonic: str, types: str, *arrays: Any, **constants: Any) -> Any:
    """`run("add.s32", "s32 s32", a, b)`."""
    return compiled(mnemonic, tuple(types.split()))(*arrays, **constants)


__all__ = ["TextForm", "compiled", "is_type", "run", "splat", "u32"]
