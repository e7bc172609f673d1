"""The driver: device memory, modules, functions, streams and launches, as CUDA's driver has them, on this machine.

Other people's programs come in through doors (Triton, torch, Numba, CuPy, cuda.core), and all doors lead here. Device
memory is memory of the host at the host's own addresses, so that a pointer that a program has taken, stored or computed
means the same to a kernel. A kernel may touch what the door says it was given, and what the program has the address of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

# Imported on first use: a program that opens a door may never launch a kernel.
_LAZY = {
    "Allocation": "mmulator.driver.memory",
    "Driver": "mmulator.driver.driver",
    "Event": "mmulator.driver.streams",
    "Function": "mmulator.driver.functions",
    "LoadedModule": "mmulator.driver.functions",
    "Memory": "mmulator.driver.memory",
    "Region": "mmulator.launch.regions",
    "Settings": "mmulator.driver.settings",
    "Stream": "mmulator.driver.streams",
    "current": "mmulator.driver.driver",
    "use": "mmulator.driver.driver",
}

__all__ = [
    "Allocation", "Driver", "Event", "Function", "LoadedModule", "Memory", "Region", "Settings", "Stream", "current", "use",
]  # fmt: skip

if TYPE_CHECKING:
    from mmulator.driver.driver import Driver, current, use
    from mmulator.driver.functions import Function, LoadedModule
    from mmulator.driver.memory import Allocation, Memory
    from mmulator.driver.settings import Settings
    from mmulator.driver.streams import Event, Stream
    from mmulator.launch.regions import Region


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    globals()[name] = value = getattr(import_module(_LAZY[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
