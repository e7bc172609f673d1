"""Search that shows lines: every line of text of the built pages in one script, which a page opened as a file may load, too."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

_HEADINGS, _BLOCKS, _VOID = {"h1", "h2", "h3", "h4"}, {"p", "li", "tr", "pre", "dt", "dd"}, {"br", "img", "input", "hr", "col"}
# Scripts of Sphinx's own search.
_SPHINX = re.compile(
    r'\s*<script src="(?:_static/(?:searchtools|language_data)|searchindex)\.js[^>]*></script>|'
    r"\s*<script>[^<]*Search\.[^<]*</script>"
)
_FURTHER = 4  # blanks before what is left of a folded line
_LEFT_OUT = {"genindex.html", "search.html", "py-modindex.html"}


class _Lines(HTMLParser):
    """The lines of a page's article by section: [anchor, heading, lines]."""

    def __init__(self) -> None:
        super().__init__()
        self.sections: list[tuple[str, str, list[str]]] = []
        self.open: list[str] = []
        self.anchor, self.text, self.inside = "", "", False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.inside |= tag == "article"
        if tag == "section" and given.get("id"):
            self.anchor = str(given["id"])
        if tag in _HEADINGS | _BLOCKS and "tr" not in self.open:  # a row is one line
            self._end()
        if tag in ("td", "th"):
            self.text += "  "
        if tag not in _VOID:
            self.open.append("" if given.get("class") == "headerlink" else tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in _HEADINGS and self.inside:
            self.sections.append((self.anchor, " ".join(self.text.split()), []))
            self.text = ""
        elif tag == "tr" or (tag in _BLOCKS and "tr" not in self.open):
            self._end()
        if self.open:
            self.open.pop()
        self.inside &= tag != "article"

    def handle_data(self, data: str) -> None:
        if self.inside and not {"", "script", "style"} & {*self.open}:
            self.text += data

    def _end(self) -> None:
        lines = whole(self.text.splitlines()) if "pre" in self.open else [self.text]
        kept = [" ".join(line.split()) for line in lines if line.strip(" ^\n")]
        if kept and self.sections:
            self.sections[-1][2].extend(kept)
        self.text = ""


def whole(lines: list[str]) -> list[str]:
    """Lines of a terminal, with those that go on four blanks further in joined to the one before."""
    out: list[str] = []
    margin = 0
    for line in lines:
        blanks = len(line) - len(line.lstrip())
        if out and out[-1] and blanks == margin + _FURTHER:
            out[-1] += f" {line.strip()}"
        else:
            out.append(line)
            margin = blanks
    return out


def lines_of(page: str) -> list[tuple[str, str, list[str]]]:
    """The sections of a page: (anchor, heading, lines)."""
    found = _Lines()
    found.feed(page)
    return found.sections


def write_search(target: Path) -> None:
    """Write the lines of all pages of a built site, and make its search page use them."""
    pages = []
    for path in sorted(target.rglob("*.html")):
        name = path.relative_to(target).as_posix()
        sections = [] if name in _LEFT_OUT or name.startswith("_") else lines_of(path.read_text())
        if sections:
            last = name.startswith(("CHANGELOG", "CONTRIBUTING", "SECURITY"))
            pages.append([name, sections[0][1], int(last), sections])
    text = json.dumps(pages, separators=(",", ":")).replace("</", "<\\/")
    (target / "_static" / "lines.js").write_text(f"const PAGES = {text};\n")
    search = target / "search.html"
    page = re.sub(_SPHINX, "", search.read_text())
    page = page.replace('<div id="search-results">', '<h1>Search</h1>\n<div id="search-results">')
    scripts = '<script src="_static/lines.js"></script><script src="_static/find.js"></script></body>'
    search.write_text(page.replace("</body>", scripts))
