"""Comparison and Selection Instructions, Half Precision Comparison Instructions (PTX ISA 9.1)."""

from collections.abc import Callable, Mapping

from mmulator.isa.effects import LANEWISE, Algebra, Effects, Flow, Pointer
from mmulator.isa.pieces import BITS16_64, FTZ, INT16_64, dst, need, one, pred, row, src, type_
from mmulator.isa.row import Need, OperandSpec, Row, Slot

_ORDERED = ("eq", "ne", "lt", "le", "gt", "ge")
_UNSIGNED = ("lo", "ls", "hi", "hs")
_UNORDERED = ("equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan")
_COMPARISONS: Mapping[str, tuple[str, ...]] = {
    "b": ("eq", "ne"), "u": (*_ORDERED, *_UNSIGNED), "s": _ORDERED, "f": (*_ORDERED, *_UNORDERED),
}  # fmt: skip
_CMP = one("cmp", *_ORDERED, *_UNSIGNED, *_UNORDERED)
_BOOL = one("boolop", "and", "or", "xor")
_SOURCES = (*BITS16_64, *INT16_64, "f32", "f64")
_P_A_B = (OperandSpec("p", "dstpred", "pred", "w", sink=True), src("a"), src("b"))


def _comparison(slot: str) -> Callable[[Mapping[str, str]], str | None]:
    def check(m: Mapping[str, str]) -> str | None:
        type = m[slot]
        letter = "f" if type.startswith(("f", "bf")) else type[0]
        if m["cmp"] not in _COMPARISONS[letter]:
            return f".{m['cmp']} does not compare .{type}"
        if "ftz" in m and (type not in ("f32", "f16", "f16x2") or m.get("dtype") == "bf16"):
            return f".ftz cannot stand with .{m['dtype'] + '.' if 'dtype' in m else ''}{type}"
        if (m.get("dtype"), type) == ("f16", "bf16"):
            return ".f16 cannot be set from a comparison of .bf16"
        return None

    return check


def _compare(name: str, slots: tuple[Slot, ...], operands: tuple[OperandSpec, ...], half: bool = False) -> Row:
    chapter = "Half Precision Comparison" if half else "Comparison and Selection"
    needs: tuple[Need, ...] = need("bf16 bf16x2", (7, 8), 90) if half else ()
    return row(
        name, slots, operands, f"{chapter} Instructions: {name}",
        (4, 2) if half else (1, 0), 53 if half else 0, needs,
        rule=_comparison("stype" if name == "set" else "type"),
        effects=Effects(algebra=Algebra.COMPARISON) if name == "setp" else LANEWISE,
    )  # fmt: skip


def _set(dtypes: tuple[str, ...], stypes: tuple[str, ...], half: bool = False) -> tuple[Row, ...]:
    operands = (dst("dtype"), src("a", "stype"), src("b", "stype"))
    types = one("dtype", *dtypes), one("stype", *stypes)
    return (
        _compare("set", (_CMP, FTZ, *types), operands, half),
        _compare("set", (_CMP, _BOOL, FTZ, *types), (*operands, pred("c")), half),
    )


def _setp(types: tuple[str, ...], operands: tuple[OperandSpec, ...], half: bool = False) -> tuple[Row, ...]:
    return (
        _compare("setp", (_CMP, FTZ, type_(*types)), operands, half),
        _compare("setp", (_CMP, _BOOL, FTZ, type_(*types)), (*operands, pred("c")), half),
    )




_SELECT = (dst(), src("a"), src("b"))

ROWS: tuple[Row, ...] = (
    *_set(("u32", "s32", "f32"), _SOURCES),
    *_set(("f16", "bf16"), (*_SOURCES, "f16", "bf16"), half=True),
    *_set(("u16", "s16", "u32", "s32"), ("f16", "bf16"), half=True),
    *_set(("f16x2", "u32", "s32"), ("f16x2",), half=True),
    *_set(("bf16x2", "u32", "s32"), ("bf16x2",), half=True),
    *_setp(_SOURCES, _P_A_B),
    *_setp(("f16", "bf16"), (dst("pred", "p"), src("a"), src("b")), half=True),
    *_setp(("f16x2", "bf16x2"), _P_A_B, half=True),
    row(
        "selp", (type_(*_SOURCES),), (*_SELECT, pred("c")), "Comparison and Selection Instructions: selp",
        effects=Effects(algebra=Algebra.SELECTION, flow=Flow.CHOICE, pointer=Pointer.CHOICE),
    ),
    row(
        "slct", (FTZ, type_(*_SOURCES), one("ctype", "s32", "f32")), (*_SELECT, src("c", "ctype")),
        "Comparison and Selection Instructions: slct",
        effects=Effects(flow=Flow.CHOICE),
        rule=lambda m: ".ftz needs .f32 as the last type" if "ftz" in m and m["ctype"] != "f32" else None,
    ),
)  # fmt: skip
