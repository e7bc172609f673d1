"""Words: docstrings say what they are about."""

import ast
import re
from collections import defaultdict
from functools import cache

from tests.support import places, sources

# Docstrings that begin with a pronoun, or with "Of" or "What" and no noun of their own, in the whole package: fewer each time.
VAGUE = ("It ", "Its ", "They ", "Those ", "Of ", "That ", "What ")
MOST_VAGUE = 0
# Phrases that are no English, or make a reader look for their noun.
DIALECT = (
    "how manieth", "who looks", "of it none", "that are none", "one that is one", "it is told", "gives way", "if need be",
    "the other way round", "stranger's friend", "than say",
)  # fmt: skip
# Folders whose docstrings have none of these either, and no vague beginnings.
CLEAR = {
    "codegen", "compiler", "diagnostics", "instruction", "isa", "layouts", "native", "numerics", "program", "ptx", "rules",
    "sanitizer", "twin",
}  # fmt: skip
UNCLEAR = (
    "nobody", "somebody", "anybody", "whoever", "goes on", "asked for", "that is none", "has such", "who has it", "hears",
)  # fmt: skip
# Class names of two or more files. Instruction: what a user holds, and a line of PTX, each the word of its reader. The others are
# to be told apart. The list only gets shorter.
TWICE = {"Function", "Instruction", "Memory", "Part"}


@cache
def docstrings() -> list[tuple[str, str]]:
    """(place, docstring) of every module, class and function."""
    found = []
    for path, tree in sources.trees(re.compile('"""')):
        for node in (tree, *sources.statements(tree)):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (text := ast.get_docstring(node)):
                place = f"{path.relative_to(sources.SOURCE)}:{getattr(node, 'lineno', 1)} {getattr(node, 'name', '')}"
                found.append((place, text))
    return found


def test_a_docstring_does_not_lean_on_its_neighbour() -> None:
    """A first sentence names its subject: nobody has to read what stands above."""
    found = [place for place, text in docstrings() if text.startswith(("The same", "Likewise", "As above", "Ditto"))]
    assert not found


def test_vague_beginnings_get_fewer() -> None:
    found = [place for place, text in docstrings() if text.startswith(VAGUE)]
    assert len(found) <= MOST_VAGUE, found


def test_docstrings_have_no_dialect() -> None:
    found = [place for place, text in docstrings() if any(phrase in " ".join(text.split()) for phrase in DIALECT)]
    assert not found


def test_clear_folders_stay_clear() -> None:
    """Docstrings of these folders name who acts: a lane, a warp, an instrument, the caller."""
    own = [(place, " ".join(text.split())) for place, text in docstrings() if {*place.partition(":")[0].split("/")} & CLEAR]
    found = [place for place, text in own if text.startswith(VAGUE) or any(phrase in text for phrase in UNCLEAR)]
    assert not found


def test_a_class_name_stands_once() -> None:
    """A reader who looks for a class by its name finds one."""
    files = defaultdict(set)
    for path in sources.FILES:
        for name in re.findall(r"^ *class (\w+)(?=.*:)", sources.text(path), re.MULTILINE):
            files[name].add(str(path.relative_to(sources.SOURCE)))
    found = {name: sorted(where) for name, where in files.items() if len(where) > 1}
    assert not {name: where for name, where in found.items() if name not in TWICE}, "give one of them another name"
    assert not TWICE - set(found), "no longer double: take it from the list"


def test_no_file_names_a_package_registry_host() -> None:
    """Packages have names; where they are fetched from is up to who installs."""
    hosts = re.compile("|".join(("pypi" + r"\.org", "python" + "hosted", "registry" + r"\.npmjs", "ana" + r"conda\.org")))
    found = []
    for folder in ("src", "docs", "tests", "tools", "evidence", "benchmarks", "examples", ".github", "recipe", ".devcontainer"):
        for path in (places.ROOT / folder).rglob("*"):
            if path.suffix in (".py", ".md", ".json", ".toml", ".yml", ".yaml", ".txt", ".cfg"):
                found += [f"{path}: {hit}" for hit in hosts.findall(path.read_text(errors="replace"))]
    assert found == []
