"""Build the site: pages of docs/ and reference pages made from the package, by Sphinx, into a folder of plain files."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from tools.site.reference import write_reference
from tools.site.search import write_search
from tools.site.sources import CONFIGURATION, copy_pages, index


def build(target: Path) -> int:
    """Write the site into a folder, which is made anew. Returns Sphinx's exit code; a warning counts as an error."""
    from sphinx.application import Sphinx
    from sphinx.util.docutils import docutils_namespace, patch_docutils

    with tempfile.TemporaryDirectory() as made:
        source, doctrees = Path(made, "source"), Path(made, "doctrees")
        source.mkdir()
        groups = copy_pages(source)
        write_reference(source)
        (source / "index.md").write_text(index(groups))
        shutil.rmtree(target, ignore_errors=True)
        with patch_docutils(), docutils_namespace():
            app = Sphinx(
                source, None, target, doctrees, "html", CONFIGURATION, status=None, warning=sys.stderr, freshenv=True,
                warningiserror=True,
            )  # fmt: skip
            app.build(force_all=True)
    for page in target.rglob("*.html"):
        page.write_text(accessible(page.read_text()))
    write_search(target)
    return int(app.statuscode)


def accessible(page: str) -> str:
    """A page for keyboards and screen readers: headings of the list of pages have a level, and what scrolls takes focus."""
    page = page.replace('role="heading">', 'role="heading" aria-level="2">').replace("<pre>", '<pre tabindex="0">')
    page = page.replace('<aside class="sidebar-drawer">', '<aside class="sidebar-drawer" aria-label="Pages">')
    page = page.replace('<aside class="toc-drawer', '<aside aria-label="On this page" class="toc-drawer')
    page = page.replace('<th class="head"><p></p></th>', "<td></td>")  # the corner of a table
    return page.replace('<div class="table-wrapper', '<div tabindex="0" class="table-wrapper')


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.site", description=__doc__)
    parser.add_argument("folder", type=Path, help="receives the site; what is there is removed")
    target = parser.parse_args().folder
    if target.exists() and not (target / "objects.inv").exists() and any(target.iterdir()):
        parser.error(f"{target} is no site, and not empty")
    code = build(target)
    print(f"{target / 'index.html'}: {sum(1 for _ in target.rglob('*.html'))} pages")
    return code


if __name__ == "__main__":
    raise SystemExit(main())
