"""Numba's linker: the cubin that NVIDIA's compiler makes, and behind it the PTX that it was made from."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from typing import Any

from mmulator.doors.libcuda.cooperative import grid_functions
from mmulator.doors.libcuda.images import ptx_within, with_ptx
from mmulator.doors.libcuda.joining import join
from mmulator.errors import UnsupportedError


def complete(original: Callable[[Any], Any], driver: Any) -> Callable[[Any], Any]:
    """`_Linker.complete` that returns a cubin with its PTX."""

    @wraps(original)
    def linked(linker: Any) -> Any:
        cubin = original(linker)
        return driver.ObjectCode.from_cubin(with_ptx(bytes(cubin.code), ptx_of(linker, driver)))

    return linked


def ptx_of(linker: Any, driver: Any) -> str:
    """The PTX of all that a linker was given. Raises UnsupportedError for what has none."""
    optimised = [c for c in linker._object_codes if c.code_type == "ltoir"]
    texts = []
    if optimised:
        options = driver.LinkerOptions(
            max_register_count=linker.max_registers, lineinfo=linker.lineinfo, arch=linker.arch,
            link_time_optimization=True, ptx=True,
        )  # fmt: skip
        made = driver.Linker(*optimised, options=options)
        texts.append(_text(made.link("ptx").code))
        made.close()
    runtime = False
    for code in linker._object_codes:
        if code.code_type == "ptx":
            texts.append(_text(code.code))
        elif code.code_type == "library" and "cudadevrt" in (code.name or ""):
            runtime = True
        elif code.code_type != "ltoir":
            found = ptx_within(_bytes(code.code))
            if found is None:
                raise UnsupportedError(
                    f"{code.name} is linked as a {code.code_type}: machine code of a GPU, which cannot be run here",
                    hint="link CUDA C++ source, PTX or LTO-IR",
                )
            texts.append(found)
    if runtime:
        head = re.findall(r"^\s*\.(?:version|target)[^\n]*", texts[0], re.MULTILINE)
        texts.append(grid_functions("\n".join(head)))
    return join(texts)


def _bytes(code: Any) -> bytes:
    return code.encode() if isinstance(code, str) else bytes(code)


def _text(code: Any) -> str:
    return _bytes(code).decode().strip("\0")
