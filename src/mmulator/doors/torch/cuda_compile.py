"""torch.compile for the device: Inductor writes Triton for CUDA, and Triton's kernels are launched here.

The settings that these libraries read are set as they are imported; a program that does not compile imports none.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import torch

from mmulator.doors.imports import after_import

NAME = "mmulator"  # of the driver among Triton's

# Settings of torch._inductor.config, each in the versions that have it. Kernels are launched by Triton's own launcher, which
# is mmulator's; they are compiled in this process, since a pool of processes takes longer to start than most programs run.
_SETTINGS = {"use_static_triton_launcher": False, "use_static_cuda_launcher": False, "compile_threads": 1}


def configure(config: Any) -> None:
    """Set defaults of torch._inductor.config, where the environment says nothing else.

    The defaults are set, and no values: a value holds only in the thread that sets it, and autograd runs a backward in another.
    """
    entries = vars(config)["_config"]
    for name, value in _SETTINGS.items():
        entry = entries.get(name)
        if entry is None or (name == "compile_threads" and "TORCHINDUCTOR_COMPILE_THREADS" in os.environ):
            continue
        if getattr(entry, "alias", None) is None:  # an alias has no value of its own
            entry.default = value


def choose(backends: Any) -> None:
    """Change triton.backends: the one here comes first, and NVIDIA's driver finds no GPU, since it believes torch, which says
    it has one.
    """
    table: dict[str, Any] = backends.backends
    nvidia = table.get("nvidia")
    if nvidia is None:
        return
    kind = type(nvidia)
    if NAME not in table:  # mmulator is not installed but on the path
        compiler, ours = (import_module(f"mmulator.doors.triton.{name}") for name in ("compiler", "driver"))
        table[NAME] = kind(compiler=compiler.MmulatorBackend, driver=ours.MmulatorDriver)
    driver = type(nvidia.driver.__name__, (nvidia.driver,), {"is_active": staticmethod(lambda: False)})
    table["nvidia"] = kind(compiler=nvidia.compiler, driver=driver)  # in its place: Triton may be going through the table
    backends.backends = {NAME: table[NAME], **table}  # Inductor takes the first that it believes to be active


def measured(_: Any, call: Callable[[], Any], *__: Any, return_mode: str = "min", **___: Any) -> float | list[float]:
    """Inductor's measurement of a call: milliseconds of counted work, which are equal each time, so one run is enough."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    call()
    end.record()
    found = float(begin.elapsed_time(end))
    return [found] if return_mode == "all" else found


def measure(benchmarking: Any) -> None:
    """Change torch._inductor.runtime.benchmarking: counted work instead of hundreds of calls."""
    for kind in vars(benchmarking).values():
        if isinstance(kind, type) and "benchmark_gpu" in vars(kind):
            setattr(kind, "benchmark_gpu", measured)  # noqa: B010


def take_the_first(heuristics: Any) -> None:
    """Change torch._inductor.runtime.triton_heuristics: the first of a kernel's configurations is taken, and the others do not
    run.
    Each would have to be compiled, and the fastest here says nothing of a GPU.
    """
    heuristics.CachingAutotuner.bench = lambda self, launcher, *args, **kwargs: 1.0


def without_graphs(inductor: Any) -> None:
    """Change torch._inductor: the modes of torch.compile that ask for CUDA graphs run without them. A graph saves the time of
    launches, and changes no bit.
    """
    options = inductor.list_mode_options

    def list_mode_options(mode: str | None = None, dynamic: bool | None = None) -> dict[str, Any]:
        found = options(mode, dynamic)
        return {k: v for k, v in found.items() if k != "triton.cudagraphs"} if mode else found

    inductor.list_mode_options = list_mode_options


def skip(rules: Any) -> None:
    """Change torch._dynamo.trace_rules: nothing of mmulator is compiled. In a build for CUDA it is not Python either."""
    rules.add("mmulator")


def empty_strided(size: Sequence[int], stride: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """A new tensor, as Inductor's code allocates it."""
    return torch.empty_strided(size, stride, dtype=dtype, device="cuda")


def prepare() -> None:
    """Change these modules when the program imports them."""
    torch._C._dynamo.guards._empty_strided_cuda = empty_strided
    after_import("torch._dynamo.trace_rules", skip)
    after_import("torch._inductor", without_graphs)
    after_import("torch._inductor.config", configure)
    after_import("torch._inductor.runtime.benchmarking", measure)
    after_import("torch._inductor.runtime.triton_heuristics", take_the_first)
    after_import("triton.backends", choose)
