"""Single statements through the whole machine, against an NVIDIA H200."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from mmulator.machine.module import Module
from tests.data import scalar_vectors

GROUP = 40  # statements of a family in one module, so that parsing and compiling are shared


def groups() -> Iterator[tuple[str, list[Any]]]:
    families: dict[str, list[Any]] = {}
    for case in scalar_vectors.load():
        families.setdefault(case.family, []).append(case)
    for family, cases in families.items():
        for n in range(0, len(cases), GROUP):
            yield f"{family}-{n // GROUP}", cases[n : n + GROUP]


def wrong(case: Any, module: Module) -> str | None:
    operands = [a.copy() for a in case.operands().values()]
    expected = case.results()
    outputs = [np.zeros_like(w) for w in expected.values()]
    module[case.entry].launch(case.grid, case.block, [*operands, *outputs], device="sm_90", timeout=60)
    for (register, want), got in zip(expected.items(), outputs):
        different = np.flatnonzero(got != want)
        if different.size:
            i = int(different[0])
            ins = ", ".join(f"{r} = {int(o[i]):#x}" for r, o in case.operands().items() if i < o.size)
            return f"{case.text}: {register} is {int(got[i]):#x}, not {int(want[i]):#x}, for {ins}; {different.size} differ"
    return None


@pytest.mark.parametrize(("name", "cases"), list(groups()), ids=lambda x: x if isinstance(x, str) else "")
def test_statement_has_the_bits_of_an_h200(name: str, cases: list[Any]) -> None:
    text = scalar_vectors.HEAD + "\n".join(c.body() for c in cases)
    module = Module.load(text, name=name)
    found = [w for w in (wrong(c, module) for c in cases) if w]
    assert not found, "\n".join(found)
