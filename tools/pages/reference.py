"""Pages and tables of docs/reference/ that say what commands, settings and errors there are, and the index of docs/."""

from __future__ import annotations

import re
from collections.abc import Iterator
from inspect import cleandoc
from pathlib import Path
from typing import Any

from mmulator.base import errors
from mmulator.cli.commands import COMMANDS, command_of
from mmulator.cli.parser import Group, declared, first_paragraph
from mmulator.host import settings
from tools.pages import options
from tools.pages.tables import table

DOCS = Path(__file__).resolve().parents[2] / "docs"
HEAD = "<!-- Made by tools/pages/spec_map.py from the tables; do not edit. -->\n\n"
FOLDERS = {  # of docs/, and what the index calls them
    "tutorials": ("Tutorials", "You learn by doing, ten minutes each."),
    "how-to": ("How to", "You have a task."),
    "explanation": ("Explanation", "You want to understand an answer."),
    "reference": ("Reference", "You look something up. Made by tools, or compared by tests."),
    "developers": ("Developers", "You change mmulator itself."),
}


# commands -----------------------------------------------------------------------------------------------------------
def commands(command: Any, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """(words, function) of a command and of the commands that it is made of; a group alone: (words, None).

    words: those that name the command.
    """
    yield words, command.alone if isinstance(command, Group) else command
    for name, inner in command.commands.items() if isinstance(command, Group) else ():
        yield from commands(inner, (*words, name))


def _section(words: tuple[str, ...], function: Any) -> str:
    rows = [*declared(function)] if function else []
    taken = [(options.written(a.row), a.row.help) for a in rows]
    said = "" if len(words) == 1 or not function else f"{first_paragraph(function)}\n\n"
    return f"{'#' * (1 + len(words))} mmulator {' '.join(words)}\n\n{said}" + (table(("word", "meaning"), taken) if taken else "")


def commands_page() -> str:
    """docs/reference/commands.md: every command with all that it takes, and where each setting is taken."""
    parts = [
        HEAD + "# Commands\n\nEvery command, its options, and what a setting is called at each place that takes it.\n",
        "    mmulator explain wgmma m64n128 bf16\n    mmulator layout mma m16n8k16 f16 a --element 3,5\n",
        table(("command", "what it does"), [(f"[`mmulator {n}`](#mmulator-{n})", text) for n, text in COMMANDS.items()]),
        "`mmulator COMMAND --help` has examples. Where a PTX file is wanted, a `.cu`, a program, a library, an object, a fatbin\n"
        "or a cubin will do. A command exits with 0 only if all is well; `exec` exits with the code of the program, else with 3\n"
        "if `--sanitize` found an error, else with 4 if work was refused. `mmulator --install-completion bash` (or zsh, fish)\n"
        "completes commands and instructions.\n",
        *(_section(words, function) for name in COMMANDS for words, function in commands(command_of(name), (name,))),
        "## pytest\n\n" + table(("option", "meaning"), [(options.written(row), row.help) for row in settings.taken("pytest")]),
        "## Settings\n\n" + options.settings_by_door(),
    ]  # fmt: skip
    return "\n".join(part for part in parts if part)


def settings_page() -> str:
    """docs/reference/settings.md: the variables of the environment, and the folder that mmulator keeps."""
    names = [(f"`{settings.PREFIX}{name}`", text) for name, text in settings.variables().items()]
    return HEAD + (
        "# Settings and the cache\n\nThe variables of the environment that mmulator reads, and where it keeps compiled code.\n\n"
        "For another name that begins with `MMULATOR_` you get one warning with the nearest known name. "
        "[Commands](commands.md#settings)\nhas the same settings as options.\n\n"
        f"{table(('variable', 'what it says'), names)}\n"
        "## The cache\n\nCompiled code is kept in `$MMULATOR_CACHE`, or `$XDG_CACHE_HOME/mmulator`, or `~/.cache/mmulator`.\n\n"
        "    mmulator cache           # where it is, how many entries, how many bytes\n"
        "    mmulator cache clear     # removes what mmulator put there, and nothing else\n\n"
        "You may delete the folder at any time, and several processes may use it at once. An entry that is damaged is compiled\n"
        "again. A folder or entry of another user, or one that others may write, is not used, and a note says so: `chmod go-w`\n"
        "makes it usable. `MMULATOR_CPU=x86-64-v3` makes code for all processors of that level, so that different machines can\n"
        "share a folder. `pip uninstall mmulator` leaves the folder.\n"
    )


# errors -------------------------------------------------------------------------------------------------------------
def errors_table() -> str:
    """The classes of errors, with what their docstrings say, in the order of base/errors.py."""
    found = [c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, errors.MmulatorError)]
    rows = [(f"`{c.__name__}`", " ".join(cleandoc(c.__doc__ or "").partition("\n\n")[0].split())) for c in found[1:]]
    return table(("class", "when"), rows)


# the index ----------------------------------------------------------------------------------------------------------
def title_and_answer(text: str) -> tuple[str, str]:
    """The title of a page, and the first sentence after it without links."""
    text = re.sub(r"<!--.*?-->\n*", "", text, flags=re.DOTALL)
    title, _, rest = text.partition("\n")
    paragraph = " ".join(rest.strip().partition("\n\n")[0].split())
    paragraph = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", paragraph)
    sentence = re.split(r"(?<=[.?!])\s+(?=[A-Z`])", paragraph, maxsplit=1)[0]
    return title.removeprefix("# "), sentence.rstrip(":")


def answers(folder: str) -> Iterator[tuple[str, str, str]]:
    """(path below docs/, title, first sentence) of each page of a folder."""
    for path in sorted((DOCS / folder).glob("*.md")):
        yield (f"{folder}/{path.name}", *title_and_answer(path.read_text()))


def llms_text() -> str:
    """llms.txt: what README says first, and every page, for programs that read before they answer."""
    _, said = title_and_answer((DOCS.parent / "README.md").read_text())
    parts = [f"# mmulator\n\n> {said}\n"]
    for folder, (heading, _) in FOLDERS.items():
        lines = [f"- [{title}](docs/{path}): {answer}" for path, title, answer in answers(folder)]
        parts.append("\n".join([f"## {heading}\n", *lines, ""]))
    return "\n".join(parts)


def index_page() -> str:
    """docs/README.md: every page by its title and its first sentence."""
    first = "Every page by its title and its first sentence. Start with the [README](../README.md) of the project.\n"
    parts = [f"{HEAD}# Documentation\n\n{first}"]
    for folder, (heading, whom) in FOLDERS.items():
        rows = [(f"[{title}]({path})", answer) for path, title, answer in answers(folder)]
        parts.append(f"## {heading}\n\n{whom}\n\n{table(('page', 'says'), rows)}")
    return "\n".join(parts)
