# mypy: disable-error-code="valid-type"
"""ldmatrix and stmatrix: rows that lanes give the addresses of, and the twin's moves between them and registers."""

from __future__ import annotations

from functools import cache

from mmulator.codegen.lang import Native
from mmulator.codegen.ops import stack
from mmulator.codegen.types import i64, ptr, ptr_to, u32, u64
from mmulator.codegen.values import Value
from mmulator.isa.form import Form
from mmulator.machine.runtime.events import READ, WRITE
from mmulator.machine.runtime.windows import translate_shared, translate_to_shared
from mmulator.machine.state import Warp
from mmulator.twin.moves import ROWS, matrices, registers_of, registers_to_rows, rows_to_registers, symbol

BYTES = 16  # of a row


def _translate(space: str) -> Native:
    return translate_shared if space == "shared" else translate_to_shared


def eight(rows: Value, block: Value) -> list[Value]:
    """Macro: pointers to ROWS number `block`."""
    return [rows[block * len(ROWS) + number] for number in ROWS]


@cache
def load_function(space: str, form: Form) -> Native:
    """ldmatrix: lane i gives the address of row i."""
    translate, count = _translate(space), matrices(form)

    def ldmatrix(w: ptr_to(Warp), at: ptr_to(u64), registers: ptr, site: u32) -> None:
        rows = stack(ptr, 32)
        if translate(w, (1 << len(ROWS) * count) - 1, at, BYTES, READ, site, rows) != 0:
            for block in range(i64(count)):
                own = registers_of(form, block, registers)
                rows_to_registers(form, eight(rows, block), own)

    return Native(ldmatrix, f"{symbol(form)}_{space}")


@cache
def store_function(space: str, form: Form) -> Native:
    """stmatrix, the reverse. Of rows that overlap the last wins."""
    translate, count = _translate(space), matrices(form)

    def stmatrix(w: ptr_to(Warp), at: ptr_to(u64), registers: ptr, site: u32) -> None:
        rows = stack(ptr, 32)
        if translate(w, (1 << len(ROWS) * count) - 1, at, BYTES, WRITE, site, rows) != 0:
            for block in range(i64(count)):
                own = registers_of(form, block, registers)
                registers_to_rows(form, own, eight(rows, block))

    return Native(stmatrix, f"{symbol(form)}_{space}")
