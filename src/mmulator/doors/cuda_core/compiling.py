"""Programs and linkers of cuda.core. Each cubin that they make is followed by the PTX it was made from."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import wraps
from typing import Any

from mmulator.errors import UnsupportedError
from mmulator.toolkit.cubin import ptx_within, with_ptx
from mmulator.toolkit.joining import join


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
