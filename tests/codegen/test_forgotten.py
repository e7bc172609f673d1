"""A kernel's tree is let go of when its code is made, and made again for who asks."""

import gc

import numpy as np
import pytest

import mmulator as mm
from mmulator.errors import ExecutionFault
from mmulator.ptx.tree import Instruction
from tests.support.ptx_text import STORE_R1, kernel


@pytest.mark.parametrize("waits", [False, True])  # True: as launches of programs are
def test_a_launched_kernel_keeps_no_tree(waits: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setenv("MMULATOR_CACHE", str(tmp_path))
    text = kernel("mov.u32 %r1, %laneid; add.u32 %r1, %r1, 40961;" + STORE_R1)
    loaded = mm.Module.load(text)["k"]
    out = np.zeros(32, np.uint32)
    loaded.launch(1, 32, [out], waits=waits)
    gc.collect()
    alive = [o for o in gc.get_objects() if isinstance(o, Instruction) and o.span.source.text == text]
    assert not alive and out[3] == 40964
    with pytest.raises(ExecutionFault) as fault:
        loaded.launch(1, 32, [out[:8]], waits=waits)
    assert fault.value.span and "st.global" in fault.value.span.caret()
