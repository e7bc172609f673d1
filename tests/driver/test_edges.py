"""The end of memory that a program gave a kernel: what a GPU's compilers count on there, and no more."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from mmulator.driver import Driver, Region, Settings
from mmulator.errors import ExecutionFault

PTX = """
.version 8.3
.target sm_80
.address_size 64
.visible .entry kernel(.param .u64 x) {{
    .reg .b32 %r<3>; .reg .b16 %h; .reg .b64 %rd;
    ld.param.u64 %rd, [x];
    {body}
    ret;
}}
"""
WORD = "ld.relaxed.gpu.global.b32 %r0, [%rd+{at}]; add.u32 %r1, %r0, 7; atom.global.cas.b32 %r2, [%rd+{at}], %r0, %r1;"
HALF = "ld.global.b16 %h, [%rd+{at}];"
QUAD = "ld.global.v2.b32 {{%r0, %r1}}, [%rd+{at}];"


def launch(body: str, memory: np.ndarray, size: int) -> None:
    driver = Driver(Settings(device="sm_80"))
    address = int(memory.ctypes.data)
    function = driver.load(PTX.format(body=body)).function("kernel")
    driver.launch(function, 1, 1, struct.pack("<Q", address), [Region(address, size, "x")])


@pytest.mark.parametrize("size", (1, 2, 3))
def test_a_word_may_end_behind_memory(size: int) -> None:
    """An atomic operation on 16 bits is one on the word around them, where a chip has none as narrow."""
    memory = np.zeros(64, np.uint8)
    launch(WORD.format(at=0), memory, size)
    assert memory.tolist() == [7] + 63 * [0]


@pytest.mark.parametrize(
    "body, size", [(WORD.format(at=4), 4), (WORD.format(at=-4), 2), (HALF.format(at=2), 2), (QUAD.format(at=0), 6)]
)
def test_nothing_else_may(body: str, size: int) -> None:
    memory = np.zeros(64, np.uint8)
    with pytest.raises(ExecutionFault, match="out of bounds"):
        launch(body, memory[16:], size)
