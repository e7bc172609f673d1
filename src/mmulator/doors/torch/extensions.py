"""Extensions of torch in CUDA C++, which are compiled so that they run here. C++ without kernels is compiled as ever."""

from __future__ import annotations

import inspect
import os
import re
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
_HEADER = re.compile(r'#\s*include\s*[<"]((?:ATen|c10|torch/csrc)/cuda/[^>"]+)')
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
            check_build(module, given, sources)

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


def check_build(module: Any, given: dict[str, Any], files: list[Any]) -> None:
    """Raise UnsupportedError for sources that a torch built for the CPU cannot compile: it has not all of their headers."""
    if Path(module.TORCH_LIB_PATH, f"lib{_OF_CUDA[0]}.so").exists():
        return
    inline = [given.get(name) or () for name in ("cpp_sources", "cuda_sources")]
    texts = [text for some in inline for text in ([some] if isinstance(some, str) else some)]
    texts += [Path(file).read_text(errors="replace") for file in files if Path(file).is_file()]
    if found := next((found for text in texts if (found := _HEADER.search(text))), None):
        raise UnsupportedError(
            f"{given.get('name')} includes {found[1]}, and torch {torch.__version__} is built for the CPU",
            hint="install torch for CUDA (pip install torch, on Linux), or launch on stream 0 with tensor.data_ptr()",
        )


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
