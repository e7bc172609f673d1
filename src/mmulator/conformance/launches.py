"""One launch on the model and on a GPU: the first differing element of each array, and who stored it."""

from __future__ import annotations

import copy
import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mmulator.conformance.gpu import Runner
from mmulator.errors import LaunchError
from mmulator.jobs.job import Job, JobResult, run_job
from mmulator.machine.launch.arguments import scalar_bytes
from mmulator.machine.module import Module
from mmulator.ptx.text import read_source

Progress = Callable[[str, int, int], None]
_STORES = 4  # of an element's history


@dataclass(frozen=True)
class ArrayComparison:
    """An array argument after the launch. wrong: elements whose bits differ. first: index of the first of them, in
    memory order; model, gpu: its value and bits there. stores: the last stores of the model to it, oldest first."""

    name: str
    size: int
    wrong: int
    first: tuple[int, ...] | None = None
    model: str = ""
    gpu: str = ""
    stores: tuple[str, ...] = ()

    def lines(self, gpu: str) -> list[str]:
        """For people; `gpu` names the other side."""
        if not self.wrong:
            return [f"{self.name}: the same bits on {gpu}: yes ({self.size} elements)"]
        place = ", ".join(map(str, self.first or ()))
        out = [
            f"{self.name}: the same bits on {gpu}: no, {self.wrong} of {self.size} elements differ",
            f"  first at [{place}]: model {self.model}",
            f"  {'':{len(place) + 10}} GPU   {self.gpu}",
        ]
        return out + ([f"  stored by {s}" for s in self.stores] or ["  no thread of the model stored to it"])


def compare_launch(
    job: Job, runner: Runner, *, timeout: float | None = None, threads: int | None = None, progress: Progress | None = None
) -> tuple[JobResult, list[ArrayComparison]]:
    """Run a job on the model and on the GPU; arrays of the job are those of the model afterwards.

    Where bits differ, the model runs once more, watching the first differing element of each array. Raises what
    `run_job` raises, and GpuError.
    """
    if job.variables or any(a.pointed for a in job.arguments):
        raise LaunchError("module variables and structs with pointers are not set on the GPU: leave out --compare-gpu")
    job.device = job.device or runner.info.device
    fresh = copy.deepcopy(job.arguments)
    other = [a.value for a in copy.deepcopy(job.arguments)]
    result = run_job(job, timeout=timeout, threads=threads, progress=progress)
    _on_gpu(job, result, other, runner)
    found = [_compared(a.name, a.value, g) for a, g in zip(job.arguments, other) if isinstance(g, np.ndarray) and g.size]
    numbers = [n for n, g in enumerate(other) if isinstance(g, np.ndarray) and g.size]
    watch = [(n, c.first) for n, c in zip(numbers, found) if c.first is not None and other[n].itemsize <= 8]
    if watch:
        again = copy.copy(job)
        again.arguments, again.expect = fresh, None
        stores = run_job(again, timeout=timeout, watch=watch).report.stores
        for position, n in enumerate(numbers):
            texts = tuple(str(s) for s in stores if s.argument == n)[-_STORES:]
            found[position] = ArrayComparison(**{**vars(found[position]), "stores": texts})
    return result, found


def _on_gpu(job: Job, result: JobResult, values: list[Any], runner: Runner) -> None:
    """The job on the GPU: arrays among `values` are left as it leaves them."""
    kernel = Module.load(job.ptx)[result.report.kernel]
    cells: list[Any] = []
    for number, (p, value) in enumerate(zip(kernel.function.params, values, strict=True)):
        if isinstance(value, np.ndarray):
            cells.append(value)
            continue
        data = scalar_bytes(value, p, f"argument {number} ({p.name})")
        cells.append((ctypes.c_uint8 * len(data)).from_buffer_copy(data))
    if runner.info.device != job.device:
        raise LaunchError(
            f"the launch asks for {job.device}, the GPU is {runner.info.device}",
            hint="leave out --device, and `device` in the launch file",
        )
    module = runner.load(read_source(job.ptx).text)
    try:
        runner.run(module, kernel.name, result.report.grid, result.report.block, cells, shared=job.shared)
    finally:
        runner.close(module)


def _compared(name: str, model: Any, gpu: Any) -> ArrayComparison:
    raw = np.dtype(f"V{model.dtype.itemsize}") if model.dtype.itemsize > 8 else np.dtype(f"u{model.dtype.itemsize}")
    ours, theirs = (np.ascontiguousarray(x).reshape(-1).view(raw) for x in (model, gpu))
    different = ours != theirs
    wrong = int(np.count_nonzero(different))
    if not wrong:
        return ArrayComparison(name, model.size, 0)
    at = int(np.argmax(different))
    index = tuple(int(i) for i in np.unravel_index(at, model.shape))
    texts = [f"{x[index]} (0x{int(r[at]):0{2 * model.dtype.itemsize}x})" for x, r in ((model, ours), (gpu, theirs))]
    return ArrayComparison(name, model.size, wrong, index, texts[0], texts[1])


__all__ = ["ArrayComparison", "compare_launch"]
