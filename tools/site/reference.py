"""Reference pages made from the package: the Python interface with signatures, rules with their examples."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import mmulator
from mmulator.base.rules import TOPICS
from mmulator.base.rules.examples import example
from tools.pages.rules import shown
from tools.site.sources import ROOT


def write_reference(source: Path) -> None:
    """Write the pages, and list that which docs/ does not have."""
    folder = source / "reference"
    pages = {"python": _python(), "rules": _rules()}  # that of docs/ lists the rules alone
    for name, text in pages.items():
        (folder / f"{name}.md").write_text(text)
    listing = source / "reference.md"
    row = "| [Python reference](reference/python.md) | Every public name of `import mmulator as mm`, with its signature. |\n"
    listing.write_text(re.sub(r"(\| --- \| --- \|\n)", lambda m: m[1] + row, listing.read_text(), count=1)
                       .replace("\n\nreference/", "\n\nreference/python\nreference/", 1))  # fmt: skip


def _python() -> str:
    """The public names, in the order of the stub, each by autodoc."""
    stub = (ROOT / "src/mmulator/__init__.pyi").read_text()
    lines = ["# Python reference", "", "Public names of `import mmulator as mm`. [Python](../how-to/python.md) explains them."]
    lines.append("")
    for origin, name in re.findall(r"^from (\S+) import (\w+) as", stub, re.MULTILINE):
        kind = "autoclass" if isinstance(getattr(mmulator, name), type) else "autofunction"
        lines += _directive(name, kind, f"{origin}.{name}")
    for _, second in re.findall(r"^from (\S+) import \w+ as \w+, (\w+) as", stub, re.MULTILINE):
        lines += _directive(second, "autofunction", f"{_}.{second}")
    lines += ["## mm.errors", "", *_members("mmulator.errors", "exceptions of the family", Exception)]
    return "\n".join(lines)


def _directive(name: str, kind: str, path: str) -> list[str]:
    members = [":members:"] if kind == "autoclass" else []
    return [f"## mm.{name}", "", "```{eval-rst}", f".. {kind}:: {path}", *(f"   {m}" for m in members), "```", ""]


def _members(module: str, what: str, kind: type) -> list[str]:
    found = [n for n, v in vars(import_module(module)).items() if isinstance(v, type) and issubclass(v, kind)
             and v.__module__ == module]  # fmt: skip
    return [line for name in found for line in ("```{eval-rst}", f".. autoexception:: {module}.{name}", "   :show-inheritance:",
                                                "```", "")]  # fmt: skip


def _rules() -> str:
    """Every rule of the sanitizer, with its right and wrong lines."""
    lines = ["# Rules of the sanitizer", "", "What `mmulator explain RULE` prints. [The sanitizer](../how-to/sanitizer.md) "
             "says how it finds them.", ""]  # fmt: skip
    for topic, rules in TOPICS.items():
        lines += [f"## {topic}", ""]
        for rule in rules:
            lines += [f"### {rule.name}", "", f"{str(rule.severity).capitalize()}: {rule.title}.", "", rule.text, "",
                      f"*{rule.section}*", "", f"What to do: {rule.hint}.", ""]  # fmt: skip
            if example(rule.name) is not None:
                lines += ["Broken, and found:", "", shown(rule.name)]
    return "\n".join(lines)
