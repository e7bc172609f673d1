"""Compilers for the device: torch.compile writes Triton for CUDA, and extensions in CUDA C++ are compiled so that they run here.

C++ without kernels is compiled as ever. The settings that these libraries read are set as they are imported; a program that does
not compile imports none.
"""

from __future__ import annotations

import inspect
import os
import re
import sys
import sysconfig
from collections.abc import Callable, Sequence
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from mmulator.base.errors import UnsupportedError
from mmulator.doors.imports import after_import
from mmulator.doors.library.libraries import stands_in
from mmulator.doors.nvrtc import complete_torch
from mmulator.host.driver import current

NAME = "mmulator"  # of the driver among Triton's

# Settings of torch._inductor.config, each in the versions that have it. Kernels are launched by Triton's own launcher, which
# is mmulator's; they are compiled in this process, since a pool of processes takes longer to start than most programs run.
_SETTINGS = {"use_static_triton_launcher": False, "use_static_cuda_launcher": False, "compile_threads": 1}


def configure(config: Any) -> None:
    """Set defaults of torch._inductor.config, where the environment says nothing else.

    The defaults are set, and no values: a value holds only in the thread that sets it, and autograd runs a backward in another.
    """
    entries = vars(config)["_config"]
    for name, value in _SETTINGS.items():
        entry = entries.get(name)
        if entry is None or (name == "compile_threads" and "TORCHINDUCTOR_COMPILE_THREADS" in os.environ):
            continue
        if getattr(entry, "alias", None) is None:  # an alias has no value of its own
            entry.default = value


def choose(backends: Any) -> None:
    """Change triton.backends: the one here comes first, and NVIDIA's driver finds no GPU, since it believes torch, which says
    it has one.
    """
    table: dict[str, Any] = backends.backends
    nvidia = table.get("nvidia")
    if nvidia is None:
        return
    kind = type(nvidia)
    if NAME not in table:  # mmulator is not installed but on the path
        compiler, ours = (import_module(f"mmulator.doors.triton.{name}") for name in ("compiler", "driver"))
        table[NAME] = kind(compiler=compiler.MmulatorBackend, driver=ours.MmulatorDriver)
    driver = type(nvidia.driver.__name__, (nvidia.driver,), {"is_active": staticmethod(lambda: False)})
    table["nvidia"] = kind(compiler=nvidia.compiler, driver=driver)  # in its place: Triton may be going through the table
    backends.backends = {NAME: table[NAME], **table}  # Inductor takes the first that it believes to be active


def measured(_: Any, call: Callable[[], Any], *__: Any, return_mode: str = "min", **___: Any) -> float | list[float]:
    """Inductor's measurement of a call: milliseconds of counted work, which are equal each time, so one run is enough."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    call()
    end.record()
    found = float(begin.elapsed_time(end))
    return [found] if return_mode == "all" else found


def measure(benchmarking: Any) -> None:
    """Change torch._inductor.runtime.benchmarking: counted work instead of hundreds of calls."""
    for kind in vars(benchmarking).values():
        if isinstance(kind, type) and "benchmark_gpu" in vars(kind):
            setattr(kind, "benchmark_gpu", measured)  # noqa: B010


def take_the_first(heuristics: Any) -> None:
    """Change torch._inductor.runtime.triton_heuristics: the first of a kernel's configurations is taken, and the others do not
    run. Each would have to be compiled, and the fastest here says nothing of a GPU.
    """
    heuristics.CachingAutotuner.bench = lambda self, launcher, *args, **kwargs: 1.0


def take_the_first_way(algorithms: Any) -> None:
    """Change torch._inductor.select_algorithm: of the ways to multiply or convolve the first is taken, as of configurations,
    unless the program chooses among them itself.
    """
    kind, name = algorithms.AlgorithmSelectorCache, "_register_default_preprocessing_fns"
    register: Any = getattr(kind, name, None)  # older versions of torch have none, and measure

    def with_ours(cache: Any) -> None:
        def first(choices: list[Any]) -> list[Any]:
            return choices[:1] if cache.preprocessing_fns[-1] is first else choices

        register(cache)
        cache.add_preprocessing_fn(first)

    if register is not None:
        setattr(kind, name, with_ours)


def without_graphs(inductor: Any) -> None:
    """Change torch._inductor: the modes of torch.compile that ask for CUDA graphs run without them. A graph saves the time of
    launches, and changes no bit.
    """
    options = inductor.list_mode_options

    def list_mode_options(mode: str | None = None, dynamic: bool | None = None) -> dict[str, Any]:
        found = options(mode, dynamic)
        return {k: v for k, v in found.items() if k != "triton.cudagraphs"} if mode else found

    inductor.list_mode_options = list_mode_options


def skip(rules: Any) -> None:
    """Change torch._dynamo.trace_rules: nothing of mmulator is compiled. In a build for CUDA it is not Python either."""
    rules.add("mmulator")


def empty_strided(size: Sequence[int], stride: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """A new tensor, as Inductor's code allocates it."""
    return torch.empty_strided(size, stride, dtype=dtype, device="cuda")


# extensions --------------------------------------------------------------------------------------------------------------
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
    from mmulator.base.codegen.engine import cache_folder
    from mmulator.ptx.toolkit.nvcc import cuda_home, find_nvcc

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
    torch._C._dynamo.guards._empty_strided_cuda = empty_strided
    after_import("torch._dynamo.trace_rules", skip)
    after_import("torch._inductor", without_graphs)
    after_import("torch._inductor.config", configure)
    after_import("torch._inductor.runtime.benchmarking", measure)
    after_import("torch._inductor.runtime.triton_heuristics", take_the_first)
    after_import("torch._inductor.select_algorithm", take_the_first_way)
    after_import("triton.backends", choose)
    after_import("tvm_ffi.cpp.extension", name_target)
    after_import("torch.utils.cpp_extension", compile_extensions)
    after_import("torch.cuda._utils", complete_torch)
