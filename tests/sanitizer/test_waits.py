"""Deadlocks and livelocks as findings: which rule, who waits, where who should have come is; and what is no livelock."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mmulator as mm
from mmulator.errors import ExecutionFault
from mmulator.findings import Finding
from tests.support import breaches

HEAD = """.version 8.3
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 out) {
 .reg .pred p, q; .reg .b32 r, s, t, b; .reg .b64 a, st;
 .shared .align 8 .b64 bar; .shared .align 8 .b64 words[8];
 ld.param.u64 a, [out]; mov.u32 t, %tid.x; mov.u32 b, %ctaid.x; setp.eq.u32 q, t, 0;
"""


def stopped(body: str, grid: int = 1, block: int = 64, **more: Any) -> ExecutionFault:
    """The deadlock or livelock of a kernel."""
    kernel = mm.Module.load(HEAD + body + "\n ret;\n}\n", name="k.ptx")["k"]
    with pytest.raises(ExecutionFault) as caught:
        kernel.launch(grid, block, [np.zeros(64, np.uint32)], sanitize=True, timeout=60, **more)
    return caught.value


def only(error: ExecutionFault) -> Finding:
    assert len(error.findings) == 1, "\n".join(map(str, error.findings))
    return error.findings[0]


def test_a_wait_names_the_last_arrival_and_where_that_thread_is_now() -> None:
    found = only(stopped(
        "@q mbarrier.init.shared.b64 [bar], 2;\nbar.sync 0;\n@q mbarrier.arrive.shared.b64 _, [bar];\n"
        "@q bra W;\nbar.sync 1, 64;\n"
        "W: mbarrier.try_wait.parity.shared.b64 p, [bar], 0;\n@!p bra W;\nbar.sync 1, 64;", block=64,
    ))  # fmt: skip
    assert found.rule == "deadlock-at-mbarrier" and found.severity == "error"
    assert found.location == "k.ptx:13" and found.threads == "block (0, 0, 0), thread (0, 0, 0)"
    assert "1 of 2 arrivals is missing" in found.message and "is now at mbarrier.try_wait" in found.message
    assert found.conflict is not None and found.conflict.location == "k.ptx:10"


def test_where_nobody_arrived_the_instruction_that_could_is_named() -> None:
    found = only(stopped(
        "@q mbarrier.init.shared.b64 [bar], 1;\n@q mbarrier.init.shared.b64 [words], 1;\nbar.sync 0;\n"
        "W: mbarrier.try_wait.parity.shared.b64 p, [bar], 0;\n@!p bra W;\n"
        "mbarrier.arrive.shared.b64 _, [bar];\nmbarrier.arrive.shared.b64 _, [words];",
    ))  # fmt: skip
    assert "what could: mbarrier.arrive.shared.b64 (k.ptx:13)" in found.message and "k.ptx:14" not in found.message
    assert found.conflict is not None and found.conflict.location == "k.ptx:13"
    assert "must be for parity 1" in found.hint


def test_each_mbarrier_that_is_awaited_is_a_finding() -> None:
    error = stopped(
        "@q mbarrier.init.shared.b64 [bar], 1;\n@q mbarrier.init.shared.b64 [words], 1;\nbar.sync 0;\n"
        "setp.lt.u32 p, t, 32;\n@p bra P;\nW: mbarrier.try_wait.parity.shared.b64 p, [bar], 0;\n@!p bra W;\n"
        "mbarrier.arrive.shared.b64 _, [words];\nbra D;\nP: mbarrier.try_wait.parity.shared.b64 p, [words], 0;\n@!p bra P;\n"
        "mbarrier.arrive.shared.b64 _, [bar];\nD:",
    )  # fmt: skip
    assert [f.rule for f in error.findings] == 2 * ["deadlock-at-mbarrier"]
    assert {f.location for f in error.findings} == {"k.ptx:13", "k.ptx:17"}
    assert {f.threads for f in error.findings} == {f"block (0, 0, 0), warp {n}, lanes 0 to 31" for n in (0, 1)}


def test_bytes_that_do_not_come_are_a_finding_where_they_were_expected() -> None:
    error = stopped(
        "@q mbarrier.init.shared.b64 [bar], 1;\nbar.sync 0;\n@q mbarrier.arrive.expect_tx.shared.b64 _, [bar], 64;\n"
        "W: mbarrier.try_wait.parity.shared.b64 p, [bar], 0;\n@!p bra W;",
    )  # fmt: skip
    assert {f.rule: f.location for f in error.findings} == {
        "deadlock-at-mbarrier": "k.ptx:11", "mbarrier-bytes-missing": "k.ptx:10",
    }  # fmt: skip


def test_a_barrier_names_who_has_not_come() -> None:
    found = only(stopped("setp.lt.u32 p, t, 32;\n@p bra F;\nbar.sync 1, 64;\nbra D;\nF: bar.sync 2, 64;\nD:"))
    assert found.rule == "deadlock-at-barrier" and "32 of 64 threads have arrived at barrier" in found.where
    assert found.conflict is not None and {found.location, found.conflict.location} == {"k.ptx:10", "k.ptx:12"}


def test_a_block_that_misses_the_cluster_barrier() -> None:
    found = only(stopped(
        "setp.ne.u32 p, b, 0;\nsetp.ne.and.u32 p, t, 0, p;\n@p bra L;\nbarrier.cluster.arrive;\nbarrier.cluster.wait;\nbra D;\n"
        "L: bar.sync 1, 64;\nD:", grid=2, block=32, cluster=(2, 1, 1),
    ))  # fmt: skip
    assert found.rule == "deadlock-at-cluster-barrier" and found.conflict is not None and found.conflict.location == "k.ptx:14"


# loops ----------------------------------------------------------------------------------------------------------------
def test_a_flag_that_nobody_sets() -> None:
    error = stopped("mov.u32 r, 0;\n@q st.shared.u32 [words], r;\nbar.sync 0;\nL: ld.volatile.shared.u32 r, [words];\n"
                    "setp.eq.u32 p, r, 0;\n@p bra L;")  # fmt: skip
    found = only(error)
    assert error.message.startswith("livelock in block (0, 0, 0)") and error.span is not None and error.hint
    assert found.rule == "livelock" and found.location == "k.ptx:11" and "shared memory" in found.where
    assert "polls memory for ever" in found.message


def test_blocks_that_wait_for_each_other() -> None:
    """Each polls what the other one would set behind its own loop."""
    body = """mul.wide.u32 st, b, 4; add.u64 st, a, st;
L: ld.acquire.gpu.global.u32 r, [st];
setp.eq.u32 p, r, 0;
@p bra L;
xor.b32 s, b, 1; mul.wide.u32 st, s, 4; add.u64 st, a, st;
st.release.gpu.global.u32 [st], t;"""
    for threads in (1, 2):
        found = only(stopped(body, grid=2, block=1, threads=threads))
        assert found.rule == "livelock" and found.location == "k.ptx:9" and "argument 0 (out)" in found.where
        assert found.count == 2


def test_a_lock_that_is_never_given_back() -> None:
    found = only(stopped("L: atom.acquire.gpu.global.cas.b32 r, [a], 0, 1;\nsetp.ne.u32 p, r, 0;\n@p bra L;", block=2))
    assert found.rule == "livelock" and found.instruction.startswith("atom")


def test_a_loop_that_looks_at_nothing() -> None:
    found = only(stopped("L: bra L;", block=1))
    assert found.rule == "livelock" and "nothing can end" in found.message


def test_others_that_wait_do_not_hide_a_livelock() -> None:
    found = only(stopped("setp.lt.u32 p, t, 32;\n@!p bra B;\nL: ld.volatile.global.u32 r, [a];\nsetp.eq.u32 p, r, 0;\n@p bra L;\n"
                         "B: bar.sync 0;"))  # fmt: skip
    assert found.rule == "livelock" and found.location == "k.ptx:10"


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("body", [
    # counts for a long time, in a register
    "mov.u32 r, 0;\nL: add.u32 r, r, 1;\nsetp.lt.u32 p, r, 2000000;\n@p bra L;",
    # what a thread waits for comes from another block, late
    """setp.ne.u32 p, b, 3;
@p bra W;
mov.u32 r, 0;
L: add.u32 r, r, 1;
setp.lt.u32 p, r, 1000000;
@p bra L;
st.release.gpu.global.u32 [a], r;
W: ld.acquire.gpu.global.u32 r, [a];
setp.eq.u32 p, r, 0;
@p bra W;""",
    # looks at a clock
    """mov.u64 st, %clock64;
add.u64 st, st, 3000000;
L: mov.u64 a, %clock64;
setp.lt.u64 p, a, st;
@p bra L;""",
    # counts in memory, whose value goes back to what it was
    """mov.u32 r, 0;
L: atom.relaxed.cta.shared.inc.u32 s, [words], 7;
add.u32 r, r, 1;
setp.lt.u32 p, r, 300000;
@p bra L;""",
])  # fmt: skip
def test_what_ends_is_no_livelock(body: str, threads: int) -> None:
    kernel = mm.Module.load(HEAD + "mov.u32 r, 0;\n@q st.shared.u32 [words], r;\n" + body + "\n ret;\n}\n")["k"]
    report = kernel.launch(4, 1, [np.zeros(64, np.uint32)], sanitize=True, threads=threads, timeout=120)
    assert not any(f.rule == "livelock" for f in report.findings)


def test_without_the_sanitizer_nobody_looks() -> None:
    kernel = mm.Module.load(HEAD + "L: bra L;\n}\n")["k"]
    kernel.compile()
    with pytest.raises(mm.errors.LimitReached):
        kernel.launch(1, 1, [np.zeros(64, np.uint32)], timeout=0.5)


def test_the_time_limit_is_no_finding() -> None:
    kernel = mm.Module.load(HEAD + "mov.u32 r, 0;\nL: add.u32 r, r, 1;\nsetp.ne.u32 p, r, 0;\n@p bra L;\n ret;\n}\n")["k"]
    with pytest.raises(mm.errors.LimitReached) as caught:
        kernel.launch(1, 1, [np.zeros(64, np.uint32)], timeout=0.5, sanitize=True)
    assert not caught.value.findings


def test_raise_raises_the_deadlock_itself() -> None:
    file = breaches.ROOT / "waits" / "tilelang_2566.ptx"
    kernel = mm.Module.load(breaches.text(file, "bare"))["tilelang_2566"]
    with pytest.raises(ExecutionFault, match="deadlock") as caught:
        kernel.launch(1, 64, [np.zeros(128, np.uint32), np.zeros(32, np.uint32)], sanitize="raise")
    assert [f.rule for f in caught.value.findings] == ["deadlock-at-mbarrier"]
