"""The backend, the seam to what a kernel runs on: the CPU (host/cpu.py), or a GPU through the CUDA driver
(evaluation/conformance/gpu.py).

    module = backend.load(text)
    kernel = backend.compile(module, "gemm", "sm_90")
    backend.launch(Launch(kernel, LaunchShape((2, 2, 1), (128, 1, 1)), arguments))
    backend.read(module, "counter")
    backend.close(module)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from mmulator.base.classes import dataclass
from mmulator.isa.targets import PTX_VERSIONS, TARGETS, Target
from mmulator.runtime.launch.launch import How, Launch, Progress, Ran
from mmulator.runtime.launch.observers import Observer
from mmulator.runtime.options import DEFAULT, CompileOptions

if TYPE_CHECKING:
    from mmulator.ptx.tree import ParsedModule as Tree


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


HOW = How()  # as every launch that says nothing else


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

    def launch(self, launch: Launch, how: How = HOW, observers: Sequence[Observer] = ()) -> Ran:
        """Run a launch and wait. Raises ExecutionFault or the like; buffers keep what was stored until then."""

    def read(self, module: Any, variable: str) -> bytes:
        """The value of a .global or .const variable of the module. Raises LaunchError if there is none."""

    def write(self, module: Any, variable: str, data: bytes) -> None:
        """All bytes of a variable, for the launches that follow. Raises LaunchError."""

    def close(self, module: Any) -> None:
        """Give up a module and its memory."""
