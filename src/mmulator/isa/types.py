"""Element types of the PTX ISA: formats as data.

Fundamental Types, Alternate Floating-Point Data Formats, Packed Floating Point Data Types (PTX ISA 9.1).
"""

from collections.abc import Mapping
from typing import Literal

from mmulator.base.classes import dataclass
from mmulator.base.errors import InternalError

Kind = Literal["float", "signed", "unsigned", "bits", "pred", "none"]
NanStyle = Literal["ieee", "all_ones", "none"]
MAP_BYTES, MAP_ALIGNMENT = 128, 64  # of a tensor map in memory: an opaque type (Tensor-map, PTX ISA 9.1)


@dataclass(frozen=True)
class ElementType:
    """One element format.

    name: PTX name without the dot.
    bits: size of the format.
    kind: how the bits are interpreted.
    exponent, mantissa: field widths of a float (mantissa without the hidden bit).
    bias: bias of the exponent.
    nan: `ieee` (exponent all ones: Inf and NaN), `all_ones` (one NaN per sign, no Inf), `none` (neither).
    has_sign: False for the unsigned scale formats.
    numpy: name of the dtype in NumPy or ml_dtypes; the integer of the same size if neither has one.
    """

    name: str
    bits: int
    kind: Kind
    exponent: int = 0
    mantissa: int = 0
    bias: int = 0
    nan: NanStyle = "none"
    has_sign: bool = True
    numpy: str = ""

    def __post_init__(self) -> None:
        if self.kind == "float":
            used = self.exponent + self.mantissa + self.has_sign
            # tf32 keeps 19 bits of a 32-bit container; ue4m3 has 7 bits of 8
            if used != self.bits and self.name not in ("tf32", "ue4m3"):
                raise InternalError(f"{self.name}: fields take {used} of {self.bits} bits")

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_integer(self) -> bool:
        return self.kind in ("signed", "unsigned")

    @property
    def emin(self) -> int:
        """Exponent of the smallest normal number, and of every subnormal."""
        return 1 - self.bias

    def __str__(self) -> str:
        return self.name

    def __bool__(self) -> bool:
        """False only for NO_TYPE."""
        return self.kind != "none"


def _float(name: str, bits: int, e: int, m: int, bias: int, nan: NanStyle, numpy: str, sign: bool = True) -> ElementType:
    return ElementType(name, bits, "float", e, m, bias, nan, sign, numpy)


F16 = _float("f16", 16, 5, 10, 15, "ieee", "float16")
BF16 = _float("bf16", 16, 8, 7, 127, "ieee", "bfloat16")
TF32 = _float("tf32", 32, 8, 10, 127, "ieee", "float32")
F32 = _float("f32", 32, 8, 23, 127, "ieee", "float32")
F64 = _float("f64", 64, 11, 52, 1023, "ieee", "float64")
E4M3 = _float("e4m3", 8, 4, 3, 7, "all_ones", "float8_e4m3fn")
E5M2 = _float("e5m2", 8, 5, 2, 15, "ieee", "float8_e5m2")
E3M2 = _float("e3m2", 6, 3, 2, 3, "none", "float6_e3m2fn")
E2M3 = _float("e2m3", 6, 2, 3, 1, "none", "float6_e2m3fn")
E2M1 = _float("e2m1", 4, 2, 1, 1, "none", "float4_e2m1fn")
UE8M0 = _float("ue8m0", 8, 8, 0, 127, "all_ones", "float8_e8m0fnu", sign=False)
UE4M3 = _float("ue4m3", 8, 4, 3, 7, "all_ones", "float8_e4m3fn", sign=False)

S4 = ElementType("s4", 4, "signed", numpy="int4")
U4 = ElementType("u4", 4, "unsigned", numpy="uint4", has_sign=False)
B1 = ElementType("b1", 1, "bits", numpy="uint8", has_sign=False)

_LETTERS: tuple[tuple[str, Kind, str], ...] = (("s", "signed", "int"), ("u", "unsigned", "uint"), ("b", "bits", "uint"))
_SCALAR = [
    ElementType(f"{letter}{bits}", bits, kind, numpy=f"{numpy}{bits}", has_sign=kind == "signed")
    for letter, kind, numpy in _LETTERS
    for bits in (8, 16, 32, 64)
]
B128 = ElementType("b128", 128, "bits", has_sign=False)
# What an instruction has for a matrix that it does not have.
NO_TYPE = ElementType("", 0, "none", has_sign=False)
PRED = ElementType("pred", 1, "pred", numpy="bool", has_sign=False)

TYPES: dict[str, ElementType] = {
    t.name: t
    for t in [F16, BF16, TF32, F32, F64, E4M3, E5M2, E3M2, E2M3, E2M1, UE8M0, UE4M3, S4, U4, B1, *_SCALAR, B128, PRED]
}

# Register-sized packed types and others that are no single element.
_PACKED_BITS: Mapping[str, int] = {
    "f16x2": 32, "bf16x2": 32, "e4m3x2": 16, "e5m2x2": 16, "e2m1x2": 8, "e2m3x2": 16, "e3m2x2": 16, "ue8m0x2": 16, "s2f6x2": 16,
    "e4m3x4": 32, "e5m2x4": 32, "e2m3x4": 32, "e3m2x4": 32, "e2m1x4": 16, "f32x2": 64, "u16x2": 32, "s16x2": 32,
    "u8x4": 32, "s8x4": 32,
}  # fmt: skip


_BITS: Mapping[str, int] = {**{t.name: t.bits for t in TYPES.values()}, **_PACKED_BITS}


def type_bits(name: str) -> int:
    """Size in bits of a PTX type, packed types included; `pred` is 1. Raises KeyError for an unknown name."""
    return _BITS[name]


def is_type(name: str) -> bool:
    """Whether a name, without its dot, is that of a PTX type, packed types included."""
    return name in _BITS
