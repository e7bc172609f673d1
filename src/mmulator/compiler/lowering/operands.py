"""Operands of an instruction as values and places, for instructions that are not lane-wise."""

from collections.abc import Callable, Hashable, Iterable

import numpy as np

from mmulator.base.codegen.ops import cast_ptr
from mmulator.base.codegen.types import Struct, Ty, u64
from mmulator.base.codegen.values import Value
from mmulator.base.errors import must_be
from mmulator.compiler.emit.block import LANES, storage_type
from mmulator.compiler.emit.emitter import Emitter
from mmulator.isa.form import Form
from mmulator.matrix.layouts.sparse.metadata import contributing, refused_nibbles
from mmulator.ptx.tree import Address, Immediate, Instruction, Operand, PredicatePair, Reg, VectorOperand
from mmulator.runtime.compiled import MatrixTables
from mmulator.runtime.native.hooks.operands import UniformOperand as Shared
from mmulator.runtime.native.hooks.operands import metadata_given, operand_given


def space_of(ins: Instruction) -> str:
    """State space of an access: `global`, `shared` (of the own CTA), `shared::cluster`, ..., or `generic`."""
    space = ins.form["space"]
    return space if space == "shared::cluster" else space.partition("::")[0] or "generic"


def elements(operand: Operand) -> tuple[Operand, ...]:
    """Elements of a vector operand; any other operand is its own only element."""
    return operand.elements if isinstance(operand, VectorOperand) else (operand,)


def write_result(e: Emitter, operand: Operand, value: Value, ins: Instruction) -> None:
    """Put a computed value into a destination register, unless it is `_`."""
    if isinstance(operand, Reg):
        e.write(operand.name, value, e.guard(ins))


def pair(operand: Operand) -> tuple[Operand, Operand | None]:
    return (operand.p, operand.q) if isinstance(operand, PredicatePair) else (operand, None)


# operands of matrix instructions -------------------------------------------------------------------------------------
U64 = u64.vec(LANES)


def registers(e: Emitter, operand: Operand, bits: int = 32) -> Value:
    """A vector operand's registers in consecutive memory (32 lanes each)."""
    ty = storage_type(f"b{bits}")
    return e.spill(*(ty(e.source(o, f"b{bits}")) for o in elements(operand)))


def results(e: Emitter, operand: Operand, place: Value, ins: Instruction, bits: int = 32) -> None:
    ty = storage_type(f"b{bits}")
    for n, o in enumerate(elements(operand)):
        write_result(e, o, e.fetch(place, ty, n), ins)


def state_space(form: Form) -> str:
    return form.space.partition("::")[0] or "generic"


def address_of(e: Emitter, operand: Operand) -> Value:
    return e.address(must_be(operand, Address))


def selector_of(operand: Operand) -> int:
    """The sparsity selector."""
    return must_be(operand, Immediate).value


def given(e: Emitter, operand: Shared, value: Value, allowed: Iterable[int] = ()) -> None:
    """For an instrument: report the value, in each lane, of an operand that must be equal in all lanes.

    e: the emitter.
    operand: number of the operand's kind (`Shared`).
    value: the value of each lane.
    allowed: values that are legal; empty for any.
    """
    if e.hears(operand_given):
        bits = sum(1 << n for n in allowed)
        e.call(operand_given, e.w, e.mask, e.spill(U64(value)), int(operand), bits, e.site)


def metadata(e: Emitter, form: Form, words: Value, selector: int) -> None:
    """For an instrument: report the sparsity metadata of all lanes, and the nibbles that the form allows."""
    if e.hears(metadata_given):
        undefined, unordered, unlisted = refused_nibbles(form)
        lanes = sum(1 << n for n in contributing(form, selector))
        e.call(metadata_given, e.w, words, lanes, undefined, unordered, unlisted, e.site)


def table_pointer(e: Emitter, to: Ty | Struct, key: Hashable, make: Callable[[MatrixTables], np.ndarray]) -> Value:
    """Pointer to a table of this kernel, created at its first use.

    e: the emitter.
    to: struct of the table's rows.
    key: identifies the table.
    make: creates it.
    """
    tables = e.kernel.matrix
    if key not in tables.index:
        tables.index[key] = len(tables.tables)
        tables.tables.append(make(tables))
    return cast_ptr(to, e.launch_field("tables")[tables.index[key]])


def keep(tables: MatrixTables, values: np.ndarray) -> int:
    """Address of a copy of these numbers with the lifetime of the kernel."""
    array = np.ascontiguousarray(values, np.int32)
    tables.keep.append(array)
    return int(array.ctypes.data)
