"""Integer Arithmetic Instructions, Extended-Precision Integer Arithmetic Instructions (PTX ISA 9.1)."""

from typing import Any

from mmulator.isa.effects import LANEWISE, PARTS, Algebra, Effects, Pointer, Ptxas
from mmulator.isa.pieces import (
    BITS32_64,
    D_A,
    D_A_B,
    D_A_B_C,
    INT16_64,
    INT32,
    INT32_64,
    S16_64,
    SAT,
    SIGNS,
    chapter,
    dst,
    maybe,
    need,
    one,
    src,
    type_,
)
from mmulator.isa.row import Row, Slot

_HALVES = one("mode", "hi", "lo")
_NARROW = ("u16", "u32", "s16", "s32")
_X2 = ("u16x2", "s16x2")
_X4 = ("u8x4", "s8x4")
_PACKED: dict[str, Any] = {"ptx": (9, 2), "sm": 107, "specific": True, "families": (107, 120)}
_WIDE = (dst("wide:type"), src("a"), src("b"))
_WIDE_C = (dst("wide:type"), src("a"), src("b"), src("c", "wide:type"))


_arithmetic = chapter("Integer Arithmetic Instructions")
_extended_precision = chapter(
    "Extended-Precision Integer Arithmetic Instructions", ptx=(1, 2), needs=need("u64 s64", (4, 3), 20), free=True,
)  # fmt: skip


def _integer(name: str, *slots: Slot, **more: Any) -> Row:
    return _arithmetic(name, *slots, leading=_leading(slots), **more)


def _leading(slots: tuple[Slot, ...]) -> str:
    """Name of the slot directly after the opcode: .hi, .lo and .wide must be there; .clamp and .wrap may be anywhere."""
    return "mode" if slots[0].name == "mode" and "clamp" not in slots[0].choices else ""


def _extended(name: str, *slots: Slot, **more: Any) -> Row:
    return _extended_precision(name, *slots, leading=_leading(slots), **more)


# Of 32 bits, ptxas has something for its divisions that is no loop.
_DIVIDES = Effects(ptxas=Ptxas.EXPANDED).where("u32", ptxas=Ptxas.SELECTED).where("s32", ptxas=Ptxas.BRANCHES)
_SUM = Effects(pointer=Pointer.SUM)
_DIFFERENCE = Effects(pointer=Pointer.DIFFERENCE, cancels=True)
_ADDEND = Effects(pointer=Pointer.ADDEND)
_EXTREME = Effects(algebra=Algebra.EXTREME)
_MULTIPLE = Effects(algebra=Algebra.MULTIPLE)
_CARRIES = Effects(carry="w", ptxas=Ptxas.GUARDED)
_TAKES_CARRY = Effects(carry="r").where("cc", carry="rw", ptxas=Ptxas.GUARDED)
_POSITION, _LENGTH = src("b", "u32", lo=0, hi=255), src("c", "u32", lo=0, hi=255)
_FIELD_POSITION, _FIELD_LENGTH = src("c", "u32", lo=0, hi=255), src("d", "u32", lo=0, hi=255)
_DOT = (dst("s32"), src("a", "atype"), src("b", "btype"), src("c", "s32"))
_ATYPE, _BTYPE = one("atype", *INT32), one("btype", *INT32)

ROWS: tuple[Row, ...] = (
    _integer("add", type_(*INT16_64), operands=D_A_B, effects=_SUM),
    _integer("add", SAT, type_("s32"), operands=D_A_B, effects=_SUM),
    _integer("add", type_(*_X2), operands=D_A_B, effects=_SUM, ptx=(8, 0), sm=90),
    _integer("add", maybe("sat"), type_(*_X4), operands=D_A_B, effects=_SUM, **_PACKED),
    _integer("add", one("sat"), type_(*_X2, "u32"), operands=D_A_B, effects=_SUM, **_PACKED),
    _integer("sub", type_(*INT16_64), operands=D_A_B, effects=_DIFFERENCE),
    _integer("sub", SAT, type_("s32"), operands=D_A_B, effects=_DIFFERENCE),
    _integer("sub", maybe("sat"), type_(*_X4), operands=D_A_B, effects=_DIFFERENCE, **_PACKED),
    _integer("mul", _HALVES, type_(*INT16_64), operands=D_A_B, effects=_MULTIPLE),
    _integer("mul", one("mode", "wide"), type_(*_NARROW), operands=_WIDE, effects=_MULTIPLE),
    _integer("mad", _HALVES, type_(*INT16_64), operands=D_A_B_C, effects=_ADDEND),
    _integer("mad", one("mode", "hi"), SAT, type_("s32"), operands=D_A_B_C, effects=_ADDEND),
    _integer("mad", one("mode", "wide"), type_(*_NARROW), operands=_WIDE_C, effects=_ADDEND),
    _integer("mul24", _HALVES, type_(*INT32), operands=D_A_B),
    _integer("mad24", _HALVES, type_(*INT32), operands=D_A_B_C),
    _integer("mad24", one("mode", "hi"), SAT, type_("s32"), operands=D_A_B_C),
    _integer("sad", type_(*INT16_64), operands=D_A_B_C),
    _integer("div", type_(*INT16_64), operands=D_A_B, effects=_DIVIDES),
    _integer("rem", type_(*INT16_64), operands=D_A_B, effects=_DIVIDES),
    *(_integer(name, type_(*S16_64), operands=D_A, effects=effects) for name, effects in SIGNS),
    _integer("neg", type_("s8x4"), operands=D_A, **_PACKED),
    *(
        each
        for name in ("min", "max")
        for each in (
            _integer(name, type_(*INT16_64), operands=D_A_B, effects=_EXTREME),
            _integer(name, type_(*_X2), operands=D_A_B, ptx=(8, 0), sm=90, effects=_EXTREME),
            _integer(name, one("relu"), type_("s16x2", "s32"), operands=D_A_B, ptx=(8, 0), sm=90, effects=_EXTREME),
            _integer(name, type_(*_X4), operands=D_A_B, **_PACKED),
            _integer(name, one("relu"), type_("s8x4"), operands=D_A_B, **_PACKED),
        )
    ),
    _integer("popc", type_(*BITS32_64), operands=(dst("u32"), src("a")), ptx=(2, 0), sm=20),
    _integer("clz", type_(*BITS32_64), operands=(dst("u32"), src("a")), ptx=(2, 0), sm=20),
    _integer("bfind", maybe("shiftamt"), type_(*INT32_64), operands=(dst("u32"), src("a")), ptx=(2, 0), sm=20,
             effects=LANEWISE.where("u64 s64", ptxas=Ptxas.BRANCHES)),
    _integer("fns", type_("b32"), ptx=(6, 0), sm=30,
             operands=(dst(), src("mask", "b32"), src("base", "b32", defined=range(32)), src("offset", "s32"))),
    _integer("brev", type_(*BITS32_64), operands=D_A, ptx=(2, 0), sm=20),
    _integer("bfe", type_(*INT32_64), operands=(dst(), src("a"), _POSITION, _LENGTH), ptx=(2, 0), sm=20),
    _integer("bfi", type_(*BITS32_64), operands=(dst(name="f"), src("a"), src("b"), _FIELD_POSITION, _FIELD_LENGTH),
             ptx=(2, 0), sm=20, effects=PARTS),
    _integer("szext", one("mode", "clamp", "wrap"), type_(*INT32), operands=(dst(), src("a"), src("b", "u32")),
             ptx=(7, 6), sm=70),
    _integer("bmsk", one("mode", "clamp", "wrap"), type_("b32"), operands=(dst("u32"), src("a", "u32"), src("b", "u32")),
             ptx=(7, 6), sm=70),
    _integer("clmad", _HALVES, type_("u64"), operands=D_A_B_C, ptx=(9, 3), sm=80),
    _integer("dp4a", _ATYPE, _BTYPE, operands=_DOT, ptx=(5, 0), sm=61),
    _integer("dp2a", one("mode", "lo", "hi"), _ATYPE, _BTYPE, operands=_DOT, ptx=(5, 0), sm=61),
    _extended("add.cc", type_(*INT32_64), operands=D_A_B, effects=_CARRIES.but(pointer=Pointer.SUM)),
    _extended("addc", maybe("cc"), type_(*INT32_64), operands=D_A_B, effects=_TAKES_CARRY),
    _extended("sub.cc", type_(*INT32_64), operands=D_A_B, effects=_CARRIES.but(pointer=Pointer.DIFFERENCE, cancels=True)),
    _extended("subc", maybe("cc"), type_(*INT32_64), operands=D_A_B, effects=_TAKES_CARRY),
    _extended("mad.cc", _HALVES, type_(*INT32_64), operands=D_A_B_C, effects=_CARRIES.but(pointer=Pointer.ADDEND)),
    _extended("madc", _HALVES, maybe("cc"), type_(*INT32_64), operands=D_A_B_C, effects=_TAKES_CARRY),
)  # fmt: skip
