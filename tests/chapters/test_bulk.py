"""Bulk copies and reductions: every direction, and what is wrong with one. (native/test_transfers.py has when they are done.)"""

from functools import cache
from typing import Any

import numpy as np
import pytest

from mmulator.errors import ExecutionFault
from mmulator.host.module import Kernel, Module
from mmulator.runtime.native.asynchrony.bulk import PIECE
from tests.data import bulk_vectors
from tests.support.ptx_text import kernel

# `buf` in shared memory is filled from `window`, and written back to `window` when all is done by thread 0; %r1 size, %r2 offset
FRAME = """
  .shared .align 128 .b8 buf[{bytes}]; .shared .align 8 .b64 bar;
  ld.param.u64 %rd1, [window]; ld.param.u32 %r1, [size]; ld.param.u32 %r2, [offset]; ld.param.u32 %r3, [times];
  mov.u32 %r10, %tid.x; setp.ne.u32 %p0, %r10, 0; shl.b32 %r11, %r10, 4; mov.u32 %r12, buf;
F: cvt.u64.u32 %rd2, %r11; add.u64 %rd3, %rd1, %rd2; ld.global.v4.u32 {{%r20, %r21, %r22, %r23}}, [%rd3];
  add.u32 %r13, %r12, %r11; st.shared.v4.u32 [%r13], {{%r20, %r21, %r22, %r23}};
  add.u32 %r11, %r11, 2048; setp.lt.u32 %p1, %r11, {bytes}; @%p1 bra F;
  fence.proxy.async;
  bar.sync 0;
  @%p0 bra DONE;
  add.u32 %r12, %r12, %r2;
{body}
DONE: bar.sync 0;
  shl.b32 %r11, %r10, 4; mov.u32 %r12, buf;
B: cvt.u64.u32 %rd2, %r11; add.u64 %rd3, %rd1, %rd2; add.u32 %r13, %r12, %r11;
  ld.shared.v4.u32 {{%r20, %r21, %r22, %r23}}, [%r13]; st.global.v4.u32 [%rd3], {{%r20, %r21, %r22, %r23}};
  add.u32 %r11, %r11, 2048; setp.lt.u32 %p1, %r11, {bytes}; @%p1 bra B;
"""
PARAMS = ".param .u64 out, .param .u64 window, .param .u32 size, .param .u32 offset, .param .u32 times"
AWAIT = "W: mbarrier.try_wait.parity.shared.b64 %p2, [bar], 0; @!%p2 bra W;"
ARM = "mbarrier.init.shared.b64 [bar], 1; mbarrier.arrive.expect_tx.shared.b64 _, [bar], %r1;"
LOAD = f"{ARM} cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r12], [%rd0], %r1, [bar]; {AWAIT}"
LOAD_CTA = f"{ARM} cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r12], [%rd0], %r1, [bar]; {AWAIT}"
TURNS = """
T: {} cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
  sub.u32 %r3, %r3, 1; setp.ne.u32 %p3, %r3, 0; @%p3 bra T;"""
IN_CLUSTER = "cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes"
STORE = TURNS.format("cp.async.bulk.global.shared::cta.bulk_group [%rd0], [%r12], %r1;")


@cache
def framed(body: str, size: int = bulk_vectors.SHARED_BYTES) -> Kernel:
    text = kernel(FRAME.format(bytes=size, body=body), PARAMS).replace(".version 8.0", ".version 8.6")
    return Module.load(text, name="bulk.ptx")["k"]


def reduction(op: str, type_name: str) -> str:
    return TURNS.format(f"cp.reduce.async.bulk.global.shared::cta.bulk_group.{op}.{type_name} [%rd0], [%r12], %r1;")


def body_of(form: str, op: str, type_name: str) -> str:
    return {"g2s": LOAD, "s2g": STORE}.get(form) or reduction(op, type_name)


KINDS = sorted({(c.form, c.op, c.type) for c in bulk_vectors.copies()})


@pytest.mark.parametrize(("form", "op", "type_name"), KINDS, ids=[" ".join(filter(None, k)) for k in KINDS])
def test_copies_have_the_bits_of_the_hardware(form: str, op: str, type_name: str) -> None:
    """Of rounding, NaNs, subnormals and infinities; whatever the seed."""
    cases = [c for c in bulk_vectors.copies() if (c.form, c.op, c.type) == (form, op, type_name)]
    for number, c in enumerate(cases):
        window, work = bulk_vectors.memory(c.kind, True).copy(), bulk_vectors.memory(c.kind, False).copy()
        place, offset = (c.source, c.target) if c.to_shared else (c.target, c.source)
        framed(body_of(form, op, type_name)).launch(1, 128, [work[place:], window, c.size, offset, c.times], seed=number)
        found = window if c.to_shared else work
        wrong = np.flatnonzero(found != c.expected())
        assert not len(wrong), f"{c.form} {c.op} {c.type} of {c.size}: {len(wrong)} bytes differ, the first at {wrong[0]}"


# against plain arithmetic -----------------------------------------------------------------------------------------------
def run(body: str, out: np.ndarray, window: np.ndarray, size: int, offset: int = 0, times: int = 1, **more: Any) -> None:
    framed(body, window.nbytes).launch(1, 128, [out, window, size, offset, times], **more)


@pytest.mark.parametrize("body", [LOAD, LOAD_CTA], ids=["cluster", "cta"])
@pytest.mark.parametrize("size", [0, 16, PIECE - 16, PIECE, PIECE + 16, 4096])
def test_sizes_of_loads(body: str, size: int) -> None:
    source, window = np.arange(1, 4097, dtype=np.uint8), np.zeros(4096, np.uint8)
    for seed in range(4):
        window[:] = 0
        run(body, source, window, size, seed=seed)
        assert (window[:size] == source[:size]).all() and not window[size:].any()


def test_reductions_by_many_blocks_at_once() -> None:
    """Clusters on different threads of the host add to the same elements: none is lost, of integers and of floats."""
    for type_name, dtype in (("u32", np.uint32), ("u64", np.uint64), ("f32", np.float32), ("f64", np.float64)):
        out, window = np.zeros(4096 // np.dtype(dtype).itemsize, dtype), np.ones(4096 // np.dtype(dtype).itemsize, dtype)
        framed(reduction("add", type_name), 4096).launch(64, 128, [out, window, 4096, 0, 3], threads=4, timeout=600)
        assert (out == 192).all(), type_name
    out, window = np.zeros(2048, np.float16), np.ones(2048, np.float16)
    framed(reduction("add.noftz", "f16"), 4096).launch(64, 128, [out, window, 4096, 0, 3], threads=4, timeout=600)
    assert (out == 192).all()


# what is wrong ----------------------------------------------------------------------------------------------------------
# clusters ---------------------------------------------------------------------------------------------------------------
# Each block of a cluster fills its `buf` with its rank + 1 and has an mbarrier; %r5 its rank; then BODY; then block r writes its
# 1024 bytes to out[r].
CLUSTER = """
  .shared .align 128 .b8 buf[1024]; .shared .align 8 .b64 bar;
  ld.param.u64 %rd1, [in]; mov.u32 %r5, %cluster_ctarank; mov.u32 %r6, buf; mov.u32 %r7, bar;
  add.u32 %r8, %r5, 1; mov.u32 %r9, 0;
F: add.u32 %r10, %r6, %r9; st.shared.u32 [%r10], %r8; add.u32 %r9, %r9, 4; setp.lt.u32 %p1, %r9, 1024; @%p1 bra F;
  mbarrier.init.shared.b64 [bar], 1;
  fence.mbarrier_init.release.cluster; fence.proxy.async;
  barrier.cluster.arrive; barrier.cluster.wait;
{body}
  barrier.cluster.arrive; barrier.cluster.wait;
  mad.wide.u32 %rd2, %r5, 1024, %rd0; mov.u32 %r9, 0;
B: add.u32 %r10, %r6, %r9; ld.shared.u32 %r11, [%r10]; cvt.u64.u32 %rd3, %r9; add.u64 %rd3, %rd2, %rd3;
  st.global.u32 [%rd3], %r11; add.u32 %r9, %r9, 4; setp.lt.u32 %p1, %r9, 1024; @%p1 bra B;
"""


def of_cluster(body: str, size: int, seed: int) -> np.ndarray:
    """Words of each block's buffer afterwards. The array `in` counts."""
    text = kernel(CLUSTER.format(body=body), ".param .u64 in, .param .u64 out").replace(".version 8.0", ".version 8.6")
    out = np.zeros((size, 256), np.uint32)
    Module.load(text, name="cluster.ptx")["k"].launch(
        size, 1, [np.arange(256, dtype=np.uint32), out], cluster=size, seed=seed, timeout=600
    )
    return out


@pytest.mark.parametrize("seed", range(8))
def test_a_multicast_goes_to_the_blocks_of_its_mask(seed: int) -> None:
    """Also where the block that issues it is none of them; each block's own mbarrier hears of the bytes."""
    body = f"""
  setp.eq.u32 %p2, %r5, 1; setp.eq.u32 %p3, %r5, 3; or.pred %p2, %p2, %p3;
  @%p2 mbarrier.arrive.expect_tx.shared.b64 _, [bar], 512;
  barrier.cluster.arrive; barrier.cluster.wait;
  setp.ne.u32 %p4, %r5, 0; mov.u16 %h1, 10;
  @!%p4 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [buf+256], [%rd1], 512, [bar], %h1;
  @!%p2 bra DONE;
  {AWAIT}
DONE:
"""
    out = of_cluster(body, 4, seed)
    for rank in range(4):
        wanted = np.full(256, rank + 1)
        if rank in (1, 3):
            wanted[64:192] = np.arange(128)
        assert (out[rank] == wanted).all(), rank


TO_NEIGHBOUR = """
  mbarrier.arrive.expect_tx.shared.b64 _, [bar], 1008;
  barrier.cluster.arrive; barrier.cluster.wait;
  xor.b32 %r12, %r5, 1; mapa.shared::cluster.u32 %r13, %r6, %r12; mapa.shared::cluster.u32 %r14, %r7, %r12;
  {} [%r13+16], [buf], 1008, [%r14];
  {}
"""


@pytest.mark.parametrize("seed", range(8))
def test_reductions_into_the_neighbour(seed: int) -> None:
    """Each adds to the other while it reads: what it adds is of before or of after that, so words are one of two numbers."""
    reduce = IN_CLUSTER + ".{}"
    out = of_cluster(TO_NEIGHBOUR.format(reduce.format("max.u32"), AWAIT), 2, seed)
    assert (out[0][4:] == 2).all() and (out[1] == 2).all() and (out[0][:4] == 1).all()
    out = of_cluster(TO_NEIGHBOUR.format(reduce.format("inc.u32"), AWAIT), 2, seed)
    assert set(out[0][4:].tolist()) <= {0, 2} and (out[0][:4] == 1).all() and (out[1][:4] == 2).all()


def test_a_copy_into_the_neighbour() -> None:
    body = TO_NEIGHBOUR.format("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes", AWAIT)
    for seed in range(8):
        out = of_cluster("setp.ne.u32 %p5, %r5, 0;" + body.replace("cp.async", "@!%p5 cp.async").replace("W:", "@!%p5 bra E; W:")
                         + "E:", 2, seed)  # fmt: skip
        assert (out[0] == 1).all() and (out[1][4:] == 1).all() and (out[1][:4] == 2).all()


def of_sm_100(body: str) -> str:
    text = kernel(FRAME.format(bytes=2048, body=body), PARAMS)
    return text.replace(".version 8.0", ".version 8.6").replace("sm_90a", "sm_100a")


def test_masked_stores_leave_bytes_out() -> None:
    """.cp_mask, of sm_100: bit i stands for byte i of every 16."""
    mask = 0b1010_0000_0000_0111
    body = f"mov.u16 %h1, {mask}; " + STORE.replace("bulk_group", "bulk_group.cp_mask").replace("%r1;", "%r1, %h1;", 1)
    text = of_sm_100(body)
    out, window = np.zeros(1024, np.uint8), np.arange(2048, dtype=np.uint32).astype(np.uint8) | 1
    Module.load(text)["k"].launch(1, 128, [out, window, 1024, 0, 1])
    kept = np.tile([mask >> n & 1 for n in range(16)], 64).astype(bool)
    assert (out[kept] == window[:1024][kept]).all() and not out[~kept].any()


@pytest.mark.parametrize("space", ["", ".shared::cta"])
def test_st_bulk_writes_zeros(space: str) -> None:
    body = f"cvt.u64.u32 %rd9, %r12; {'' if space else 'cvta.shared.u64 %rd9, %rd9;'} st.bulk.weak{space} [%rd9+8], 1000, 0;"
    text = of_sm_100(body)
    window = np.full(2048, 7, np.uint8)
    Module.load(text)["k"].launch(1, 128, [np.zeros(16, np.uint8), window, 0, 0, 1])
    assert not window[8:1008].any() and (window[:8] == 7).all() and (window[1008:] == 7).all()


# who looks on -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("seed", range(3))
def test_a_watch_sees_bulk_stores_when_they_are_done(seed: int) -> None:
    """With the thread and the instruction that issued them, and the value afterwards."""
    for body, values in ((STORE, [5, 5, 5, 5]), (reduction("add", "u32"), [5, 10, 15, 20])):
        out, window = np.zeros(1024, np.uint32), np.arange(1024, dtype=np.uint32)
        report = framed(body, 4096).launch(2, 128, [out, window, 4096, 0, 2], watch=[(0, 5)], threads=1, seed=seed)
        assert [s.value for s in report.stores] == values
        assert [s.block[0] for s in report.stores] == [0, 0, 1, 1]
        assert all("bulk" in s.instruction and s.thread == (0, 0, 0) for s in report.stores)


def test_a_fault_when_the_table_is_full() -> None:
    """300 copies under way, then one that is wrong: what is pending does nothing any more, and the launch ends."""
    body = """
A: cp.async.bulk.global.shared::cta.bulk_group [%rd0], [%r12], 16; add.u64 %rd0, %rd0, 16;
  sub.u32 %r3, %r3, 1; setp.ne.u32 %p3, %r3, 0; @%p3 bra A;
  cp.async.bulk.global.shared::cta.bulk_group [%rd0+8], [%r12], 16;
  cp.async.bulk.global.shared::cta.bulk_group [%rd0], [%r12], 16;
"""
    for seed in range(4):
        out = np.zeros(8192, np.uint8)
        with pytest.raises(ExecutionFault, match=r"misaligned: cp\.async\.bulk.*byte 4808 of argument 0"):
            framed(body, 4096).launch(1, 128, [out, np.ones(4096, np.uint8), 0, 0, 300], seed=seed, timeout=600)
        assert not out[4800:].any() and set(out.tolist()) <= {0, 1}
