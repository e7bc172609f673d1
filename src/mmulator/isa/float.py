"""Floating-Point Instructions, Mixed Precision Floating-Point Instructions (PTX ISA 9.1)."""

from mmulator.isa.effects import Algebra, Effects, Ptxas
from mmulator.isa.pieces import (
    APPROX,
    ARITHMETIC,
    D_A,
    D_A_B,
    D_A_B_C,
    FTZ,
    FUSED,
    RND,
    RND_REQUIRED,
    SAT,
    SIGNS,
    chapter,
    dst,
    maybe,
    need,
    one,
    row,
    src,
    type_,
)
from mmulator.isa.row import Requirement, Row

_float = chapter("Floating-Point Instructions", operands=D_A_B)
_F32, _F64 = type_("f32"), type_("f64")
_NAN = maybe("NaN")
_XORSIGN, _ABS = one("xorsign"), one("abs")
_EXTREMA_NEEDS = (*need("NaN", (7, 0), 80), *need("xorsign", (7, 2), 86))
_THIRD = src("c", optional=True, since=Requirement((8, 8), 100))
_MIXED = (dst("f32"), src("a", "atype"), src("c", "f32"))


def _arithmetic(name: str, effects: Effects) -> tuple[Row, ...]:
    """Rows of add, sub and mul. Instructions of mixed types are never fused."""
    mixed = (
        _float(name, RND, SAT, _F32, one("atype", "f16", "bf16"), operands=_MIXED, ptx=(8, 6), sm=100),
    )
    return (
        _float(name, RND, FTZ, SAT, _F32, needs=need("rm rp", (1, 0), 20), effects=effects),
        _float(name, RND, _F64, effects=effects),
        _float(name, RND, FTZ, type_("f32x2"), ptx=(8, 6), sm=100, effects=effects),
        *(mixed if name != "mul" else ()),
    )


_EXTREME = Effects(algebra=Algebra.EXTREME)


def _extremum(name: str) -> tuple[Row, ...]:
    """Rows of min and max."""
    return (
        _float(name, FTZ, _NAN, _F32, operands=(*D_A_B, _THIRD), needs=_EXTREMA_NEEDS, effects=_EXTREME),
        _float(name, FTZ, _NAN, _XORSIGN, _ABS, _F32, needs=_EXTREMA_NEEDS, effects=_EXTREME),
        _float(name, FTZ, _NAN, _ABS, _F32, operands=D_A_B_C, ptx=(8, 8), sm=100, effects=_EXTREME),
        _float(name, _F64, effects=_EXTREME),
    )


def _unit(algebra: Algebra) -> Effects:
    """Effects of the special-function unit's instructions."""
    return Effects(algebra=algebra, approximate=True)


def _rounded(algebra: Algebra) -> Effects:
    return Effects(algebra=algebra, ptxas=Ptxas.EXPANDED)


def _approximate(name: str, algebra: Algebra) -> Row:
    return _float(name, APPROX, FTZ, _F32, operands=D_A, effects=_unit(algebra))


ROWS: tuple[Row, ...] = (
    *(each for name, effects in ARITHMETIC for each in _arithmetic(name, effects)),
    _float("fma", RND_REQUIRED, FTZ, SAT, _F32, operands=D_A_B_C, effects=FUSED, ptx=(2, 0), sm=20),
    _float("fma", RND_REQUIRED, _F64, operands=D_A_B_C, effects=FUSED, ptx=(1, 4), sm=13),
    _float("fma", RND_REQUIRED, FTZ, type_("f32x2"), operands=D_A_B_C, effects=FUSED, ptx=(8, 6), sm=100),
    _float(
        "fma", RND_REQUIRED, SAT, _F32, one("atype", "f16", "bf16"),
        operands=(dst("f32"), src("a", "atype"), src("b", "atype"), src("c", "f32")), effects=FUSED,
        ptx=(8, 6), sm=100,
    ),
    _float("mad", RND_REQUIRED, FTZ, SAT, _F32, operands=D_A_B_C),
    _float("mad", RND_REQUIRED, _F64, operands=D_A_B_C),
    _float("div", APPROX, FTZ, _F32, effects=_unit(Algebra.QUOTIENT)),
    row("div", (one("full"), FTZ, _F32), D_A_B, "Floating-Point Instructions: div", leading="full",
        effects=_unit(Algebra.QUOTIENT)),
    _float("div", RND_REQUIRED, FTZ, _F32, ptx=(1, 4), sm=20, effects=_rounded(Algebra.QUOTIENT)),
    _float("div", RND_REQUIRED, _F64, ptx=(1, 4), sm=13, effects=_rounded(Algebra.QUOTIENT)),
    *(
        each
        for name, effects in SIGNS
        for each in (
            _float(name, FTZ, _F32, operands=D_A, effects=effects),
            _float(name, _F64, operands=D_A, effects=effects),
        )
    ),
    *_extremum("min"),
    *_extremum("max"),
    *(
        each
        for name, algebra in (("rcp", Algebra.RECIPROCAL), ("sqrt", Algebra.ROOT))
        for each in (
            _approximate(name, algebra),
            _float(name, RND_REQUIRED, FTZ, _F32, operands=D_A, sm=20, effects=_rounded(algebra)),
            _float(name, RND_REQUIRED, _F64, operands=D_A, sm=13, effects=_rounded(algebra)),
        )
    ),
    _float("rcp", APPROX, one("ftz"), _F64, operands=D_A, ptx=(2, 1), sm=20, effects=_unit(Algebra.RECIPROCAL)),
    _approximate("rsqrt", Algebra.INVERSE_ROOT),
    _float("rsqrt", APPROX, FTZ, _F64, operands=D_A,
           effects=_unit(Algebra.INVERSE_ROOT).but(ptxas=Ptxas.EXPANDED).where("ftz", ptxas=Ptxas.SELECTED)),
    _approximate("sin", Algebra.SINE),
    _approximate("cos", Algebra.COSINE),
    _approximate("lg2", Algebra.LOGARITHM),
    _approximate("ex2", Algebra.EXPONENTIAL),
    _float("tanh", APPROX, _F32, operands=D_A, ptx=(7, 0), sm=75, effects=_unit(Algebra.TANGENT)),
    _float(
        "testp", one("op", "finite", "infinite", "number", "notanumber", "normal", "subnormal"), type_("f32", "f64"),
        operands=(dst("pred", "p"), src("a")), ptx=(2, 0), sm=20,
    ),
    _float("copysign", type_("f32", "f64"), ptx=(2, 0), sm=20),
)  # fmt: skip
