"""Scalar Video Instructions, SIMD Video Instructions (PTX ISA 9.1): on bytes and halves that operands select."""

from itertools import combinations
from typing import Any

from mmulator.isa.pieces import INT32, maybe, one, row
from mmulator.isa.row import Kind, OperandSpec, Row, Slot

_TYPES = (one("dtype", *INT32), one("atype", *INT32), one("btype", *INT32))
_SHIFT_TYPES = (one("dtype", *INT32), one("atype", *INT32), one("btype", "u32"))
_SOURCES = (one("atype", *INT32), one("btype", *INT32))
_CMP = one("cmp", "eq", "ne", "lt", "le", "gt", "ge")
_SECOND = one("second", "add", "min", "max")
_MODE = one("mode", "clamp", "wrap")
_SAT, _SCALE = maybe("sat"), maybe("scale", "shr7", "shr15")

SELECTORS = ("b0", "b1", "b2", "b3", "h0", "h1")


def masks(letter: str, count: int) -> tuple[str, ...]:
    """Names of the elements that a SIMD instruction can write: `h0`, `h1`, `h10`; the highest first."""
    return tuple(
        letter + "".join(map(str, chosen))
        for size in range(1, count + 1)
        for chosen in combinations(range(count - 1, -1, -1), size)
    )


def _d(kind: Kind, type: str = "dtype") -> OperandSpec:
    return OperandSpec("d", kind, type, "w")


def _operands(d: Kind, source: Kind, type: str = "dtype", btype: str = "btype") -> tuple[OperandSpec, ...]:
    return _d(d, type), OperandSpec("a", source, "atype"), OperandSpec("b", source, btype)


def _c(type: str = "dtype", **more: Any) -> OperandSpec:
    return OperandSpec("c", "src", type, **more)


def _scalar(name: str, *slots: Slot, d: str = "dtype") -> tuple[Row, ...]:
    """Rows of a scalar video instruction: with an optional merge into c, or with a secondary operation on c."""
    section = f"Scalar Video Instructions: {name}"
    a_b = _operands("vmerge", "vsrc", d)
    return (
        row(name, slots, (*a_b, _c(d, optional=True)), section, (2, 0), 20),
        row(name, (*slots, _SECOND), (_d("dst", d), *a_b[1:], _c(d)), section, (2, 0), 20),
    )


def _simd(name: str, *slots: Slot, saturates: bool, d: str = "dtype") -> tuple[Row, ...]:
    """Rows of a SIMD video instruction: with a merge into c, or with a sum that includes c."""
    section = f"SIMD Video Instructions: {name}"
    kinds: tuple[Kind, Kind] = ("vmask4", "vsrc4") if name.endswith("4") else ("vmask2", "vsrc2")
    operands = (*_operands(*kinds, d), OperandSpec("c", "reg", d))
    merge = (*slots, _SAT) if saturates else slots
    return (
        row(name, merge, operands, section, (3, 0), 30),
        row(name, (*slots, one("second", "add")), operands, section, (3, 0), 30),
    )


def _mad(*slots: Slot, signs: str) -> Row:
    kinds: tuple[Kind, Kind] = ("vsrc-", "vneg") if signs else ("vsrc", "src")
    operands = (*_operands("dst", kinds[0]), OperandSpec("c", kinds[1], "dtype"))
    return row("vmad", (*_TYPES, *slots, _SAT, _SCALE), operands, "Scalar Video Instructions: vmad", (2, 0), 20)


SCALAR: tuple[Row, ...] = (
    *(each for name in ("vadd", "vsub", "vabsdiff", "vmin", "vmax") for each in _scalar(name, *_TYPES, _SAT)),
    *(each for name in ("vshl", "vshr") for each in _scalar(name, *_SHIFT_TYPES, _SAT, _MODE)),
    *_scalar("vset", *_SOURCES, _CMP, d="u32"),
)
MAD: tuple[Row, ...] = (_mad(signs="-"), _mad(one("po"), signs=""))
SIMD: tuple[Row, ...] = (
    *(
        each
        for n in "24"
        for name in ("vadd", "vsub", "vavrg", "vabsdiff", "vmin", "vmax")
        for each in _simd(name + n, *_TYPES, saturates=True)
    ),
    *(each for n in "24" for each in _simd(f"vset{n}", *_SOURCES, _CMP, saturates=False, d="u32")),
)
ROWS: tuple[Row, ...] = (*SCALAR, *MAD, *SIMD)
