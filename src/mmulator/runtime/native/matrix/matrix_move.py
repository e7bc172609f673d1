# mypy: disable-error-code="valid-type"
"""ldmatrix and stmatrix: rows at the addresses of lanes, and the twin's moves between them and registers."""

from functools import cache
from typing import Any

from mmulator.base.codegen.lang import Native, native
from mmulator.base.codegen.ops import bits_of, stack
from mmulator.base.codegen.types import i64, ptr, ptr_to, u8, u32, u64
from mmulator.base.codegen.values import Value
from mmulator.isa.form import Form
from mmulator.matrix.layouts.operands import row_bytes
from mmulator.matrix.twin.moves import ROWS, matrices, registers_of, registers_to_rows, rows_to_registers, symbol
from mmulator.ptx.program.addresses import SLOT_SHARED, SLOT_SHIFT
from mmulator.runtime.native.hooks.events import READ, WRITE, Only
from mmulator.runtime.native.hooks.operands import WrongOperand, operand_refused
from mmulator.runtime.native.memory.locate import impossible
from mmulator.runtime.native.memory.windows import translate_shared, translate_to_shared
from mmulator.runtime.native.state import Warp


def _translate(space: str) -> Native:
    return translate_shared if space == "shared" else translate_to_shared


def lanes_with_rows(form: Form) -> int:
    """Mask of the lanes whose addresses are used as addresses of rows."""
    return (1 << len(ROWS) * matrices(form)) - 1


@native
def check_unused(w: ptr_to(Warp), mask: u32, at: ptr_to(u64), base: u64, site: u32) -> None:
    """For an instrument: report lanes, of those whose addresses ldmatrix does not use, that have invalid ones."""
    invalid = u32(0)
    for lane in bits_of(mask):
        if impossible(w, lane, at[lane], base, 16, Only.ANY, READ, site) != 0:
            invalid = invalid | (1 << lane)
    if invalid != 0:
        operand_refused(w, invalid, at, WrongOperand.ROW, site)


def base_of(space: str) -> int:
    """The first generic address of a state space."""
    return SLOT_SHARED << SLOT_SHIFT if space == "shared" else 0


def eight(rows: Any, block: Any) -> list[Value]:
    """Macro: pointers to the ROWS of number `block`."""
    return [rows[block * len(ROWS) + number] for number in ROWS]


@cache
def load_function(space: str, form: Form) -> Native:
    """A function for ldmatrix: lane i gives the address of row i."""
    translate, count, bytes = _translate(space), matrices(form), row_bytes(form)

    def ldmatrix(w: ptr_to(Warp), at: ptr_to(u64), registers: ptr, site: u32) -> None:
        rows = stack(ptr, 32)
        if translate(w, lanes_with_rows(form), at, bytes, READ, site, rows) != 0:
            for block in range(i64(count)):
                own = registers_of(form, block, registers)
                rows_to_registers(form, eight(rows, block), own)

    return Native(ldmatrix, f"{symbol(form)}_{space}")


@cache
def store_function(space: str, form: Form) -> Native:
    """A function for stmatrix. If rows overlap, the last one wins."""
    translate, count, bytes = _translate(space), matrices(form), row_bytes(form)

    def stmatrix(w: ptr_to(Warp), at: ptr_to(u64), registers: ptr, site: u32) -> None:
        rows = stack(ptr, 32)
        if translate(w, lanes_with_rows(form), at, bytes, WRITE, site, rows) != 0:
            for block in range(i64(count)):
                own = registers_of(form, block, registers)
                registers_to_rows(form, own, eight(rows, block))

    return Native(stmatrix, f"{symbol(form)}_{space}")


@cache
def image_function(form: Form) -> Native:
    """A function that writes the rows of an stmatrix to contiguous memory."""
    count, bytes = matrices(form), row_bytes(form)

    def stmatrix_image(registers: ptr, image: ptr_to(u8)) -> None:
        rows = stack(ptr, 32)
        for n in range(u32(len(ROWS) * count)):
            rows[n] = image + n * bytes
        for block in range(i64(count)):
            own = registers_of(form, block, registers)
            registers_to_rows(form, own, eight(rows, block))

    return Native(stmatrix_image, f"{symbol(form)}_image")
