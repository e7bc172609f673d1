"""What the sanitizer and faults say: every piece of a sentence in their code stands in a text of tests/ub."""

import ast
import re
from collections.abc import Iterator
from functools import cache

import pytest

from mmulator.base.rules import RULES, words
from mmulator.base.rules.text import OF_LAUNCHES
from tests.support import breaches, sources

SOURCE = sources.SOURCE
FILES = {
    "faults": (*SOURCE.glob("sanitizer/diagnostics/faults/*.py"), *SOURCE.glob("sanitizer/diagnostics/*.py")),
    "findings": (
        *SOURCE.glob("sanitizer/diagnostics/findings/*.py"), SOURCE / "base" / "rules" / "words.py",
        SOURCE / "base" / "findings.py",
    ),
}
_PLACES = re.compile(rf"\{{\w*\}}|\n|{words.BETWEEN}")
_WORDS = re.compile(r"[A-Za-z].*[a-z,;:)] [a-z(]|[a-z] .*[a-z]{3}")


@cache
def said() -> str:
    return " ".join(" ".join(file.read_text() for file in sorted(breaches.ROOT.glob("*/*.txt"))).split())


def pieces(tree: ast.AST) -> Iterator[str]:
    """Texts of two words or more, without docstrings, types and keys; what stands between the places of a format is one piece."""
    for node in tree.values if isinstance(tree, ast.Dict) else ast.iter_child_nodes(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if not isinstance(tree, ast.Expr):
                yield from (" ".join(part.split()) for part in _PLACES.split(node.value) if _WORDS.search(part))
        elif not isinstance(node, ast.Subscript):
            yield from pieces(node)


@pytest.mark.parametrize("part", FILES)
def test_every_piece_of_a_sentence_is_in_a_text(part: str) -> None:
    """tests/ub/missing_PART.txt has those that are in none; it may only shrink."""
    every = [(file.name, piece, [piece]) for file in FILES[part] for piece in pieces(sources.tree(file))]
    if part == "findings":
        broken = [r for r in RULES.values() if r not in OF_LAUNCHES]  # by kernels; others: tests/doors/triton/test_trials.py
        hints = [(r.name, r.hint, [words.in_words(r.hint, name) for name in ("", *words.TERMS)]) for r in broken]
        every += hints + [(r.name, r.section, [r.section]) for r in broken]
        every += [(r.name, piece, [piece]) for r in broken for piece in pieces(ast.parse(repr((r.says, "")), mode="eval"))]
    known = breaches.ROOT / f"missing_{part}.txt"
    missing = {f"{where}: {piece}" for where, piece, ways in every if not any(way in said() for way in ways)}
    assert missing == set(known.read_text().splitlines() if known.exists() else ())
