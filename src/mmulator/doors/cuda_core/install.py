"""The door of cuda.core: compilers and linkers whose cubins keep their PTX, and errors with their reason."""

import sys
from typing import Any

from mmulator.doors.libcuda import loading
from mmulator.errors import UnsupportedError
from mmulator.versions import TABLE


def install() -> None:
    """Make cuda.core find the device of this process. Call it before the first use of a device; a second call does nothing.

    Raises UnsupportedError where CUDA's own driver is loaded already, and for an unknown version of cuda.core.
    """
    loading.install()
    import cuda.core as core
    from cuda.core import _linker, _program
    from cuda.core._utils import cuda_utils

    if hasattr(core, "mmulator"):
        return
    if not hasattr(_program, "_program_compile_uncached") or not hasattr(cuda_utils, "CUDAError"):
        raise UnsupportedError(f"cuda.core {core.__version__} is not known", hint=TABLE["cuda-core"].mend)
    from mmulator.doors.cuda_core.compiling import compiling, linker_class, program_class
    from mmulator.doors.libcuda.reasons import telling_class

    for module, name, made in (
        (_linker, "Linker", linker_class(core.Linker)), (_program, "Program", program_class(core.Program)),
    ):  # fmt: skip
        _replace(name, getattr(core, name), made)
        setattr(module, name, made)
        setattr(core, name, made)
    _program._program_compile_uncached = compiling(_program._program_compile_uncached)
    cuda_utils.CUDAError = telling_class(cuda_utils.CUDAError)
    core.mmulator = True


def _replace(name: str, old: Any, new: Any) -> None:
    """Replace a class also in modules that have imported it by its name already."""
    for module in list(sys.modules.values()):
        if getattr(module, "__dict__", {}).get(name) is old:
            setattr(module, name, new)
