"""Half Precision Floating-Point Instructions (PTX ISA 9.1)."""

from __future__ import annotations

from mmulator.isa.pieces import (
    APPROX,
    BF16,
    BF16_NEEDS,
    D_A,
    D_A_B,
    D_A_B_C,
    F16,
    FTZ,
    RN,
    RN_REQUIRED,
    SAT,
    maybe,
    need,
    one,
    row,
    type_,
)
from mmulator.isa.row import Need, OperandSpec, Row, Slot


def _half(
    name: str,
    *slots: Slot,
    operands: tuple[OperandSpec, ...] = D_A_B,
    ptx: tuple[int, int] = (4, 2),
    sm: int = 53,
    needs: tuple[Need, ...] = BF16_NEEDS,
) -> Row:
    return row(name, slots, operands, f"Half Precision Floating-Point Instructions: {name}", ptx, sm, needs)


_F16, _BF16 = type_(*F16), type_(*BF16)
_NAN = maybe("NaN")
_RELU = maybe("relu")
_XORSIGN, _ABS = one("xorsign", "xorsign"), one("abs", "abs")
_EXTREMA_NEEDS = (*need("NaN", (7, 0), 80), *need("xorsign", (7, 2), 86))


def _extremum(name: str) -> tuple[Row, ...]:
    """min, max."""
    return tuple(
        _half(name, *ftz, _NAN, *xorsign, type, ptx=(7, 0), sm=80, needs=_EXTREMA_NEEDS)
        for ftz, type in (((FTZ,), _F16), ((), _BF16))
        for xorsign in ((), (_XORSIGN, _ABS))
    )


ROWS: tuple[Row, ...] = (
    *(each for name in ("add", "sub", "mul") for each in (_half(name, RN, FTZ, SAT, _F16), _half(name, RN, _BF16))),
    _half("fma", RN_REQUIRED, FTZ, SAT, _F16, operands=D_A_B_C),
    _half("fma", RN_REQUIRED, FTZ, one("relu", "relu"), _F16, operands=D_A_B_C, ptx=(7, 0), sm=80),
    _half("fma", RN_REQUIRED, _RELU, _BF16, operands=D_A_B_C, ptx=(7, 0), sm=80, needs=()),
    _half("fma", RN_REQUIRED, one("oob", "oob"), _RELU, type_(*F16, *BF16), operands=D_A_B_C, ptx=(8, 1), sm=90),
    *(
        each
        for name, ptx in (("abs", (6, 5)), ("neg", (6, 0)))
        for each in (
            _half(name, FTZ, _F16, operands=D_A, ptx=ptx),
            _half(name, _BF16, operands=D_A, ptx=(7, 0), sm=80, needs=()),
        )
    ),
    *_extremum("min"),
    *_extremum("max"),
    _half("ex2", APPROX, _F16, operands=D_A, ptx=(7, 0), sm=75),
    _half("ex2", APPROX, one("ftz", "ftz"), _BF16, operands=D_A, ptx=(7, 8), sm=90),
    _half("tanh", APPROX, type_(*F16, *BF16), operands=D_A, ptx=(7, 0), sm=75),
)
