"""Floating-point instructions against exact rationals."""

from fractions import Fraction
from itertools import product

import numpy as np
from hypothesis import strategies as st

from tests.support import scalar_oracle as oracle
from tests.support.scalar_harness import bits, run

MODES = ("rn", "rz", "rm", "rp")
F16, BF16, F32, F64 = oracle.F16, oracle.BF16, oracle.F32, oracle.F64
NAMES = {F16: "f16", BF16: "bf16", F32: "f32", F64: "f64"}
F32_EDGES = [
    *(0, 1, 2, 0x7FFFFF, 0x800000, 0x800001, 0xFFFFFF, 0x1000000, 0x20000000, 0x3F000000, 0x3F7FFFFF, 0x3F800000),
    *(0x3F800001, 0x3FC00000, 0x40490FDB, 0x4B000001, 0x4B800001, 0x5F000000, 0x7E800000, 0x7F7FFFFF, 0x7F800000),
    *(0x7F800001, 0x7FC12345),
]
F64_EDGES = [
    *(0, 1, 0xFFFFFFFFFFFFF, 0x10000000000000, 0x3CA0000000000000, 0x3FE0000000000000, 0x3FEFFFFFFFFFFFFF),
    *(0x3FF0000000000000, 0x3FF0000000000001, 0x400921FB54442D18, 0x4340000000000001, 0x7FE0000000000000),
    *(0x7FEFFFFFFFFFFFFF, 0x7FF0000000000000),
]
_F16 = (0, 0x8000, 1, 0x8001, 0x3FF, 0x400, 0x8401, 0x13FF, 0x3555, 0x3C00, 0xBC01, 0x6400, 0x7BFF, 0xFC00, 0x7E00)
_BF16 = (0, 0x8000, 1, 0x8001, 0x7F, 0x80, 0x8081, 0x1F01, 0x3EAB, 0x3F80, 0xBF81, 0x4B00, 0x7F7F, 0xFF80, 0x7FC0)
PARTNERS = {F16: list(_F16), BF16: list(_BF16)}


def both_signs(values: list[int], width: int) -> list[int]:
    return [*values, *(v | 1 << width - 1 for v in values)]


def close_to(width: int, edges: list[int]) -> st.SearchStrategy[int]:
    """Any bits, edges, and neighbours of edges, of both signs."""
    near = st.builds(lambda e, d, s: (e + d & (1 << width - 1) - 1) | s << width - 1,
                     st.sampled_from(edges), st.integers(-3, 3), st.integers(0, 1))  # fmt: skip
    return st.one_of(st.integers(0, (1 << width) - 1), near)


Rows = list[tuple[int, ...]]


def check(operation: str, f: oracle.Format, mode: str, rows: Rows, ftz: bool = False, sat: bool = False) -> None:
    """The instruction on rows of bits. A NaN of .f64 is only required to be one: the vectors say which."""
    suffix = f".{mode}{'.ftz' * ftz}{'.sat' * sat}.{NAMES[f]}"
    got = bits(run(operation + suffix, *(np.array(c, f"u{f.bits // 8}") for c in zip(*rows))))
    for value, row in zip(got.tolist(), rows):
        want = oracle.arithmetic(operation, f, mode, row, ftz, sat)
        if f is F64 and oracle.decode(want, f).kind == "nan":
            assert oracle.decode(value, f).kind == "nan"
        else:
            assert value == want, f"{operation}{suffix} {[hex(v) for v in row]}: {value:#x}, not {want:#x}"


def chosen(name: str, f: oracle.Format, a: int, b: int, nan: bool, xorsign: bool) -> int:
    """min and max: -0 before +0; a NaN only where both are, or with .NaN."""
    top = 1 << f.bits - 1
    flip = (a ^ b) & top if xorsign else 0
    if xorsign:
        a, b = a & ~top, b & ~top
    values = [(oracle.decode(v, f), v) for v in (a, b)]
    numbers = [p for p in values if p[0].kind != "nan"]
    if not numbers or (nan and len(numbers) < 2):
        return f.nan

    def key(p: tuple[oracle.Real, int]) -> tuple[Fraction, bool]:
        size = Fraction(10) ** 400 if p[0].kind == "infinity" else abs(p[0].value)
        return (-size if p[0].negative else size), not p[0].negative

    return (min if name == "min" else max)(numbers, key=key)[1] | flip


def check_extrema(f: oracle.Format, name: str, nan: bool, xorsign: bool) -> None:
    """min and max of all pairs of edges."""
    suffix = ".NaN" * nan + ".xorsign.abs" * xorsign
    values = both_signs(F32_EDGES if f is F32 else [v & 0x7FFF for v in PARTNERS[f]], f.bits)
    rows = list(product(values, repeat=2))
    got = bits(run(f"{name}{suffix}.{NAMES[f]}", *(np.array(c, f"u{f.bits // 8}") for c in zip(*rows))))
    want = [chosen(name, f, a, b, nan, xorsign) for a, b in rows]
    assert got.tolist() == want
