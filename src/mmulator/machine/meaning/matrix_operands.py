"""Operands of matrix instructions: forms, registers side by side in memory, addresses, and the tables they lead to."""

from __future__ import annotations

from typing import Any

import numpy as np

from mmulator.codegen.ops import cast_ptr
from mmulator.codegen.values import Value
from mmulator.errors import UnsupportedError
from mmulator.isa.form import Form
from mmulator.machine.emit.block import storage_type
from mmulator.machine.emit.emitter import Emitter
from mmulator.machine.meaning.operands import elements, write_result
from mmulator.ptx.tree import Address, Immediate, Instruction, Operand


def form_of(ins: Instruction) -> Form:
    assert isinstance(ins.form, Form)
    return ins.form


def registers(e: Emitter, operand: Operand, bits: int = 32) -> Value:
    """A vector operand's registers, one after the other in memory (32 lanes each)."""
    ty = storage_type(f"b{bits}")
    return e.spill(*(ty(e.source(o, f"b{bits}")) for o in elements(operand)))


def results(e: Emitter, operand: Operand, place: Value, ins: Instruction, bits: int = 32) -> None:
    ty = storage_type(f"b{bits}")
    for n, o in enumerate(elements(operand)):
        write_result(e, o, e.fetch(place, ty, n), ins)


def state_space(form: Form) -> str:
    return form.space.partition("::")[0] or "generic"


def address_of(e: Emitter, operand: Operand, ins: Instruction) -> Value:
    if not isinstance(operand, Address):
        raise UnsupportedError("an address is wanted", span=ins.span)
    return e.address(operand)


def selector_of(ins: Instruction, operand: Operand) -> int:
    if not isinstance(operand, Immediate):
        raise UnsupportedError("the sparsity selector is a constant", span=ins.span)
    return operand.value


def table(e: Emitter, key: Any, make: Any) -> int:
    """Number of a table of this kernel; made at its first use."""
    sites = e.kernel.matrix
    if key not in sites.index:
        sites.index[key] = len(sites.tables)
        sites.tables.append(make(sites))
    return sites.index[key]


def site_pointer(e: Emitter, number: int, to: Any) -> Value:
    return cast_ptr(to, e.launch_field("tables")[number])


def keep(sites: Any, values: np.ndarray) -> int:
    array = np.ascontiguousarray(values, np.int32)
    sites.keep.append(array)
    return int(array.ctypes.data)
