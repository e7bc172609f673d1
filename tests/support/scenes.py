"""Scenes of a launch: a function is called between two instructions of a warp, wherever a test wants to look."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from mmulator.errors import ExecutionFault
from mmulator.evaluation.conformance import cases, kernels
from mmulator.evaluation.conformance.subjects import Subject
from mmulator.host.cpu import Cpu
from mmulator.host.jobs.job import kernel_name, load_job, resolve
from mmulator.host.module import Kernel
from mmulator.isa.targets import Target
from mmulator.observation.debug.views import Scene
from mmulator.observation.record.steps import Steps, WarpPlace
from mmulator.runtime.launch.arguments import Arguments
from mmulator.runtime.launch.launch import How, Launch, compile_options
from mmulator.runtime.launch.shape import LaunchShape
from tests.support import places

Look = Callable[[Scene], None]


class Enough(Exception):
    """A test has seen what it wanted."""


class Watcher:
    """The observer of a launch that a function looks at.

    look: is called before each step.
    reads: is called with a scene and the place of a warpgroup's first warp, when a wgmma reads its operands.
    hangs: is called with a scene of the first warp where no warp can go on.
    """

    def __init__(
        self, look: Look, reads: Callable[[Scene, WarpPlace, int], None] | None = None, hangs: Look | None = None
    ) -> None:
        self.look, self.reads, self.hangs = look, reads, hangs
        self.steps = _Steps(self)

    def scene(self, place: WarpPlace, lanes: int = 0, site: int = -1) -> Scene:
        return Scene(self.steps.grid, place, lanes, site, self.steps.count - 1)

    def _stepped(self, place: WarpPlace, lanes: int, site: int) -> None:
        self.look(self.scene(place, lanes, site))

    def _read(self, place: WarpPlace, number: int, site: int) -> None:
        assert self.reads is not None
        self.reads(self.scene(place), place, site)


class _Steps(Steps):
    """Steps that a watcher is told of, and of the end too."""

    def __init__(self, watcher: Watcher) -> None:
        super().__init__(watcher._stepped, watcher._read if watcher.reads is not None else None)
        self.watcher = watcher

    def failed(self, fault: ExecutionFault) -> None:
        if self.error is None and self.watcher.hangs is not None:
            first = min(self._places)
            self.watcher.hangs(self.watcher.scene(self._places[first]))
        super().failed(fault)


def watched(kernel: Kernel, grid: Any, block: Any, args: Sequence[Any], look: Look, *, shared: int = 0, device: str = "sm_90",
            seed: int = 0, cluster: Any = None, reads: Any = None, hangs: Look | None = None) -> None:  # fmt: skip
    """Launch a kernel and look at each of its steps. `Enough` ends it."""
    watcher = Watcher(look, reads, hangs)
    launch = kernel.prepared(grid, block, args, shared, device, cluster)
    with suppress(Enough):
        kernel.run(launch, How(seed=seed, threads=1, timeout=600), [watcher.steps])


def of_example(name: str, look: Look, reads: Any = None, seed: int = 0) -> None:
    """Run the launch file of an example, and look at each of its steps."""
    job = load_job(places.ROOT / "examples" / name / "launch.toml")
    module = job.load()
    own = job.arrays()
    values = [resolve(a.value, own) for a in job.arguments]
    device = job.device or module.default_device
    kernel = module[kernel_name(module, job)]
    more = {"shared": job.shared, "device": device, "seed": seed, "cluster": job.cluster, "reads": reads}
    watched(kernel, job.grid, job.block, values, look, **more)


def of_subject(subject: Subject, target: str, device: str, look: Look, reads: Any = None, seed: int = 1,
               wish: cases.Wish | None = None) -> cases.CaseBatch:  # fmt: skip
    """Run the conformance kernel of a subject on random operands, and look at each of its steps."""
    backend = Cpu(device)
    batch = cases.build(subject, device, seed, 1, wish=wish)
    arrays, _ = kernels.arguments(batch)
    shape = LaunchShape((batch.count, 1, 1), (subject.form.lanes, 1, 1))
    module = backend.load(kernels.module([subject], Target.parse(target)))
    how, watcher = How(threads=1, timeout=600), Watcher(look, reads)
    kernel = backend.compile(module, "k0", device, compile_options(shape, how, [watcher.steps]))
    backend.launch(Launch(kernel, shape, Arguments.of_arrays(arrays)), how, [watcher.steps])
    return batch


def texts_fit(text: str, width: int = 80) -> bool:
    return all(len(line) <= width for line in text.splitlines())
