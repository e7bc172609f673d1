"""Which products and sums are fused (docs/contraction.md); the kernels of tests/kernels hold the same against hardware."""

from __future__ import annotations

import pytest

from mmulator.machine.contract import contract
from mmulator.ptx.parser import parse_module
from mmulator.source import Source
from ptx_text import kernel

LOAD = "  ld.global.f32 %f1, [%rd0];\n  ld.global.f32 %f2, [%rd0+4];\n  ld.global.f32 %f3, [%rd0+8];\n"
STORE = "  st.global.f32 [%rd0], %f9;\n"

SPLIT = ".reg .pred %p;\n  setp.gt.f32 %p, %f1, 0f00000000;\n  "

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
    # all readers are sums: the product is fused into each of them
    "mul.f32 %f4, %f1, %f2;\n  add.f32 %f5, %f4, %f3;\n  sub.f32 %f9, %f5, %f4;": 2,
    "mul.f32 %f4, %f1, %f2;\n  add.f32 %f5, %f4, %f3;\n  fma.rn.f32 %f9, %f5, %f1, %f4;": 1,  # the one written
    # of two products a sum takes the one that is read less often; the other is then added, so it is not fused elsewhere
    "mul.f32 %f4, %f1, %f2;\n  mul.f32 %f5, %f2, %f3;\n  add.f32 %f6, %f4, %f5;\n  add.f32 %f9, %f4, %f6;": 1,
    "mul.sat.f32 %f4, %f1, %f2;\n  add.f32 %f9, %f4, %f3;": 0,
    "mul.f32 %f4, %f1, %f2;\n  add.sat.f32 %f9, %f4, %f3;": 1,
    "mul.f32 %f4, %f1, 0f3f800000;\n  add.f32 %f9, %f4, %f3;": 0,  # times 1: a copy
    "mul.f32 %f4, %f1, %f2;\n  neg.ftz.f32 %f5, %f4;\n  add.f32 %f9, %f5, %f3;": 0,
    "mul.f32 %f4, %f1, %f2;\n  abs.f32 %f5, %f4;\n  add.f32 %f9, %f5, %f3;": 0,
    # a branch of the machine code between them, seen or not
    "mul.f32 %f4, %f1, %f2;\n  fence.acq_rel.gpu;\n  add.f32 %f9, %f4, %f3;": 0,
    "mul.f32 %f4, %f1, %f2;\n  bar.sync 0;\n  add.f32 %f9, %f4, %f3;": 1,
    "mul.f32 %f4, %f1, %f2;\n  div.rn.f32 %f5, %f3, %f1;\n  add.f32 %f9, %f4, %f5;": 0,
    "mul.f32 %f4, %f1, %f2;\n  div.approx.f32 %f5, %f3, %f1;\n  add.f32 %f9, %f4, %f5;": 1,
    "mul.f32 %f4, %f1, %f2;\n  bra L;\nL:\n  add.f32 %f9, %f4, %f3;": 1,
    SPLIT + "mul.f32 %f4, %f1, %f2;\n  @%p bra L;\n  st.global.f32 [%rd0+8], %f1;\nL:\n  add.f32 %f9, %f4, %f3;": 0,
    SPLIT + "mul.f32 %f4, %f1, %f2;\n  @%p st.global.f32 [%rd0+8], %f1;\n  add.f32 %f9, %f4, %f3;": 0,
    SPLIT + "mul.f32 %f4, %f1, 0f40400000;\n  @%p st.global.f32 [%rd0+8], %f1;\n  add.f32 %f9, %f4, %f3;": 1,
    SPLIT + "mul.f32 %f4, %f1, %f2;\n  mov.f32 %f9, %f1;\n  @%p add.f32 %f9, %f4, %f3;": 1,
    SPLIT + "mov.f32 %f4, %f3;\n  @%p mul.f32 %f4, %f1, %f2;\n  add.f32 %f9, %f4, %f3;": 0,
    # a factor that is written in between is kept in a register of its own
    "mul.f32 %f4, %f1, %f2;\n  mov.f32 %f1, %f3;\n  add.f32 %f9, %f4, %f1;": 1,
}


@pytest.mark.parametrize(("body", "fused"), CASES.items())
def test_fused_as_ptxas_fuses(body: str, fused: int) -> None:
    module = parse_module(Source("test.ptx", kernel(LOAD + "  " + body + "\n" + STORE)))
    before = module.entries[0]
    after = contract(before)
    assert sum(i.opcode == "fma" for i in after.instructions) == fused
    if not fused:
        assert after.body == before.body
