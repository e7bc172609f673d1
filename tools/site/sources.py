"""Pages of docs/ as Sphinx reads them: copied, with links to other pages of the site, in the order of docs/README.md.

The side bar has the pages of the first groups, and a page for each other group, which lists its pages.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

from mmulator import __version__

ROOT = Path(__file__).parents[2]
TOP = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
CONFIGURATION: dict[str, Any] = {
    "project": "mmulator", "author": "The mmulator authors", "copyright": "The mmulator authors", "version": __version__,
    "release": __version__, "extensions": ["myst_parser", "sphinx.ext.autodoc", "tools.site.docstrings"],
    "source_suffix": {".md": "markdown"}, "html_theme": "furo", "html_title": f"mmulator {__version__}",
    "html_show_sourcelink": False, "html_use_index": False, "html_copy_source": False, "html_show_sphinx": False,
    "default_role": "code",
    "myst_heading_anchors": 4, "myst_links_external_new_tab": False, "autodoc_typehints": "signature",
    "autodoc_member_order": "bysource",
    "suppress_warnings": ["myst.header", "misc.highlighting_failure"], "html_last_updated_fmt": None,
    "html_theme_options": {"top_of_page_buttons": []}, "highlight_language": "none", "language": "en",
    "toc_object_entries": False, "html_static_path": [str(ROOT / "tools" / "site" / "static")], "html_css_files": ["site.css"],
}  # fmt: skip
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s#]*)(#[^)\s]*)?\)")
_GROUP = re.compile(r"^## (.*)$|^\| (\[.*?)\|", re.MULTILINE)
LISTED = ("Tutorials", "How to")  # groups whose pages the side bar lists


def copy_pages(source: Path) -> dict[str, list[str]]:
    """Copy pages and pictures, and write a page for each group that the side bar does not list; pages by heading, in order."""
    docs = ROOT / "docs"
    shutil.copytree(docs / "images", source / "images")
    for page in sorted(docs.rglob("*.md")):
        if page != docs / "README.md":
            place = source / page.relative_to(docs)
            place.parent.mkdir(exist_ok=True)
            place.write_text(_with_links(page.read_text(), page, docs))
    for name in TOP:
        text = _with_links((ROOT / name).read_text(), ROOT / name, docs)
        (source / name).write_text(f"---\nnosearch: true\n---\n\n{text}")  # whoever searches asks for pages of docs/
    contents = (docs / "README.md").read_text()
    groups = _groups(contents)
    told = {name for names in groups.values() for name in names} | {name.removesuffix(".md") for name in TOP}
    lost = [p.relative_to(source).as_posix() for p in source.rglob("*.md") if str(p.relative_to(source))[:-3] not in told]
    if lost:
        raise SystemExit(f"docs/README.md has no {', '.join(lost)}")
    for part in re.split(r"^## ", contents, flags=re.MULTILINE)[1:]:
        heading, _, text = part.partition("\n")
        if heading not in LISTED:
            _write_group(source, heading, _with_links(text, docs / "README.md", docs), groups[heading])
            groups[heading] = [heading.lower()]
    _write_group(source, "Project", "Changes, how to contribute, and how to report a weakness.\n", [*map(_stem, TOP)])
    groups["Project"] = ["project"]
    return groups


def _stem(name: str) -> str:
    return name.removesuffix(".md")


def _write_group(source: Path, heading: str, text: str, pages: list[str]) -> None:
    """Write the page of a group: what docs/README.md says of its pages."""
    tree = ["```{toctree}", ":hidden:" if "](" in text else ":maxdepth: 1", "", *pages, "```"]
    (source / f"{heading.lower()}.md").write_text(f"# {heading}\n{text}\n" + "\n".join(tree) + "\n")


def _groups(text: str) -> dict[str, list[str]]:
    """Pages by heading."""
    found: dict[str, list[str]] = {}
    heading = ""
    for match in _GROUP.finditer(text):
        if match[1]:
            heading = match[1]
        else:
            pages = re.findall(r"\]\(([\w./-]+)\.md\)", match[2])
            found.setdefault(heading, []).extend(p for p in pages if not p.startswith(".."))
    return found


def _with_links(text: str, page: Path, docs: Path) -> str:
    """A page whose links lead to pages of the site; links to files that the site lacks become their words."""

    def turned(match: re.Match[str]) -> str:
        picture, words, path, anchor = match[1], match[2], match[3], match[4] or ""
        if not path or re.match(r"[a-z]+:", path):
            return match[0]
        target = (page.parent / path).resolve()
        if target == ROOT / "README.md" or target == docs / "README.md":
            name = "index.md"
        elif target.parent == ROOT and target.name in TOP:
            name = target.name
        elif target.is_relative_to(docs) and target.is_file():
            name = target.relative_to(docs).as_posix()
        else:
            return words
        depth = len(page.parent.relative_to(docs).parts) if page.is_relative_to(docs) else 0
        return f"{picture}[{words}]({'../' * depth}{name}{anchor})"

    parts = re.split(r"(^```.*?^```$)", text, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if part.startswith("```") else _LINK.sub(turned, part) for part in parts)


def index(groups: dict[str, list[str]]) -> str:
    """The first page: the project's README, and the lists of pages."""
    lines = [_with_links((ROOT / "README.md").read_text(), ROOT / "README.md", ROOT / "docs")]
    for name, pages in groups.items():
        caption = [f":caption: {name}"] if name in LISTED else []
        lines += ["```{toctree}", *caption, ":hidden:", "", *pages, "```", ""]
    return "\n".join(lines)
