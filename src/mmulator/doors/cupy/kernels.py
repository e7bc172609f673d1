"""cupy.RawKernel and cupy.RawModule."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mmulator.base.errors import LaunchError, UnsupportedError
from mmulator.base.lazy import cached_property
from mmulator.doors.cupy.arrays import MemoryPointer, ndarray, refuse, region
from mmulator.doors.cupy.device import CupyStream, current_stream
from mmulator.doors.libcuda.runtime import with_runtime
from mmulator.host.driver import Function, LoadedModule, Region, current
from mmulator.runtime.launch.limits import KIB

OPTIONS = ("--device-as-default-execution-space",)


def compiled(code: str, options: Sequence[str], names: Sequence[str], log: Any = None) -> tuple[LoadedModule, dict[str, str]]:
    """(module of a source for the driver's chip, names of its kernels in it). Raises cupy's CompileException."""
    from cupy.cuda.compiler import CompileException
    from cupy_backends.cuda.libs import nvrtc

    given = list(options)
    if not any(o.startswith(("-std=", "--std=")) for o in given):
        given.append("-std=c++17")
    given += [*OPTIONS, f"-arch=compute_{current().device.name[3:]}"]
    program = nvrtc.createProgram(code, "kernel.cu", (), ())
    try:
        for name in names:
            nvrtc.addNameExpression(program, name)
        try:
            nvrtc.compileProgram(program, tuple(given))
        except nvrtc.NVRTCError:
            raise CompileException(nvrtc.getProgramLog(program), code, "kernel.cu", tuple(given), "nvrtc") from None
        if log is not None:
            log.write(nvrtc.getProgramLog(program))
        ptx = nvrtc.getPTX(program)
        lowered = {name: _text(nvrtc.getLoweredName(program, name)) for name in names}
    finally:
        nvrtc.destroyProgram(program)
    return current().load(with_runtime(_text(ptx)), "kernel.cu"), lowered


def _text(value: Any) -> str:
    return (value.decode() if isinstance(value, bytes) else str(value)).strip("\0")


class RawModule:
    """CuPy's class: compiled when one of its kernels or variables is asked for."""

    def __init__(
        self, code: str | None = None, *, path: str | None = None, options: tuple[str, ...] = (), backend: str = "nvrtc",
        translate_cucomplex: bool = False, enable_cooperative_groups: bool = False,
        name_expressions: Sequence[str] | None = None, jitify: Any = None,
    ) -> None:  # fmt: skip
        if (code is None) == (path is None):
            raise TypeError("Exactly one of `code` and `path` keyword arguments must be given.")
        unlike = {"backend='nvcc'": backend != "nvrtc", "translate_cucomplex": translate_cucomplex, "jitify": jitify}
        for what, wanted in unlike.items():
            if wanted:
                raise refuse(f"RawModule({what})", "NVRTC compiles, without the headers of other libraries")
        if name_expressions is not None and not any(o.startswith(("-std=", "--std=")) for o in options):
            options = (*options, "-std=c++17")
        self.code, self.file_path, self.options, self.backend = code, path, options, backend
        self.name_expressions, self.enable_cooperative_groups = tuple(name_expressions or ()), enable_cooperative_groups
        self._log: Any = None
        self._functions: dict[str, RawKernel] = {}

    @cached_property
    def _made(self) -> tuple[LoadedModule, dict[str, str]]:
        if self.file_path is None:
            return compiled(self.code or "", self.options, self.name_expressions, self._log)
        data = Path(self.file_path).read_bytes()
        if data[:4] == b"\x7fELF":
            raise UnsupportedError(f"{self.file_path} is a cubin: machine code of a GPU", hint="load the PTX of it")
        return current().load(data.decode(), self.file_path), {}

    def compile(self, log_stream: Any = None) -> None:
        self._log = log_stream
        self.__dict__.pop("_made", None)
        assert self._made

    @property
    def module(self) -> LoadedModule:
        return self._made[0]

    def get_function(self, name: str) -> RawKernel:
        """The kernel of a name or a name expression. Raises LaunchError if there is none."""
        if name not in self._functions:
            module, lowered = self._made
            real = lowered.get(name, name)
            if real not in module.module:
                raise LaunchError(f"the module has no kernel {name}", hint="name templates in name_expressions")
            self._functions[name] = RawKernel._of(module.function(real), name, self)
        return self._functions[name]

    def get_global(self, name: str) -> MemoryPointer:
        """The memory of a .global or .const variable."""
        module, lowered = self._made
        return MemoryPointer(module.module.image.bytes_of(lowered.get(name, name)))


class RawKernel:
    """CuPy's class: compiled when it is first called."""

    def __init__(
        self, code: str, name: str, options: tuple[str, ...] = (), backend: str = "nvrtc", translate_cucomplex: bool = False,
        *, enable_cooperative_groups: bool = False, jitify: Any = None,
    ) -> None:  # fmt: skip
        plain = name.replace("_", "a").isalnum()
        self._module = RawModule(
            code, options=options, backend=backend, translate_cucomplex=translate_cucomplex, jitify=jitify,
            enable_cooperative_groups=enable_cooperative_groups, name_expressions=None if plain else (name,),
        )  # fmt: skip
        self.code, self.name, self.options, self.backend = code, name, options, backend
        self.file_path: str | None = None
        self.enable_cooperative_groups = enable_cooperative_groups
        self.max_dynamic_shared_size_bytes = 48 * KIB
        self.preferred_shared_memory_carveout = -1

    @classmethod
    def _of(cls, function: Function, name: str, module: RawModule) -> RawKernel:
        made = cls.__new__(cls)
        made._module, made.name, made.code, made.options = module, name, module.code or "", module.options
        made.backend, made.file_path, made.enable_cooperative_groups = "nvrtc", module.file_path, module.enable_cooperative_groups
        made.max_dynamic_shared_size_bytes, made.preferred_shared_memory_carveout = 48 * KIB, -1
        made.__dict__["kernel"] = function
        return made

    @cached_property
    def kernel(self) -> Function:
        return self._module.get_function(self.name).kernel

    def compile(self, log_stream: Any = None) -> None:
        self._module.compile(log_stream)

    @property
    def max_threads_per_block(self) -> int:
        return self.kernel.max_threads

    @property
    def shared_size_bytes(self) -> int:
        return self.kernel.static_shared

    def __call__(
        self, grid: Sequence[int], block: Sequence[int], args: Sequence[Any], *, shared_mem: int = 0, stream: Any = None
    ) -> None:
        function = self.kernel
        if shared_mem > self.max_dynamic_shared_size_bytes:
            raise LaunchError(
                f"{self.name}: {shared_mem} bytes of dynamic shared memory, and {self.max_dynamic_shared_size_bytes} are allowed",
                hint="set max_dynamic_shared_size_bytes",
            )
        params, regions = packed(function, args)
        queue = stream if isinstance(stream, CupyStream) else current_stream()
        current().launch(
            function, tuple(grid), tuple(block), params, regions, shared_mem, queue.stream,
            cooperative=self.enable_cooperative_groups,
        )  # fmt: skip


def packed(function: Function, args: Sequence[Any]) -> tuple[bytes, list[Region]]:
    """(parameter memory, regions of the arrays). Raises LaunchError for a number or size that does not fit: CuPy passes pointers
    to the values, and the kernel would read what lies behind them.
    """
    if len(args) != len(function.params):
        raise LaunchError(f"{function.name} takes {len(function.params)} arguments, not {len(args)}")
    memory, regions = bytearray(function.parameter_bytes), []
    for n, (value, p, at) in enumerate(zip(args, function.params, function.offsets)):
        if isinstance(value, ndarray):
            data = struct.pack("<Q", value._host.ctypes.data)
            if value._host.size:
                regions.append(region(value._host, f"argument {n} ({p.name})"))
        else:
            data = scalar(value)
            if isinstance(value, int) and not p.type.startswith("f") and -(1 << 8 * p.size - 1) <= value < 1 << 8 * p.size:
                data = data[: p.size]  # the kernel reads the low bytes, which are all of the number
        if len(data) != p.size:
            what = "an array" if isinstance(value, ndarray) else f"{type(value).__name__} of {len(data)} bytes"
            raise LaunchError(
                f"argument {n} ({p.name}) of {function.name} has {p.size} bytes, and {what} is given",
                hint="CuPy passes float as a double, and a large int as 8 bytes: pass numpy.float32(x), numpy.int32(n)",
            )
        memory[at : at + p.size] = data
    return bytes(memory), regions


def scalar(value: Any) -> bytes:
    """The bytes that CuPy passes for a value. Raises TypeError as CuPy does."""
    if value is None:
        return bytes(8)
    if isinstance(value, MemoryPointer):
        return struct.pack("<Q", value.ptr)
    if isinstance(value, bool):
        return struct.pack("<?", value)
    if isinstance(value, int):
        return struct.pack("<q" if value < 1 << 63 else "<Q", value)
    if isinstance(value, float):
        return struct.pack("<d", value)
    if isinstance(value, complex):
        return struct.pack("<dd", value.real, value.imag)
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.size == 1):
        return value.tobytes()
    raise TypeError(f"Unsupported type {type(value)}")
