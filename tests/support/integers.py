"""Integer instructions against Python integers: operands at the edges, any operands, operands that are constants."""

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any, TypeAlias

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mmulator.isa.types import type_bits
from tests.support.scalar_harness import bits, compiled, form_of, run, sources_of

EDGES = [
    *(0, 1, 2, 3, 5, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 254, 255, 256, 0x7FFF, 0x8000, 0xFFFF, 0x10000),
    *(0xFFFFFF, 0x1000003, 0x7FFFFFFF, 0x80000000, 0x80000001, 0xFFFFFFFF, 1 << 32, (1 << 63) - 1, 1 << 63),
]
Oracle: TypeAlias = Callable[..., int]
ALL = ("u16", "s16", "u32", "s32", "u64", "s64")
BITS = ("b32", "b64")
WORDS = np.array([0, 1, 0x80, 0x7F, 0x8000, 0x12345678, 0x89ABCDEF, 0xFFFFFFFF, 0x80000000, 0xDEADBEEF, 255], np.uint32)


def signed(value: int, width: int) -> int:
    value &= (1 << width) - 1
    return value - (1 << width) if value >> (width - 1) else value


def of_types(pattern: str, types: tuple[str, ...], oracle: Callable[[int], Oracle]) -> dict[str, Oracle]:
    """pattern: the instruction with {} for the type. oracle(width): works on operands as their types read them."""
    return {pattern.format(t): oracle(type_bits(t)) for t in types}


def as_read(value: int, type_name: str) -> int:
    return signed(value, type_bits(type_name)) if type_name[0] == "s" else value & (1 << type_bits(type_name)) - 1


def check(mnemonic: str, oracle: Oracle, rows: list[tuple[int, ...]]) -> None:
    """rows: raw operands, cut to the operands' types."""
    types = [o.type for o in sources_of(form_of(mnemonic))]
    columns = [[v & (1 << type_bits(t)) - 1 for v in column] for t, column in zip(types, zip(*rows))]
    arrays = [np.array(c, f"u{type_bits(t) // 8}") for c, t in zip(columns, types)]
    (got,) = compiled(mnemonic)(*arrays)
    width = got.dtype.itemsize * 8
    for i, operands in enumerate(zip(*columns)):
        want = oracle(*(as_read(v, t) for v, t in zip(operands, types))) & (1 << width) - 1
        assert int(bits(got)[i]) == want, f"{mnemonic} {[hex(v) for v in operands]}"


def check_edges(mnemonic: str, oracle: Oracle) -> None:
    """All pairs of edge values and their negatives; third and fourth operands run through them."""
    count = len(sources_of(form_of(mnemonic)))
    values = [*EDGES, *(-v for v in EDGES)]
    rows = [
        tuple([a, b, values[(i * 7 + 3) % len(values)], values[(i * 11 + 5) % len(values)]][:count])
        for i, (a, b) in enumerate(product(values, repeat=2) if count > 1 else ((v, 0) for v in values))
    ]
    check(mnemonic, oracle, rows)


numbers = st.one_of(st.integers(0, 2**64 - 1), st.sampled_from(EDGES), st.integers(-40, 40), st.integers(0, 2**32 - 1))


def check_any(forms: Mapping[str, Oracle], data: Any) -> None:
    mnemonic = data.draw(st.sampled_from(list(forms)))
    count = len(sources_of(form_of(mnemonic)))
    check(mnemonic, forms[mnemonic], data.draw(st.lists(st.tuples(*[numbers] * count), min_size=8, max_size=64)))


def check_constants(mnemonic: str, constants: dict[str, int]) -> None:
    """What is written for a constant agrees with what is written for a register that holds it."""
    names = [o.name for o in sources_of(form_of(mnemonic))]
    columns = dict(zip("ab", (c.ravel() for c in np.meshgrid(WORDS, WORDS))))
    free = [columns["ab"[i % 2]] for i, n in enumerate(names) if n not in constants]
    every = iter(free)
    all_of_them = [np.full(free[0].shape, constants[n], np.uint32) if n in constants else next(every) for n in names]
    assert np.array_equal(run(mnemonic, *free, **constants), run(mnemonic, *all_of_them))


# The tests of a chapter, each made from its table.
def edges(forms: Mapping[str, Oracle]) -> Any:
    @pytest.mark.parametrize("mnemonic", forms)
    def test_edges(mnemonic: str) -> None:
        check_edges(mnemonic, forms[mnemonic])

    return test_edges


def any_operands(forms: Mapping[str, Oracle], examples: int) -> Any:
    @settings(max_examples=examples, deadline=None)
    @given(st.data())
    def test_any_operands(data: Any) -> None:
        check_any(forms, data)

    return test_any_operands


def known_operands(known: Sequence[tuple[str, dict[str, int]]]) -> Any:
    @pytest.mark.parametrize(("mnemonic", "constants"), known)
    def test_known_operands_change_nothing(mnemonic: str, constants: dict[str, int]) -> None:
        check_constants(mnemonic, constants)

    return test_known_operands_change_nothing
