"""Names of mmasim (PyPI; a model of tensor cores by others), the arithmetic here that each names, and operands of both."""

import re
from typing import Any

import numpy as np

from mmulator.matrix.numerics import DotKey

VERSION = "2.1.1"
ARCHITECTURES = {
    "Volta": "sm_70", "Turing": "sm_75", "Ampere": "sm_80", "Ada Lovelace": "sm_89", "Hopper": "sm_90", "Blackwell": "sm_100",
    "RTX Blackwell": "sm_120",
}  # fmt: skip
FAMILIES = {"MMA": "mma", "MMABlockScale": "mma", "WGMMA": "wgmma", "TCGen05MMA": "tcgen05", "TCGen05MMABlockScale": "tcgen05"}
_TORCH = {
    "f64": "float64", "tf32": "float32", "f32": "float32", "f16": "float16", "bf16": "bfloat16", "e5m2": "float8_e5m2",
    "e4m3": "float8_e4m3fn", "ue4m3": "float8_e4m3fn", "ue8m0": "float8_e8m0fnu",
}  # fmt: skip


def key(operation: str, name: str) -> DotKey:
    """The arithmetic of an instruction as mmasim names it: class `operation`, name `m16n8k32.kind::f8f6f4.f32.e4m3.e5m2.f32`."""
    shape, *parts = name.split(".")
    k = int(shape.rpartition("k")[2])
    kind = next((part.removeprefix("kind::") for part in parts if part.startswith("kind::")), None)
    block = next((int(part.removeprefix("block")) for part in parts if part.startswith("block")), 0)
    types = [part for part in parts if not part.startswith(("kind::", "block"))]
    scales: dict[str, Any] = {"scale_vec": f"{k // block}X", "stype": types.pop()} if block else {}
    d, a, b, *c = types
    return DotKey(FAMILIES[operation], a, b, c[0] if c else d, d, k, kind=kind, **scales)


def arithmetic(name: str) -> str:
    """The name without rows and columns, which do not change an element of D."""
    return re.sub(r"^m\d+n\d+", "", name)


def tensor(torch: Any, raw: Any, kind: str) -> Any:
    """Raw elements as mmasim takes them: FP4 in bits 2 to 5 of a byte, as in shared memory; FP6 in bits 0 to 5."""
    if kind not in _TORCH:
        return torch.from_numpy(raw << 2 if kind == "e2m1" else raw)
    return torch.from_numpy(raw.view(f"i{raw.itemsize}")).view(getattr(torch, _TORCH[kind]))


def packed(torch: Any, raw: Any) -> Any:
    """FP4 elements of mxf4 and mxf4nvf4, two in a byte."""
    return torch.from_numpy(raw[..., 0::2] << 4 | raw[..., 1::2])


def factors(torch: Any, key: DotKey, A: Any, B: Any) -> tuple[Any, Any]:
    """A [M, K] and the columns of B [N, K] as mmasim takes them, of raw matrices A [M, K] and B [K, N]."""
    both = (A, key.atype), (np.ascontiguousarray(B.T), key.btype)
    left, right = (packed(torch, x) if key.kind in ("mxf4", "mxf4nvf4") else tensor(torch, x, t) for x, t in both)
    return left, right


def raw(torch: Any, D: Any) -> Any:
    """The bits of a tensor of mmasim, as unsigned integers."""
    size = D.element_size()
    return D.contiguous().view({2: torch.int16, 4: torch.int32, 8: torch.int64}[size]).numpy().view(f"u{size}")
