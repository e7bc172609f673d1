"""Comparison and selection."""

from itertools import product
from typing import Any

import numpy as np
import pytest

from mmulator.isa.types import type_bits
from tests.support import scalar_oracle as oracle
from tests.support.floats import F32, F32_EDGES, F64, F64_EDGES, NAMES, PARTNERS, both_signs
from tests.support.integers import ALL, EDGES, as_read
from tests.support.scalar_harness import run

RELATIONS = {"eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b, "le": lambda a, b: a <= b,
             "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b}  # fmt: skip
UNSIGNED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}


@pytest.mark.parametrize("type_name", ALL)
def test_integer_comparisons(type_name: str) -> None:
    width = type_bits(type_name)
    values = [v & (1 << width) - 1 for v in [*EDGES, *(-v for v in EDGES)]]
    a, b = (c.ravel() for c in np.meshgrid(*[np.array(values, f"u{width // 8}")] * 2))
    names = [*RELATIONS, *(UNSIGNED if type_name[0] == "u" else ())]
    for name in names:
        relation = RELATIONS[UNSIGNED.get(name, name)]
        want = [relation(as_read(int(x), type_name), as_read(int(y), type_name)) for x, y in zip(a, b)]
        p, q = run(f"setp.{name}.{type_name}", a, b)
        assert p.tolist() == want
        assert q.tolist() == [not w for w in want]
        assert run(f"set.{name}.u32.{type_name}", a, b).tolist() == [0xFFFFFFFF * w for w in want]


@pytest.mark.parametrize("kind", ["f16", "bf16", "f32", "f64"])
def test_comparisons(kind: str) -> None:
    f = {v: k for k, v in NAMES.items()}[kind]
    edges = F32_EDGES if f is F32 else F64_EDGES if f is F64 else [v & 0x7FFF for v in PARTNERS[f]]
    values = both_signs(edges, f.bits)
    rows = list(product(values, repeat=2))
    a, b = (np.array(c, f"u{f.bits // 8}") for c in zip(*rows))

    def real(v: int) -> Any:
        x = oracle.decode(v, f)
        size = float("inf") if x.kind == "infinity" else abs(x.value)
        return None if x.kind == "nan" else -size if x.negative else size

    pairs = [(real(x), real(y)) for x, y in rows]
    unordered = [x is None or y is None for x, y in pairs]
    for name, relation in RELATIONS.items():
        plain = [not u and relation(x, y) for u, (x, y) in zip(unordered, pairs)]
        assert run(f"setp.{name}.{kind}", a, b)[0].tolist() == plain
        assert run(f"setp.{name}u.{kind}", a, b)[0].tolist() == [p or u for p, u in zip(plain, unordered)]
    assert run(f"setp.nan.{kind}", a, b)[0].tolist() == unordered
    assert run(f"setp.num.{kind}", a, b)[0].tolist() == [not u for u in unordered]
