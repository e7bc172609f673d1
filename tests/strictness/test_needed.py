"""Which barriers, fences, waits and commits a certified launch needs."""

import struct
import threading
from typing import Any

import numpy as np
import pytest

import mmulator as mm
from mmulator.host.certificate import CERTIFIED, NEEDED, NOT_KNOWN, NOT_NEEDED, NOT_TRIED, Certificate, OrderNeed
from mmulator.host.driver import Driver, Region, Settings
from mmulator.observation.strictness.trial import Mutated
from mmulator.ptx.program.calls import reached
from mmulator.ptx.program.mutants import without_order
from tests.support import breaches

HEAD = """.version 8.7
.target sm_90a
.address_size 64
.file 1 "mm.cu"
.global .b32 count;
.visible .entry k(.param .u64 out) {
  .reg .b32 t, v, a, n; .reg .b64 p, q; .reg .pred one, big;
  .shared .align 16 .b8 tile[512];
  ld.param.u64 p, [out];
  mov.u32 t, %tid.x;
  mul.wide.u32 q, t, 4;
  add.u64 q, p, q;
  mov.u32 a, tile;
  mad.lo.u32 n, t, 4, a;
  st.shared.u32 [n], t;
  xor.b32 n, t, 63;
  mad.lo.u32 n, n, 4, a;
"""
TAIL = "  ld.shared.u32 v, [n];\n  st.global.u32 [q], v;\n  ret;\n}\n"
FIRST = HEAD.count("\n") + 1  # the line of what stands between


def kernel(between: str) -> mm.Kernel:
    return mm.Module.load(HEAD + between + TAIL, name="k.ptx")["k"]


def certificate(between: str, **more: Any) -> Certificate:
    found = kernel(between).launch(1, 64, [np.zeros(64, np.uint32)], certify="needed", **more).certificate
    assert found is not None
    return found


def rows(between: str) -> tuple[OrderNeed, ...]:
    found = certificate(between).needed
    assert found is not None
    return found


def test_what_breaks_without_it_is_said_by_rule_and_place() -> None:
    (row,) = rows("  bar.sync 0;\n")
    assert (row.verdict, row.lines, row.instruction, row.together) == (NEEDED, (FIRST,), "bar.sync 0;", False)
    assert row.reason.startswith(f"k.ptx:{FIRST + 1}: ld.shared.u32 reads") and row.reason.endswith("[race-read-write]")


def test_either_of_two_will_do_and_not_both_can_go() -> None:
    found = certificate("  bar.sync 0;\n  bar.sync 0;\n  membar.cta;\n")
    assert [row.verdict for row in found.needed or ()] == [NOT_NEEDED] * 3
    assert [row.together for row in found.needed or ()] == [True, False, True]
    head, *told, last = found.lines_of_needed()
    assert head.endswith("0 needed, 3 not needed while the others stay, 0 more if it may rest on more, 0 not known")
    assert last == f"  can be left out at once: ptx:{FIRST}, {FIRST + 2}" and len(told) == 3


def test_a_launch_that_hangs() -> None:
    arrive, _ = rows("  setp.lt.u32 one, t, 32;\n  @one bar.arrive 1, 64;\n  @!one bar.sync 1, 64;\n  bar.sync 0;\n")[:2]
    assert arrive.verdict == NEEDED and "barrier" in arrive.reason and "[" not in arrive.reason  # a deadlock


def test_a_barrier_that_gives_a_value_is_not_judged() -> None:
    """Without it the value would be another one; what it orders, it orders."""
    vote = "  bar.sync 0;\n  setp.lt.u32 big, t, 99;\n  bar.red.and.pred one, 0, big;\n  bar.red.popc.u32 v, 0, big;\n"
    found = rows(vote + "  @!one mov.u32 n, v;\n")
    assert [(row.verdict, "gives a value" in row.reason) for row in found] == [(NOT_NEEDED, False), *[(NOT_KNOWN, True)] * 2]


def test_what_is_not_executed() -> None:
    (skipped, _) = rows("  setp.lt.u32 one, t, 64;\n  @one bra over;\n  bar.sync 0;\nover:\n  bar.sync 0;\n")
    assert (skipped.verdict, skipped.reason) == (NOT_NEEDED, "the launch does not execute it")


def test_a_line_of_the_program_is_left_out_as_a_whole_and_its_instructions_are_told_apart() -> None:
    """Two barriers of one line of which either will do; the same line, inlined at another place, is another line."""
    line = "  .loc 1 7 3\n"
    whole, *each = rows(line + "  bar.sync 0;\n" + line + "  bar.sync 0;\n")
    assert (whole.source, whole.lines, whole.verdict) == ("mm.cu:7", (FIRST + 1, FIRST + 3), NEEDED)
    assert [(row.lines, row.verdict) for row in each] == [((FIRST + 1,), NOT_NEEDED), ((FIRST + 3,), NOT_NEEDED)]
    apart = rows(line + "  bar.sync 0;\n  .loc 1 8 3\n  bar.sync 0;\n  .loc 1 8 3\n  membar.cta;\n")
    assert [(row.source, row.verdict) for row in apart] == [(f"mm.cu:{n}", NOT_NEEDED) for n in (7, 8, 8)]


def test_what_the_certificate_would_rest_on_besides_and_what_is_not_known() -> None:
    def of(name: str) -> dict[str, OrderNeed]:
        (file,) = (f for f in breaches.every() if f"{f.parent.name}/{f.stem}" == name)
        return {row.instruction.split()[0]: row for row in breaches.launch(file, certify="needed").certificate.needed}

    fence = of("mbarriers/rows")["fence.mbarrier_init.release.cluster;"]
    assert fence.verdict == NOT_NEEDED and not fence.is_free and not fence.together
    assert "no fence after its mbarrier.init" in fence.rests_on[0] in str(fence)
    meeting = of("consan/loads")["bar.warp.sync"]
    assert meeting.verdict == NOT_KNOWN and "another lane of its warp has made" in meeting.reason


def test_memory_is_as_the_launch_left_it() -> None:
    count = "  bar.sync 0;\n  red.global.add.u32 [count], 1;\n"
    module, out = mm.Module.load(HEAD + count + TAIL, name="k.ptx"), np.full(64, 9, np.uint32)
    for n in (1, 2):
        found = module["k"].launch(1, 64, [out], certify="needed").certificate
        assert found is not None and [row.verdict for row in found.needed or ()] == [NEEDED]
        assert out.tolist() == [63 - t for t in range(64)] and module.variables["count"] == 64 * n


def test_ctrl_c_keeps_what_is_done() -> None:
    def progress(phase: str, done: int, total: int) -> None:
        if phase == "needed" and done == 2:
            raise KeyboardInterrupt

    found = certificate("  bar.sync 0;\n" * 4, progress=progress)
    assert found.verdict == CERTIFIED
    assert [row.reason == NOT_TRIED for row in found.needed or ()] == [False, False, True, True]
    head, *_, last = found.lines_of_needed()
    assert head.endswith("2 not known (2 not tried)") and last.endswith("at once was not tried")


def test_what_was_not_asked_is_none() -> None:
    report = kernel("").launch(1, 64, [np.zeros(64, np.uint32)], certify="needed")
    assert report.certificate is not None and report.certificate.needed is None
    assert report.notes[-1].endswith("was not asked: the launch is counterexample")
    plain = kernel("  bar.sync 0;\n").launch(1, 64, [np.zeros(64, np.uint32)], certify=True)
    assert plain.certificate is not None and plain.certificate.as_dict()["needed"] is None
    with pytest.raises(mm.errors.LaunchError, match="certify is of type str, not True or False, nor 'needed'"):
        kernel("").launch(1, 64, [np.zeros(64, np.uint32)], certify="yes")  # type: ignore[arg-type]


def test_a_program_is_asked_at_the_first_launch_of_a_kernel_and_only_its_own_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    driver, out = Driver(Settings(certify="needed", progress="never")), np.zeros(64, np.uint32)
    function = driver.load(HEAD + "  bar.sync 0;\n  bar.sync 0;\n" + TAIL, "k.ptx").function("k")
    params, memory = struct.pack("<Q", out.ctypes.data), [Region(out.ctypes.data, out.nbytes, "out")]
    first, second = (driver.launch(function, (1, 1, 1), (64, 1, 1), params, memory) for _ in range(2))
    assert [row.verdict for row in first.certificate.needed] == [NOT_NEEDED] * 2
    assert second.certificate.verdict == CERTIFIED and second.certificate.needed is None

    mine, other = kernel("  bar.sync 0;\n"), list[bool]()

    def beside() -> None:
        report = mine.launch(1, 64, [np.zeros(64, np.uint32)], sanitize=True)
        other.append(bool(report.findings))

    run = Mutated.run

    def meanwhile(self: Mutated, *given: Any) -> Any:
        thread = threading.Thread(target=beside)
        thread.start()
        thread.join()
        return run(self, *given)

    monkeypatch.setattr(Mutated, "run", meanwhile)
    found = mine.launch(1, 64, [np.zeros(64, np.uint32)], certify="needed").certificate
    assert found is not None and found.needed is not None and found.needed[0].verdict == NEEDED
    assert other == [False]


# a law ----------------------------------------------------------------------------------------------------------------
SAMPLE = (
    "accumulators/k_loop", "consan/products", "consan/stores", "mbarriers/pipeline", "proxies/bulk_pipeline", "proxies/two_tiles",
    "races/copies", "races/order_cluster", "tensor_memory/cutlass_3653", "waits/tiles",
)  # fmt: skip


@pytest.mark.parametrize("name", SAMPLE)
def test_a_kernel_without_a_fence_is_certified_only_where_the_fence_was_not_needed(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each instruction alone, in a module and memory of its own."""
    (file,) = (f for f in breaches.every() if f"{f.parent.name}/{f.stem}" == name and f.suffix == ".ptx")
    found = breaches.launch(file, certify="needed").certificate
    module = breaches.module_of(file, None)
    changes = without_order(reached(module.tree, next(iter(module.values())).function).functions.values())
    free = {(row.lines[0], row.instruction) for row in found.needed if len(row.lines) == 1 and row.verdict == NOT_NEEDED}
    assert found.verdict == CERTIFIED and changes
    for change in changes:
        monkeypatch.setattr(breaches, "text", lambda *_: change.source.text)  # noqa: B023
        left = breaches.launch(file, certify=True)
        without = getattr(left, "certificate", None) or left.__dict__["certificate"]
        span = change.instruction.span
        assert (without.verdict == CERTIFIED) == ((span.line, " ".join(span.text.split())) in free), change.place
