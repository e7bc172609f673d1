"""Data Movement and Conversion Instructions (PTX ISA 9.1) that convert: cvt, cvt.pack."""

from collections.abc import Mapping
from typing import Any

from mmulator.isa.effects import Algebra, Effects, Flow, Pointer
from mmulator.isa.pieces import FTZ, MOVES, SAT, dst, maybe, need, one, reg, row, src, type_
from mmulator.isa.row import OperandSpec, Row, Slot
from mmulator.isa.types import TYPES, ElementType

_S2F6 = "fixed-point .s2f6 is not modelled"
_INTEGERS = ("u8", "u16", "u32", "u64", "s8", "s16", "s32", "s64")
_FLOATS = ("f16", "f32", "f64")
_ANY_RND = maybe("rnd", "rn", "rz", "rm", "rp", "rni", "rzi", "rmi", "rpi")
_FP8, _FP6, _FP4 = ("e4m3x2", "e5m2x2"), ("e2m3x2", "e3m2x2"), ("e2m1x2",)
_X4 = ("e4m3x4", "e5m2x4", "e2m3x4", "e3m2x4", "e2m1x4")
_RN_RZ = one("rnd", "rn", "rz")
_RELU, _SATFINITE, _SATFINITE_REQUIRED = maybe("relu"), maybe("satfinite"), one("satfinite")
_A, _AB = (src("a", "atype"),), (src("a", "atype"), src("b", "atype"))
_SCALED = maybe("scaled", "scaled::n2::ue8m0")
_SCALE = reg("scale-factor", "b16", types=("b16",), when="scaled")
_RANDOM = reg("rbits", "b32", types=("b32",))
_INTEGRAL = ("rni", "rzi", "rmi", "rpi")


def _contains(d: ElementType, a: ElementType) -> bool:
    """Whether integer type d represents every value of integer type a."""
    return (d.has_sign or not a.has_sign) and d.bits - d.has_sign >= a.bits - a.has_sign


def _conversion(m: Mapping[str, str]) -> str | None:
    """The error in the rounding and the other modifiers of a conversion; None if they are legal."""
    d, a = TYPES[m["type"]], TYPES[m["atype"]]
    rounding = m.get("rnd", "")
    integral = rounding in _INTEGRAL
    bf16 = "bf16" in (d.name, a.name)
    if a.is_float and d.is_float:
        narrows = d.mantissa < a.mantissa or d.exponent < a.exponent
        if d.name == a.name:
            if rounding and not integral:
                return f".{rounding} needs two different types; .{rounding}i rounds to an integral value"
        elif integral:
            return f".{rounding} cannot convert .{a} to .{d}: it rounds to an integer"
        elif bf16 and (a.name == "bf16" or d.name == "f16" or a.name == "f16"):
            pass  # ptxas takes any rounding here, and none
        elif narrows and not rounding:
            return f"a rounding modifier is missing: .{a} to .{d} loses bits"
        elif rounding and not narrows:
            return f".{rounding} cannot stand: .{a} to .{d} is exact"
    elif a.is_float:
        if not rounding:
            return "an integer rounding modifier is missing: .rni, .rzi, .rmi or .rpi"
        if not integral:
            return f".{rounding} cannot stand: a conversion to an integer takes .{rounding}i"
    elif d.is_float:
        if not rounding:
            return "a rounding modifier is missing: .rn, .rz, .rm or .rp"
        if integral:
            return f".{rounding} cannot stand: a conversion to .{d} takes .{rounding[:-1]}"
    elif rounding:
        return f".{rounding} cannot stand: a conversion between integers is exact"
    if "ftz" in m and "f32" not in (d.name, a.name):
        return ".ftz needs .f32"
    if "sat" in m and bf16:
        return ".sat cannot stand with .bf16"
    if "sat" in m and not a.is_float and not d.is_float and _contains(d, a):
        return f".sat cannot stand: every .{a} fits .{d}"
    return None


def _cvt(*slots: Slot, operands: tuple[OperandSpec, ...], ptx: tuple[int, int], sm: int, needs: str = "", **more: Any) -> Row:
    return row(
        "cvt", slots, operands, f"{MOVES}: cvt", ptx, sm,
        need("satfinite", (8, 1), 80) if needs == "satfinite" else (), effects=Effects(flow=Flow.BESIDE), **more,
    )  # fmt: skip


_D = dst("type", wider=True)
_WIDE_A = (src("a", "atype", wider=True),)
ROWS: tuple[Row, ...] = (
    row(
        "cvt",
        (_ANY_RND, FTZ, SAT, type_(*_INTEGERS, *_FLOATS), one("atype", *_INTEGERS, *_FLOATS)),
        (_D, *_WIDE_A), f"{MOVES}: cvt", rule=_conversion,
        effects=Effects(algebra=Algebra.CONVERSION, flow=Flow.BESIDE, pointer=Pointer.SAME),
    ),
    _cvt(_RN_RZ, _RELU, _SATFINITE, type_("f16", "bf16"), one("atype", "f32"),
         operands=(_D, *_A), ptx=(7, 0), sm=80, needs="satfinite"),
    _cvt(_RN_RZ, _RELU, _SATFINITE, type_("f16x2", "bf16x2"), one("atype", "f32"),
         operands=(_D, *_AB), ptx=(7, 0), sm=80, needs="satfinite"),
    _cvt(one("rnd", "rna"), _SATFINITE, type_("tf32"), one("atype", "f32"),
         operands=(_D, *_A), ptx=(7, 0), sm=80, needs="satfinite"),
    _cvt(_RN_RZ, _RELU, type_("tf32"), one("atype", "f32"), operands=(_D, *_A), ptx=(7, 8), sm=90),
    _cvt(_RN_RZ, _RELU, _SATFINITE_REQUIRED, type_("tf32"), one("atype", "f32"),
         operands=(_D, *_A), ptx=(8, 6), sm=100),
    _cvt(one("rnd", "rn"), _SATFINITE_REQUIRED, _RELU, type_(*_FP8), one("atype", "f32"),
         operands=(_D, *_AB), ptx=(7, 8), sm=89),
    _cvt(one("rnd", "rn"), _SATFINITE_REQUIRED, _RELU, type_(*_FP8), one("atype", "f16x2"),
         operands=(_D, *_A), ptx=(7, 8), sm=89),
    _cvt(one("rnd", "rn"), _RELU, type_("f16x2"), one("atype", *_FP8), operands=(dst(), *_A), ptx=(7, 8), sm=89),
    # Conversions with .bf16 do not take wider registers.
    row("cvt", (_ANY_RND, FTZ, type_("f32"), one("atype", "bf16")), (dst(), *_A), f"{MOVES}: cvt",
        (7, 1), 80, need("ftz", (7, 8), 90), rule=_conversion),
    row("cvt", (_ANY_RND, FTZ, SAT, type_("bf16"), one("atype", *_INTEGERS, *_FLOATS, "bf16")), (dst(), *_A),
        f"{MOVES}: cvt", (7, 8), 90, rule=_conversion),
    row("cvt", (_ANY_RND, FTZ, SAT, type_(*_INTEGERS, *_FLOATS), one("atype", "bf16")), (dst(), *_A),
        f"{MOVES}: cvt", (7, 8), 90, rule=_conversion),
    # Blackwell
    _cvt(one("rnd", "rn"), _SATFINITE_REQUIRED, _RELU, type_(*_FP6, *_FP4), one("atype", "f32"),
         operands=(_D, *_AB), ptx=(8, 6), sm=100, specific=True),
    _cvt(one("rnd", "rn"), _RELU, type_("f16x2"), one("atype", *_FP6, *_FP4),
         operands=(dst(), *_A), ptx=(8, 6), sm=100, specific=True),
    _cvt(one("rnd", "rz", "rp"), _SATFINITE, type_("ue8m0x2"), one("atype", "f32"),
         operands=(_D, *_AB), ptx=(8, 6), sm=100, specific=True),
    _cvt(one("rnd", "rz", "rp"), _SATFINITE, type_("ue8m0x2"), one("atype", "bf16x2"),
         operands=(_D, *_A), ptx=(8, 6), sm=100, specific=True),
    _cvt(one("rnd", "rn"), type_("bf16x2"), one("atype", "ue8m0x2"),
         operands=(_D, *_A), ptx=(8, 6), sm=100, specific=True),
    _cvt(one("rnd", "rs"), _RELU, _SATFINITE, type_("f16x2", "bf16x2"), one("atype", "f32"),
         operands=(_D, *_AB, _RANDOM), ptx=(8, 7), sm=100, chip=True, families=(100,)),
    _cvt(one("rnd", "rs"), _RELU, _SATFINITE_REQUIRED, type_(*_X4), one("atype", "f32"),
         operands=(_D, OperandSpec("a", "src", "f32", count=4), _RANDOM),
         ptx=(8, 7), sm=100, chip=True, families=(100,)),
    _cvt(one("rnd", "rn"), _SATFINITE_REQUIRED, _RELU, type_(*_FP8), one("atype", "bf16x2"),
         operands=(_D, *_A), ptx=(9, 1), sm=100, specific=True),
    _cvt(one("rnd", "rn"), _SATFINITE_REQUIRED, _RELU, type_(*_FP6, *_FP4), one("atype", "f16x2", "bf16x2"),
         operands=(_D, *_A), ptx=(9, 1), sm=100, specific=True),
    _cvt(one("rnd", "rn"), _RELU, type_("bf16x2"), one("atype", *_FP8, *_FP6, *_FP4),
         operands=(_D, *_A), ptx=(9, 2), sm=100, specific=True),
    _cvt(one("rnd", "rn"), _SATFINITE_REQUIRED, _RELU, _SCALED, type_("s2f6x2"), one("atype", "f32"),
         operands=(dst("b16"), *_AB, _SCALE), ptx=(9, 1), sm=100, chip=True, unsupported=_S2F6),
    _cvt(one("rnd", "rn"), _SATFINITE_REQUIRED, _RELU, _SCALED, type_("s2f6x2"), one("atype", "bf16x2"),
         operands=(dst("b16"), *_A, _SCALE), ptx=(9, 1), sm=100, chip=True, unsupported=_S2F6),
    _cvt(one("rnd", "rn"), _SATFINITE, _RELU, _SCALED, type_("bf16x2"), one("atype", "s2f6x2"),
         operands=(_D, *_A, _SCALE), ptx=(9, 1), sm=100, chip=True, unsupported=_S2F6),
    row("cvt.pack", (one("sat"), one("type", "u16", "s16"), one("atype", "s32")),
        (dst("b32"), src("a", "atype"), src("b", "atype")), f"{MOVES}: cvt.pack", (6, 5), 72,
        effects=Effects(flow=Flow.BESIDE)),
    row("cvt.pack", (one("sat"), one("type", "u2", "s2", "u4", "s4", "u8", "s8"), one("atype", "s32"),
         one("ctype", "b32")),
        (dst("b32"), src("a", "atype"), src("b", "atype"), src("c", "ctype")), f"{MOVES}: cvt.pack",
        (6, 5), 72, need("u2 s2 u4 s4", (6, 5), 75), effects=Effects(flow=Flow.BESIDE)),
)  # fmt: skip
