"""Texts of values: bits of a PTX type as a number that people read."""

from typing import Any

import numpy as np

from mmulator.base.interop import named_dtype
from mmulator.isa.types import TYPES, type_bits

_PACKED = {"x2": 2, "x4": 4}


def dtype_of(name: str) -> np.dtype[Any]:
    """NumPy's dtype of a PTX type."""
    return named_dtype(TYPES[name].numpy)


def parts_of(type_name: str) -> tuple[str, int]:
    """(element type, number of elements) of a PTX type: ("f16", 2) of `f16x2`."""
    count = _PACKED.get(type_name[-2:], 1)
    return (type_name[:-2], count) if count > 1 else (type_name, 1)


def text_of(bits: int, type_name: str) -> str:
    """Bits as a number: `-2.5`, `{1.0, 0.5}` of a packed type, `true`, `0x3f800000` of a type without a sign or a point."""
    element, count = parts_of(type_name)
    if count > 1:
        size = type_bits(type_name) // count
        return "{" + ", ".join(text_of(bits >> n * size & (1 << size) - 1, element) for n in range(count)) + "}"
    t = TYPES.get(element)
    if t is None:
        return hex(bits)
    if t.kind == "pred":
        return "true" if bits & 1 else "false"
    bits &= (1 << t.bits) - 1
    if t.kind == "signed":
        return str(bits - (bits >> t.bits - 1 << t.bits))
    if t.kind == "unsigned":
        return str(bits)
    if t.kind == "float":
        raw = bits.to_bytes(max(1, dtype_of(t.name).itemsize), "little")
        value = np.frombuffer(raw[: dtype_of(t.name).itemsize], dtype_of(t.name))[0]
        return str(value) if t.bits >= 32 else str(float(value))
    return str(bits) if bits < 10 else f"0x{bits:0{t.bits // 4}x}"


def bits_text(bits: int, width: int) -> str:
    """`0x3f800000`: all digits of a number of `width` bits."""
    return f"0x{bits:0{max(1, width // 4)}x}"
