"""Libraries that compile or load CUDA C++: extensions of torch are compiled so that they run here; others are refused early.

C++ without kernels is compiled and loaded as ever.
"""

from __future__ import annotations

import inspect
import os
import sys
import sysconfig
from collections.abc import Callable
from functools import wraps
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any, NoReturn

import torch

from mmulator.doors.imports import after_import
from mmulator.doors.library.loaded import stands_in
from mmulator.errors import UnsupportedError

_INSTEAD = (
    "kernels of Triton, Numba, CuPy and cuda.core run here; of CUDA C++, `nvcc -ptx` makes PTX, which mmulator.Module and "
    "`mmulator run` run (docs/cuda.md)"
)
_OF_CUDA = ("c10_cuda", "torch_cuda")  # libraries of builds for CUDA
_OF_A_GPU = (".cu", ".cuh")
_KERNELS = b".nv_fatbin"  # the section of a library that has machine code or PTX of kernels
_HOSTS = ("c", "llvm", "cpu")  # targets of TVM that are no GPU's


def _refused(what: str) -> NoReturn:
    raise UnsupportedError(what, hint=_INSTEAD)


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


def refuse_built(module: Any) -> None:
    """Change tvm_ffi.cpp.extension, which builds libraries: those with CUDA code are refused."""

    def check(given: dict[str, Any]) -> None:
        files = given.get("sources") or given.get("cuda_files") or ()
        files = [files] if isinstance(files, (str, Path)) else list(files)
        if given.get("cuda_sources") or any(str(f).endswith(_OF_A_GPU) for f in files):
            _refused(f"tvm_ffi: {given.get('name')} has CUDA C++ in it, which runs on no CPU")

    for name in ("build", "build_inline", "load", "load_inline"):
        if hasattr(module, name):
            setattr(module, name, _checked(getattr(module, name), check))


def refuse_loaded(module: Any) -> None:
    """Change tvm_ffi.module, which loads libraries (FlashInfer's and others'): those with CUDA code are refused."""

    def check(given: dict[str, Any]) -> None:
        path = Path(given.get("path", ""))
        try:
            with path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as data:
                kernels = data.find(_KERNELS)
        except (OSError, ValueError):  # tvm_ffi itself raises the error
            return
        if kernels >= 0:
            _refused(f"tvm_ffi: {path.name} has kernels of CUDA C++ in it, which run on no CPU")

    module.load_module = _checked(module.load_module, check)


def refuse_tilelang(module: Any) -> None:
    """Change tilelang.jit.kernel: kernels are compiled, and their sources can be read; launches are refused."""
    call = module.JITKernel.__call__

    def checked(self: Any, *args: Any, **kwargs: Any) -> Any:
        target = getattr(self, "target", None)
        if str(getattr(target, "kind", target) or "auto").split()[0] not in _HOSTS:
            _refused("TileLang: its kernels are CUDA C++ that a library of C++ (tvm_ffi) launches, which is not supported")
        return call(self, *args, **kwargs)

    module.JITKernel.__call__ = checked


def prepare() -> None:
    """Change these modules when the program imports them."""
    after_import("torch.utils.cpp_extension", compile_extensions)
    after_import("tvm_ffi.cpp.extension", refuse_built)
    after_import("tvm_ffi.module", refuse_loaded)
    after_import("tilelang.jit.kernel", refuse_tilelang)
