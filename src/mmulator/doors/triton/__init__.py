"""Kernels of Triton on this machine: `triton.backends` finds the plug-in here, as modules `compiler` and `driver`.

`compile(fn, signature, constexprs, device="sm_90", num_warps=4)` makes a kernel for explicit types, with `.ptx` and
`.launch(grid, *args)`; `launch(fn, grid, *args, device="sm_90", **meta)` makes one for these arguments and runs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mmulator.doors.triton.offline import Compiled as Compiled
    from mmulator.doors.triton.offline import compile as compile
    from mmulator.doors.triton.offline import launch as launch

__all__ = ["Compiled", "compile", "launch"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from mmulator.doors.triton import offline
    except ModuleNotFoundError as error:
        if error.name != "triton":
            raise
        from mmulator.base.errors import UnsupportedError

        raise UnsupportedError("Triton is not installed", hint="pip install triton") from None
    return getattr(offline, name)
