"""Every row that runs has one meaning, every meaning a row: what `prove` says where that is not so."""

import re
from dataclasses import replace

import pytest

from mmulator.base.codegen.values import Value
from mmulator.compiler import meaning
from mmulator.compiler.lowering import binding
from mmulator.compiler.lowering.binding import lanewise, prove
from mmulator.errors import InternalError
from mmulator.isa import integer, table
from mmulator.isa.row import Status

INVENTED = replace(next(row for row in integer.ROWS if row.name == "sad"), name="sadder")


@pytest.fixture
def bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is bound in a test is forgotten behind it."""
    monkeypatch.setattr(binding, "_written", {file: dict(names) for file, names in binding._written.items()})
    monkeypatch.setattr(binding, "_meanings", {key: dict(kinds) for key, kinds in binding._meanings.items()})


def sadder(x: object, m: object, a: Value, b: Value, c: Value) -> Value:
    return a + b + c


sadder.__module__ = "mmulator.compiler.meaning.integer"  # where it is said to stand


def test_a_row_that_runs_needs_a_meaning(bound: None) -> None:
    rows = (*integer.ROWS, INVENTED)
    with pytest.raises(InternalError, match=r"sadder of kind int in isa/integer\.py runs .* compiler/meaning/integer\.py"):
        prove("integer", rows, "isa/integer.py")
    prove("integer", (*integer.ROWS, replace(INVENTED, status=Status("not modelled", "why not"))), "isa/integer.py")
    lanewise("sadder", kinds="int")(sadder)
    prove("integer", rows, "isa/integer.py")


@pytest.mark.parametrize("names", ["sadder", "sad.wide", "sad.cc"])
def test_a_meaning_needs_a_row(bound: None, names: str) -> None:
    lanewise(names)(sadder)
    wanted = f"{names} has a meaning in compiler/meaning/integer.py, but no row in isa/integer.py"
    with pytest.raises(InternalError, match=re.escape(wanted)):
        prove("integer", integer.ROWS, "isa/integer.py")


def test_a_row_has_one_meaning(bound: None) -> None:
    with pytest.raises(InternalError, match=r"sad has two meanings in compiler/meaning/integer\.py"):
        lanewise("sad", kinds="int")(sadder)


def test_a_meaning_stands_in_the_file_named_as_its_rows() -> None:
    """As it is: of each row the function is in the file of the same name."""
    for chapter in table.CHAPTERS:
        name = chapter.__name__.rpartition(".")[2]
        for row in chapter.ROWS:
            for found in binding._meanings.get((row.section.title, row.name), {}).values() if row.status.runs else ():
                assert found.function.__module__ == f"{meaning.__name__}.{name}", row.name
