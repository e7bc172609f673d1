"""No room of src/mmulator, and nothing beside it, grows past its budget (tools/budgets.toml)."""

from pathlib import Path

import pytest

from tests.support import sizes
from tests.support.sizes import Size


def test_no_room_passes_its_budget() -> None:
    over = sizes.passed(sizes.totals(sizes.sizes()), sizes.budgets())
    assert not over, f"{'; '.join(over)}: {sizes.ADVICE} (python -m tools.house shows all)"


def test_what_passes_a_budget_is_named() -> None:
    found = {"src": Size(3, 200, 900), "src/isa": Size(2, 100, 300)}
    assert sizes.passed(found, found) == []
    assert sizes.passed(found, found | {"src/isa": Size(2, 99, 300)}) == ["src/isa has 100 lines, 1 more than 99"]
    assert sizes.passed(found, {"src": Size(3, 200, 899)}) == [
        "src/isa: it has no budget, or there is no such room", "src has 900 tokens, 1 more than 899",
    ]  # fmt: skip
    assert sizes.passed(found, found | {"src/gone": Size()}) == ["src/gone: it has no budget, or there is no such room"]


@pytest.mark.parametrize(("text", "count"), [
    ("", 0), ("# nothing\n\n", 0), ("x = 1  # one\n", 3), ("if x:\n    y(\n        2,\n    )\n", 8),
    ("x = f'{a!r:>{b}} {c}' 'd'\n", 4), ("x = f'{f\"{a}\"}'\n", 3),
])  # fmt: skip
def test_tokens_without_comments_and_layout(text: str, count: int, tmp_path: Path) -> None:
    """A file has as many under every version of Python."""
    (tmp_path / "a.py").write_text(text)
    assert sizes.tokens(tmp_path / "a.py") == count
