"""CUDA C++ to PTX by NVRTC, through CuPy's own binding of it and with the options that CuPy adds."""

from collections.abc import Sequence
from typing import Any

from mmulator.doors.libcuda.runtime import with_runtime
from mmulator.driver import LoadedModule, current

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
