"""torch's own device `cuda` on this machine: its tensors are in the CPU's memory, and kernels may have them.

`install` makes the device exist. A program that says device="cuda" then gets tensors with `is_cuda`, autograd and all else of
torch; operators run on the CPU, with the CPU's bits.
"""

from __future__ import annotations

import os
from typing import Any

_installed: list[Any] = []


def installed() -> bool:
    """Whether torch has the device."""
    return bool(_installed)


def install(driver: Any = None) -> None:
    """Make torch's device `cuda` exist, over the memory of the host. Imports torch; a second call does nothing.

    driver: becomes the process's driver first (`mmulator.driver.use`). Raises UnsupportedError where there is a real GPU,
        unless
    MMULATOR_FORCE is set, and for a version of torch whose objects are laid out in an unknown way.
    """
    if driver is not None:
        from mmulator.driver import use

        use(driver)
    if _installed:
        return
    from mmulator.doors.torch import device

    os.environ.setdefault("TRITON_DEFAULT_BACKEND", "mmulator")  # NVIDIA's driver would believe torch that there is a GPU
    _installed.append(device.open())
