"""A launch on a cluster of processes: the same memory, report, text and faults as on one machine; or refused, by name."""

import importlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from mmulator.errors import ExecutionFault, LaunchError, LimitReached, MmulatorError
from mmulator.evaluation.spread import hosts
from mmulator.evaluation.spread.launch import cut
from mmulator.host.module import Kernel
from mmulator.host.report import Report
from tests.spread.kernels import FIRST, SQUARE, kernel
from tests.support.processes import cluster


def numbers(count: int) -> np.ndarray:
    return np.arange(3, count + 3, dtype=np.uint32)


def both(k: Kernel, client: Any, grid: Any, block: int, make: Callable[[], list[Any]], **options: Any) -> tuple[Report, Report]:
    """The launch on one thread of this machine, and on the cluster: the same in memory and report."""
    here, there = make(), make()
    one = k.launch(grid, block, here, threads=1, **options)
    other = k.launch(grid, block, there, workers=client, **options)
    for a, b in zip(here, there):
        if isinstance(a, np.ndarray):
            assert a.tobytes() == b.tobytes()
    assert (one.instructions, one.macs, one.output, one.notes, one.grid, one.shared, one.cluster) == (
        other.instructions, other.macs, other.output, other.notes, other.grid, other.shared, other.cluster)  # fmt: skip
    return one, other


# what is the same ---------------------------------------------------------------------------------------------------
def test_memory_and_report_are_those_of_one_machine(client: Any) -> None:
    seen: list[tuple[str, int, int]] = []
    x, y = numbers(37 * 48), np.zeros(37 * 48, np.uint32)
    report = kernel(SQUARE).launch(37, 48, [x, y], workers=client, progress=lambda *at: seen.append(at))
    assert (y == x * x).all() and (x == numbers(37 * 48)).all()
    assert report.instructions["memory"] == 37 * 2 * 4 and report.threads == 2 and report.seconds["run"] > 0
    assert seen[0] == ("run", 0, 37) and seen[-1] == ("run", 37, 37)
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)
    both(kernel(SQUARE), client, 37, 48, lambda: [numbers(37 * 48), np.zeros(37 * 48, np.uint32)])


def test_a_grid_of_one_block(client: Any) -> None:
    both(kernel(SQUARE), client, 1, 32, lambda: [numbers(32), np.zeros(32, np.uint32)])


def test_in_place_and_in_arrays_that_overlap(client: Any) -> None:
    """Blocks that read and write their own bytes, through two arguments that are one memory."""
    memory, whole = numbers(512), numbers(512)
    kernel(SQUARE).launch(8, 32, [memory[:256], memory[:300]], workers=client)
    whole[:256] **= 2
    assert (memory == whole).all()
    odd = np.zeros(1025, np.uint8)[1:].view(np.uint32)  # which no aligned piece of memory is
    odd[:] = 7
    kernel("atom.global.add.u32 %r2, [%x], %i; st.global.u32 [%y], %r2;").launch(8, 32, [odd, memory], workers=client)
    assert (odd == 7 + np.arange(256)).all() and (memory[:256] == 7).all()


def test_variables_of_the_module(client: Any) -> None:
    """.const ones are sent as they are now, .global ones come back."""
    variables = ".const .u32 factor = 3;\n.global .u32 made[256];\n"
    k = kernel(
        "ld.const.u32 %r3, [factor]; mul.lo.u32 %r4, %i, %r3; mov.u64 %rd1, made; add.u64 %rd1, %rd1, %rd0; "
        "ld.global.u32 %r5, [%rd1]; add.u32 %r4, %r4, %r5; st.global.u32 [%rd1], %r4;", "", variables,
    )  # fmt: skip
    k.launch(8, 32, workers=client)
    assert (k.module.variables["made"] == 3 * np.arange(256)).all()
    k.module.variables["factor"] = 5
    k.launch(8, 32, workers=client)
    assert (k.module.variables["made"] == 8 * np.arange(256)).all()


def test_clusters_of_blocks(client: Any) -> None:
    """Each block takes its neighbour's number out of its shared memory."""
    k = kernel(
        "mov.u32 %r2, cell; st.shared.u32 [cell], %b; barrier.cluster.arrive; barrier.cluster.wait; "
        "mov.u32 %r3, %cluster_ctarank; xor.b32 %r3, %r3, 1; mapa.shared::cluster.u32 %r4, %r2, %r3; "
        "ld.shared::cluster.u32 %r5, [%r4]; st.global.u32 [%y], %r5; barrier.cluster.arrive; "
        "barrier.cluster.wait;", ".param .u64 y", ".shared .u32 cell;\n",
    )  # fmt: skip
    _, report = both(k, client, 24, 1, lambda: [np.zeros(24, np.uint32)], cluster=2)
    assert report.cluster == (2, 1, 1)


@pytest.mark.parametrize("seed", [0, 1, 5])
def test_seeds(client: Any, seed: int) -> None:
    """Copies that nobody waits for: what each block sees, the seed decides, and the block's number in the grid."""
    k = kernel(
        "mul.lo.u32 %r3, %r0, 4; mov.u32 %r2, cells; add.u32 %r2, %r2, %r3; st.shared.u32 [%r2], 0; "
        "cp.async.ca.shared.global [%r2], [%x], 4; ld.shared.u32 %r4, [%r2]; st.global.u32 [%y], %r4; cp.async.wait_all;",
        variables=".shared .align 4 .b8 cells[128];\n",
    )  # fmt: skip
    y = np.zeros(64 * 32, np.uint32)
    k.launch(64, 32, [numbers(64 * 32), y], seed=seed, workers=client)
    early = (y.reshape(64, 32)[:, 0] != 0).sum()
    assert 0 < early < 64
    both(k, client, 64, 32, lambda: [numbers(64 * 32), np.zeros(64 * 32, np.uint32)], seed=seed)


PRINT = """
.extern .func (.param .b32 r) vprintf (.param .b64 f, .param .b64 v);
.global .align 1 .b8 text[7] = {98, 108, 32, 37, 117, 10, 0};
"""


def test_text_comes_in_the_order_of_blocks(client: Any) -> None:
    k = kernel(
        ".local .align 8 .b8 values[8]; st.local.u32 [values], %b; { .param .b32 r; .param .b64 f; .param .b64 v; "
        "mov.u64 %rd1, text; cvta.global.u64 %rd1, %rd1; mov.u64 %rd2, values; cvta.local.u64 %rd2, %rd2; "
        "st.param.b64 [f], %rd1; st.param.b64 [v], %rd2; call (r), vprintf, (f, v); }", "", PRINT,
    )  # fmt: skip
    one, other = both(k, client, 21, 1, list)
    assert other.output == one.output == "".join(f"bl {n}\n" for n in range(21))


# faults -------------------------------------------------------------------------------------------------------------
def test_the_first_fault_is_raised(client: Any) -> None:
    """With the words of one machine; stored is what that would have stored."""
    found: list[tuple[str, bytes]] = []
    for options in ({"threads": 1}, {"workers": client}):
        y = np.zeros(600, np.uint32)
        with pytest.raises(ExecutionFault) as fault:
            kernel(SQUARE).launch(32, 32, [numbers(1024), y], **options)
        found.append((str(fault.value), y.tobytes()))
    assert found[0] == found[1]
    assert "byte 2400 of argument 1 (y), which has 2400, in block (18, 0, 0), thread (24, 0, 0)" in found[0][0]


def test_what_cannot_be_compiled_and_launches_that_cannot_start(client: Any) -> None:
    with pytest.raises(LaunchError, match="takes 2 arguments"):
        kernel(SQUARE).launch(1, 32, [numbers(32)], workers=client)


def test_a_time_limit(client: Any) -> None:
    k = kernel("setp.gt.u32 %p, %b, 5; L: @%p bra L;", "")
    with pytest.raises(LimitReached, match=r"^k did not finish within 1 s: \d+ of 16 blocks are done"):
        k.launch(16, 1, timeout=1, workers=client)
    kernel(SQUARE).launch(4, 32, [numbers(128), np.zeros(128, np.uint32)], workers=client)  # the workers are free


def test_an_interrupt_stops_the_workers(client: Any) -> None:
    def interrupt(phase: str, done: int, total: int) -> None:
        if done >= 6:
            raise KeyboardInterrupt

    y = numbers(16)
    k = kernel("st.global.u32 [%y], 1; setp.gt.u32 %p, %b, 7; L: @%p bra L;", ".param .u64 y")
    with pytest.raises(KeyboardInterrupt, match=r"of 16 blocks are done; nothing was stored"):
        k.launch(16, 1, [y], progress=interrupt, workers=client)
    assert (y == numbers(16)).all()
    kernel(SQUARE).launch(4, 32, [numbers(128), np.zeros(128, np.uint32)], workers=client)


# refused ------------------------------------------------------------------------------------------------------------
TWO = {"both write": "st.global.u32 [%x], %b;", "the same value": "st.global.u32 [%x], 9;",
       "add": "red.global.add.u32 [%x], 1;", "lock": "atom.global.cas.b32 %r2, [%x], 0, 1;"}  # fmt: skip


@pytest.mark.parametrize("body", TWO.values(), ids=TWO.keys())
def test_blocks_that_write_one_word(client: Any, body: str) -> None:
    x = numbers(4)
    with pytest.raises(LaunchError) as refused:
        kernel(FIRST + body, ".param .u64 x").launch((3, 1, 1), 1, [x], workers=client)
    assert str(refused.value).splitlines() == [
        "the blocks of k cannot be shared out among workers: block (0, 0, 0) and block (1, 0, 0) both write byte 0 of argument 0 "
        "(x), address 0x1000000000",
        "  rule: on several machines no block may use what others write, nor write where they do",
        "  hint: launch it on one machine: without workers= (--dask); all memory is as it was",
    ]
    assert (x == numbers(4)).all()


def test_a_variable_that_blocks_share_is_named(client: Any) -> None:
    k = kernel("red.global.add.u32 [total+4], 1;", "", ".global .u32 first[7];\n.global .u32 total[4];\n")
    with pytest.raises(LaunchError, match=r"block \(1, 0, 0\) both write byte 4 of variable total, address 0x"):
        k.launch(2, 32, workers=client)
    assert not k.module.variables["total"].any()


def test_blocks_that_read_what_others_write(client: Any) -> None:
    """Each reads what the next one writes: its neighbour of another range is named."""
    x = numbers(65)
    with pytest.raises(LaunchError) as refused:
        kernel("ld.global.u32 %r2, [%x+4]; st.global.u32 [%x], %r2;", ".param .u64 x").launch(64, 1, [x], workers=client)
    assert refused.value.message == (
        "the blocks of k cannot be shared out among workers: blocks (0, 0, 0) to (7, 0, 0) read byte 32 of argument 0 (x), "
        "address 0x1000000020, which blocks (8, 0, 0) to (15, 0, 0) write"
    )
    assert (x == numbers(65)).all()


def test_clusters_that_write_one_word(client: Any) -> None:
    with pytest.raises(LaunchError, match="the blocks of clusters 0 to 1 and the blocks of clusters 2 to 3 both write byte 0"):
        kernel(FIRST + "st.global.u32 [%x], 1;", ".param .u64 x").launch(32, 1, [numbers(4)], cluster=2, workers=client)


def test_blocks_that_wait_for_others(client: Any) -> None:
    """Neither ends: a flag that block 0 sets, and a count that all wait for."""
    wait = "ld.param.u64 %x, [x]; setp.eq.u32 %p, %b, 0; @%p st.global.u32 [%x], 1; L: ld.volatile.global.u32 %r2, [%x]; " \
           "setp.eq.u32 %p, %r2, 0; @%p bra L;"  # fmt: skip
    with pytest.raises(LaunchError, match=r"read byte 0 of argument 0 \(x\), address 0x1000000000, which block"):
        kernel(wait, ".param .u64 x").launch(16, 1, [np.zeros(1, np.uint32)], workers=client, timeout=600)
    meet = "ld.param.u64 %x, [x]; mov.u32 %r3, %nctaid.x; atom.global.add.u32 %r2, [%x], 1; " \
           "L: ld.volatile.global.u32 %r2, [%x]; setp.lt.u32 %p, %r2, %r3; @%p bra L;"  # fmt: skip
    with pytest.raises(LaunchError, match="both write byte 0 of argument 0"):
        kernel(meet, ".param .u64 x").launch(16, 1, [np.zeros(1, np.uint32)], workers=client, timeout=600)


def test_blocks_that_wait_for_others_that_have_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a cluster with one thread: what seems to wait is set aside once."""
    from distributed import Client, LocalCluster

    monkeypatch.setattr("mmulator.evaluation.spread.worker.SLOW", 0.05)
    monkeypatch.setattr("mmulator.evaluation.spread.worker.MOMENT", 0.02)
    wait = "ld.param.u64 %x, [x]; setp.eq.u32 %p, %b, 3; @%p st.global.u32 [%x], 1; L: ld.volatile.global.u32 %r2, [%x]; " \
           "setp.eq.u32 %p, %r2, 0; @%p bra L;"  # fmt: skip
    started = LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0")
    refused = pytest.raises(LaunchError, match=r"which block \(3, 0, 0\) write")
    with started, Client(started, set_as_default=False) as client, refused:
        kernel(wait, ".param .u64 x").launch(4, 1, [np.zeros(1, np.uint32)], workers=client, timeout=600)


ALONE = {
    "cooperative": (True, "the blocks of a cooperative grid wait for each other, and workers do not hear of each other"),
    "watch": ([(0, 0)], "stores are listed in the order of one machine"),
    "sanitize": ("raise", "the sanitizer looks at all blocks together"),
    "threads": (2, "each worker has threads of its own"),
}


@pytest.mark.parametrize("name", ALONE)
def test_what_goes_with_one_machine(client: Any, name: str) -> None:
    value, reason = ALONE[name]
    with pytest.raises(LaunchError) as refused:
        kernel(SQUARE).launch(2, 32, [numbers(64), numbers(64)], workers=client, **{name: value})
    assert str(refused.value) == f"{name}= does not go with workers=: {reason}\n  hint: leave one of the two out"


def test_what_is_no_client(client: Any) -> None:
    from distributed import Client

    args = [numbers(32), numbers(32)]
    with pytest.raises(LaunchError, match=r"^workers is of type str, not a distributed.Client\n  hint: pip install"):
        kernel(SQUARE).launch(1, 32, args, workers="tcp://127.0.0.1:8786")  # type: ignore[arg-type]
    closed = Client(client.scheduler.address, set_as_default=False)
    closed.close()
    with pytest.raises(LaunchError, match="workers is a client that is closed, not running"):
        kernel(SQUARE).launch(1, 32, args, workers=closed)


def test_workers_of_another_version(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mmulator.evaluation.spread.launch.__version__", "9.9")
    with pytest.raises(MmulatorError, match=r"^a worker of the Dask cluster has mmulator [\d.]+, and this process 9.9$"):
        kernel(SQUARE).launch(2, 32, [numbers(64), numbers(64)], workers=client)


# workers that die ---------------------------------------------------------------------------------------------------
LONG = "mov.u32 %r2, 0; L: add.u32 %r2, %r2, 1; setp.lt.u32 %p, %r2, 3000000; @%p bra L; " + SQUARE


@pytest.mark.full
def test_workers_that_die(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of two, while both work; then all there are, and with them what they had been sent; then whoever gets the work."""
    with cluster(2) as client:
        k = kernel(LONG)
        for dying in (1, 2):
            x, y = numbers(16), np.zeros(16, np.uint32)
            victims = list(client.run(os.getpid).values())[:dying]
            deaths: list[float] = []

            def kill(phase: str, done: int, total: int, pids: list[int] = victims, deaths: list[float] = deaths) -> None:
                if done >= 2 and not deaths:
                    deaths.append(time.monotonic())
                    for pid in pids:
                        os.kill(pid, 9)

            report = k.launch(16, 1, [x, y], workers=client, progress=kill, timeout=600)
            assert deaths and (y == x * x).all()
            assert report.instructions["memory"] == 16 * 4
        monkeypatch.setattr(hosts, "AGAIN", 1)
        with pytest.raises(MmulatorError, match=r"^the Dask cluster lost all workers that had the data, 1 times"):
            list(hosts.Calls(client, "fatal", _die, None, [()]).results())


def test_a_scheduler_that_dies() -> None:
    """Its client looks for it as long as it was told to, and then memory is as it was."""
    from distributed import Client

    command = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--no-dashboard", "--host", "127.0.0.1", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as scheduler:
        assert scheduler.stderr is not None
        address = next(line.split()[-1] for line in scheduler.stderr if "Scheduler at:" in line)
        worker = subprocess.Popen([sys.executable, "-m", "distributed.cli.dask_worker", address, "--no-nanny", "--no-dashboard"])
        try:
            with Client(address, set_as_default=False, timeout=2) as client:
                x, y = numbers(16), np.zeros(16, np.uint32)

                def kill(phase: str, done: int, total: int) -> None:
                    scheduler.kill()

                with pytest.raises(MmulatorError, match=rf"^the scheduler of the Dask cluster at {address} is gone"):
                    kernel(LONG).launch(16, 1, [x, y], workers=client, progress=kill)
                assert not y.any()
        finally:
            worker.kill()
            worker.wait()
            scheduler.kill()


class Unread:
    """What only its sender can read."""

    def __reduce__(self) -> Any:
        return importlib.import_module, ("mmulator_that_is_not_there",)


def test_workers_that_cannot_read_what_they_are_sent(client: Any) -> None:
    calls = hosts.Calls(client, "unread", _die, Unread(), [()])
    with pytest.raises(MmulatorError, match=r"cannot read what they are sent: ModuleNotFoundError\(.*not_there") as caught:
        list(calls.results())
    assert caught.value.hint == "install mmulator, of this version, where they run"


def test_work_that_cannot_be_done(client: Any) -> None:
    from distributed.scheduler import KilledWorker, WorkerState

    calls = hosts.Calls(client, "fatal", _die, None, [()])
    last = WorkerState.__new__(WorkerState)
    last.address = "tcp://here"
    with pytest.raises(MmulatorError, match=r"^a part of the work ended 4 workers of the Dask cluster, the last at tcp://here"):
        calls._failed(KilledWorker("fatal", last, 3))
    with pytest.raises(MmulatorError, match=r"^the workers of the Dask cluster have no mmulator"):
        calls._failed(ModuleNotFoundError("no", name="mmulator"))
    with pytest.raises(ZeroDivisionError):
        calls._failed(ZeroDivisionError())


def _die(common: None, key: str) -> None:
    os._exit(1)


# parts --------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("clusters", "threads"), [(1, 4), (2, 1), (3, 1), (1000, 3), (7, 100)])
def test_ranges_are_of_one_length(clusters: int, threads: int) -> None:
    ranges = cut(clusters, threads)
    lengths = {end - begin for begin, end in ranges}
    assert ranges[0][0] == 0 and ranges[-1][1] == clusters and all(a[1] == b[0] for a, b in pairwise(ranges))
    assert max(lengths) - min(lengths) <= 1 and len(ranges) == min(clusters, max(2, 4 * threads))


def test_threads_of_one_worker_do_not_meet() -> None:
    """Four ranges at once in one process, each on its own copy of arrays and variables."""
    from distributed import Client, LocalCluster

    k = kernel("mov.u64 %rd1, made; add.u64 %rd1, %rd1, %rd0; ld.global.u32 %r5, [%rd1]; add.u32 %r5, %r5, 1; " + SQUARE +
               "st.global.u32 [%rd1], %r5;", variables=".global .u32 made[1024];\n")  # fmt: skip
    started = LocalCluster(n_workers=1, threads_per_worker=4, processes=False, dashboard_address=":0")
    with started, Client(started, set_as_default=False) as client:
        for _ in range(2):
            x, y = numbers(1024), np.zeros(1024, np.uint32)
            k.launch(32, 32, [x, y], workers=client)
            assert (y == x * x).all()
    assert (k.module.variables["made"] == 2).all() and threading.active_count() < 100
