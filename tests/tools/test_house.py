"""The measures of the package (tools/house.py): they count what they say."""

import ast

import pytest

from tools.house import calls, complexity


@pytest.mark.parametrize(("body", "ways"), [
    ("pass", 1), ("if a and b or c: pass", 4), ("for x in y:\n  while x: pass", 3), ("[x for x in y if x]", 3),
    ("try: pass\nexcept A: pass\nexcept B: pass", 3), ("match a:\n  case 1: pass\n  case 2: pass", 3), ("a if b else c", 2),
])  # fmt: skip
def test_ways_through_a_function(body: str, ways: int) -> None:
    assert complexity(ast.parse(body)) == ways


def test_calls_by_name() -> None:
    assert calls(ast.parse("Request(1); backend.Request(2); Request; Launch(Request())"), ("Request", "Launch")) == 4
