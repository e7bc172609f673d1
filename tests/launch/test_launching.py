"""How a launch goes on the host: on whose thread, in what pieces, what is kept for the next, and how it is interrupted."""

import ctypes
import ctypes.util
import gc
import json
import pickle
import platform
import threading
import weakref
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mmulator.base.codegen.loading import address
from mmulator.errors import ExecutionFault
from mmulator.host.module import Module
from mmulator.host.report import Report
from mmulator.runtime.launch.arguments import Signature
from mmulator.runtime.launch.grid import Grid
from mmulator.runtime.launch.launch import How, Launch
from mmulator.runtime.launch.resident import Resident
from mmulator.runtime.launch.shape import LaunchShape
from mmulator.runtime.launch.work import class_totals
from mmulator.runtime.native.state import Stop
from mmulator.runtime.native.threads.scheduler import run_clusters
from tests.launch.test_processes import FORKED, finish, start
from tests.support.ptx_text import STORE_R1, kernel

ROWS = """
  mov.u32 %r60, %ctaid.x; mov.u32 %r61, %ntid.x; mov.u32 %r62, %tid.x; mad.lo.u32 %r62, %r60, %r61, %r62;
  mul.wide.u32 %rd63, %r62, 4; add.s64 %rd63, %rd0, %rd63;
"""
# Lanes go round a loop as often as their number says, meet, part, and take tickets: who has which depends on the turns.
TICKETS = (
    ROWS
    + """
  and.b32 %r10, %r62, 7; mov.u32 %r11, 0; mov.u32 %r12, 0;
L: atom.global.add.u32 %r13, [%rd0+1048576], 1; mad.lo.u32 %r12, %r12, 31, %r13;
  and.b32 %r14, %r12, 3; setp.eq.u32 %p1, %r14, 0; @%p1 bra M;
  add.u32 %r12, %r12, 5; setp.eq.u32 %p3, %r14, 1; @%p3 bra N;
  xor.b32 %r12, %r12, 77;
N: add.u32 %r12, %r12, 1;
M: add.u32 %r11, %r11, 1; setp.le.u32 %p2, %r11, %r10; @%p2 bra L;
  bar.sync 0;
  mov.u32 %r11, 0;
O: add.u32 %r11, %r11, 1; atom.global.add.u32 %r13, [%rd0+1048576], 3; mad.lo.u32 %r12, %r12, 17, %r13;
  setp.lt.u32 %p2, %r11, 1500; @%p2 bra O;
  st.global.u32 [%rd63], %r12;
"""
)
COUNTING = "mov.u32 %r1, 0; L: add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 3000; @%p1 bra L;"
FOREVER = "L: add.u32 %r1, %r1, 1; setp.ne.u32 %p1, %r1, -1; @%p1 bra L; bra L;"
PART = "\n  setp.eq.u32 %p9, %r62, 40; @%p9 bra FAULT; bra END;\nFAULT: mov.u64 %rd5, 0; st.global.u32 [%rd5], %r1;\nEND:"


def in_pieces(budget: int, seed: int) -> tuple[Any, ...]:
    """What three clusters of three warps leave when native code is asked for so many blocks at a time."""
    module = Module.load(kernel(TICKETS))
    k, out = module["k"], np.zeros(1048576 // 4 + 1, np.uint32)
    arguments = Signature(k.function).pack([out], module.image.next_slot)
    grid = Grid(Launch(k.compile(), LaunchShape((3, 1, 1), (96, 1, 1)), arguments), How(seed, threads=1))
    r, counts = Resident(grid), np.zeros(len(grid.kernel.code), np.uint64)
    r.counts[0] = counts.ctypes.data
    run = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64)(address(run_clusters))
    pieces = 1
    while (result := run(r.address, budget)) == Stop.BUDGET:
        pieces += 1
    assert (result, int(r.finished[0]), r.number, int(r.begun[0])) == (Stop.EXITED, 3, 2, 0)
    return pieces, out.tobytes(), counts.tobytes(), r.warps["turns"].tobytes(), r.warps["tid_x"].tobytes()


@pytest.mark.parametrize("seed", [0, 3])
def test_pieces_leave_no_trace(seed: int) -> None:
    """A warp's turn, and the round, go on where they stopped: nothing depends on when a worker looks up."""
    whole = in_pieces(1 << 40, seed)
    assert whole[0] == 1
    for budget in (1, 2, 3, 7, 100, 2047, 2048, 2049, 5000):
        found = in_pieces(budget, seed)
        assert found[0] > 1 and found[1:] == whole[1:], budget


# what is kept ---------------------------------------------------------------------------------------------------------------
COUNT = kernel(ROWS + "  ld.global.u32 %r1, [%rd63]; add.u32 %r1, %r1, 1; st.global.u32 [%rd63], %r1;" + PART)


def test_what_is_kept_is_nobodys() -> None:
    """Launches of one shape after each other, of other shapes between them, and after a fault; no array lives longer for it."""
    k = Module.load(COUNT)["k"]
    for number in range(1, 40):
        grid, block = 1 + number % 3, (32, 40, 7)[number % 3]
        if grid * block > 40:
            grid, block = 1, 32
        out = np.full(64, number, np.uint32)
        report = k.launch(grid, block, [out], seed=number % 2, threads=1 + number % 2)
        threads = grid * block
        assert out.tolist() == [number + (n < threads) for n in range(64)]
        assert report.instructions["memory"] == 3 * grid * -(-block // 32)
        if number % 5 == 0:
            with pytest.raises(ExecutionFault, match="null pointer"):
                k.launch(2, 32, [np.zeros(64, np.uint32)])
    out = np.zeros(64, np.uint32)
    gone = weakref.ref(out)
    k.launch(1, 32, [out])
    del out
    gc.collect()
    assert gone() is None


RACE = kernel("mov.u32 %r1, %tid.x; ld.global.u32 %r2, [%rd0+4]; setp.eq.u32 %p1, %r2, 0; @%p1 st.global.u32 [%rd0], %r1;")


def test_what_is_kept_knows_nothing_of_what_was_found() -> None:
    """Sanitized and watched launches after each other, with others between them: each finds and sees its own."""
    k = Module.load(RACE)["k"]
    for number in range(12):
        clean = number % 3 == 1
        out = np.array([7, clean], np.uint32)
        grid, threads = (2 + number % 2, 1 + number % 2)
        report = k.launch(grid, 64, [out], sanitize=True, threads=threads)
        found = sorted(f.rule for f in report.findings)
        assert found == ([] if clean else ["race-between-blocks", "race-write-write", "store-lanes-differ"])
        watched = k.launch(grid, 32, [out], watch=[(0, 0)])
        assert [s.block[0] for s in watched.stores] == ([] if clean else [n for n in range(grid) for _ in range(32)])
        assert not k.launch(grid, 64, [out], threads=threads).findings


def test_a_sanitized_kernel_goes_with_its_module() -> None:
    module = Module.load(RACE)
    module["k"].launch(1, 32, [np.zeros(2, np.uint32)], sanitize=True)
    gone = [weakref.ref(compiled) for compiled in module.loaded.compiled.values()]
    del module
    gc.collect()
    assert gone and all(ref() is None for ref in gone)


def test_a_kernel_goes_with_its_module() -> None:
    module = Module.load(COUNT)
    module["k"].launch(1, 32, [np.zeros(64, np.uint32)])
    gone = weakref.ref(module["k"].compile())
    del module
    gc.collect()
    assert gone() is None


def test_threads_launch_one_kernel() -> None:
    k, failures = Module.load(COUNT)["k"], []

    def work(number: int) -> None:
        for n in range(60):
            out = np.full(64, 1000 * number + n, np.uint32)
            k.launch(1, 32, [out])
            if not (out[:32] == 1000 * number + n + 1).all():
                failures.append((number, n))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures


def test_every_cluster_runs_once_on_however_many_threads() -> None:
    for clusters, threads in ((1, 4), (3, 4), (500, 1), (500, 3), (20000, 4)):
        out = np.zeros(32 * clusters, np.uint32)
        k = Module.load(kernel(ROWS + "  atom.global.add.u32 %r1, [%rd63], 1;"))["k"]
        report = k.launch(clusters, 32, [out], threads=threads)
        assert (out == 1).all() and report.threads == min(clusters, threads)
        assert report.instructions["atomic"] == clusters


DOWN = {"x86_64": 0x400, "aarch64": 0x800000, "arm64": 0x800000}


@pytest.mark.skipif(platform.machine() not in DOWN, reason="how this processor rounds down is not in the table")
def test_how_the_program_rounds_is_nothing_to_a_kernel() -> None:
    """Nor does a launch change it. A library may also flush subnormals for its process; that is in the same register."""
    body = ROWS + "  mov.f32 %f1, 0f3F800000; mov.f32 %f2, 0f33800001; add.rn.f32 %f1, %f1, %f2; st.global.f32 [%rd63], %f1;"
    k, libm = Module.load(kernel(body))["k"], ctypes.CDLL(ctypes.util.find_library("m"))
    before = libm.fegetround()
    assert libm.fesetround(DOWN[platform.machine()]) == 0
    try:
        for clusters, threads in ((1, 1), (2000, 3)):
            out = np.zeros(32 * clusters, np.uint32)
            k.launch(clusters, 32, [out], threads=threads)
            assert (out == 0x3F800001).all() and libm.fegetround() == DOWN[platform.machine()]
    finally:
        libm.fesetround(before)


# reports ------------------------------------------------------------------------------------------------------------------------
def test_a_report_is_what_it_was() -> None:
    """Instructions are added up when somebody asks; nobody can tell."""
    k = Module.load(COUNT)["k"]
    fresh = [k.launch(2, 16, [np.zeros(64, np.uint32)]) for _ in range(5)]
    total = fresh[0].total_instructions
    copied = pickle.loads(pickle.dumps(fresh[1]))
    assert copied == fresh[1] and type(copied) is Report
    assert copied.total_instructions == total == sum(copied.instructions.values())
    assert replace(fresh[2], seed=5).instructions == asdict(fresh[3])["instructions"] == fresh[2].instructions
    assert json.loads(json.dumps(fresh[4].as_dict()))["instructions"] == fresh[4].instructions and fresh[4].macs == 0
    assert "memory" in str(fresh[0]) and list(fresh[0].instructions.values()) == sorted(fresh[0].instructions.values())[::-1]
    assert not hasattr(fresh[0], "nothing") and class_totals([], []) == {}


# processes ----------------------------------------------------------------------------------------------------------------------
def test_ctrl_c_and_time_limits_reach_a_kernel_on_the_callers_thread(tmp_path: Path) -> None:
    code = f"""
forever, short = mm.Module.load(kernel({FOREVER!r}))["k"], mm.Module.load(body(1, 30))
out = np.zeros(32, np.uint32)
launch(short, 1, 30)
forever.compile()
late = []
for grid, threads in ((1, 1), (1, None), (5, 1), (5, 3)):
    pressed = []
    def press(begun):
        while time.process_time() < begun + 0.3:  # until the kernel runs
            time.sleep(0.01)
        pressed.append(time.process_time())
        os.kill(os.getpid(), 2)
    threading.Thread(target=press, args=(time.process_time(),)).start()
    try:
        forever.launch(grid, 32, [out], threads=threads)
    except KeyboardInterrupt as error:
        late.append(time.process_time() - pressed[0])
        print(error)
    began = time.process_time()
    try:
        forever.launch(grid, 32, [out], threads=threads, timeout=0.2)
    except mm.errors.LimitReached as error:
        late.append(time.process_time() - began - 0.2)
        print(str(error).splitlines()[0].partition(": ")[2])
    launch(short, 1, 30)
assert max(late) < 2, late  # of up to three threads
"""
    said = finish(start(code, tmp_path)).splitlines()
    assert len(said) == 8 and all("of 1 blocks are done" in line for line in said[:4])
    assert all(("0 of 1 blocks are done; block (0, 0, 0) is at warp 0" in line) for line in said[:4])
    assert all(("0 of 5 blocks are done; block (0, 0, 0) is at warp 0" in line) for line in said[4:])
    assert [line.startswith("k did not finish within 0.2 s: ") for line in said] == [False, True] * 4


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_child_has_threads_of_its_own(tmp_path: Path) -> None:
    """After a launch by several threads, which wait for the next and which the child lacks."""
    code = (
        FORKED
        + f"""
import warnings
warnings.simplefilter("ignore", DeprecationWarning)
busy = mm.Module.load(kernel({COUNTING + STORE_R1!r}))["k"]
def many():
    out = np.zeros(32, np.uint32)
    busy.launch(64, 32, [out], threads=4)
    assert (out == 3000).all()
many()
print(child(many), child(lambda: sys.exit(child(many))))
many()
"""
    )
    assert finish(start(code, tmp_path)) == "0 0\n"
