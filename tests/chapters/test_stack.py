"""A lane's stack: alloca, and what gives it back."""

import numpy as np
import pytest

from mmulator.errors import ExecutionFault, InvalidInstructionError, LimitReached
from mmulator.host.module import Module
from tests.support.one_block import LANES, launch
from tests.support.ptx_text import stored

RECURSIVE = stored("recursive_alloca")


def test_alloca_lasts_until_its_function_returns() -> None:
    """Each lane its own sizes, each call its own place; what was taken is free again behind the call."""
    results = np.zeros((LANES, 4), np.uint32)
    kernel = Module.load(RECURSIVE, name="sum.ptx")["k"]
    kernel.launch(1, LANES, [results, 4])
    assert results[:, 0].tolist() == [(4 + 4 * i) * (i + 2) // 2 for i in range(LANES)]
    assert not results[:, 1:].any()
    with pytest.raises(LimitReached, match=r"stack overflow: alloca of \d+ bytes, of which \d+ are left"):
        kernel.launch(1, LANES, [results, 400])


def test_stackrestore_takes_what_stacksave_gave() -> None:
    body = "mov.u32 r1, {size}; stacksave.u32 r2; alloca.u32 r3, r1, 64; and.b32 r5, r3, 63; stackrestore.u32 {value}; "
    body += "stacksave.u32 r4; sub.u32 r4, r4, r2; st.global.v2.b32 [out], {r4, r5};"
    assert not launch(body.replace("{size}", "100").replace("{value}", "r2"))[0].any()
    with pytest.raises(ExecutionFault, match="no place on the stack"):
        launch("mov.u32 r1, 9000; stackrestore.u32 r1;")
    with pytest.raises(LimitReached, match="stack overflow"):
        launch(body.replace("{size}", "8200").replace("{value}", "r2"))


def test_alignment_of_alloca_is_a_power_of_two() -> None:
    with pytest.raises(InvalidInstructionError, match="immAlign is 24; allowed: 1, 2, 4, 8"):
        launch("mov.u32 r1, 8; alloca.u32 r3, r1, 24;")
