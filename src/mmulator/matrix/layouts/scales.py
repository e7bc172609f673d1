"""Scale factors of block-scaled mma: the lanes and bytes that hold scale_A and scale_B.

Block Scaling for mma.sync (PTX ISA 9.1). This file was not measured: no device with these instructions was available.
"""

import numpy as np
from numpy.typing import NDArray

from mmulator.base.errors import OperandError
from mmulator.isa.form import Form

Index = NDArray[np.int64]
# What a selector may say: byte-id by .scale_vec, thread-id by operand.
BYTE_IDS = {1: range(4), 2: range(0, 3, 2), 4: range(1)}
THREADS = {"a": 2, "b": 4}
_RULE = "Block Scaling for mma.sync (PTX ISA 9.1)"


def places(form: Form, side: str, byte_id: int, thread_id: int) -> tuple[Index, Index]:
    """(lane of every row of A or column of B, byte of every scale factor along k).

    form: the instruction.
    side: `a` or `b`.
    byte_id: the byte selector.
    thread_id: the thread selector. For A it selects a pair of each group of four lanes, whose first thread has rows g and whose
        second thread has rows g + 8; for B a single thread.

    Raises OperandError for a selector outside the specification's range.
    """
    size = form.scale_vec
    for name, value, allowed in (("byte-id", byte_id, BYTE_IDS[size]), ("thread-id", thread_id, range(THREADS[side]))):
        if value not in allowed:
            raise OperandError(
                f"{name}-{side} is {value}: for .scale_vec::{size}X it must be one of {', '.join(map(str, allowed))}",
                rule=_RULE,
            )
    line = np.arange(form.m if side == "a" else form.n, dtype=np.int64)
    thread = 2 * thread_id + line // 8 if side == "a" else thread_id + 0 * line
    return 4 * (line % 8) + thread, byte_id + np.arange(size, dtype=np.int64)
