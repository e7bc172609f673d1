"""Extensions of torch in CUDA C++, which are compiled so that they run here. C++ without kernels is compiled as ever."""

from __future__ import annotations

import inspect
import os
import sys
import sysconfig
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import torch

from mmulator.doors.imports import after_import
from mmulator.doors.library.loaded import stands_in
from mmulator.doors.nvrtc import complete_torch
from mmulator.driver import current
from mmulator.errors import UnsupportedError

_OF_CUDA = ("c10_cuda", "torch_cuda")  # libraries of builds for CUDA
_OF_A_GPU = (".cu", ".cuh")


def _checked(function: Callable[..., Any], check: Callable[[dict[str, Any]], None]) -> Callable[..., Any]:
    """A function that checks its arguments first. check: gets them by name; raises."""
    signature = inspect.signature(function)

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            given = signature.bind(*args, **kwargs).arguments
        except TypeError:  # the function itself raises the error
            given = {}
        check(given)
        return function(*args, **kwargs)

    return call


def compile_extensions(module: Any) -> None:
    """Change torch.utils.cpp_extension: extensions in CUDA C++ are compiled by `mmulator nvcc`, in a folder of their own.

    Raises UnsupportedError when such an extension is built without nvcc, or beside NVIDIA's own runtime.
    """
    include_paths, linked = module.include_paths, module._prepare_ldflags

    def check(given: dict[str, Any]) -> None:
        sources = given.get("sources") or ()
        sources = [sources] if isinstance(sources, str) else list(sources)
        if given.get("with_cuda") or given.get("cuda_sources") or any(str(s).endswith(_OF_A_GPU) for s in sources):
            use_toolkit(module)

    def includes(*args: Any, **kwargs: Any) -> list[str]:
        found: list[str] = include_paths(*args, **kwargs)
        more = _headers() if f"{module.CUDA_HOME}/include" in found else []
        return [*found, *more]

    def without_missing(*args: Any, **kwargs: Any) -> list[str]:
        """The linker's flags without libraries that this build of torch does not have."""
        missing = {f"-l{name}" for name in _OF_CUDA if not Path(module.TORCH_LIB_PATH, f"lib{name}.so").exists()}
        return [flag for flag in linked(*args, **kwargs) if flag not in missing]

    for name in ("load", "load_inline", "CUDAExtension"):
        setattr(module, name, _checked(getattr(module, name), check))
    module.include_paths, module._prepare_ldflags = includes, without_missing


def use_toolkit(module: Any) -> None:
    """Let torch.utils.cpp_extension compile CUDA C++."""
    from mmulator.codegen.engine import cache_folder
    from mmulator.toolkit.home import cuda_home
    from mmulator.toolkit.nvcc import find_nvcc

    if not stands_in():
        raise UnsupportedError(
            "an extension in CUDA C++ needs CUDA's runtime, which this process has not, or has NVIDIA's",
            hint="start the program with `mmulator exec`",
        )
    module.CUDA_HOME = str(cuda_home(find_nvcc()))
    if (kept := cache_folder()) is not None:  # what was built for a GPU may have no PTX
        named = f"extensions-{sysconfig.get_config_var('SOABI')}-{torch.__version__}"
        os.environ.setdefault("TORCH_EXTENSIONS_DIR", str(kept.absolute() / named))


def _headers() -> list[str]:
    """Folders of headers in NVIDIA's packages for Python, which torch's own headers include."""
    return [str(found) for folder in sys.path for found in Path(folder or ".").glob("nvidia/cu1*/include")]


def name_target(_: Any) -> None:
    """Tell tvm_ffi.cpp.extension, which asks nvidia-smi, for which chip it compiles."""
    major, minor = current().device.capability
    os.environ.setdefault("TVM_FFI_CUDA_ARCH_LIST", f"{major}.{minor}")


def prepare() -> None:
    """Change these modules when the program imports them."""
    after_import("tvm_ffi.cpp.extension", name_target)
    after_import("torch.utils.cpp_extension", compile_extensions)
    after_import("torch.cuda._utils", complete_torch)
