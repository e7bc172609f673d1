"""Half Precision Floating-Point Instructions (PTX ISA 9.1)."""

from mmulator.isa.effects import Algebra, Effects
from mmulator.isa.pieces import (
    APPROX,
    ARITHMETIC,
    BF16,
    BF16_NEEDS,
    D_A,
    D_A_B,
    D_A_B_C,
    F16,
    FTZ,
    FUSED,
    RN,
    RN_REQUIRED,
    SAT,
    SIGNS,
    chapter,
    maybe,
    need,
    one,
    type_,
)
from mmulator.isa.row import Row

_half = chapter(
    "Half Precision Floating-Point Instructions", operands=D_A_B, ptx=(4, 2), sm=53, needs=BF16_NEEDS,
)  # fmt: skip
_F16, _BF16 = type_(*F16), type_(*BF16)
_NAN = maybe("NaN")
_RELU = maybe("relu")
_XORSIGN, _ABS = one("xorsign"), one("abs")
_UNIT = Effects(approximate=True)
_EXTREMA_NEEDS = (*need("NaN", (7, 0), 80), *need("xorsign", (7, 2), 86))


def _extremum(name: str) -> tuple[Row, ...]:
    """Rows of min and max."""
    return tuple(
        _half(name, *ftz, _NAN, *xorsign, type, ptx=(7, 0), sm=80, needs=_EXTREMA_NEEDS, effects=Effects(algebra=Algebra.EXTREME))
        for ftz, type in (((FTZ,), _F16), ((), _BF16))
        for xorsign in ((), (_XORSIGN, _ABS))
    )


ROWS: tuple[Row, ...] = (
    *(
        each
        for name, effects in ARITHMETIC
        for each in (_half(name, RN, FTZ, SAT, _F16, effects=effects), _half(name, RN, _BF16, effects=effects))
    ),
    _half("fma", RN_REQUIRED, FTZ, SAT, _F16, operands=D_A_B_C, effects=FUSED),
    _half("fma", RN_REQUIRED, FTZ, one("relu"), _F16, operands=D_A_B_C, effects=FUSED, ptx=(7, 0), sm=80),
    _half("fma", RN_REQUIRED, _RELU, _BF16, operands=D_A_B_C, effects=FUSED, ptx=(7, 0), sm=80, needs=()),
    _half("fma", RN_REQUIRED, one("oob"), _RELU, type_(*F16, *BF16), operands=D_A_B_C, effects=FUSED, ptx=(8, 1), sm=90),
    *(
        each
        for (name, effects), ptx in zip(SIGNS, ((6, 5), (6, 0)))
        for each in (
            _half(name, FTZ, _F16, operands=D_A, ptx=ptx, effects=effects),
            _half(name, _BF16, operands=D_A, ptx=(7, 0), sm=80, needs=(), effects=effects),
        )
    ),
    *_extremum("min"),
    *_extremum("max"),
    _half("ex2", APPROX, _F16, operands=D_A, ptx=(7, 0), sm=75, effects=_UNIT.but(algebra=Algebra.EXPONENTIAL)),
    _half("ex2", APPROX, one("ftz"), _BF16, operands=D_A, ptx=(7, 8), sm=90,
          effects=_UNIT.but(algebra=Algebra.EXPONENTIAL)),
    _half("tanh", APPROX, type_(*F16, *BF16), operands=D_A, ptx=(7, 0), sm=75, effects=_UNIT.but(algebra=Algebra.TANGENT)),
)
