"""Blocks that take over the work of others, for a certificate: all ways to share the work out are run."""

from typing import Any

import numpy as np
import pytest

import mmulator as mm
from mmulator.host.certificate import COUNTEREXAMPLE, EXPLORED, NOT_DECIDED, Certificate
from mmulator.host.taking import number_of_ways, ways

STEAL = """.version 8.8
.target sm_100a
.address_size 64
.visible .entry steal(.param .u64 out) {
  .reg .pred first, over, more; .reg .b32 t, x, n, v, a; .reg .b64 p, q; .reg .b128 answer;
  .shared .align 16 .b8 response[16]; .shared .align 8 .b64 bar; .shared .align 4 .b8 tile[128];
  ld.param.u64 p, [out];
  mov.u32 t, %tid.x; mov.u32 x, %ctaid.x; mov.u32 n, 0;
  setp.eq.u32 first, t, 0;
  @first mbarrier.init.shared.b64 [bar], 1;
  @first fence.mbarrier_init.release.cluster;
  bar.sync 0;
AGAIN:
  @!first bra WORK;
  mbarrier.arrive.expect_tx.shared.b64 _, [bar], 16;
  clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [response], [bar];
  {second}
WORK: mov.u32 a, tile; mad.lo.u32 a, t, 4, a;
  {load}
  add.u32 v, x, t;
  st.shared.u32 [a], v;
  mad.lo.u32 v, x, 32, t;
  mul.wide.u32 q, {at}, 4; add.u64 q, p, q;
  ld.shared.u32 v, [a];
  {value}
  st.global.u32 [q], v;
  and.b32 a, n, 1;
WAIT: mbarrier.try_wait.parity.shared.b64 over, [bar], a;
  @!over bra WAIT;
  ld.shared.b128 answer, [response];
  fence.proxy.async.shared::cta;
  clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 more, answer;
  @more clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 x, answer;
  add.u32 n, n, 1;
  {sync}
  @more bra AGAIN;
  ret;
}
"""
PARTS = {"second": "", "load": "", "at": "v", "value": "", "sync": "bar.sync 0;"}


def certificate(*, grid: int = 4, **parts: Any) -> Certificate:
    text = STEAL
    for name, part in (PARTS | parts).items():
        text = text.replace("{" + name + "}", part)
    kernel = mm.Module.load(text, name="steal.ptx")["steal"]
    try:
        found = kernel.launch(grid, 32, [np.zeros(512, np.uint32)], certify=True).certificate
    except mm.errors.ExecutionFault as fault:
        found = fault.__dict__["certificate"]
    assert found is not None
    if found.schedule is not None and isinstance(found.schedule.order, tuple):  # it runs again
        outs = [np.zeros(512, np.uint32) for _ in range(2)]
        kernel.launch(grid, 32, [outs[0]], threads=1)
        kernel.launch(grid, 32, [outs[1]], threads=1, seed=found.schedule.seed, order=found.schedule.order)
        assert (outs[0] != outs[1]).any() or "other bytes" not in found.reasons[0].why
    return found


@pytest.mark.parametrize("grid", [1, 2, 4])
def test_each_way_to_share_out_independent_work_is_run(grid: int) -> None:
    found = certificate(grid=grid)
    assert found.verdict == EXPLORED and found.about == number_of_ways(grid), found
    assert any("in the order of their numbers" in text for text in found.rests_on)


BROKEN = {
    "which work it is of a block shows": {"value": "add.u32 v, v, n;"},
    "what the work before left shows": {"load": "ld.shared.u32 n, [a];", "value": "add.u32 v, v, n;"},
    "the tiles overlap": {"at": "t"},
    "the third is forgotten": {"value": "setp.lt.u32 over, n, 2;\n  @over"},
    "the answer is overwritten before all have read it": {"sync": ""},
}


@pytest.mark.parametrize("name", BROKEN)
def test_work_that_is_not_independent(name: str) -> None:
    assert certificate(**BROKEN[name]).verdict == COUNTEREXAMPLE


def test_what_is_not_tried_is_not_decided() -> None:
    found = certificate(grid=16)
    assert found.verdict == NOT_DECIDED and "10,480,142,147 ways" in found.reasons[0].why
    twice = "mbarrier.expect_tx.relaxed.cta.shared.b64 [bar], 16;\n  clusterlaunchcontrol.try_cancel.async.shared::cta"
    twice += ".mbarrier::complete_tx::bytes.b128 [response], [bar];"
    assert certificate(second=twice).verdict in (NOT_DECIDED, COUNTEREXAMPLE)


def test_ways_are_the_partitions_of_a_set() -> None:
    assert [number_of_ways(n) for n in range(7)] == [1, 1, 2, 5, 15, 52, 203]
    for n in range(7):
        every = [*ways(n)]
        assert len({*every}) == len(every) == number_of_ways(n)
        assert all(owners[owner] == owner <= k for owners in every for k, owner in enumerate(owners))
