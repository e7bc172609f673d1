"""A block of threads that run a few statements on words of their own."""

from typing import Any

import numpy as np

from mmulator.host.module import Module
from tests.support import ptx_text

LANES = 32


def launch(body: str, *arrays: np.ndarray, target: str = "sm_90a", block: int = LANES, entry: str = "", top: str = "",
           seed: int = 0, **more: Any) -> Any:  # fmt: skip
    """One block. `in0`, `in1`, ... are addresses of the thread's words of 4 bytes, `out` of 16 bytes."""
    results = np.zeros((block, 4), np.uint32)
    kernel = Module.load(text(body, len(arrays), target, entry, top), name="k.ptx")["k"]
    given = [*(a.copy() for a in arrays), results]
    report = kernel.launch(1, block, given, timeout=600, seed=seed, **more)
    return results, report


def text(body: str, arrays: int, target: str = "sm_90a", entry: str = "", top: str = "") -> str:
    """The module of `launch`. arrays: number of its arrays."""
    pointers = "".join(f"ld.param.u64 in{n}, [given{n}]; mad.wide.u32 in{n}, t, 4, in{n};\n" for n in range(arrays))
    parameters = ", ".join((*(f".param .u64 given{n}" for n in range(arrays)), ".param .u64 results"))
    registers = " ".join(f".reg .{t} {x}<9>;" for t, x in (("b32", "r"), ("b64", "d"), ("f32", "f"), ("b16", "h"), ("pred", "p")))
    return ptx_text.entry(
        f".reg .b32 t; .reg .b64 in<{arrays + 1}>, out; {registers}\nmov.u32 t, %tid.x;\n{pointers}"
        f"ld.param.u64 out, [results]; mad.wide.u32 out, t, 16, out;\n{body}",
        parameters, "9.5", target, entry, top,
    )  # fmt: skip
