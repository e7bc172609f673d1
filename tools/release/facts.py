"""What must agree before a release: the version, its date, the repository's address, the state of the tree."""

from __future__ import annotations

import re
import subprocess
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tools.release.published import version_of

CHANGELOG, CITATION, RECIPE = "CHANGELOG.md", "CITATION.cff", "recipe/recipe.yaml"
UNRELEASED = "unreleased"
_HEADING = re.compile(r"^## (\S+) \((.+)\)$", re.MULTILINE)
_REMOTE = re.compile(r"^(?:https://|ssh://git@|git@)([^:/]+)[:/](.+?)(?:\.git)?/?$")


def _field(text: str, name: str) -> str:
    """The value of a line `name: value` of YAML, or an empty string."""
    found = re.search(rf'^\s*{name}: "?(.*?)"?$', text, re.MULTILINE)
    return found[1] if found else ""


@dataclass(frozen=True)
class Facts:
    """What the files of a tree say about a release.

    version: of the package. versions: of each other file that has it.
    date: of the changelog's newest section, or UNRELEASED. cited: of CITATION.cff, or an empty string.
    address: of the repository in pyproject.toml. addresses: of each other file that has it.
    """

    version: str
    versions: dict[str, str]
    date: str
    cited: str
    address: str
    addresses: dict[str, str]

    @classmethod
    def of(cls, root: Path) -> Facts:
        log, citation, recipe = ((root / name).read_text(encoding="utf-8") for name in (CHANGELOG, CITATION, RECIPE))
        heading = _HEADING.search(log)
        if heading is None:
            raise ValueError(f"{CHANGELOG} has no heading such as ## 0.2.0 (2026-12-01)")
        hooks = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["hatch"]["metadata"]["hooks"]
        return cls(
            version_of(root),
            {CHANGELOG: heading[1], CITATION: _field(citation, "version"), RECIPE: _field(recipe, "version")},
            heading[2],
            _field(citation, "date-released"),
            hooks["custom"]["repository"],
            {CITATION: _field(citation, "repository-code"), RECIPE: _field(recipe, "repository")},
        )

    def disagreements(self) -> Iterator[str]:
        """Sentences about files that contradict each other, at any time between releases."""
        for file, version in self.versions.items():
            if version != self.version:
                yield f"{file} has version {version or 'none'}, the package {self.version}"
        for file, address in self.addresses.items():
            if address != self.address:
                yield f"{file} has the repository {address or 'none'}, pyproject.toml {self.address}"
        if self.date == UNRELEASED and self.cited:
            yield f"{CITATION} has the date {self.cited}, {CHANGELOG} says {UNRELEASED}"


def _git(root: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True)
    return done.stdout.rstrip() if done.returncode == 0 else ""


def obstacles(root: Path) -> list[str]:
    """Sentences about all that stands in the way of a release of this tree, each with what to do."""
    facts = Facts.of(root)
    found = list(facts.disagreements())
    if facts.date == UNRELEASED:
        found.append(f"{CHANGELOG} says {UNRELEASED}: write the day, as ## {facts.version} (2026-12-01)")
    elif facts.cited != facts.date:
        cited = facts.cited or "none"
        found.append(f"{CITATION} has the date {cited}, {CHANGELOG} {facts.date}: write date-released: {facts.date}")
    changed = _git(root, "status", "--porcelain").splitlines()
    if changed:
        found.append(f"{len(changed)} files are changed or not in git, such as {changed[0][3:]}: commit or remove them")
    tag = f"v{facts.version}"
    if tag not in _git(root, "tag", "--points-at", "HEAD").split():
        found.append(f"the commit has no tag {tag}: git tag -s {tag} -m {facts.version}")
    remote = _REMOTE.match(_git(root, "remote", "get-url", "origin"))
    if remote is None or f"https://{remote[1]}/{remote[2]}" != facts.address:
        said = f"{remote[1]}/{remote[2]}" if remote else "no address of a host"
        found.append(
            f"pyproject.toml has the repository {facts.address}, and the remote `origin` is {said}: readers of the package "
            "are sent there, so it has to be yours"
        )
    return found


def notes(root: Path) -> str:
    """The release notes: the newest section of the changelog up to its first part, and where the rest stands."""
    facts = Facts.of(root)
    text = (root / CHANGELOG).read_text(encoding="utf-8")
    heading = _HEADING.search(text)
    assert heading is not None  # Facts.of has found it
    told = re.split(r"^##", text[heading.end() :], maxsplit=1, flags=re.MULTILINE)[0].strip()
    if not told:
        raise ValueError(f"{CHANGELOG}: {facts.version} begins without a summary for readers")
    return f"{told}\n\nAll changes: {facts.address}/blob/v{facts.version}/{CHANGELOG}\n"
