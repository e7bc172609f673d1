"""Tables of decisions: one row for each combination of conditions, no row that is never taken; native code takes that row."""

import ctypes

import pytest

from mmulator.base.codegen.lang import Native, native
from mmulator.base.codegen.loading import address
from mmulator.base.codegen.types import u32
from mmulator.base.codegen.values import Value
from mmulator.sanitizer.shadow import conflicts, judgement
from mmulator.sanitizer.shadow.judgement import Decisions

TABLES = {
    "GENERIC": conflicts.GENERIC, "ASYNCHRONOUS": conflicts.ASYNCHRONOUS, "UNFENCED": conflicts.UNFENCED,
    "RACES": judgement.RACES,
}  # fmt: skip


def taken(table: Decisions, word: int) -> list[int]:
    return [n for n, row in enumerate(table.rows) if word & row.care == row.want]


@pytest.mark.parametrize("name", TABLES)
def test_every_combination_has_one_row(name: str) -> None:
    table = TABLES[name]
    rows = [taken(table, word) for word in range(1 << len(table.conditions))]
    assert all(len(row) == 1 for row in rows), [f"{word:b}: {row}" for word, row in enumerate(rows) if len(row) != 1]
    assert {row[0] for row in rows} == set(range(len(table.rows)))


def decider(name: str, table: Decisions) -> Native:
    def decided(word: Value) -> Value:
        return table(**{name: (word >> n) & 1 != 0 for n, name in enumerate(table.conditions)})

    @native(name=f"test_decision_{name}")
    def decide(word: u32) -> u32:
        return decided(word)

    return decide


@pytest.mark.parametrize("name", TABLES)
def test_native_code_takes_the_row(name: str) -> None:
    table = TABLES[name]
    decide = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_uint32)(address(decider(name, table)))
    for word in range(1 << len(table.conditions)):
        assert decide(word) == table.rows[taken(table, word)[0]].decision
