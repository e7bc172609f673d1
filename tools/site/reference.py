"""Reference pages made from the package: the Python interface with signatures, commands from their help, rules."""

from __future__ import annotations

import contextlib
import io
import os
import re
from importlib import import_module
from pathlib import Path

import mmulator
from mmulator.base.rules import TOPICS
from mmulator.base.rules.examples import example
from mmulator.cli.app import run
from mmulator.cli.commands import COMMANDS
from tools.pages.rules import told
from tools.site.sources import ROOT


def write_reference(source: Path) -> list[str]:
    """Write the pages; their names."""
    folder = source / "reference"
    folder.mkdir()
    pages = {"python": _python(), "command-line": _commands(), "rules": _rules()}
    for name, text in pages.items():
        (folder / f"{name}.md").write_text(text)
    return [f"reference/{name}" for name in pages]


def _python() -> str:
    """The public names, in the order of the stub, each by autodoc."""
    stub = (ROOT / "src/mmulator/__init__.pyi").read_text()
    lines = ["# Python reference", "", "All public names of `import mmulator as mm`. [Python](../python.md) explains them.", ""]
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


def _commands() -> str:
    lines = ["# Command line", "", "What `mmulator COMMAND --help` prints. [Commands](../commands.md) explains them.", ""]
    for name in COMMANDS:
        lines += [f"## mmulator {name}", "", "```text", _help(name), "```", ""]
    return "\n".join(lines)


def _help(name: str) -> str:
    old = {key: os.environ.get(key) for key in ("COLUMNS", "NO_COLOR", "TERMINAL_WIDTH")}
    os.environ |= {"COLUMNS": "80", "NO_COLOR": "1", "TERMINAL_WIDTH": "80"}
    out = io.StringIO()
    try:
        with contextlib.redirect_stdout(out):
            run([name, "--help"])
    finally:
        for key, value in old.items():
            os.environ.pop(key) if value is None else os.environ.__setitem__(key, value)
    return "\n".join(line.rstrip() for line in out.getvalue().strip("\n").splitlines())


def _rules() -> str:
    """Every rule of the sanitizer, with its right and wrong lines."""
    lines = ["# Rules of the sanitizer", "", "What `mmulator explain RULE` prints. [The sanitizer](../sanitizer.md) says how it "
             "finds them.", ""]  # fmt: skip
    for topic, rules in TOPICS.items():
        lines += [f"## {topic}", ""]
        for rule in rules:
            lines += [f"### {rule.name}", "", f"{str(rule.severity).capitalize()}: {rule.title}.", "", rule.text, "",
                      f"*{rule.section}*", "", f"What to do: {rule.hint}.", ""]  # fmt: skip
            shown = example(rule.name)
            if shown is not None:
                lines += ["Right:", "", "```text", *shown.right, "```", "", "Wrong:", "", "```text", *shown.wrong, "```", ""]
                lines += ["What is said:", "", "```text", told(rule.name), "```", ""]
    return "\n".join(lines)
