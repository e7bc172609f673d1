"""One launch on the model and on a GPU: the first differing element of each array, and which thread stored it."""

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mmulator.base.errors import LaunchError
from mmulator.evaluation.conformance.kernels import run_kernel
from mmulator.host.backend import Backend, Chip
from mmulator.host.jobs.job import Job, JobResult, run_job, set_variables

Progress = Callable[[str, int, int], None]
_STORES = 4  # of an element's history


@dataclass(frozen=True)
class ArrayComparison:
    """An array argument after the launch.

    wrong: how many elements differ in bits.
    first: index of the first of them, in memory order.
    model, gpu: value and bits there.
    stores: the model's last stores to that element, oldest first.
    """

    name: str
    size: int
    wrong: int
    first: tuple[int, ...] | None = None
    model: str = ""
    gpu: str = ""
    stores: tuple[str, ...] = ()

    def lines(self, gpu: Chip, device: str | None = None) -> list[str]:
        """The comparison with a GPU as lines for people. device: whose arithmetic the model has, such as sm_80."""
        if not self.wrong:
            return [f"{self.name}: the same bits on {gpu.name}: yes ({self.size} elements)"]
        place = ", ".join(map(str, self.first or ()))
        out = [
            f"{self.name}: the same bits on {gpu.name}: no, {self.wrong} of {self.size} elements differ",
            f"  first at [{place}]: model {self.model}",
            f"  {'':{len(place) + 10}} GPU   {self.gpu}",
        ]
        if device not in (None, gpu.device):
            out.append(f"  the model adds up as {device}: --device {gpu.device} adds up as this GPU")
        return out + ([f"  stored by {s}" for s in self.stores] or ["  no thread of the model stored to it"])


def compare_launch(
    job: Job, backend: Backend, *, timeout: float | None = None, threads: int | None = None, progress: Progress | None = None
) -> tuple[JobResult, list[ArrayComparison]]:
    """Run a job on the model and on the GPU; arrays of the job are those of the model afterwards.

    The array arguments are compared, arrays that structs point to, and variables of the module that the model changed. Where
    bits differ, the model runs once more and watches the first differing element of each array argument. Raises what `run_job`
    raises, and GpuError; LaunchError for a job whose memory must lie at its addresses.
    """
    if job.memory or (job.placed() and any(isinstance(a.value, bytes) for a in job.arguments)):
        raise LaunchError("the launch has memory at device addresses of its own, where a GPU has other memory")
    for argument in job.arguments:
        argument.address = None
    job.device = job.device or backend.chip.device
    fresh, other = copy.deepcopy(job.arguments), copy.copy(job)
    other.arguments = copy.deepcopy(job.arguments)
    result = run_job(job, timeout=timeout, threads=threads, progress=progress)
    theirs = on_gpu(other, result, backend)
    ours = {**job.arrays(), **{n: a for n, a in result.written.items() if n in theirs}}
    found = {n: _compared(n, a, theirs[n]) for n, a in ours.items() if a.size}
    arguments = {a.name: number for number, a in enumerate(job.arguments)}
    watch = [
        (arguments[n], c.first) for n, c in found.items() if c.first is not None and n in arguments and ours[n].itemsize <= 8
    ]
    if watch:
        again = copy.copy(job)
        again.arguments, again.expect = fresh, None
        stores = run_job(again, timeout=timeout, watch=watch).report.stores
        for name, c in found.items():
            texts = tuple(str(s) for s in stores if s.argument == arguments.get(name))[-_STORES:]
            found[name] = replace(c, stores=texts)
    return result, list(found.values())


def on_gpu(job: Job, result: JobResult, backend: Backend) -> dict[str, Any]:
    """Run the job on the GPU. Returns its arrays, and the variables that the model changed, by name."""
    module = job.load()
    kernel = module[result.report.kernel]
    changed = {name: variable for name, variable in module.variables.items() if name in result.written}
    given = set_variables(module, job)
    values = [a.value for a in job.arguments]
    device = job.device or backend.chip.device
    loaded = backend.load(module.tree)
    try:
        for name in given:
            backend.write(loaded, name, module.variables[name].tobytes())
        prepared = kernel.prepared(job.grid, job.block, values, job.shared, device, job.cluster, job.cooperative)
        run_kernel(backend, loaded, kernel.name, prepared.shape, prepared.arguments)
        read = {n: np.frombuffer(backend.read(loaded, n), v.dtype).reshape(v.shape) for n, v in changed.items()}
    finally:
        backend.close(loaded)
    return {**job.arrays(), **read}


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
