"""The site: it is built without a warning, each link leads somewhere, all public names, commands and rules are on it, and
what a reader searches is found."""

import json
import re
import subprocess
import sys
from html import unescape
from pathlib import Path
from urllib.parse import quote, unquote

import pytest

import mmulator as mm
from mmulator.base.rules import RULES
from mmulator.cli.commands import COMMANDS
from tests.support import browser
from tests.support.places import ROOT
from tools.site.docstrings import prepared
from tools.site.search import lines_of


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
    assert len(pages) > 45 and not lost


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    for path in site.rglob("*.html"):
        assert not re.search(r'<(?:script|link|img|iframe)[^>]+(?:src|href)="(?:https?:)?//', path.read_text()), path


def test_the_reference_is_whole(site: Path) -> None:
    python, commands, rules = ((site / f"reference/{n}.html").read_text() for n in ("python", "commands", "rules"))
    classes = [name for name in mm.__all__ if callable(getattr(mm, name))]
    assert len(classes) > 10 and not [name for name in classes if f">mm.{name}<" not in python]
    assert not [name for name in COMMANDS if f">mmulator {name}<" not in commands]
    assert not [name for name in RULES if f">{name}<" not in rules]


def test_the_first_page_shows_what_it_is(site: Path) -> None:
    page = (site / "index.html").read_text()
    ways = {*re.findall(r'<td>.*?href="(tutorials/\w+\.html)"', page)}
    assert len(ways) >= 3 and "pip install ." in page and "bit-identical" in page
    assert "<img" in page and "0 differ" in page


def test_the_side_bar_has_at_most_20_entries(site: Path) -> None:
    """Others are in the lists of its last entries, which are closed."""
    page = (site / "index.html").read_text()
    entries = re.findall(r'<li class="toctree-l1[^>]*><a class="reference internal" href="([^"]+)"', page)
    assert 10 < len(entries) <= 20 and "explanation.html" in entries, entries


MESSAGE = "bytes that st.shared.v4.u32 wrote are read through the asynchronous proxy with no fence.proxy.async between"


def test_lines_of_pages_are_there_to_be_found(site: Path) -> None:
    pages = json.loads((site / "_static/lines.js").read_text().removeprefix("const PAGES = ").rstrip(";\n"))
    found = {name for name, _, _, sections in pages for _, _, lines in sections if any(MESSAGE[-45:] in line for line in lines)}
    assert "reference/rules.html" in found and len(pages) > 40
    page = (
        '<article><section id="a"><h1>A<a class="headerlink">x</a></h1><p>b\nc</p><tr><td>d</td><td>e</td></tr>'
        "<pre>f\n    ff\n  ^^\ng</pre></section></article><p>h</p>"
    )
    assert lines_of(page) == [("a", "A", ["b c", "d e", "f ff", "g"])]


@pytest.mark.skipif(not browser.found(), reason="no Chromium: install the system's package chromium, or name one in CHROMIUM")
def test_an_errors_text_is_found_with_its_line(site: Path, tmp_path: Path) -> None:
    """Also where the pages are opened as files."""
    with browser.browser(tmp_path / "profile") as b:
        b("Page.navigate", url=f"{(site / 'search.html').as_uri()}?q={quote(MESSAGE)}")
        b.wait("document.querySelectorAll('.found li').length > 0")
        first = b.do("document.querySelector('.found li').innerText")
    assert "asynchronous proxy" in first, first


def test_docstrings_become_lists() -> None:
    lines = ["Does it.", "", "a: one thing,", "    of two lines.", "b, c: others.", "Note: no parameter.", "", "Raises X."]
    assert prepared(lines, {"a", "b", "c"}) == [
        "Does it.", "", "", "- ``a``: one thing,", "  of two lines.", "- ``b, c``: others.", "  Note: no parameter.", "",
        "Raises X.", "",
    ]  # fmt: skip
