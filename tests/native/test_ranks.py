"""Addresses that name a rank: each form of transfer to each rank and with the mbarrier of each, those a cluster lacks among them,
ends as it should or with a fault that says which rank is wrong, and no rank is taken for another."""

import numpy as np
import pytest

import mmulator as mm
from mmulator.errors import ExecutionFault
from mmulator.host.module import Module

# %r1 where the data goes, %r2 its mbarrier: each with a rank of its own. The thread that waits is that of the rank `waits`.
TEXT = """
.version 8.8
.target sm_100a
.address_size 64
.visible .entry k(.param .align 64 .b8 map[128], .param .u64 from, .param .u64 out, .param .u32 to, .param .u32 bar)
{
  .reg .b64 %rd<8>; .reg .b32 %r<12>; .reg .pred %p<4>; .shared .align 128 .b8 box[256]; .shared .align 8 .b64 full;
  .shared .align 16 .b8 own[256];
  mov.b64 %rd1, map; cvta.param.u64 %rd1, %rd1; ld.param.u64 %rd2, [from]; ld.param.u64 %rd3, [out];
  ld.param.u32 %r3, [to]; ld.param.u32 %r4, [bar]; mov.u32 %r5, %cluster_ctarank; mov.u32 %r6, box; and.b32 %r6, %r6, 0xFFFFFF;
  mov.u32 %r7, full; and.b32 %r8, %r7, 0xFFFFFF; shl.b32 %r9, %r3, 24; or.b32 %r1, %r6, %r9; shl.b32 %r9, %r4, 24;
  or.b32 %r2, %r8, %r9; mov.u32 %r10, own; mov.u32 %r11, box; st.shared.u32 [%r11], 0;
  mbarrier.init.shared.b64 [%r7], 1; mbarrier.arrive.expect_tx.shared.b64 _, [%r7], BYTES; st.shared.u32 [%r10], 77;
  fence.proxy.async; barrier.cluster.arrive; barrier.cluster.wait;
  setp.ne.u32 %p0, %r5, 0; @%p0 bra ISSUED;
  INSTRUCTION
ISSUED: setp.ne.u32 %p1, %r5, %r4; @%p1 bra DONE;
WAIT: mbarrier.try_wait.parity.shared.b64 %p2, [%r7], 0; @!%p2 bra WAIT;
DONE: barrier.cluster.arrive; barrier.cluster.wait;
  ld.shared.u32 %r9, [%r11]; mul.wide.u32 %rd4, %r5, 4; add.u64 %rd3, %rd3, %rd4; st.global.u32 [%rd3], %r9; ret;
}
"""
_BYTES = ".mbarrier::complete_tx::bytes"
_ASYNC = f"shared::cluster{_BYTES}"
_TENSOR = "cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes{} [%r1], [%rd1, {{0}}], [%r2];"
FORMS = {  # the bytes, and whether the mbarrier may be in another CTA than the data
    f"cp.async.bulk.shared::cluster.global{_BYTES} [%r1], [%rd2], 256, [%r2];": (256, False),
    f"cp.async.bulk.shared::cluster.shared::cta{_BYTES} [%r1], [%r10], 256, [%r2];": (256, False),
    f"cp.reduce.async.bulk.shared::cluster.shared::cta{_BYTES}.add.u32 [%r1], [%r10], 256, [%r2];": (256, False),
    f"st.async.{_ASYNC}.b32 [%r1], 77, [%r2];": (4, False),
    f"red.async.relaxed.cluster.{_ASYNC}.add.u32 [%r1], 77, [%r2];": (4, False),
    _TENSOR.format(""): (256, False),
    _TENSOR.format(".cta_group::2"): (256, True),
}  # fmt: skip
RANKS = (0, 1, 2, 15, 16, 31, 32, 33, 67, 255)


@pytest.mark.parametrize("instruction", FORMS)
def test_no_rank_is_taken_for_another(instruction: str) -> None:
    bytes, apart = FORMS[instruction]
    kernel = Module.load(TEXT.replace("INSTRUCTION", instruction).replace("BYTES", str(bytes)))["k"]
    source = np.full(64, 77, np.uint32)
    m = mm.TensorMap.tiled(source, (64,))
    for to in RANKS:
        for bar in RANKS:
            out = np.zeros(2, np.uint32)
            if max(to, bar) < 2 and (apart or to == bar):
                kernel.launch(2, 1, [m, source, out, to, bar], cluster=2, timeout=600, seed=to)
                assert out.tolist() == [77 * (to == 0), 77 * (to == 1)], (to, bar)
                continue
            with pytest.raises(ExecutionFault) as caught:
                kernel.launch(2, 1, [m, source, out, to, bar], cluster=2, timeout=600)
            message = caught.value.message
            if max(to, bar) < 2:
                assert "writes to the shared memory of block" in message
            else:
                assert any(f"of rank {rank}" in message for rank in (to, bar) if rank >= 2), (to, bar, message)
            assert not out.any()
