"""Every mode of a launch keeps to its time limit, also in a grid of more blocks than 32 bits count."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mmulator as mm
from mmulator.errors import LimitReached, MmulatorError
from tests.support.ptx_text import kernel

HEAD = ".version 8.6\n.target sm_90a\n.address_size 64\n"
# Kernels without an end that make many entries in a log, findings, or operations that wait
ENDLESS = {
    "copies": "L: cp.async.ca.shared.global [%s], [%o], 16; cp.async.commit_group; bra L;",
    "bulk": "L: cp.async.bulk.global.shared::cta.bulk_group [%o], [%s], 1024; cp.async.bulk.commit_group; bra L;",
    "arrivals": "mbarrier.init.shared.b64 [%s], 32; L: mbarrier.arrive.shared.b64 _, [%s]; bra L;",
    "stores": "L: st.global.u32 [%o], %r; add.u32 %r, %r, 1; bra L;",
    "atomics": "L: atom.global.add.u32 %r, [%o], 1; bra L;",
}
MODES: dict[str, dict[str, Any]] = {
    "plain": {}, "sanitize": {"sanitize": True}, "strict": {"sanitize": "strict"}, "keep going": {"keep_going": True},
    "profile": {"profile": True}, "trace": {"trace": "trace.json"},
}  # fmt: skip
TIME, MORE = 0.3, 2.5  # seconds of a launch; processor seconds besides, in which its end is told


@pytest.mark.parametrize("mode", [*MODES])
@pytest.mark.parametrize("what", [*ENDLESS])
def test_a_mode_keeps_to_its_time_limit(what: str, mode: str, tmp_path: Path) -> None:
    text = (
        f"{HEAD}.visible .entry k(.param .u64 o) {{ .reg .b64 %o; .reg .b32 %s, %r; .shared .align 16 .b8 sh[1024];\n"
        f"ld.param.u64 %o, [o]; mov.u32 %s, sh; mov.u32 %r, 0; {ENDLESS[what]} }}\n"
    )
    how = {**MODES[mode]}
    if "trace" in how:
        how["trace"] = tmp_path / how["trace"]
    loaded = mm.Module.load(text)["k"]
    used = []
    for _ in range(2):  # the first time, the code of the mode is made
        began = time.process_time()
        with pytest.raises(MmulatorError, match=r"did not finish within|was not compiled within"):
            loaded.launch(1, 32, [np.zeros(4096, np.uint8)], timeout=TIME, threads=1, **how)
        used.append(time.process_time() - began)
    assert used[-1] < TIME + MORE


@pytest.mark.parametrize("how", [{}, {"sanitize": True}, {"keep_going": True}])
def test_more_blocks_than_a_word_counts(how: dict[str, Any]) -> None:
    with pytest.raises(LimitReached, match="of 8589934590 blocks are done"):
        mm.Module.load(kernel("  ret;"))["k"].launch((65537, 65535, 2), 1, [np.zeros(1)], timeout=1, **how)
