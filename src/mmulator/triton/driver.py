"""The driver that Triton finds where there is no GPU. Nothing is loaded for it until a kernel is launched."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase

NAME = "mmulator"


class MmulatorDriver(DriverBase):
    """Stands for a GPU: its target is NVIDIA's, its launches run here."""

    def __init__(self) -> None:
        from mmulator.triton.launcher import Launcher, Utils

        self.utils = Utils()
        self.launcher_cls = Launcher

    @staticmethod
    def is_active() -> bool:
        """Where Triton is told so by TRITON_DEFAULT_BACKEND, and where no other driver finds a GPU."""
        if chosen := os.environ.get("TRITON_DEFAULT_BACKEND"):
            return chosen == NAME
        backends = sys.modules["triton.backends"].backends
        return not any(b.driver.is_active() for name, b in backends.items() if name != NAME)

    def map_python_to_cpp_type(self, ty: str) -> str:
        from triton.backends.nvidia.driver import ty_to_cpp

        return ty_to_cpp(ty)

    def get_current_target(self) -> GPUTarget:
        from mmulator.driver import current

        return GPUTarget("cuda", int(current().device.name[3:]), 32)

    def get_device_capability(self, device: int | None = None) -> tuple[int, int]:
        from mmulator.driver import current

        return current().device.capability

    def get_current_device(self) -> int:
        """Triton keeps what it compiled by this number."""
        from mmulator.driver import current

        return current().ordinal

    def set_current_device(self, device: int) -> None:
        if device not in (0, self.get_current_device()):
            raise ValueError(f"there is one device, 0, not {device}")

    def get_current_stream(self, device: int | None = None) -> int:
        return 0

    def get_active_torch_device(self) -> Any:
        import torch

        return torch.device("cpu")

    def get_device_interface(self) -> Any:
        import torch

        return torch.cpu

    def get_benchmarker(self) -> Callable[..., Any]:
        from triton.testing import do_bench

        return do_bench

    def get_empty_cache_for_benchmark(self) -> Any:
        import torch

        return torch.empty(0, dtype=torch.int32)

    def clear_cache(self, cache: Any) -> None:
        """There is no cache to clear."""
