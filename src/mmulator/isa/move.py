"""Data Movement and Conversion Instructions between registers (PTX ISA 9.1): mov, cvt, prmt, shfl, cvta and others."""

from __future__ import annotations

from collections.abc import Mapping

from mmulator.isa.pieces import (
    FTZ,
    SAT,
    dst,
    imm,
    maybe,
    need,
    one,
    reg,
    src,
    type_,
)
from mmulator.isa.scalar import Group, OperandRule, Row
from mmulator.isa.types import TYPES, ElementType

_CHAPTER = "Data Movement and Conversion Instructions"
_S2F6 = "fixed-point .s2f6 is not modelled"
_SIZE = type_("u32", "u64")
_INTEGERS = ("u8", "u16", "u32", "u64", "s8", "s16", "s32", "s64")
_FLOATS = ("f16", "f32", "f64")
_ANY_RND = maybe("rnd", "rn", "rz", "rm", "rp", "rni", "rzi", "rmi", "rpi")
_MOV_TYPES = (
    "pred", "b16", "b32", "b64", "b128", "u16", "u32", "u64", "s16", "s32", "s64", "f32", "f64",
)  # fmt: skip
_FP8, _FP6, _FP4 = ("e4m3x2", "e5m2x2"), ("e2m3x2", "e3m2x2"), ("e2m1x2",)
_X4 = ("e4m3x4", "e5m2x4", "e2m3x4", "e3m2x4", "e2m1x4")
_RN_RZ = one("rnd", "rn", "rz")
_RELU, _SATFINITE, _SATFINITE_REQUIRED = maybe("relu"), maybe("satfinite"), one("satfinite", "satfinite")
_A, _AB = (src("a", "atype"),), (src("a", "atype"), src("b", "atype"))
_SCALED = maybe("scaled", "scaled::n2::ue8m0")
_SCALE = src("scale-factor", "b16", when="scaled")
_INTEGRAL = ("rni", "rzi", "rmi", "rpi")


def _contains(d: ElementType, a: ElementType) -> bool:
    """Is every value of integer type a one of integer type d?"""
    return (d.has_sign or not a.has_sign) and d.bits - d.has_sign >= a.bits - a.has_sign


def _conversion(m: Mapping[str, str]) -> str | None:
    """Which rounding a conversion needs, and which modifiers it can take."""
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


def _cvt(
    *groups: Group, operands: tuple[OperandRule, ...], ptx: tuple[int, int], sm: int, needs: str = "", **more: object
) -> Row:
    return Row(
        "cvt", groups, operands, f"{_CHAPTER}: cvt", ptx, sm,
        need("satfinite", (8, 1), 80) if needs == "satfinite" else (), **more,  # type: ignore[arg-type]
    )  # fmt: skip


_D = dst("type", wider=True)
_WIDE_A = (src("a", "atype", wider=True),)
_CVT: tuple[Row, ...] = (
    Row(
        "cvt",
        (_ANY_RND, FTZ, SAT, type_(*_INTEGERS, *_FLOATS), one("atype", *_INTEGERS, *_FLOATS)),
        (_D, *_WIDE_A), f"{_CHAPTER}: cvt", rule=_conversion,
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
    _cvt(one("rnd", "rn"), _RELU, type_("f16x2"), one("atype", *_FP8), operands=(_D, *_A), ptx=(7, 8), sm=89),
    # Conversions with .bf16 do not take wider registers.
    Row("cvt", (_ANY_RND, FTZ, type_("f32"), one("atype", "bf16")), (dst(), *_A), f"{_CHAPTER}: cvt",
        (7, 1), 80, need("ftz", (7, 8), 90), rule=_conversion),
    Row("cvt", (_ANY_RND, FTZ, SAT, type_("bf16"), one("atype", *_INTEGERS, *_FLOATS, "bf16")), (dst(), *_A),
        f"{_CHAPTER}: cvt", (7, 8), 90, rule=_conversion),
    Row("cvt", (_ANY_RND, FTZ, SAT, type_(*_INTEGERS, *_FLOATS), one("atype", "bf16")), (dst(), *_A),
        f"{_CHAPTER}: cvt", (7, 8), 90, rule=_conversion),
    # Blackwell
    _cvt(one("rnd", "rn"), _SATFINITE_REQUIRED, _RELU, type_(*_FP6, *_FP4), one("atype", "f32"),
         operands=(_D, *_AB), ptx=(8, 6), sm=100, specific=True),
    _cvt(one("rnd", "rn"), _RELU, type_("f16x2"), one("atype", *_FP6, *_FP4),
         operands=(_D, *_A), ptx=(8, 6), sm=100, specific=True),
    _cvt(one("rnd", "rz", "rp"), _SATFINITE, type_("ue8m0x2"), one("atype", "f32"),
         operands=(_D, *_AB), ptx=(8, 6), sm=100, specific=True),
    _cvt(one("rnd", "rz", "rp"), _SATFINITE, type_("ue8m0x2"), one("atype", "bf16x2"),
         operands=(_D, *_A), ptx=(8, 6), sm=100, specific=True),
    _cvt(one("rnd", "rn"), type_("bf16x2"), one("atype", "ue8m0x2"),
         operands=(_D, *_A), ptx=(8, 6), sm=100, specific=True),
    _cvt(one("rnd", "rs"), _RELU, _SATFINITE, type_("f16x2", "bf16x2"), one("atype", "f32"),
         operands=(_D, *_AB, src("rbits", "b32")), ptx=(8, 7), sm=100, chip=True, families=(100,)),
    _cvt(one("rnd", "rs"), _RELU, _SATFINITE_REQUIRED, type_(*_X4), one("atype", "f32"),
         operands=(_D, OperandRule("a", "src", "f32", count=4), src("rbits", "b32")),
         ptx=(8, 7), sm=100, chip=True, families=(100,)),
    _cvt(one("rnd", "rn"), _SATFINITE_REQUIRED, _RELU, type_(*_FP8), one("atype", "bf16x2"),
         operands=(_D, *_A), ptx=(9, 1), sm=100, specific=True),
    _cvt(one("rnd", "rn"), _SATFINITE_REQUIRED, _RELU, type_(*_FP6, *_FP4), one("atype", "f16x2", "bf16x2"),
         operands=(_D, *_A), ptx=(9, 1), sm=100, specific=True),
    _cvt(one("rnd", "rn"), _RELU, type_("bf16x2"), one("atype", *_FP8, *_FP6, *_FP4),
         operands=(_D, *_A), ptx=(9, 2), sm=100, specific=True),
    _cvt(one("rnd", "rn"), _SATFINITE_REQUIRED, _RELU, _SCALED, type_("s2f6x2"), one("atype", "f32"),
         operands=(_D, *_AB, _SCALE), ptx=(9, 1), sm=100, chip=True, unsupported=_S2F6),
    _cvt(one("rnd", "rn"), _SATFINITE_REQUIRED, _RELU, _SCALED, type_("s2f6x2"), one("atype", "bf16x2"),
         operands=(_D, *_A, _SCALE), ptx=(9, 1), sm=100, chip=True, unsupported=_S2F6),
    _cvt(one("rnd", "rn"), _SATFINITE, _RELU, _SCALED, type_("bf16x2"), one("atype", "s2f6x2"),
         operands=(_D, *_A, _SCALE), ptx=(9, 1), sm=100, chip=True, unsupported=_S2F6),
)  # fmt: skip


def _move(name: str, *groups: Group, operands: tuple[OperandRule, ...], **more: object) -> Row:
    return Row(name, groups, operands, f"{_CHAPTER}: {name}", **more)  # type: ignore[arg-type]


_SPACES = ("const", "global", "local", "shared", "shared::cta", "shared::cluster", "param", "param::entry")
_MASK = src("membermask", "b32")
_ALIGNMENTS = tuple(1 << n for n in range(24))
_SPACE_NEEDS = (
    *need("param", (7, 7), 70),
    *need("shared::cta", (7, 8), 30),
    *need("shared::cluster", (7, 8), 90),
    *need("param::entry", (8, 3), 70),
)

ROWS: tuple[Row, ...] = (
    Row(
        "mov", (type_(*_MOV_TYPES),), (dst(), OperandRule("a", "move", "type")), f"{_CHAPTER}: mov",
        needs=need("b128", (8, 3), 70),
    ),
    _move("mov", one("vec", "v2", "v4"), type_("u32", "b32", "u16"),
          operands=(dst(count="vec"), OperandRule("a", "move", "type", count="vec"))),
    *_CVT,
    _move("cvt.pack", one("sat", "sat"), one("type", "u16", "s16"), one("atype", "s32"),
          operands=(dst("b32"), src("a", "atype"), src("b", "atype")), ptx=(6, 5), sm=72),
    _move("cvt.pack", one("sat", "sat"), one("type", "u2", "s2", "u4", "s4", "u8", "s8"), one("atype", "s32"),
          one("ctype", "b32"), operands=(dst("b32"), src("a", "atype"), src("b", "atype"), src("c", "ctype")),
          ptx=(6, 5), sm=72, needs=need("u2 s2 u4 s4", (6, 5), 75)),
    _move("prmt", type_("b32"), maybe("mode", "f4e", "b4e", "rc8", "ecl", "ecr", "rc16"),
          operands=(dst(), src("a"), src("b"), src("c")), ptx=(2, 0), sm=20),
    _move("shfl.sync", one("mode", "up", "down", "bfly", "idx"), type_("b32"),
          operands=(OperandRule("d", "dstpair", "type", "w"), src("a"), src("b"), src("c"), _MASK),
          ptx=(6, 0), sm=30, free=True),
    _move("cvta", one("space", *_SPACES), _SIZE, operands=(dst(name="p"), OperandRule("a", "symbol", "type")),
          ptx=(2, 0), sm=20, needs=_SPACE_NEEDS),
    _move("cvta.to", one("space", *_SPACES), _SIZE, operands=(dst(name="p"), reg("a")), ptx=(2, 0), sm=20,
          needs=_SPACE_NEEDS),
    _move("isspacep", one("space", *_SPACES),
          operands=(dst("pred", "p"), reg("a", "u32", wider=True)), ptx=(2, 0), sm=20, needs=_SPACE_NEEDS),
    _move("mapa", maybe("space", "shared::cluster"), _SIZE,
          operands=(dst(), OperandRule("a", "symbol", "type"), src("b", "u32")), ptx=(7, 8), sm=90),
    _move("getctarank", maybe("space", "shared::cluster"), _SIZE,
          operands=(dst("u32"), OperandRule("a", "symbol", "type")), ptx=(7, 8), sm=90),
    _move("istypep", open=True, operands=(), unsupported="textures and surfaces are not modelled"),
    Row("alloca", (_SIZE,), (dst(name="ptr"), src("size"), imm("immAlign", values=_ALIGNMENTS, optional=True)),
        "Stack Manipulation Instructions: alloca", (7, 3), 52),
    Row("stacksave", (_SIZE,), (dst(),), "Stack Manipulation Instructions: stacksave", (7, 3), 52),
    Row("stackrestore", (_SIZE,), (reg("a"),), "Stack Manipulation Instructions: stackrestore", (7, 3), 52),
)  # fmt: skip
