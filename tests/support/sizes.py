"""Sizes of the rooms of src/mmulator and of what stands beside it: files, lines and tokens, and the budgets that they may fill.

A token is one that Python reads, without comments and layout; an f-string is one, as it was before Python 3.12.
"""

import tokenize
import tomllib
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

from tests.support.places import ROOT

FOLDERS = ("src", "tests", "tools", "evidence")
PACKAGE = ROOT / "src" / "mmulator"
BUDGETS = ROOT / "tools" / "budgets.toml"
LOOSE = "*.py"  # of src/mmulator, beside its rooms
ADVICE = (
    f"make it smaller, or raise the number in {BUDGETS.relative_to(ROOT)} in a commit of its own, with the reason in its message "
    "and beside the number"
)
_LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
_OPEN, _CLOSE = ({getattr(tokenize, f"{s}STRING_{end}", -1) for s in "FT"} - {-1} for end in ("START", "END"))


class Size(NamedTuple):
    """How large a file or folder is, or may be."""

    files: int = 0
    lines: int = 0
    tokens: int = 0

    def plus(self, other: "Size") -> "Size":
        return Size(*map(sum, zip(self, other)))

    def with_room(self) -> "Size":
        """A hundredth more, lines in hundreds and tokens in thousands."""
        return Size(*(-(-n * 101 // (100 * step)) * step for n, step in zip(self, (1, 100, 1000))))


def tokens(path: Path) -> int:
    """How many tokens a file of Python has."""
    count = depth = 0  # in how many f-strings
    with tokenize.open(path) as file:
        for token in tokenize.generate_tokens(file.readline):
            depth -= token.type in _CLOSE
            count += not depth and token.type not in _LAYOUT and token.type not in _CLOSE
            depth += token.type in _OPEN
    return count


def size(path: Path) -> Size:
    """The size of a file of Python."""
    return Size(1, len(path.read_text().splitlines()), tokens(path))


def sizes() -> dict[Path, Size]:
    """The size of every file of Python in the folders."""
    return {path: size(path) for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))}


def totals(every: dict[Path, Size]) -> dict[str, Size]:
    """The sizes that have a budget: of each folder, and of each room as `src/ROOM`.

    every: as `sizes` gives them.
    """
    found: dict[str, Size] = defaultdict(Size)
    for path, one in every.items():
        names = [path.relative_to(ROOT).parts[0]]
        if names == ["src"]:
            room = path.relative_to(PACKAGE).parts
            names.append(f"src/{room[0] if len(room) > 1 else LOOSE}")
        for name in names:
            found[name] = found[name].plus(one)
    return dict(found)


def budgets(table: str = "budgets") -> dict[str, Size]:
    """The budget of each folder and room, or with `goals` the sizes that are wanted, as far as there are any; 0: none."""
    return {name: Size(**numbers) for name, numbers in tomllib.loads(BUDGETS.read_text())[table].items()}


def passed(found: dict[str, Size], limits: dict[str, Size]) -> list[str]:
    """A sentence about each number that is larger than its limit. Every folder and room must have a limit, and no other."""
    out = [f"{name}: it has no budget, or there is no such room" for name in sorted(found.keys() ^ limits.keys())]
    for name in sorted(found.keys() & limits.keys()):
        for what, has, most in zip(Size._fields, found[name], limits[name]):
            if most and has > most:
                out.append(f"{name} has {has:,} {what}, {has - most:,} more than {most:,}")
    return out
