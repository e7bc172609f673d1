"""Where basic blocks begin and end."""

import numpy as np

from mmulator.base.source import Source
from mmulator.host.module import Module
from mmulator.ptx.parser import parse_module
from mmulator.ptx.program.blocks import build
from tests.support.ptx_text import stored

TEXT = stored("labels")


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
