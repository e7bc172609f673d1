"""The backend, the seam to what a kernel runs on: the CPU (host/cpu.py), or a GPU through the CUDA driver (hardware/gpu.py).

    module = backend.load(text)
    kernel = backend.compile(module, "gemm", "sm_90")
    backend.launch(kernel, Request((2, 2, 1), (128, 1, 1), arguments))
    backend.read(module, "counter")
    backend.close(module)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from mmulator.compiler.options import DEFAULT, CompileOptions
from mmulator.isa.targets import PTX_VERSIONS, TARGETS, Target

if TYPE_CHECKING:
    import numpy as np

    from mmulator.diagnostics.sanitizer import Sanitizer
    from mmulator.diagnostics.touched import Touched
    from mmulator.diagnostics.watch import WatchedStore, Watches
    from mmulator.findings import Finding
    from mmulator.launch.arguments import Arguments
    from mmulator.launch.work import Work
    from mmulator.ptx.tree import ParsedModule as Tree

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Chip:
    """A chip that runs kernels: name, compute capability, CUDA version that the driver supports, kernel driver, and the
    newest .version of PTX that it reads."""

    name: str
    capability: tuple[int, int]
    cuda: str
    driver: str = ""
    ptx: tuple[int, int] = PTX_VERSIONS[-1]

    @property
    def device(self) -> str:
        """Name of the arithmetic: `sm_90`."""
        return f"sm_{self.capability[0]}{self.capability[1]}"

    @property
    def target(self) -> Target:
        """The .target with everything that the chip has."""
        number = 10 * self.capability[0] + self.capability[1]
        return max((t for t in (Target(number, "a"), Target(number)) if t in TARGETS), key=lambda t: t.suffix)

    @classmethod
    def of(cls, data: dict[str, Any]) -> Chip:
        """From what `as_dict` gave."""
        number = int(data["device"][3:])
        ptx = tuple(map(int, data["ptx"].split("."))) if "ptx" in data else PTX_VERSIONS[-1]  # older vectors do not say
        return cls(data["name"], (number // 10, number % 10), data["cuda"], data["driver"], (ptx[0], ptx[1]))

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.name, "device": self.device, "target": str(self.target), "cuda": self.cuda, "driver": self.driver,
            "ptx": "{}.{}".format(*self.ptx),
        }  # fmt: skip


@dataclass(frozen=True)
class Request:
    """A launch whose arguments are laid out; the arrays of its buffers are updated in place.

    shared: dynamic bytes. back: the arrays that are wanted afterwards; None for all. The rest is for backends that are no
    GPU: seed of the scheduler's choices, threads of the host, seconds that it may take, whom to tell how far it is,
    elements whose stores are noted, what looks for undefined behaviour, whether the seed chooses the order in which blocks
    begin, too. slice: blocks of code after which another warp has its turn, or another block of the grid, at most, as the seed
    has it; 0: as many as ever. part: clusters of the grid that alone are run, from the first to before the second. meanwhile: is
    called every few milliseconds with what says where the warps are; what it raises ends the launch. touched: what notes the
    bytes that are read and written.
    cluster: blocks of a cluster; None where neither the launch nor the kernel says it.
    cooperative: all blocks are resident at once, and may wait for each other. counts_clusters: a driver is given the grid in
    clusters (.blocksareclusters); here it is in blocks.
    """

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    arguments: Arguments
    shared: int = 0
    back: Sequence[np.ndarray] | None = None
    seed: int = 0
    threads: int | None = None
    timeout: float | None = None
    progress: Progress | None = None
    watches: Watches | None = None
    sanitizer: Sanitizer | None = None
    shuffled: bool = False
    slice: int = 0
    part: tuple[int, int] | None = None
    meanwhile: Callable[[Callable[[], str]], None] | None = None
    touched: Touched | None = None
    cluster: tuple[int, int, int] | None = None
    cooperative: bool = False
    counts_clusters: bool = False


@dataclass(frozen=True)
class Ran:
    """What a backend says of a launch. A GPU says how long it took; for the rest see host/report.py."""

    seconds: float
    threads: int = 0
    work: Work | None = None
    cached: bool = False
    notes: list[str] = field(default_factory=list)
    output: str = ""
    stores: list[WatchedStore] = field(default_factory=list)
    findings: tuple[Finding, ...] = ()


class Backend(Protocol):
    """chip: what it is. broken: it can run nothing any more, in this process."""

    chip: Chip
    broken: bool

    def load(self, ptx: Tree | str) -> Any:
        """A module, of its text or its verified tree, with memory for its variables. Raises MmulatorError."""

    def compile(
        self, module: Any, entry: str, device: str, options: CompileOptions = DEFAULT, progress: Progress | None = None
    ) -> Any:
        """A kernel of a module, for a device's arithmetic; progress(done, total) in instructions. Raises UnsupportedError."""

    def launch(self, kernel: Any, request: Request) -> Ran:
        """Run it and wait. Raises ExecutionFault or the like; buffers keep what was stored until then."""

    def read(self, module: Any, variable: str) -> bytes:
        """What a .global or .const variable of the module holds. Raises LaunchError if there is none."""

    def write(self, module: Any, variable: str, data: bytes) -> None:
        """All bytes of a variable, for the launches that follow. Raises LaunchError."""

    def close(self, module: Any) -> None:
        """Give up a module and its memory."""
