"""The measures of the package (tools/house.py): they count what they say."""

import ast

import pytest

from tests.support.sizes import Size
from tools.house import calls, complexity, with_budgets


@pytest.mark.parametrize(("body", "ways"), [
    ("pass", 1), ("if a and b or c: pass", 4), ("for x in y:\n  while x: pass", 3), ("[x for x in y if x]", 3),
    ("try: pass\nexcept A: pass\nexcept B: pass", 3), ("match a:\n  case 1: pass\n  case 2: pass", 3), ("a if b else c", 2),
])  # fmt: skip
def test_ways_through_a_function(body: str, ways: int) -> None:
    assert complexity(ast.parse(body)) == ways


def test_calls_by_name() -> None:
    assert calls(ast.parse("Request(1); backend.Request(2); Request; Launch(Request())"), ("Request", "Launch")) == 4


def test_budgets_are_set_anew() -> None:
    """A hundredth more, lines in hundreds, tokens in thousands; words before the table and reasons stay."""
    numbers = "{ files = 1, lines = 2, tokens = 3 }"
    old = f'# words\n[budgets]\n"gone" = {numbers}\n"src" = {numbers}  # tcgen05\n'
    new = with_budgets(old, {"tests": Size(1, 9950, 99_000), "src": Size(100, 9900, 100_000)})
    assert new.splitlines() == [
        "# words", "[budgets]",
        '"src" = { files = 101, lines = 10_000, tokens = 101_000 }  # tcgen05',
        '"tests" = { files = 2, lines = 10_100, tokens = 100_000 }',
    ]  # fmt: skip
