"""Floating-Point Instructions, Mixed Precision Floating-Point Instructions (PTX ISA 9.1)."""

from __future__ import annotations

from mmulator.isa.pieces import (
    APPROX,
    D_A,
    D_A_B,
    D_A_B_C,
    FTZ,
    RND,
    RND_REQUIRED,
    SAT,
    dst,
    maybe,
    need,
    one,
    row,
    src,
    type_,
)
from mmulator.isa.row import Need, OperandSpec, Row, Slot


def _float(
    name: str,
    *slots: Slot,
    operands: tuple[OperandSpec, ...] = D_A_B,
    ptx: tuple[int, int] = (1, 0),
    sm: int = 0,
    needs: tuple[Need, ...] = (),
) -> Row:
    return row(name, slots, operands, f"Floating-Point Instructions: {name}", ptx, sm, needs)


_F32, _F64 = type_("f32"), type_("f64")
_NAN = maybe("NaN")
_XORSIGN, _ABS = one("xorsign", "xorsign"), one("abs", "abs")
_EXTREMA_NEEDS = (*need("NaN", (7, 0), 80), *need("xorsign", (7, 2), 86))
_MIXED = (dst("f32"), src("a", "atype"), src("c", "f32"))


def _arithmetic(name: str) -> tuple[Row, ...]:
    """add, sub, mul."""
    mixed = (
        _float(
            name, RND, SAT, _F32, one("atype", "f16", "bf16"),
            operands=_MIXED, ptx=(8, 6), sm=100,
        ),
    )  # fmt: skip
    return (
        _float(name, RND, FTZ, SAT, _F32, needs=need("rm rp", (1, 0), 20)),
        _float(name, RND, _F64),
        _float(name, RND, FTZ, type_("f32x2"), ptx=(8, 6), sm=100),
        *(mixed if name != "mul" else ()),
    )


def _extremum(name: str) -> tuple[Row, ...]:
    """min, max."""
    return (
        _float(
            name, FTZ, _NAN, _F32, operands=(*D_A_B, src("c", optional=True, since=((8, 8), 100))), needs=_EXTREMA_NEEDS
        ),
        _float(name, FTZ, _NAN, _XORSIGN, _ABS, _F32, needs=_EXTREMA_NEEDS),
        _float(name, FTZ, _NAN, _ABS, _F32, operands=D_A_B_C, ptx=(8, 8), sm=100),
        _float(name, _F64),
    )


def _approximate(name: str, **more: object) -> Row:
    return _float(name, APPROX, FTZ, _F32, operands=D_A, **more)  # type: ignore[arg-type]


ROWS: tuple[Row, ...] = (
    *_arithmetic("add"),
    *_arithmetic("sub"),
    *_arithmetic("mul"),
    _float("fma", RND_REQUIRED, FTZ, SAT, _F32, operands=D_A_B_C, ptx=(2, 0), sm=20),
    _float("fma", RND_REQUIRED, _F64, operands=D_A_B_C, ptx=(1, 4), sm=13),
    _float("fma", RND_REQUIRED, FTZ, type_("f32x2"), operands=D_A_B_C, ptx=(8, 6), sm=100),
    _float(
        "fma", RND_REQUIRED, SAT, _F32, one("atype", "f16", "bf16"),
        operands=(dst("f32"), src("a", "atype"), src("b", "atype"), src("c", "f32")),
        ptx=(8, 6), sm=100,
    ),
    _float("mad", RND_REQUIRED, FTZ, SAT, _F32, operands=D_A_B_C),
    _float("mad", RND_REQUIRED, _F64, operands=D_A_B_C),
    _float("div", APPROX, FTZ, _F32),
    row("div", (one("full", "full"), FTZ, _F32), D_A_B, "Floating-Point Instructions: div", leading="full"),
    _float("div", RND_REQUIRED, FTZ, _F32, ptx=(1, 4), sm=20),
    _float("div", RND_REQUIRED, _F64, ptx=(1, 4), sm=13),
    *(
        each
        for name in ("abs", "neg")
        for each in (
            _float(name, FTZ, _F32, operands=D_A),
            _float(name, _F64, operands=D_A),
        )
    ),
    *_extremum("min"),
    *_extremum("max"),
    *(
        each
        for name in ("rcp", "sqrt")
        for each in (
            _approximate(name),
            _float(name, RND_REQUIRED, FTZ, _F32, operands=D_A, sm=20),
            _float(name, RND_REQUIRED, _F64, operands=D_A, sm=13),
        )
    ),
    _float("rcp", APPROX, one("ftz", "ftz"), _F64, operands=D_A, ptx=(2, 1), sm=20),
    _approximate("rsqrt"),
    _float("rsqrt", APPROX, FTZ, _F64, operands=D_A),
    _approximate("sin"),
    _approximate("cos"),
    _approximate("lg2"),
    _approximate("ex2"),
    _float("tanh", APPROX, _F32, operands=D_A, ptx=(7, 0), sm=75),
    _float(
        "testp", one("op", "finite", "infinite", "number", "notanumber", "normal", "subnormal"), type_("f32", "f64"),
        operands=(dst("pred", "p"), src("a")), ptx=(2, 0), sm=20,
    ),
    _float("copysign", type_("f32", "f64"), ptx=(2, 0), sm=20),
)  # fmt: skip
