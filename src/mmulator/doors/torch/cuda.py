"""torch.cuda where there is no GPU: torch's own Python finds in torch._C what a build for CUDA has there.

`prepare()` runs before torch.cuda is executed, which then makes its classes from those here and takes these functions. Nothing of
torch.cuda is replaced: its checks and messages are torch's. A name in no table below is missing, and an error says so.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module, reload
from types import ModuleType, SimpleNamespace
from typing import Any, NoReturn

import torch

from mmulator.base.errors import UnsupportedError
from mmulator.doors.imports import after_import
from mmulator.doors.library.libraries import stands_in
from mmulator.doors.torch import compiling, cuda_device, cuda_graphs, cuda_settings, cuda_streams


class Missing(UnsupportedError, AttributeError):
    """A part of torch's CUDA that is not modelled. An AttributeError too, so that `hasattr` says no."""


# Base classes of torch.cuda's own, by their names there.
_ABSENT = {
    "_cuda_CUDAAllocator_AllocatorState": ("torch.cuda.memory's state of a pool", "there is one pool of memory"),
    "_cuda_CUDAAllocator": ("torch.cuda.memory.CUDAPluggableAllocator", "memory is this machine's"),
}


def absent(name: str, hint: str) -> type:
    """A class without instances. Raises UnsupportedError with its name."""

    def __new__(cls: type, *_: Any, **__: Any) -> NoReturn:
        raise UnsupportedError(f"{name} is not modelled", hint=hint)

    return type(name.rpartition(".")[2], (), {"__new__": __new__})


def refuse(name: str, hint: str) -> Callable[..., NoReturn]:
    """A function that raises UnsupportedError."""

    def refused(*_: Any, **__: Any) -> NoReturn:
        raise UnsupportedError(f"{name} is not modelled", hint=hint)

    return refused


_PREFIXES = ("_cuda_", "_cudnn_", "_CUDA", "_nccl_", "_graph_pool")


def _missing(name: str) -> NoReturn:
    """Raise the error for a name that `torch._C` does not have."""
    if name.startswith(_PREFIXES):
        raise Missing(f"torch._C.{name}, of torch's CUDA, is not modelled", hint="docs/how-to/programs.md says what is")
    raise AttributeError(f"module 'torch._C' has no attribute '{name}'")


# the runtime and the markers of profilers -----------------------------------------------------------------------------
class Error(int):
    """A `cudaError`."""

    success: Error


Error.success = Error(0)


def runtime() -> ModuleType:
    """`torch.cuda.cudart()`: the few functions of CUDA's runtime that torch uses."""
    module = ModuleType("torch._C._cudart")
    done: Callable[..., Error] = lambda *_: Error.success  # noqa: E731
    module.__dict__.update(
        cudaError=Error, cudaGetErrorString=lambda code: "no error" if code == 0 else f"error {int(code)}",
        cudaMemGetInfo=cuda_device.information, cudaProfilerStart=done, cudaProfilerStop=done, cudaHostRegister=done,
        cudaHostUnregister=done, cudaDeviceSynchronize=done, __getattr__=_missing_of("torch.cuda.cudart()"),
    )  # fmt: skip
    return module


def _missing_of(where: str) -> Callable[[str], NoReturn]:
    def missing(name: str) -> NoReturn:
        raise Missing(f"{where}.{name} is not modelled", hint="docs/how-to/programs.md says what is")

    return missing


class Markers(SimpleNamespace):
    """torch.cuda.nvtx: ranges are counted, and have no other effect."""

    def __init__(self) -> None:
        super().__init__(depth=0, started=0)

    def rangePushA(self, message: str) -> int:
        self.depth += 1
        return self.depth - 1

    def rangePop(self) -> int:
        self.depth -= 1
        return self.depth

    def rangeStartA(self, message: str) -> int:
        self.started += 1
        return self.started

    def rangeEnd(self, started: int) -> None:
        """No effect."""

    def markA(self, message: str) -> None:
        """No effect."""

    def deviceRangeStart(self, message: str, stream: int) -> SimpleNamespace:
        return SimpleNamespace(message=message, stream=stream)

    def deviceRangeEnd(self, handle: object, stream: int) -> None:
        """No effect."""


def without_a_tracer(profiler: Any) -> None:
    """Make torch.autograd.profiler give the CPU's time alone when the device's is asked for too: there is no trace of a GPU."""

    class CpuProfile(profiler.profile):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            if kwargs.get("use_device") == "cuda":
                kwargs |= {"use_device": None, "use_cpu": True}
            super().__init__(*args, **kwargs)

    CpuProfile.__name__, CpuProfile.__qualname__, CpuProfile.__module__ = "profile", "profile", profiler.__name__
    profiler.profile = CpuProfile


# opening --------------------------------------------------------------------------------------------------------------
def initialise() -> None:
    """`torch._C._cuda_init`: what torch.cuda has once it is in use."""
    torch.cuda._get_device_properties = cuda_device.properties


def prepare() -> None:
    """Give torch._C what torch.cuda asks it for. Call it before torch.cuda is executed; a second call does nothing.

    Raises UnsupportedError where torch finds a real GPU, unless MMULATOR_FORCE is set.
    """
    if getattr(torch._C, "_cuda_init", None) is initialise:
        return
    count = getattr(torch._C, "_cuda_getDeviceCount", None)
    if count is not None and not stands_in() and count() and not os.environ.get("MMULATOR_FORCE"):
        raise UnsupportedError(
            "torch has a GPU here, and its device cuda stays that GPU's", hint="set CUDA_VISIBLE_DEVICES= or MMULATOR_FORCE=1"
        )
    made: dict[str, Any] = {"_cuda_init": initialise, "_cudart": runtime(), "_nvtx": Markers()}
    for table in (
        cuda_device.functions, cuda_device.accelerator, cuda_streams.functions, cuda_graphs.functions, cuda_settings.functions,
    ):  # fmt: skip
        made |= table()
    made |= {name: absent(*said) for name, said in _ABSENT.items()}
    theirs = [
        n for n in dir(torch._C) if n.startswith("_cuda_") and n not in made
    ]  # in a build for CUDA: it would look for a GPU
    made |= {name: refuse(f"torch._C.{name}", "docs/how-to/programs.md says what is") for name in theirs}
    vars(torch._C).update(made, __getattr__=_missing)
    torch.version.cuda = cuda_device.version()
    after_import("torch.autograd.profiler", without_a_tracer)
    compiling.prepare()


# Modules that copied names of torch._C; executed anew, in this order, where the door opens late.
_TAKERS = ("streams", "graphs", "nvtx", "memory")


def install() -> None:
    """Make torch.cuda find a device, at the end of `import torch`, or later."""
    if getattr(torch._C, "_cuda_init", None) is not initialise:
        prepare()
        for name in _TAKERS:
            reload(import_module(f"torch.cuda.{name}"))
        reload(torch.cuda)
    torch.cuda._device_count_nvml = lambda: -1  # neither NVIDIA's library nor CUDA_VISIBLE_DEVICES is asked
