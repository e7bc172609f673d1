"""CuTe DSL (nvidia-cutlass-dsl), which loads machine code alone, by a runtime with CUDA's own in it.

A switch of the library keeps the PTX of each kernel beside its machine code, in a folder, where loading finds it. The runtime is
linked anew from the static library that the package has for programs: then it calls CUDA's runtime here.
"""

import atexit
import ctypes
import os
import shutil
import subprocess
import tempfile
import warnings
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from mmulator.base.codegen.store import digest_of, store
from mmulator.base.errors import UnsupportedError
from mmulator.doors.imports import after_import
from mmulator.doors.libcuda import images
from mmulator.doors.library.files import folder
from mmulator.doors.library.libraries import RUNTIMES, resident, stands_in

_RUNTIME, _STATIC = "libcute_dsl_runtime.so", "libcuda_dialect_runtime_static.a"
_DUMPED, _KEPT, _LIBRARIES = "CUTE_DSL_DUMP_DIR", "CUTE_DSL_KEEP", "CUTE_DSL_LIBS"
_folders: dict[str, None] = {}


def prepare() -> None:
    """Set what CuTe DSL reads when it is imported, beside what the program has set."""
    if not stands_in():
        return
    kept = {"ptx", "cubin", *filter(None, os.environ.get(_KEPT, "").split(","))}
    os.environ[_KEPT] = ",".join(sorted(kept))
    if _DUMPED not in os.environ:
        os.environ[_DUMPED] = made = tempfile.mkdtemp(prefix="mmulator-cute-")
        atexit.register(shutil.rmtree, made, ignore_errors=True)
    if _LIBRARIES not in os.environ and (found := _runtimes()):
        os.environ[_LIBRARIES] = os.pathsep.join(map(str, found))
    warnings.filterwarnings("ignore", "Cache is disabled as user wants to generate PTX")
    images.elsewhere.append(ptx_of)
    after_import("cutlass.base_dsl.compiler", watch_folders)
    for module in ("cutlass.cutlass_dsl.cuda_jit_executor", "cutlass.testing"):
        after_import(module, call_here)


# Functions of the runtime that are the driver's with the same arguments, under its name for them.
_BY_DRIVER = {"cudaDeviceSynchronize": "cuCtxSynchronize"} | {f"cuda{name}": f"cu{name}" for name in (
    "StreamBeginCapture", "StreamEndCapture", "GraphGetNodes", "GraphInstantiate", "GraphLaunch", "GraphExecDestroy",
)}  # fmt: skip


class _Runtime:
    """cuda.bindings.runtime, which has CUDA's runtime in it, too, with the functions that CuTe DSL calls."""

    def __init__(self, bindings: Any) -> None:
        self._bindings, self._library = bindings, resident(RUNTIMES[13])

    def __getattr__(self, name: str) -> Any:
        return partial(self._by_driver, _BY_DRIVER[name]) if name in _BY_DRIVER else getattr(self._bindings, name)

    def _by_driver(self, name: str, *arguments: Any) -> tuple[Any, ...]:
        """Call a function of cuda.bindings.driver, which finds the driver of this package."""
        driver = import_module("cuda.bindings.driver")
        kinds = (getattr(driver, f"CU{(kind := type(a).__name__)[4:5].lower()}{kind[5:]}", None) for a in arguments)
        code, *found = getattr(driver, name)(*(kind(int(a)) if kind else a for kind, a in zip(kinds, arguments)))
        return self._bindings.cudaError_t(int(code)), *found

    def cudaGetDeviceCount(self) -> tuple[Any, int]:
        return self._bindings.cudaError_t(0), 1

    def cudaLibraryUnload(self, library: Any) -> tuple[Any]:
        code = self._library.cudaLibraryUnload(ctypes.c_void_p(int(library))) if self._library else 0
        return (self._bindings.cudaError_t(code),)


def call_here(module: Any) -> None:
    """Change a module of CuTe DSL: it calls the runtime that its kernels call."""
    module.cuda_runtime = _Runtime(module.cuda_runtime)


def ptx_of(cubin: bytes) -> str | None:
    """The PTX of a cubin that CuTe DSL has kept, in this process or an earlier one (programs keep compiled kernels), or None."""
    kept, key = store(), digest_of(b"PTX of a cubin of CuTe DSL" + cubin).hexdigest()
    for path in (path for place in (os.environ[_DUMPED], *_folders) for path in Path(place).glob("*.cubin")):
        ptx = path.with_suffix(".ptx")
        if path.stat().st_size == len(cubin) and ptx.is_file() and path.read_bytes() == cubin:
            found = ptx.read_text(errors="replace").rstrip("\0")
            if kept:
                kept.write(key, found.encode())
            return found
    earlier = kept.read(key) if kept else None
    return None if earlier is None else earlier.decode()


def watch_folders(compiler: Any) -> None:
    """Change cutlass.base_dsl.compiler: the folders that options of cute.compile name are known."""
    for kind in [kind for kind in vars(compiler).values() if isinstance(kind, type) and "_set_artifact_dump_paths" in vars(kind)]:
        set_paths = kind._set_artifact_dump_paths  # type: ignore[attr-defined]

        def noted(option: Any, folder: str, *rest: Any, original: Any = set_paths) -> Any:
            _folders[str(folder)] = None
            return original(option, folder, *rest)

        kind._set_artifact_dump_paths = staticmethod(noted)  # type: ignore[attr-defined]


def _runtimes() -> list[Path]:
    """The runtime that is linked anew, and the package's own, for what the first has not; none for a package without them."""
    spec = find_spec("nvidia_cutlass_dsl")
    places = [Path(place) for place in (spec.submodule_search_locations or ())] if spec else []
    own = next((found for place in places for found in sorted(place.glob(f"**/lib/{_RUNTIME}"))), None)
    static = own.with_name(_STATIC) if own else None
    return [_linked(static), own] if own and static and static.exists() else []


def _linked(static: Path) -> Path:
    """The runtime as a shared library, made once. Raises UnsupportedError where there is no linker."""
    kept, info = store(), static.stat()
    base = kept.path.absolute() if kept else Path(tempfile.mkdtemp(prefix="mmulator-"))
    made = base / f"cute-{info.st_size}-{info.st_mtime_ns}" / _RUNTIME
    if made.exists():
        return made
    linker = next(filter(None, map(shutil.which, ("cc", "gcc", "g++"))), None)
    if linker is None:
        raise UnsupportedError("CuTe DSL needs a linker here: its runtime is linked anew", hint="apt install gcc")
    made.parent.mkdir(mode=0o700, exist_ok=True)
    new = made.with_suffix(f".{os.getpid()}")
    flags = ["-Wl,--whole-archive", str(static), "-Wl,--no-whole-archive", f"-L{folder()}", "-lcudart"]
    done = subprocess.run([linker, "-shared", "-o", str(new), *flags], capture_output=True, text=True, check=False)
    if done.returncode:
        raise UnsupportedError(f"the runtime of CuTe DSL cannot be linked: {done.stderr.strip()}", hint="apt install gcc")
    return new.replace(made)
