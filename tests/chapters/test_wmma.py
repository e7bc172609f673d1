"""wmma: places of small elements. (Hardware vectors: kernels/test_matrix_golden.py.)"""

import numpy as np
import pytest

from mmulator import Module


@pytest.mark.parametrize(("bits", "shape"), [(4, "m8n8k32.global.s4"), (1, "m8n8k128.global.b1")])
@pytest.mark.parametrize("stride", [128, 129, 0, -1, -31, -128])
def test_small_elements_of_wmma_load_at_any_stride(bits: int, shape: str, stride: int) -> None:
    """Places are counted in elements: a line may begin within a byte, and before the address."""
    data = np.random.default_rng(1).integers(0, 256, 1024).astype(np.uint8)
    out = np.zeros(32, np.uint32)
    text = f""".version 8.0\n.target sm_80\n.address_size 64
.visible .entry k(.param .u64 out, .param .u64 data) {{
  .reg .b64 %rd<4>; .reg .b32 %r<4>;
  ld.param.u64 %rd0, [out]; ld.param.u64 %rd1, [data];
  add.u64 %rd1, %rd1, 512; mov.b32 %r2, {stride};
  wmma.load.a.sync.aligned.row.{shape} {{%r1}}, [%rd1], %r2;
  mov.u32 %r3, %laneid; mad.wide.u32 %rd2, %r3, 4, %rd0;
  st.global.b32 [%rd2], %r1;
}}"""
    Module.load(text)["k"].launch(1, 32, [out, data])
    per = 32 // bits  # of a register: lane l has those of row l / 4 from column per * (l % 4)
    lane, element = np.arange(32)[:, None], np.arange(per)
    at = 512 * 8 // bits + lane // 4 * stride + per * (lane % 4) + element
    values = np.unpackbits(data, bitorder="little").reshape(-1, bits).dot(1 << np.arange(bits))
    assert (out == (values[at] << (bits * element)).sum(axis=1)).all()
