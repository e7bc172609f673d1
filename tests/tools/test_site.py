"""The site: it is built without a warning, each link leads somewhere, and all public names, commands and rules are on it."""

import re
import subprocess
import sys
from html import unescape
from pathlib import Path
from urllib.parse import unquote

import pytest

import mmulator as mm
from mmulator.base.rules import RULES
from mmulator.cli.commands import COMMANDS
from tests.support.places import ROOT
from tools.site.docstrings import prepared


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "site"
    words = [sys.executable, "-m", "tools.site", str(folder)]
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_links_lead_somewhere(site: Path) -> None:
    pages = {path: path.read_text() for path in site.rglob("*.html")}
    anchors = {path: {unescape(x) for x in re.findall(r'\sid="([^"]+)"', text)} for path, text in pages.items()}
    lost = []
    for path, text in pages.items():
        for target in re.findall(r'(?:href|src)="([^"]+)"', text):
            name, _, anchor = unquote(unescape(target)).partition("#")
            if re.match(r"(https?|mailto|data):", name):
                continue
            place = (path.parent / name.partition("?")[0]).resolve() if name else path
            if not place.exists() or (anchor and place in anchors and anchor not in anchors[place]):
                lost.append(f"{path.relative_to(site)}: {target}")
    assert len(pages) > 50 and not lost


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    for path in site.rglob("*.html"):
        assert not re.search(r'<(?:script|link|img|iframe)[^>]+(?:src|href)="(?:https?:)?//', path.read_text()), path


def test_the_reference_is_whole(site: Path) -> None:
    python, commands, rules = ((site / f"reference/{n}.html").read_text() for n in ("python", "command-line", "rules"))
    classes = [name for name in mm.__all__ if callable(getattr(mm, name))]
    assert len(classes) > 10 and not [name for name in classes if f">mm.{name}<" not in python]
    assert not [name for name in COMMANDS if f">mmulator {name}<" not in commands]
    assert not [name for name in RULES if f">{name}<" not in rules]


def test_docstrings_become_lists() -> None:
    lines = ["Does it.", "", "a: one thing,", "    of two lines.", "b, c: others.", "Note: no parameter.", "", "Raises X."]
    assert prepared(lines, {"a", "b", "c"}) == [
        "Does it.", "", "", "- ``a``: one thing,", "  of two lines.", "- ``b, c``: others.", "  Note: no parameter.", "",
        "Raises X.", "",
    ]  # fmt: skip
