"""What a package index shows: README.md with links that lead somewhere from there, and addresses of the project.

pyproject.toml names this file as hatch's metadata hook, and has the one place where the repository's address stands.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

CLONE = "in a clone of this repository"
_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!\w+:|#)([^)\s]+)\)")
_MARK = re.compile(r"<!-- .*? -->\n")
_CODE = re.compile(r"(^```.*?^```$)", re.DOTALL | re.MULTILINE)


def published(text: str, address: str, tag: str) -> str:
    """A README as it reads away from its repository.

    text: Markdown, whose links are relative to the repository's root.
    address: of the repository, without a slash at its end.
    tag: of the release, whose files are linked.
    """
    if CLONE not in text:
        raise ValueError(f"README.md does not say {CLONE!r}: nothing can be linked there")

    def absolute(found: re.Match[str]) -> str:
        picture, words, target = found.groups()
        return f"{picture}[{words}]({address}/{'raw' if picture else 'blob'}/{tag}/{target})"

    text = _MARK.sub("", text.replace(CLONE, f"in a clone of [the repository]({address})"))
    parts = _CODE.split(text)  # blocks of code stand at odd places
    return "".join(part if n % 2 else _LINK.sub(absolute, part) for n, part in enumerate(parts))


def version_of(root: Path) -> str:
    """The version that src/mmulator/__init__.py has."""
    found = re.search(r'^__version__ = "(.+)"$', (root / "src/mmulator/__init__.py").read_text(), re.MULTILINE)
    if found is None:
        raise ValueError("src/mmulator/__init__.py has no line __version__")
    return found[1]


class Published(MetadataHookInterface):
    """The fields `readme` and `urls` of the metadata."""

    def update(self, metadata: dict[str, Any]) -> None:
        address = self.config["repository"]
        tag = f"v{version_of(Path(self.root))}"
        text = published(Path(self.root, "README.md").read_text(encoding="utf-8"), address, tag)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
        metadata["urls"] = {
            "Source": address,
            "Documentation": f"{address}/blob/{tag}/docs/README.md",
            "Changelog": f"{address}/blob/{tag}/CHANGELOG.md",
            "Issues": f"{address}/issues",
        }
