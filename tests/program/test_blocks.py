"""Where basic blocks begin and end."""

from __future__ import annotations

import numpy as np

from mmulator.host.module import Module
from mmulator.program.blocks import build
from mmulator.ptx.parser import parse_module
from mmulator.source import Source

TEXT = """
.version 8.7
.target sm_90
.address_size 64
.visible .entry k(.param .u64 out)
{
    .reg .b32 r<4>; .reg .b64 d<3>; .reg .pred p;
A:
    mov.u32 r0, %tid.x;
    mov.u32 r1, 0;
Line:
    mul.wide.u32 d1, r0, 4;
LOOP:
    mad.lo.u32 r1, r0, 3, r1;
    add.u32 r1, r1, 3;
Inner:
    setp.lt.u32 p, r1, 50;
    @p bra LOOP;
    brx.idx r3, LIST;
LIST: .branchtargets X, Y;
X:
    add.u32 r1, r1, 100;
Y:
    ld.param.u64 d0, [out];
    add.u64 d0, d0, d1;
    st.global.u32 [d0], r1;
End:
    ret;
}
"""


def test_only_labels_that_a_branch_names_begin_a_block() -> None:
    """A debugger's labels would cut straight code in pieces."""
    module = parse_module(Source("t.ptx", TEXT))
    blocks = build(module, module.functions[0]).blocks
    assert [len(b.body) for b in blocks if b.body] == [3, 3, 1, 3]
    step = 3 * (np.arange(32) + 1)
    reports = []
    for text in (TEXT, "\n".join(line for line in TEXT.splitlines() if line not in ("A:", "Line:", "Inner:", "End:"))):
        out = np.zeros(32, np.uint32)
        reports.append(Module.load(text)["k"].launch(1, 32, [out]))
        assert (out == -(-50 // step) * step + 100).all()
    assert reports[0].instructions == reports[1].instructions and reports[0].total_instructions == 3 + 17 * 4 + 6
