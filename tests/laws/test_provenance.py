"""docs/reference/provenance.md: a page with figures has a row, and programs, files and pages that a row names exist."""

import re
from pathlib import Path

import pytest

from tests.support.places import ROOT

PAGE = ROOT / "docs/reference/provenance.md"
ROWS = [[cell.strip() for cell in line.split("|")[1:-1]] for line in PAGE.read_text().splitlines() if re.match(r"\| \[", line)]
# a measured figure: a number with a unit of time or size, a ratio, or a count of what was compared
FIGURE = re.compile(
    r"\b\d[\d,]*(?:\.\d+)?(?: (?:percent|seconds?|minutes|hours|ms|us|s|MB|times)\b| %| (?:words|launches|cases|forms|samples) )"
)
# pages whose numbers are properties, limits or examples, which other tests assert
PROPERTIES = {
    "adding-an-instruction", "ci", "commands", "cuda", "debugger", "design", "json", "provenance", "pytest", "strict-tests",
}  # fmt: skip


def prose(path: Path) -> str:
    """The text without code, and without what programs write."""
    text = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"<!-- made.*?<!-- end -->", "", text, flags=re.DOTALL)


def named() -> set[str]:
    return {Path(target.partition("#")[0]).stem for row in ROWS for target in re.findall(r"\]\(([^)]+)\)", row[0])}


def test_pages_with_figures_have_a_row() -> None:
    pages = {p.stem for p in (ROOT / "docs").rglob("*.md") if FIGURE.search(prose(p))}
    assert len(pages) > 10
    assert not pages - named() - PROPERTIES, "a row of docs/reference/provenance.md is missing"
    assert not named() & PROPERTIES
    assert {"README"} <= named()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:40])
def test_what_a_row_names_exists(row: list[str]) -> None:
    _, source, where, compared = row
    source, _, kept = source.partition("; kept in ")
    for word in re.findall(r"`([^`]+)`", f"{source} {kept}"):
        if word.startswith(("tools.", "evidence.")):
            path = ROOT / word.replace(".", "/")
            assert path.with_suffix(".py").is_file() or (path / "__main__.py").is_file(), word
        elif not word.startswith("mmulator "):
            assert (ROOT / word).exists(), word
    assert "`" in source or source == "sums that others published"
    assert where or "spec_map" in source
    if compared.startswith("yes"):
        assert kept or "spec_map" in source, "a test compares with a file"
