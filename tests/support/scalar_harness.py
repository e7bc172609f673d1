"""Runs a scalar instruction's semantic function on arrays, without a machine around it."""

import ctypes
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from mmulator.base.codegen.engine import Library
from mmulator.base.codegen.lang import Native
from mmulator.base.codegen.loading import ensure, symbols
from mmulator.base.codegen.types import Ty, boolean, i64, ptr, ptr_to, u8
from mmulator.base.codegen.values import Builder, Value, as_value, constant, module_text
from mmulator.compiler.emit.block import vector_type
from mmulator.compiler.lowering.binding import compute
from mmulator.isa.fit import NoForm
from mmulator.isa.form import Form
from mmulator.isa.match import match
from mmulator.isa.row import OperandSpec

LANES = 32
BOOL = boolean.vec(LANES)


def form_of(mnemonic: str) -> Form:
    opcode, *modifiers = mnemonic.split(".")
    form = match(opcode, tuple(modifiers))
    if isinstance(form, NoForm):
        raise ValueError(form.message)
    return form


def has_carry(form: Form) -> bool:
    return form.opcode in ("addc", "subc", "madc") or ".cc" in str(form)


def sources_of(form: Form) -> list[OperandSpec]:
    return [o for o in form.operands if "w" not in o.access]


def numpy_dtype(ty: Ty) -> np.dtype[Any]:
    if ty.bits == 1:
        return np.dtype(bool)
    return np.dtype(f"{'f' if ty.kind == 'float' else 'i' if ty.signed else 'u'}{ty.bits // 8}")


@dataclass
class HarnessScope:
    b: Builder
    carry: Value
    natives: dict[str, Native] = field(default_factory=dict)
    lanes: int = LANES

    def call(self, function: Native, *args: Any) -> Value:
        self.natives[function.name] = function
        return function(*args)


@dataclass
class Compiled:
    """ins: the sources that are arrays. outs: results, then CC.CF if the instruction reads or writes it."""

    function: Any
    library: Library
    ins: list[Ty]
    outs: list[Ty]

    def __call__(self, *arrays: Any) -> tuple[np.ndarray, ...]:
        """Arrays of any one length, in a source's type or as bits of its size; numbers are repeated."""
        count = max([1, *(np.size(a) for a in arrays)])
        padded = -(-count // LANES) * LANES
        places = []
        for array, ty in zip(arrays, self.ins, strict=True):
            place = np.zeros(padded, numpy_dtype(ty))
            source = np.asarray(array)
            if source.dtype.itemsize == place.dtype.itemsize and source.ndim:
                source = source.view(place.dtype)
            place[:count] = source
            places.append(place)
        results = [np.zeros(padded, numpy_dtype(t)) for t in self.outs]
        pointers = [a.ctypes.data for a in (*places, *results)]
        self.function((ctypes.c_void_p * len(pointers))(*pointers), padded // LANES)
        return tuple(r[:count] for r in results)


@contextmanager
def loop(b: Builder, stop: Value) -> Iterator[Value]:
    """for i in range(stop)."""
    index = b.alloca(i64, align=8)
    b.store(i64(as_value(b, 0, i64)), index)
    test, body, end = b.label("test"), b.label("body"), b.label("end")
    b.place(test)
    i = b.load(i64, index)
    b.branch_if(i < stop, body, end)
    b.place(body)
    yield i
    b.store(i + 1, index)
    b.branch(test)
    b.place(end)


@cache
def compiled(mnemonic: str, constants: tuple[tuple[str, int], ...] = (), given: int | None = None) -> Compiled:
    """constants: operands that are known numbers when the code is written, by name. given: how many arrays there will be;
    optional operands beyond them are left out."""
    form = form_of(mnemonic)
    fixed = dict(constants)
    b = Builder("run", i64, [("table", ptr_to(ptr)), ("count", i64)])
    ins: list[Ty] = []
    with b:
        table, count = b.params
        scope = HarnessScope(b, constant(b, BOOL, 0))
        with loop(b, count) as n:
            sources: list[Any] = []
            for place, operand in enumerate(sources_of(form)):
                if operand.optional and given is not None and place >= given + len(fixed):
                    continue
                ty = vector_type(operand.type)
                if operand.name in fixed:
                    number = fixed[operand.name]
                    sources.append(number if operand.kind == "imm" else constant(b, ty, number))
                else:
                    sources.append(_load(b, table, len(ins), n, ty))
                    ins.append(ty)
            if has_carry(form):
                scope.carry = _load(b, table, len(ins), n, BOOL)
                ins.append(BOOL)
            result = compute(scope, form, *sources)
            results = [*(result if isinstance(result, tuple) else (result,))]
            if has_carry(form):
                results.append(scope.carry)
            for place, value in enumerate(results, len(ins)):
                _store(b, value, table, place, n)
        b.ret(0)
    ensure(scope.natives.values())
    library = Library(module_text([b]), 2, symbols(scope.natives))
    function = library.function("run", ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)
    return Compiled(function, library, ins, [r.ty for r in results])


def _place(b: Builder, table: Value, number: int, n: Value, memory: Ty) -> Value:
    base = b.load(ptr, b.offset(table, number))
    return b.offset(Value(b, ptr_to(memory), base.text), n)


def _load(b: Builder, table: Value, number: int, n: Value, ty: Ty) -> Value:
    memory = u8.vec(LANES) if ty.bits == 1 else ty
    value = b.load(memory, _place(b, table, number, n, memory))
    return value != 0 if ty.bits == 1 else value


def _store(b: Builder, value: Value, table: Value, number: int, n: Value) -> None:
    if value.ty.bits == 1:
        value = u8.vec(LANES)(value)
    b.store(value, _place(b, table, number, n, value.ty))


def run(mnemonic: str, *arrays: Any, **constants: int) -> Any:
    """`run("add.s32", a, b)`, `run("bfe.u32", a, b, c=5)`: the result, or a tuple of results."""
    results = compiled(mnemonic, tuple(constants.items()), len(arrays))(*arrays)
    return results if len(results) > 1 else results[0]


def bits(array: np.ndarray) -> np.ndarray:
    """The same bits as unsigned integers."""
    return array.astype(np.uint8) if array.dtype == bool else array.view(f"u{array.dtype.itemsize}")


def execute(statement: str, registers: Mapping[str, np.ndarray], carry: np.ndarray) -> tuple[dict[str, Any], np.ndarray]:
    """One statement, `lop3.or.b32 d|q, a, b, c, 0xe8, !e`, on arrays of raw bits: registers it writes, and CC.CF."""
    mnemonic, _, rest = statement.strip().partition(" ")
    form = form_of(mnemonic)
    target, *texts = (t.strip() for t in rest.split(","))
    arrays, constants = [], {}
    wanted = [o for n, o in enumerate(sources_of(form)) if not o.optional or n < len(texts)]
    for text, operand in zip(texts, wanted, strict=True):
        name = text.lstrip("!")
        if operand.kind == "imm":
            constants[operand.name] = int(text, 0)
            continue
        dtype = numpy_dtype(vector_type(operand.type))
        value = registers[name] if name in registers else np.full(len(carry), int(name, 0), f"u{dtype.itemsize}")
        if operand.type == "pred":
            arrays.append((value == 0) if text.startswith("!") else (value != 0))
        else:
            arrays.append(value.astype(f"u{dtype.itemsize}").view(dtype))
    if has_carry(form):
        arrays.append(carry)
    results = compiled(mnemonic, tuple(constants.items()), len(arrays))(*arrays)
    if has_carry(form):
        carry = results[-1]
    return {name: value for name, value in zip(target.split("|"), results) if name != "_"}, carry
