"""ldmatrix, stmatrix and movmatrix on registers and images of memory."""

import numpy as np
from numpy.typing import NDArray

from mmulator.base.errors import OperandError
from mmulator.base.interop import as_array
from mmulator.isa.form import Form
from mmulator.matrix.instruction.operands import Array, Operands, check_inside, column, image, stored, target
from mmulator.matrix.layouts.operands import row_bytes
from mmulator.matrix.twin import images
from mmulator.matrix.twin.moves import lines, register_move


def ldmatrix(form: Form, device: str, o: Operands) -> Array:
    memory = image("memory", o["memory"])
    return images.load_rows(form, memory, _starts(form, o, memory.shape[-1]))


def stmatrix(form: Form, device: str, o: Operands) -> Array:
    memory = target(o["memory"])
    starts = _starts(form, o, memory.shape[-1])
    images.store_rows(form, memory, starts, stored(form, o["r"], memory))
    return memory


def between_registers(form: Form, device: str, o: Operands) -> Array:
    """Any move between registers: its row says which (Row.moves)."""
    return images.between_registers(register_move(form), column(form, "a", o["a"])[..., None])


def _starts(form: Form, o: Operands, limit: int) -> NDArray[np.int64]:
    """Byte offset of each row, as the lanes give them. Raises ExecutionFault for a row outside the memory. limit: bytes of
    memory.
    """
    p = as_array("operand p", o["p"])
    if p.shape != (32,) or p.dtype.kind not in "iu":
        raise OperandError(f"operand p is {p.dtype} of shape {p.shape}: 32 integer byte offsets are needed, one a lane")
    starts = np.ascontiguousarray(p, np.int64)
    rows = starts[: len(lines(form))]
    size = row_bytes(form)
    if (rows % size).any():
        lane = int(np.argmax(rows % size != 0))
        raise OperandError(
            f"operand p of lane {lane} is {rows[lane]}: rows start at multiples of {size} bytes", rule=str(form.section)
        )
    check_inside("memory", rows, size, limit)
    return starts
