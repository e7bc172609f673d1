"""Libraries that compile or load CUDA C++: an early error in place of a later one of their C++.

C++ without kernels is compiled and loaded as ever.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any, NoReturn

from mmulator.doors.imports import after_import
from mmulator.errors import UnsupportedError

_INSTEAD = (
    "kernels of Triton, Numba, CuPy and cuda.core run here; of CUDA C++, `nvcc -ptx` makes PTX, which mmulator.Module and "
    "`mmulator run` run (docs/cuda.md)"
)
_OF_A_GPU = (".cu", ".cuh")
_KERNELS = b".nv_fatbin"  # the section of a library that has machine code or PTX of kernels
_HOSTS = ("c", "llvm", "cpu")  # targets of TVM that are no GPU's


def _refused(what: str) -> NoReturn:
    raise UnsupportedError(what, hint=_INSTEAD)


def refuse_extensions(module: Any) -> None:
    """Change torch.utils.cpp_extension: CUDA extensions are refused."""
    load, load_inline, extension = module.load, module.load_inline, module.CUDAExtension

    def refused(name: str, *_: Any, **__: Any) -> NoReturn:
        _refused(f"torch.utils.cpp_extension: {name} has CUDA C++ in it, which runs on no CPU")

    def checked_load(name: str, sources: Any, *args: Any, **kwargs: Any) -> Any:
        given = [sources] if isinstance(sources, str) else list(sources)
        if kwargs.get("with_cuda") or any(str(s).endswith(_OF_A_GPU) for s in given):
            refused(name)
        return load(name, sources, *args, **kwargs)

    def checked_load_inline(name: str, cpp_sources: Any, cuda_sources: Any = None, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("with_cuda") or cuda_sources:
            refused(name)
        return load_inline(name, cpp_sources, cuda_sources, *args, **kwargs)

    module.load, module.load_inline = checked_load, checked_load_inline
    module.CUDAExtension = type(extension.__name__, (), {"__new__": lambda cls, name, *_, **__: refused(name)})


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
    after_import("torch.utils.cpp_extension", refuse_extensions)
    after_import("tvm_ffi.cpp.extension", refuse_built)
    after_import("tvm_ffi.module", refuse_loaded)
    after_import("tilelang.jit.kernel", refuse_tilelang)
