"""A release (tools/release): what must agree agrees, obstacles are named, and what is published reads well away from here."""

import re
import subprocess
import tarfile
from io import BytesIO
from pathlib import Path

import pytest

from tests.support.places import ROOT
from tools.release import __main__ as command
from tools.release.facts import Facts, notes, obstacles
from tools.release.published import CLONE, published

FILES = {
    "src/mmulator/__init__.py": '__version__ = "0.2.0"\n',
    "CHANGELOG.md": "# Changelog\n\n## 0.2.0 (2026-12-01)\n\nNew: much.\n\n### Part\n- one\n\n## 0.1.0 (2026-11-01)\n\nOld.\n",
    "CITATION.cff": "version: 0.2.0\ndate-released: 2026-12-01\nrepository-code: https://host.example/a/b\n",
    "recipe/recipe.yaml": 'context:\n  version: "0.2.0"\n  repository: https://host.example/a/b\n',
    "pyproject.toml": '[tool.hatch.metadata.hooks.custom]\nrepository = "https://host.example/a/b"\n',
}


def git(folder: Path, *words: str) -> None:
    own = ["-c", "user.name=a", "-c", "user.email=a@b.example", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "-C", str(folder), *own, *words], check=True, capture_output=True)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository that is fit for a release."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    git(tmp_path, "init", "-q")
    git(tmp_path, "remote", "add", "origin", "git@host.example:a/b.git")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "all")
    git(tmp_path, "tag", "v0.2.0")
    return tmp_path


def test_files_of_this_tree_agree() -> None:
    """No two files have different versions or addresses, and the notes of a release are there."""
    assert not list(Facts.of(ROOT).disagreements())
    told = notes(ROOT)
    assert 500 < len(told) < 4000 and "###" not in told


def test_a_tree_that_is_fit(tree: Path) -> None:
    assert obstacles(tree) == []
    assert notes(tree) == "New: much.\n\nAll changes: https://host.example/a/b/blob/v0.2.0/CHANGELOG.md\n"


BROKEN = [
    ("src/mmulator/__init__.py", "0.2.0", "0.3.0", ["CHANGELOG.md has version 0.2.0", "CITATION.cff has", "no tag v0.3.0"]),
    ("CHANGELOG.md", "2026-12-01", "unreleased", ["CHANGELOG.md says unreleased", "CITATION.cff has the date 2026-12-01"]),
    ("CITATION.cff", "2026-12-01", "2026-12-02", ["date-released: 2026-12-01"]),
    ("recipe/recipe.yaml", "0.2.0", "0.1.0", ["recipe/recipe.yaml has version 0.1.0"]),
    ("recipe/recipe.yaml", "a/b", "a/c", ["recipe/recipe.yaml has the repository https://host.example/a/c"]),
    ("pyproject.toml", "a/b", "a/c", ["CITATION.cff has the repository", "so it has to be yours"]),
]


@pytest.mark.parametrize(("file", "old", "new", "said"), BROKEN)
def test_what_stands_in_the_way_is_named(tree: Path, file: str, old: str, new: str, said: list[str]) -> None:
    text = (tree / file).read_text()
    assert old in text
    (tree / file).write_text(text.replace(old, new, 1))
    found = obstacles(tree)
    assert any("1 files are changed" in line and file in line for line in found)
    for part in said:
        assert any(part in line for line in found), (part, found)


def test_links_that_are_published_lead_to_files() -> None:
    """Every relative link of README becomes one to a file of the tag; code and other links stay; no comment is left."""
    text = (ROOT / "README.md").read_text()
    made = published(text, "https://host.example/a/b", "v0.2.0")
    targets = re.findall(r"\]\((\S+?)\)", made)
    own = [t for t in targets if t.startswith("https://host.example/a/b/")]
    assert len(own) > 10 and all(t.startswith(("https://", "http://", "#")) for t in targets)
    for target in own:
        kind, tag, path = target.removeprefix("https://host.example/a/b/").split("/", 2)
        assert (ROOT / path.partition("#")[0]).is_file() and tag == "v0.2.0"
        assert kind == ("raw" if path.endswith(".svg") else "blob")
    assert "<!--" not in made and "x[(4,)]" not in made
    assert re.findall(r"^```\w*\n.*?^```$", text, re.DOTALL | re.M) == re.findall(r"^```\w*\n.*?^```$", made, re.DOTALL | re.M)


def test_a_readme_without_its_place_is_refused() -> None:
    with pytest.raises(ValueError, match=CLONE):
        published("# mmulator\n", "https://host.example/a/b", "v1")


def test_the_sdist_is_small_and_has_no_vectors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    builder = pytest.importorskip("hatchling.builders.sdist").SdistBuilder(str(ROOT))
    (path,) = map(Path, builder.build(directory=str(tmp_path), versions=["standard"]))
    assert not list(command.faults(path))
    with tarfile.open(path) as packed:
        (info,) = (name for name in packed.getnames() if name.endswith("PKG-INFO"))
        text = packed.extractfile(info).read().decode()  # type: ignore[union-attr]
        needed = {"hatch_build.py", "tools/ship.py", "tools/release/published.py"}  # by a build of a wheel from it
        assert needed <= {name.partition("/")[2] for name in packed.getnames()}
    address = Facts.of(ROOT).address
    assert f"Project-URL: Source, {address}\n" in text and f"]({address}/blob/v" in text
    monkeypatch.setitem(command.LIMITS, ".gz", 1000)
    assert any("at most 1,000" in line for line in command.faults(path))


def test_an_sdist_with_vectors_is_refused(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as packed:
        packed.addfile(tarfile.TarInfo("mmulator-1/vectors/a"), BytesIO())
    assert list(command.faults(tmp_path / "a.tar.gz")) == ["a.tar.gz has vectors/a"]


def test_the_first_commands_are_those_of_the_readme() -> None:
    assert command.first_commands((ROOT / "README.md").read_text()) == [
        "pip install .", "mmulator run examples/hopper_gemm/launch.toml",
    ]  # fmt: skip
    with pytest.raises(ValueError, match="other commands"):
        command.first_commands("# x\n\n    make\n")
