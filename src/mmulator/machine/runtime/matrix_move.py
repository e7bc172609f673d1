# mypy: disable-error-code="valid-type"
"""ldmatrix and stmatrix: rows that lanes give the addresses of, and the twin's moves between them and registers."""

from __future__ import annotations

from functools import cache

from mmulator.codegen.lang import Native
from mmulator.codegen.ops import stack
from mmulator.codegen.types import ptr, ptr_to, u32, u64
from mmulator.isa.forms import MatrixForm
from mmulator.machine.runtime.memory import READ, WRITE, matrix_space
from mmulator.machine.state import Warp
from mmulator.twin.moves import lines, registers_to_rows, rows_to_registers, symbol

ROW = 16  # bytes


@cache
def load_function(space: str, form: MatrixForm) -> Native:
    """ldmatrix: lane i gives the address of row i."""
    resolve, lanes = matrix_space(space), (1 << len(lines(form))) - 1

    def ldmatrix(w: ptr_to(Warp), at: ptr_to(u64), registers: ptr, number: u32) -> None:
        rows = stack(u64, 32)
        if resolve(w, lanes, at, ROW, READ, number, rows) != 0:
            rows_to_registers(form, rows, registers)

    return Native(ldmatrix, f"{symbol(form)}_{space}")


@cache
def store_function(space: str, form: MatrixForm) -> Native:
    """stmatrix, the reverse. Of rows that overlap the last wins."""
    resolve, lanes = matrix_space(space), (1 << len(lines(form))) - 1

    def stmatrix(w: ptr_to(Warp), at: ptr_to(u64), registers: ptr, number: u32) -> None:
        rows = stack(u64, 32)
        if resolve(w, lanes, at, ROW, WRITE, number, rows) != 0:
            registers_to_rows(form, registers, rows)

    return Native(stmatrix, f"{symbol(form)}_{space}")
