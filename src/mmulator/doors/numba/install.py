"""What Numba-CUDA needs besides a driver: kernels that keep the PTX they were made from, and errors that say what happened."""

from __future__ import annotations

from typing import Any

from mmulator.doors.libcuda import loading
from mmulator.errors import UnsupportedError


def install() -> None:
    """Make Numba-CUDA find the device of this process. Before its first use of CUDA; more than once is once.

    Raises UnsupportedError where CUDA's own driver is loaded already, and for a Numba-CUDA that is too old.
    """
    loading.load()
    from numba.cuda.cudadrv import driver

    patch(driver)


def patch(driver: Any) -> None:
    """The module numba.cuda.cudadrv.driver, once it is imported."""
    from mmulator.doors.numba.errors import telling
    from mmulator.doors.numba.linking import complete

    linker = getattr(driver, "_Linker", None)
    if linker is None or not hasattr(driver, "ObjectCode"):
        raise UnsupportedError("this Numba-CUDA is not known", hint="numba-cuda 0.30 is")
    if getattr(linker, "mmulator", False):
        return
    linker.mmulator = True
    linker.complete = complete(linker.complete, driver)
    telling(driver)
