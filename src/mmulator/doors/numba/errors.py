"""Errors of Numba-CUDA and of cuda.core that say what mmulator says: both their class and ours, so either `except` finds them."""

from __future__ import annotations

from functools import wraps
from typing import Any

from mmulator.doors.cuda_core.errors import telling as telling_core
from mmulator.doors.libcuda.abi import taken
from mmulator.doors.libcuda.reasons import with_reason


def telling(driver: Any) -> None:
    """Numba's module of the driver: its CudaAPIError, and cuda.core's CUDAError."""
    check = driver.Driver._check_cuda_python_error

    @wraps(check)
    def checked(self: Any, fname: str, returned: Any) -> Any:
        try:
            return check(self, fname, returned)
        except driver.CudaAPIError as error:
            raise with_reason(error, taken()) from None

    driver.Driver._check_cuda_python_error = checked
    telling_core()
