"""cuda.core's CUDAError with the reason that the driver had."""

from __future__ import annotations

from typing import Any

from mmulator.doors.libcuda.reasons import telling_class


def telling() -> None:
    """Where cuda.core makes its errors; once."""
    from cuda.core._utils import cuda_utils

    utils: Any = cuda_utils
    if not getattr(utils, "mmulator", False):
        utils.mmulator = True
        utils.CUDAError = telling_class(utils.CUDAError)
