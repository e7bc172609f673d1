"""Kernels of one matrix instruction, for sm_120: registers from memory, the instruction, registers to memory."""

import numpy as np

from mmulator import Module
from tests.support.ptx_text import entry

CASES = 8


def registers(name: str, count: int) -> str:
    return "{" + ", ".join(f"%{name}{i}" for i in range(count)) + "}"


def load(name: str, count: int, size: int = 4) -> list[str]:
    """Registers of a thread from [cases][32][count] words of `size` bytes."""
    return _at(name, count, size) + [f"ld.global.b{8 * size} %{name}{i}, [%p+{size * i}];" for i in range(count)]


def store(name: str, count: int, size: int = 4) -> list[str]:
    return _at(name, count, size) + [f"st.global.b{8 * size} [%p+{size * i}], %{name}{i};" for i in range(count)]


def _at(name: str, count: int, size: int) -> list[str]:
    return [f"ld.param.u64 %p, [{name}];", f"mad.wide.u32 %p, %at, {size * count}, %p;"]


def kernel(counts: dict[str, int], body: list[str], extra: str = "") -> Module:
    declared = " ".join(f".reg .b32 %{n}<{c}>;" for n, c in counts.items())
    params = ", ".join(f".param .u64 {n}" for n in counts)
    head = f"{declared} .reg .b64 %p, %q; .reg .b32 %at, %t, %s; {extra} mov.u32 %t, %tid.x; mov.u32 %at, %ctaid.x;"
    return Module.load(entry("\n".join([head, "mad.lo.u32 %at, %at, 32, %t;", *body]), params, "9.4", "sm_120a"))


def run(module: Module, arrays: list[np.ndarray]) -> None:
    module["k"].launch(CASES, 32, arrays, device="sm_120", timeout=600)
