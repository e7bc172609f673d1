"""Each row of a door that can refuse is counted, and no text of the doors calls what is not modelled the program's mistake."""

import ast
import re
from collections.abc import Iterator

import pytest

from mmulator.base import refusals
from mmulator.base.refusals import Register, register
from mmulator.doors.cudart import rows, table
from mmulator.doors.libcuda import abi, loading
from mmulator.doors.library import lifetime
from mmulator.errors import UnsupportedError
from tests.support import sources


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(lifetime, "opened", lambda work: None)
    register.clear()
    yield
    register.clear()


def refusing() -> dict[str, object]:
    """The functions that refuse, as a program of C calls them, by name."""
    assert table.CHAPTERS  # which have the rows
    rows.complete()
    found = {row.name: row.call for row in rows.ROWS.values() if row.kind == rows.REFUSES}

    def refuse(name: str) -> object:
        def call() -> None:
            raise abi.unsupported(name, "this function of CUDA's driver is not there")

        return abi.guarded(call, name)

    return found | {name: refuse(name) for name in loading.unwritten()}


def test_every_row_that_refuses_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    """Work (launches, copies) is open until the program asks; what prepares work has been answered."""
    calls = refusing()
    assert len(calls) > 100
    for name, call in calls.items():
        register.clear()
        assert call() == 801, name  # type: ignore[operator]
        (found,) = register.refused.values()
        work = bool(abi.WORK.match(name))
        assert name in found.why and (found.launches + found.calls, found.open) == (work, work), name
        assert bool(register.sticky) == (work and "Launch" in name), name
        assert bool(register.line()) == work
        rows.ROWS["cudaGetLastError"].call()
        assert not (work and name.startswith("cuda") and (found.open or register.sticky)), name
    named = {n for n in calls if any(word in n for word in ("emcpy", "emset", "Launch")) and "Graph" not in n}
    assert not {n for n in named if not abi.WORK.match(n)}


def test_an_error_that_is_made_is_in_the_register() -> None:
    """However it is raised; exceptions of C calls pass one function, `guarded`."""
    UnsupportedError("wings are not modelled")
    assert [*register.refused] == ["wings are not modelled"] and not register.line()
    natives = [e for e in abi.ENTRIES.values() if not hasattr(e.call, "__wrapped__")]
    assert not natives, "a function of the driver that does not go through `guarded`"


def test_lines() -> None:
    one = Register()
    one.ran = 2
    one.work("a is not modelled", 801, True)
    assert one.line() == "1 of 3 launches was not run: a is not modelled"
    one.work("a is not modelled", 801, True)
    one.work("b is not modelled", 801, False)
    assert one.line() == "2 of 4 launches were not run and 1 call was refused: a is not modelled; b is not modelled"
    for n in range(4):
        one.work(f"c{n}", 1, False)
    assert one.line().endswith(" and 5 calls were refused: a is not modelled; b is not modelled; c0; 3 more reasons")
    assert one.read(1) and one.sticky == 801 and one.read() and not one.sticky and not one.line()
    for n in range(2 * refusals._MOST):
        one.work(str(n), 801, False)
    assert len(one.refused) == refusals._MOST + 1 and sum(r.open for r in one.refused.values()) == 2 * refusals._MOST


MISSING = ("not modelled", "not written", "not supported", "not implemented")


def test_what_is_not_modelled_is_no_mistake_of_the_program() -> None:
    """Such a text stands in an UnsupportedError, which is counted, and in no LaunchError, which is not."""
    wrong = []
    for path, tree in sources.trees(re.compile("not (modelled|written|supported|implemented)")):
        if "doors" not in path.parts:
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("LaunchError", "OperandError"):
                texts = [t.value for t in ast.walk(node) if isinstance(t, ast.Constant) and isinstance(t.value, str)]
                wrong += [f"{path.name}:{node.lineno}" for text in texts if any(word in text for word in MISSING)]
    assert not wrong
