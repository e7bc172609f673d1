"""Which products and sums are fused (docs/contraction.md); the kernels of tests/kernels hold the same against hardware."""

from __future__ import annotations

import pytest
from ptx_text import kernel

from mmulator.machine.contract import contract
from mmulator.ptx.parser import parse_module
from mmulator.source import Source

LOAD = "  ld.global.f32 %f1, [%rd0];\n  ld.global.f32 %f2, [%rd0+4];\n  ld.global.f32 %f3, [%rd0+8];\n"
STORE = "  st.global.f32 [%rd0], %f9;\n"

CASES = {
    "mul.f32 %f4, %f1, %f2;\n  add.f32 %f9, %f4, %f3;": 1,
    "mul.f32 %f4, %f1, %f2;\n  add.f32 %f9, %f3, %f4;": 1,
    "mul.f32 %f4, %f1, %f2;\n  sub.f32 %f9, %f3, %f4;": 1,
    "mul.rn.f32 %f4, %f1, %f2;\n  add.f32 %f9, %f4, %f3;": 0,
    "mul.f32 %f4, %f1, %f2;\n  add.rn.f32 %f9, %f4, %f3;": 0,
    "mul.ftz.f32 %f4, %f1, %f2;\n  add.f32 %f9, %f4, %f3;": 0,
    "mul.ftz.f32 %f4, %f1, %f2;\n  add.ftz.f32 %f9, %f4, %f3;": 1,
    "mul.f32 %f4, %f1, %f2;\n  add.f32 %f9, %f4, %f3;\n  st.global.f32 [%rd0+4], %f4;": 0,
    "mul.f32 %f4, %f1, %f2;\n  mul.f32 %f5, %f2, %f3;\n  add.f32 %f9, %f4, %f5;": 1,
    "mul.f32 %f4, %f1, %f2;\n  neg.f32 %f5, %f4;\n  add.f32 %f9, %f5, %f3;": 1,
    "mul.f32 %f4, %f1, %f2;\n  mov.f32 %f5, %f4;\n  add.f32 %f9, %f5, %f3;": 1,
    "mul.f32 %f4, %f1, %f2;\n  add.f32 %f9, %f4, %f4;": 0,
    "add.f32 %f9, %f1, %f2;": 0,
}


@pytest.mark.parametrize(("body", "fused"), CASES.items())
def test_fused_as_ptxas_fuses(body: str, fused: int) -> None:
    module = parse_module(Source("test.ptx", kernel(LOAD + "  " + body + "\n" + STORE)))
    before = module.entries[0]
    after = contract(before)
    assert sum(i.opcode == "fma" for i in after.instructions) == fused
    if not fused:
        assert after.body == before.body
