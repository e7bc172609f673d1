"""Kernels whose lanes part: %p1 is the lower half of a warp, %p2 lane 3, %r30 the lane, %r20 shared memory, %r1 is 1."""

import numpy as np
import pytest

from mmulator.errors import ExecutionFault
from mmulator.host.module import Module
from mmulator.host.report import Report
from tests.support.ptx_text import kernel

START = """
  .shared .align 128 .b8 memory[4096];
  mov.u32 %r20, memory; mov.u32 %r30, %laneid; setp.lt.u32 %p1, %r30, 16; setp.eq.u32 %p2, %r30, 3; mov.b32 %r1, 1;
"""


def launch(body: str, block: int = 32, timeout: float = 600) -> tuple[np.ndarray, Report]:
    out = np.zeros(max(block, 32), np.uint32)
    report = Module.load(kernel(START + body), name="test.ptx")["k"].launch(1, block, [out], timeout=timeout)
    return out, report


def fault(body: str, block: int = 32, timeout: float = 600) -> str:
    with pytest.raises(ExecutionFault) as caught:
        launch(body, block, timeout)
    return str(caught.value)
