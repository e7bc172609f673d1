"""The door of cuda.core: compilers and linkers whose cubins are followed by their PTX, and errors with the driver's reason.

`install()` before a program uses a device, or `mmulator exec`.
"""

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import wraps
from typing import Any

from mmulator.base.errors import MmulatorError, UnsupportedError
from mmulator.base.versions import TABLE
from mmulator.doors.libcuda import loading
from mmulator.doors.libcuda.abi import taken
from mmulator.doors.library import lifetime
from mmulator.ptx.toolkit.cubin import ptx_within, with_ptx
from mmulator.ptx.toolkit.joining import join


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


# compilers --------------------------------------------------------------------------------------------------------------
def linker_class(base: Any) -> Any:
    """A subclass of cuda.core's Linker whose `link("cubin")` keeps the PTX."""

    class Linker(base):
        def __init__(self, *codes: Any, options: Any = None) -> None:
            super().__init__(*codes, options=options)
            self.mmulator = codes, options

        def link(self, target_type: Any) -> Any:
            made = super().link(target_type)
            codes, options = self.mmulator
            return marked(made, ptx_of(codes, options, base)) if str(target_type) == "cubin" else made

    return _disguised(Linker, base)


def program_class(base: Any) -> Any:
    """A subclass of cuda.core's Program that remembers source that is PTX already."""

    class ProgramWithPtx(base):
        def __init__(self, code: Any, code_type: Any, options: Any = None) -> None:
            super().__init__(code, code_type, options)
            self.mmulator = _text(code) if str(code_type).lower() == "ptx" else None

    return _disguised(ProgramWithPtx, base)


def _disguised(made: Any, base: Any) -> Any:
    for name in ("__name__", "__qualname__", "__module__", "__doc__"):
        setattr(made, name, getattr(base, name))
    return made


def compiling(original: Callable[..., Any]) -> Callable[..., Any]:
    """Replacement of the function behind Program.compile, whose cubins keep their PTX."""

    @wraps(original)
    def compiled(program: Any, target_type: Any, name_expressions: Any, logs: Any) -> Any:
        made = original(program, target_type, name_expressions, logs)
        if str(target_type) != "cubin":
            return made
        if str(program.backend).lower() == "nvrtc":
            return marked(made, _nvrtc_ptx(program.handle))
        if str(program.backend).lower() == "nvvm":
            return marked(made, _text(original(program, "ptx", name_expressions, logs).code))
        return marked(made, getattr(program, "mmulator", None))

    return compiled


def _nvrtc_ptx(handle: Any) -> str:
    """The PTX that NVRTC made on the way to the cubin."""
    from cuda.bindings import nvrtc

    status, size = nvrtc.nvrtcGetPTXSize(handle)
    room = b" " * (size if not int(status) else 0)
    if int(status) or int(nvrtc.nvrtcGetPTX(handle, room)[0]):
        raise UnsupportedError("NVRTC gives no PTX of this program", hint='compile("ptx")')
    return _text(room)


def marked(made: Any, ptx: str | None) -> Any:
    """A cubin (ObjectCode) with its PTX behind it."""
    if ptx is None:
        raise UnsupportedError("there is no PTX of this cubin: it cannot be run here")
    return type(made).from_cubin(with_ptx(_bytes(made.code), ptx), name=made.name, symbol_mapping=made.symbol_mapping)


def ptx_of(codes: Sequence[Any], options: Any, linker: Any) -> str:
    """The PTX of all objects that a linker was given, without CUDA's device runtime, which loading adds (libcuda/runtime.py).

    linker: cuda.core's own. Raises UnsupportedError for an object without PTX.
    """
    optimised = [c for c in codes if c.code_type == "ltoir"]
    texts = []
    if optimised:
        made = linker(*optimised, options=replace(options, link_time_optimization=True, ptx=True))
        texts.append(_text(made.link("ptx").code))
        made.close()
    for code in codes:
        if code.code_type == "ptx":
            texts.append(_text(code.code))
        elif code.code_type != "ltoir" and not (code.code_type == "library" and "cudadevrt" in (code.name or "")):
            found = ptx_within(_bytes(code.code))
            if found is None:
                raise UnsupportedError(
                    f"{code.name or 'what'} is linked as {code.code_type}: machine code of a GPU, which cannot be run here",
                    hint="link CUDA C++ source, PTX or LTO-IR",
                )
            texts.append(found)
    return join(texts)


def _bytes(code: Any) -> bytes:
    return code.encode() if isinstance(code, str) else bytes(code)


def _text(code: Any) -> str:
    return _bytes(code).decode().strip("\0")


# errors with the reason that the driver had: instances of both error classes -------------------------------------------------
_CODE = re.compile(r"(CUDA_ERROR_\w+): ")
_made: dict[tuple[type, type], type] = {}


def with_reason(error: Exception, why: BaseException | None) -> Exception:
    """The library's error, or one that is also the MmulatorError behind it and reads as both. Raises KeyboardInterrupt if
    that was the reason.
    """
    if isinstance(why, KeyboardInterrupt):
        raise why
    if not isinstance(why, MmulatorError):
        return error
    lifetime.read_errors()  # an exception: a program that goes on has caught it
    kinds = (type(error), type(why))
    if kinds not in _made:
        _made[kinds] = type(type(why).__name__, kinds, {"__str__": _both, "__init__": _nothing})
    found: Exception = _made[kinds].__new__(_made[kinds], *error.args)
    found.args = error.args
    found.__dict__.update(why.__dict__)
    found.__dict__.update(error.__dict__)
    code = _CODE.match(str(error))  # CUDA adds to some codes that the process is lost, which it is not here
    found.__dict__["library_error"] = code[1] if code else str(error)
    return found


def _both(self: Any) -> str:
    return f"{self.library_error}\n{MmulatorError.__str__(self)}"


def _nothing(self: Any, *args: Any, **kwargs: Any) -> None:
    """An __init__ that does nothing: the instance is complete."""


def telling_class(kind: type[Exception]) -> type[Exception]:
    """A subclass of a library's error class, whose instances say the reason of the last failed call."""

    class ErrorWithReason(kind):  # type: ignore[misc, valid-type]
        def __new__(cls, *args: Any, **kwargs: Any) -> Any:
            why = taken() if cls is ErrorWithReason else None
            plain = super().__new__(cls, *args, **kwargs)
            if why is None:
                return plain
            plain.__init__(*args, **kwargs)
            return with_reason(plain, why)

    made: type[Exception] = _disguised(ErrorWithReason, kind)
    return made
