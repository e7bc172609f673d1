"""Sessions of the debugger in tests: a launch whose front end is a function."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from mmulator.host.jobs.job import kernel_name, load_job
from mmulator.host.jobs.maps import resolve
from mmulator.host.module import Kernel
from mmulator.host.report import Report
from mmulator.observation.debug.program import Debugger
from mmulator.observation.debug.session import Session
from tests.support.places import ROOT

Use = Callable[[Session], None]
PIPELINE = ROOT / "examples" / "hopper_pipeline" / "launch.toml"
BLACKWELL = ROOT / "examples" / "blackwell_gemm" / "launch.toml"
GEMM = ROOT / "examples" / "hopper_gemm" / "launch.toml"


class Front:
    """A front end that hands each session to a function."""

    def __init__(self, use: Use) -> None:
        self.use = use

    def wants(self, kernel: str, number: int) -> bool:
        return True

    def launched(self, session: Session) -> None:
        self.use(session)

    def ended(self) -> None:
        pass


def debugger(use: Use) -> Debugger:
    """A debugger whose sessions a function gets."""
    return Debugger(lambda _: Front(use))


def launched(kernel: Kernel, use: Use, *launch: Any, **options: Any) -> Report:
    """A launch under a debugger whose front end is a function; parameters as those of `Kernel.launch`."""
    return kernel.launch(*launch, **options, debug=debugger(use))


def of_file(file: Path, use: Use) -> tuple[Report, dict[str, Any]]:
    """The launch of a launch file under a debugger, and its arrays."""
    job = load_job(file)
    module = job.load()
    kernel, own = module[kernel_name(module, job)], job.arrays()
    for argument in job.arguments:
        argument.value = resolve(argument.value, own)
    report = launched(
        kernel, use, job.grid, job.block, [a.value for a in job.arguments], job.shared, job.device, cluster=job.cluster,
        seed=job.seed, waits=job.waits, names=own, memory=job.placed(),
    )  # fmt: skip
    return report, own
