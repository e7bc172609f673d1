"""mbarriers and clusters: faults have their rule, too; what is right and looks wrong is silent."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mmulator as mm
from mmulator.errors import ExecutionFault
from tests.support import breaches, ptx_text

# Of programs of tests/ub/faults that a mistake stops: which rule that is (others' rules may be broken before).
FAULTS = {
    "mbarriers": {
        "never bulk_never": "mbarrier-not-initialised", "no_arrivals": "mbarrier-count-invalid",
        "bytes one_byte": "mbarrier-tx-count-overflow", "again arrive_five last": "mbarrier-arrival-overrun",
        "one": "mbarrier-nocomplete-completes", "ended": "mbarrier-use-after-inval",
    },
    "waits": {
        "one_more not_flipped both_wait": "deadlock-at-mbarrier", "fewer_bytes": "mbarrier-bytes-missing",
        "more_bytes": "mbarrier-bytes-unexpected",
    },
    "clusters": {
        "exited": "cluster-exit-unsynchronised", "one_lacks": "deadlock-at-cluster-barrier",
        "never twice": "cluster-barrier-unpaired",
    },
    "cluster_waits": {"never": "mbarrier-not-initialised", "apart": "mbarrier-other-block"},
    "registers": {"nobody": "deadlock-at-setmaxnreg"},
}  # fmt: skip


@pytest.mark.parametrize(
    ("file", "name", "rule"),
    [(file, name, rule) for file, rules in FAULTS.items() for names, rule in rules.items() for name in names.split()],
)
def test_what_stops_a_run_has_its_rule(file: str, name: str, rule: str) -> None:
    error = breaches.launch(breaches.ROOT / "faults" / f"{file}.ptx", name, sanitize=True)
    assert isinstance(error, ExecutionFault)
    found = [f for f in error.findings if f.rule == rule]
    assert found, error.findings
    assert all(f.hint and f.threads and f.location.startswith(f"{file}.ptx:") for f in found)


HEAD = """.version 8.3
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 out) {
 .reg .pred p, q; .reg .b32 r, s, t, b; .reg .b64 a, st;
 .shared .align 16 .b8 data[64]; .shared .align 8 .b64 bar; .shared .align 8 .b64 more;
 ld.param.u64 a, [out]; mov.u32 t, %tid.x; mov.u32 b, %cluster_ctarank; setp.eq.u32 q, t, 0;
"""


def findings(body: str, block: int = 64, grid: int = 1, **more: Any) -> list[str]:
    found: set[str] = set()
    for seed in range(3):
        kernel = mm.Module.load(HEAD + body + "\n ret;\n}\n", name="k.ptx")["k"]
        report = kernel.launch(grid, block, [np.zeros(64, np.uint32)], sanitize=True, seed=seed, timeout=60, **more)
        found |= {f.rule for f in report.findings}
    return sorted(found)


MADE = "@q mbarrier.init.shared.b64 [bar], 64;\n"
ROUND = "mbarrier.arrive.shared.b64 st, [bar];\nW: mbarrier.try_wait.shared.b64 p, [bar], st;\n@!p bra W;\n"


@pytest.mark.parametrize("body", [
    # bytes right before and behind an mbarrier
    MADE + "bar.sync 0;\nshl.b32 r, t, 2; mov.u32 s, data; add.u32 s, s, r; setp.lt.u32 p, t, 16;\n@p st.shared.u32 [s], t;\n",
    # the thread that made it uses it without a barrier; others know of it through a named barrier
    "@!q bra D;\nmbarrier.init.shared.b64 [bar], 1;\nmbarrier.arrive.shared.b64 st, [bar];\nD:",
    MADE + "bar.sync 5, 64;\n" + ROUND,
    # invalidated behind a barrier, its memory is data, and an mbarrier again
    MADE + "bar.sync 0;\n" + ROUND + "bar.sync 0;\n@q mbarrier.inval.shared.b64 [bar];\n@q st.shared.u32 [bar], t;\n"
    "@q mbarrier.init.shared.b64 [bar], 64;\nbar.sync 0;\n" + ROUND.replace("W", "V"),
    # nobody waits for the last phase, nobody arrives at all
    MADE + "bar.sync 0;\nmbarrier.arrive.shared.b64 st, [bar];\n",
    # bytes that are expected, completed by the thread itself
    MADE + "bar.sync 0;\n@q mbarrier.expect_tx.relaxed.cta.shared.b64 [bar], 64;\n"
    "@q mbarrier.complete_tx.relaxed.cluster.shared::cta.b64 [bar], 64;\n" + ROUND,
])  # fmt: skip
def test_what_is_right_is_silent(body: str) -> None:
    assert findings(body) == []


PEER = "mov.u32 r, data; xor.b32 s, b, 1; mapa.shared::cluster.u32 r, r, s;\n"
MEET = "barrier.cluster.arrive{};\nbarrier.cluster.wait;\n"


@pytest.mark.parametrize("body", [
    # fences where the barrier itself orders nothing
    MADE + "@q fence.mbarrier_init.release.cluster;\nbarrier.cluster.arrive.relaxed;\nbarrier.cluster.wait;\n"
    "mov.u32 r, bar; mapa.shared::cluster.u32 r, r, 0;\nmbarrier.arrive.release.cluster.shared::cluster.b64 _, [r];\n"
    "barrier.cluster.arrive;\nbarrier.cluster.wait;\n",
    # reads, then a relaxed meeting at the end, and one that only some threads wait for
    MEET.format("") + PEER + "ld.shared::cluster.u32 s, [r];\n" + MEET.format(".relaxed"),
    # a block that does not access others may go
    MEET.format("") + "setp.eq.u32 p, b, 0;\n@p bra D;\nmov.u32 r, data;\nst.shared.u32 [r], b;\nD:",
])  # fmt: skip
def test_what_is_right_in_a_cluster_is_silent(body: str) -> None:
    start = "@q st.shared.u32 [data], t;\nbar.sync 0;\n"
    assert findings(start + body, block=32, grid=2, cluster=(2, 1, 1)) == []


def test_a_wait_is_over_where_all_have_met() -> None:
    """A wait has ended before its thread arrives at barrier.cluster, also with .relaxed; Gluon's kernels rely on it."""
    text = ptx_text.kernel("""
      .shared .align 8 .b64 bar;
      mov.u32 %r1, %tid.x; setp.ne.u32 %p1, %r1, 0;
      @!%p1 mbarrier.init.shared.b64 [bar], 1;
      bar.sync 0;
      @!%p1 mbarrier.arrive.shared.b64 _, [bar];
    AGAIN: mbarrier.try_wait.parity.shared.b64 %p2, [bar], 0; @!%p2 bra AGAIN;
      barrier.cluster.arrive.relaxed; barrier.cluster.wait;
      @!%p1 mbarrier.inval.shared.b64 [bar];""")
    report = mm.Module.load(text)["k"].launch(1, 64, [np.zeros(4, np.uint32)], sanitize="strict")
    assert not report.findings
