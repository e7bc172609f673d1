"""Benchmarks and autotuning: one run, and a clock of counted work."""

from triton.testing import do_bench, do_bench_cudagraph  # isort: skip  (before there is a driver)

from dataclasses import replace

import pytest
import torch
import triton
from triton.runtime.errors import OutOfResources

from mmulator.doors.triton import adapt
from mmulator.host.driver import current
from mmulator.host.driver import streams as clock
from mmulator.host.report import Report
from tests.doors.triton import kernels

X, O = torch.rand(3000), torch.zeros(3000)


def made(grid: int, threads: int, instructions: int, macs: int = 0, device: str = "sm_90") -> Report:
    counts = {"integer": instructions}
    return Report("k", device, (grid, 1, 1), (threads, 1, 1), 0, 0, 1, counts, macs, {}, False)


def test_the_clock_counts_work_over_waves() -> None:
    base = clock.seconds(made(132, 128, 132 * 4000))
    assert base == clock.seconds(made(132, 128, 132 * 4000)) > clock.LAUNCH
    assert clock.seconds(made(132, 128, 132 * 8000)) > base  # more for each block
    assert clock.seconds(made(66, 128, 66 * 4000)) == base  # a multiprocessor more or less does not matter
    full = 132 * clock.blocks_per_multiprocessor(current().device, 1024, 0)
    one, two = (clock.seconds(made(n, 1024, n * 4000)) for n in (full, full + 1))
    assert two > one  # one block more is a wave more
    assert clock.seconds(made(132, 128, 132 * 4000, macs=1 << 40)) > base
    assert clock.seconds(made(132, 128, 132 * 4000, device="sm_80")) > base


def test_functions_run_once() -> None:
    runs = 0

    def launch() -> None:
        nonlocal runs
        runs += 1
        kernels.copy[(3,)](X, O, 3000, BLOCK=1024)

    kernels.copy.warmup(X, O, 3000, BLOCK=1024, grid=(3,))
    time = do_bench(launch)
    assert runs == 1 and 0 < time < 1
    assert [do_bench(launch, quantiles=[0.5, 0.2]), do_bench_cudagraph(launch), do_bench(launch, return_mode="all")] == [
        [time, time], time, [time],
    ]  # fmt: skip
    assert triton.testing.do_bench(launch, warmup=1, rep=1, quantiles=[0.5]) == time and runs == 5
    assert triton.runtime.driver.active.get_benchmarker()(launch, quantiles=(0.5, 0.2, 0.8)) == [time] * 3
    assert do_bench(lambda: None) == 1e3 * clock.LAUNCH
    runs = 0  # a benchmark that began before there was a driver estimates, warms up and repeats once
    assert adapt._originals["do_bench"](launch) == pytest.approx(time) and runs == 8


def tuned(*configs: triton.Config) -> triton.runtime.Autotuner:
    return triton.autotune(configs=list(configs), key=["n"])(kernels.copy)


def test_autotuning_is_the_same_each_time() -> None:
    configs = [triton.Config({"BLOCK": 64}, num_warps=4), triton.Config({"BLOCK": 1024}, num_warps=4)]
    chosen = []
    for order in (configs, configs[::-1]):
        kernel = tuned(*order)
        kernel[lambda meta: (triton.cdiv(3000, meta["BLOCK"]),)](X, O, 3000)
        chosen.append((kernel.best_config.kwargs, sorted(t[0] for t in kernel.configs_timings.values())))
    assert chosen[0] == chosen[1] and torch.equal(X, O)


def test_a_configuration_that_cannot_run_is_left_out() -> None:
    configs = [triton.Config({"BLOCK": 64, "ODD": odd}) for odd in (True, False)]
    kernel = triton.autotune(configs=configs, key=["n"])(kernels.odd_copy)
    with pytest.warns(RuntimeWarning, match="left out: .*multimem"):
        kernel[(47,)](X, O, 3000)
    assert not kernel.best_config.kwargs["ODD"]


def test_the_first_configuration() -> None:
    current().change(replace(current().settings, autotune="first"))
    kernel = tuned(triton.Config({"BLOCK": 64}, num_warps=8), triton.Config({"BLOCK": 1024}))
    before = current().default_stream.seconds
    kernel[lambda meta: (triton.cdiv(3000, meta["BLOCK"]),)](X, O, 3000)
    assert kernel.best_config.num_warps == 8 and current().default_stream.seconds - before < 2 * clock.LAUNCH * 3


def test_the_first_configuration_that_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A configuration that is too large, or needs what is not supported, is left out. If none fits, the first error is raised."""
    current().change(replace(current().settings, autotune="first"))
    configs = [triton.Config({"BLOCK": n, "ODD": odd}) for n, odd in ((64, True), (64, False), (1, False))]
    kernel = triton.autotune(configs=configs, key=["n"])(kernels.odd_copy)
    with pytest.warns(RuntimeWarning, match="left out: .*multimem"):
        kernel[(47,)](X, O, 3000)
    assert kernel.best_config is configs[1]
    monkeypatch.setattr("triton.compiler.compiler.max_shared_mem", lambda device: 4096)
    configs = [triton.Config({"BLOCK": 16}, num_warps=1, num_stages=n) for n in (9, 8, 2)]
    a, c = torch.rand(16, 32).half(), torch.zeros(16, 16)
    kernel = triton.autotune(configs=configs, key=["K"])(kernels.matmul)
    for _ in range(2):
        kernel[(1,)](a, a, c, 32)
        assert kernel.best_config is configs[2]
    kernel = triton.autotune(configs=configs[:2], key=["K"])(kernels.matmul)
    with pytest.raises(OutOfResources, match="Required: 8192"):
        kernel[(1,)](a, a, c, 32)
    assert not kernel.cache


def test_streams_and_events() -> None:
    device = triton.runtime.driver.active.get_device_interface()
    start, end = device.Event(enable_timing=True), device.Event(enable_timing=True)
    with device.stream(device.Stream()):
        start.record()
        kernels.copy[(3,)](X, O, 3000, BLOCK=1024)
        end.record()
    device.synchronize()
    assert 1e3 * clock.LAUNCH < start.elapsed_time(end) < 1
    assert device.current_device() == 0 and device.get_device_properties().multi_processor_count == 132


def test_a_configuration_is_measured_by_a_sample_of_its_blocks() -> None:
    x, o = torch.rand(64 * 10_000 + 5), torch.zeros(64 * 10_000 + 5)
    reports: list[Report] = []
    listeners = current().listeners
    listeners.append(reports.append)
    try:
        kernel = triton.autotune([triton.Config({"BLOCK": n}) for n in (64, 128, 4096)], key=["n"])(kernels.copy)
        kernel[lambda meta: (triton.cdiv(len(x), meta["BLOCK"]),)](x, o, len(x))
        assert torch.equal(x, o)
        sampled = [any("to measure" in note for note in report.notes) for report in reports]
        assert sampled == [True, True, False, False]  # few blocks run all, and so does what was chosen
        o.zero_()
        for config, measured in zip(kernel.configs, reports):
            kernels.copy[measured.grid](x, o, len(x), **config.kwargs)
            assert clock.seconds(measured) == pytest.approx(clock.seconds(reports[-1]), rel=1e-3)
            assert measured.total_instructions == pytest.approx(reports[-1].total_instructions, rel=1e-3)
        reports.clear()
        do_bench(lambda: kernels.copy[(10_001,)](x, o, len(x), BLOCK=64))  # whose result the program may read
        count = torch.zeros(1, dtype=torch.int32)
        kernel = triton.autotune([triton.Config({"BLOCK": n}) for n in (1, 2)], key=[])(kernels.counted)
        kernel[(3000,)](count)
        assert count == 9000 and not any("to measure" in note for report in reports for note in report.notes)
    finally:
        listeners.remove(reports.append)
