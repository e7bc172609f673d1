"""The door of Numba-CUDA, besides the driver and cuda.core, with which it compiles, links and launches."""

from __future__ import annotations

from functools import wraps
from typing import Any

from mmulator.doors.cuda_core import install as install_core
from mmulator.doors.libcuda.abi import taken
from mmulator.doors.libcuda.reasons import with_reason
from mmulator.errors import UnsupportedError


def install() -> None:
    """Make Numba-CUDA find the device of this process. Call it before the first use of CUDA; a second call does nothing.

    Raises UnsupportedError where CUDA's own driver is loaded already, and for a Numba-CUDA that is too old.
    """
    install_core()
    from numba.cuda.cudadrv import driver

    if not hasattr(driver, "_Linker") or not hasattr(driver, "ObjectCode"):
        raise UnsupportedError("this Numba-CUDA is not known", hint="numba-cuda 0.30 is")
    if getattr(driver.Driver, "mmulator", False):
        return
    driver.Driver.mmulator = True
    driver.Driver._check_cuda_python_error = _telling(driver, driver.Driver._check_cuda_python_error)
    if driver.driver.initialization_error is not None:  # Numba looked for a driver before this one was there
        driver.driver.__init__()


def _telling(driver: Any, check: Any) -> Any:
    """Numba's CudaAPIError with the reason that the driver had."""

    @wraps(check)
    def checked(self: Any, fname: str, returned: Any) -> Any:
        try:
            return check(self, fname, returned)
        except driver.CudaAPIError as error:
            raise with_reason(error, taken()) from None

    return checked
