"""The driver that Triton finds where there is no GPU. Nothing is loaded for it until a kernel is launched."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase

NAME = "mmulator"


class Ordinal(int):
    """The number of the device, 0, with its chip: what Triton keeps by device it keeps anew for another chip."""

    chip: str

    def __new__(cls, chip: str) -> Ordinal:
        made = super().__new__(cls, 0)
        made.chip = chip
        return made

    def __eq__(self, other: object) -> bool:
        return self.chip == other.chip if isinstance(other, Ordinal) else int(self) == other

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = int.__hash__

    def __reduce__(self) -> tuple[type, tuple[int]]:
        return int, (0,)


class MmulatorDriver(DriverBase):
    """Triton's driver: its target is NVIDIA's, its launches run here. Raises UnsupportedError for an unknown Triton."""

    def __init__(self) -> None:
        from mmulator.doors.triton import arguments, device
        from mmulator.doors.triton.adapt import adapt
        from mmulator.doors.triton.launcher import Launcher, Utils
        from mmulator.doors.triton.versions import interface
        from mmulator.host.driver import current
        from mmulator.host.driver.addresses import watch

        interface()
        self.utils = Utils()
        self.launcher_cls = Launcher
        self._ordinals: dict[str, Ordinal] = {}
        self._current, self._arguments, self._device = current, arguments, device  # asked at each launch
        adapt()
        if (torch := sys.modules.get("torch")) is not None:
            watch(torch)

    @staticmethod
    def is_active() -> bool:
        """Whether TRITON_DEFAULT_BACKEND names this driver, or no other driver finds a GPU."""
        if chosen := os.environ.get("TRITON_DEFAULT_BACKEND"):
            return chosen == NAME
        backends = sys.modules["triton.backends"].backends
        return not any(b.driver.is_active() for name, b in backends.items() if name != NAME)

    def map_python_to_cpp_type(self, ty: str) -> str:
        from triton.backends.nvidia.driver import ty_to_cpp

        return ty_to_cpp(ty)

    def get_current_target(self) -> GPUTarget:
        from mmulator.host.driver import current

        return GPUTarget("cuda", int(current().device.name[3:]), 32)

    def get_device_capability(self, device: int | None = None) -> tuple[int, int]:
        from mmulator.host.driver import current

        return current().device.capability

    def get_current_device(self) -> int:
        chip = self._current().device.name
        found = self._ordinals.get(chip)
        if found is None:
            found = self._ordinals[chip] = Ordinal(chip)
        return found

    def set_current_device(self, device: int) -> None:
        if device not in (0, self.get_current_device()):
            raise ValueError(f"there is one device, 0, not {device}")

    def get_current_stream(self, device: int | None = None) -> int:
        if self._arguments.torch_door() is not None:
            return int(sys.modules["torch"]._C._cuda_getCurrentRawStream(0))
        return self._device.current_handle()

    def get_active_torch_device(self) -> Any:
        torch = _torch("a torch device")
        return torch.device("cpu") if self._arguments.torch_door() is None else torch.device("cuda", 0)

    def get_device_interface(self) -> Any:
        return self._device.TorchInterface() if self._arguments.torch_door() is None else sys.modules["torch"].cuda

    def get_benchmarker(self) -> Callable[..., Any]:
        from mmulator.doors.triton.trials import benchmark

        return benchmark

    def get_empty_cache_for_benchmark(self) -> Any:
        torch = _torch("a buffer for benchmarks")
        return torch.empty(0, dtype=torch.int32, device=self.get_active_torch_device())

    def clear_cache(self, cache: Any) -> None:
        """No effect: there is no cache."""

    def allocate_default_profile_scratch(self, size: int, alignment: int, stream: int | None) -> Any:
        torch = _torch("scratch memory")
        return torch.zeros(size, dtype=torch.int8, device=self.get_active_torch_device())

    def assemble_tensormap_to_arg(self, tensormaps_info: Any, args: Any) -> Any:
        return args


def _give_way() -> None:
    """Make NVIDIA's driver inactive while TRITON_DEFAULT_BACKEND names the one here.

    Triton before 3.7 does not read the variable, and would find two active drivers beside a GPU.
    """
    try:
        from triton.backends.nvidia.driver import CudaDriver
    except ImportError:
        return
    asked = CudaDriver.is_active
    CudaDriver.is_active = staticmethod(lambda: os.environ.get("TRITON_DEFAULT_BACKEND") != NAME and asked())


_give_way()


def _torch(what: str) -> Any:
    """The module torch. Raises UnsupportedError where it is not installed."""
    try:
        import torch
    except ImportError:
        from mmulator.base.errors import UnsupportedError

        raise UnsupportedError(
            f"Triton asks for {what}, and torch is not installed", hint="pip install torch, or pass NumPy arrays to the kernel"
        ) from None
    from mmulator.host.driver.addresses import watch

    watch(torch)
    return torch
