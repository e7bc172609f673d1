"""Lines of the program that generated PTX was compiled from, as its `.loc` and `.file` say.

Debugging Directives (PTX ISA 9.1).
"""

from __future__ import annotations

import os
import re
import stat
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path, PurePath
from typing import Any, NamedTuple

from mmulator.base.classes import dataclass

# patterns are texts, which `re` compiles where they are used first: a start uses none
_FILE = r'(?m)^[^/\n"]*?\.file[ \t]+(\d{1,9})[ \t]+"([^"\n]*)"(?:[ \t]*,[ \t]*(\d{1,18})[ \t]*,[ \t]*(\d{1,18}))?'
ASM = "// begin inline asm", "// end inline asm"  # a .loc in between counts the rows of the assembly, not the program's
_INSTRUCTION = r"(?m)^[ \t]*(?:\w+:[ \t]*)?\{?[ \t]*(?:@!?[\w$%]+[ \t]+)?([a-z]\w*(?:\.[\w:]+)*)(?=[ \t;])"
_STATEMENT = 40, 60  # lines of a program before and after the one that a compiler gives to inline assembly, where its text may be
_STRINGS = r'\.section\s+"?\.debug_str"?\s*\{([^}]*)'
_BYTES = r"[\w$]+:|\.\w+|0[xX][0-9a-fA-F]{1,9}|\d{1,9}"
# Only files with these endings are read, and only single lines: PTX from elsewhere can name any file.
_SUFFIXES = (".py", ".pyx", ".cu", ".cuh", ".c", ".cc", ".cpp", ".cxx", ".h", ".hh", ".hpp", ".inc", ".inl", ".rs", ".jl")
PROGRAM: set[str] = set()  # files that a launch says the kernel was compiled from: quoted wherever they lie
_MAX_BYTES = 8 << 20
_MAX_CALLS = 32


_STEERING = (
    *range(0x09), *range(0x0B, 0x20), *range(0x7F, 0xA0),  # C0 and C1; tabs and line breaks stay
    0x061C, 0x200E, 0x200F, 0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A), 0xFEFF,  # direction, breaks
    *range(0xD800, 0xE000),  # halves of characters
)  # fmt: skip
_SHOWN = dict.fromkeys(_STEERING, "?")


def printable(text: str) -> str:
    """A text with `?` for each character that would steer a terminal or turn its line around."""
    return text if text.isascii() and text.isprintable() else text.translate(_SHOWN)


class Mark(NamedTuple):
    """One .loc directive, from character `offset` of the text on.

    file: number of its .file; 0: nothing is known.
    function: label in .debug_str.
    skip: bytes behind that label.
    call: (file, line, column) at which the function was inlined.
    """

    offset: int
    file: int = 0
    line: int = 0
    column: int = 0
    function: str = ""
    skip: int = 0
    call: tuple[int, int, int] | None = None


_INNER, _OUTER = 3, 2  # of a long chain of calls: how many are always told


@dataclass(frozen=True)
class Location:
    """A line of the program that PTX was compiled from. `str` gives `mm.py:17`.

    file: as the compiler wrote it.
    column: 0 if it is not known.
    function: the inlined function that the line belongs to, as C++ or Python writes it; "" for the kernel itself.
    inlined_at: the line that calls it.
    """

    file: str
    line: int
    column: int = 0
    function: str = ""
    inlined_at: Location | None = None
    _beside: str = ""  # the PTX file, for relative names
    _stamp: tuple[int, int] | None = None  # modification time and size that .file gives

    def __str__(self) -> str:
        return f"{PurePath(self.file).name}:{self.line}"

    @property
    def brief(self) -> str:
        """The location in one line: `mm.py:17`; for an inlined function in another file also the line of the kernel."""
        *_, last = self.chain
        return f"{self} from {last}" if last.file != self.file else str(self)

    @property
    def chain(self) -> Iterator[Location]:
        """This location, the call it was inlined at, the call of that, and so on."""
        at: Location | None = self
        while at is not None:
            yield at
            at = at.inlined_at

    @property
    def paths(self) -> dict[Path, None]:
        """Where the file may be: a relative name is meant from the working directory, or from the PTX file's folder."""
        return dict.fromkeys((Path(self.file), Path(self._beside).parent / self.file))

    def quote(self) -> str | None:
        """The text of the line, if the file is there and is the one that was compiled, as far as `.file` tells."""
        row = self._row()
        return printable(row.replace("\t", " ")).strip()[:100] if row is not None else None

    def indented(self) -> str | None:
        """The text of the line with the spaces in front of it, where `quote` has the text."""
        row = self._row()
        return printable(row.expandtabs(4)).rstrip() if row is not None else None

    @property
    def rows(self) -> list[str] | None:
        """All lines of the file, where `quote` may have the text of one."""
        found = (_rows_of(name, self._stamp, Path(self._beside).parent) for name in self.paths)
        return next((rows for rows in found if rows is not None), None)

    def _row(self) -> str | None:
        rows = self.rows
        return rows[self.line - 1] if rows is not None and 0 < self.line <= len(rows) else None

    def lines(self, width: int | None = None) -> list[str]:
        """Lines of a message: each location of the chain, and its text where it can be read.

        width: columns; longer lines lose the front of their path, then the end of the function's name, and of a long chain
            those in the middle are left out whose text cannot be read.
        """
        out, chain = [], list(self.chain)
        for n, at in enumerate(chain):
            text = at.quote()
            if width is not None and _INNER <= n < len(chain) - _OUTER and not text:
                if n == _INNER:
                    out.append("inlined at ...")
                continue
            lead, function = "inlined at " if n else "source: ", f", in {at.function}" if at.function else ""
            whole = f"{lead}{at.file}:{at.line}{function}"
            if width is not None and len(whole) > width:
                parts = PurePath(at.file).parts
                names = ["/".join(("...", *parts[-kept:])) for kept in range(len(parts) - 1, 0, -1)]
                fits = (found for name in names if len(found := f"{lead}{name}:{at.line}{function}") <= width)
                whole = next(fits, f"{lead}{at}{function}")
            out.append(whole if width is None or len(whole) <= width else f"{whole[: width - 3]}...")
            if text:
                out.append(f"  {text}")
        return out

    def as_dict(self) -> dict[str, Any]:
        """The location as JSON data. inlined_at: the calls, innermost first."""
        calls = [{"file": at.file, "line": at.line, "column": at.column, "function": at.function} for at in self.chain]
        return {**calls[0], "text": self.quote(), "inlined_at": calls[1:]}


def in_one_function(here: Location, there: Location) -> tuple[Location, Location]:
    """The lines of two places in the innermost function that holds both: those of the calls where inlined functions differ."""
    pairs = ((a, b) for a in here.chain for b in there.chain)
    return next(((a, b) for a, b in pairs if a.function == b.function and a.inlined_at == b.inlined_at), (here, there))


def _readable(path: Path, beside: Path) -> bool:
    """Whether a line of this file may be quoted.

    Only files of programs are, and, unless asked for, only files in or below the working directory or the folder of the PTX, in
    no hidden folder.
    """
    wanted = os.environ.get("MMULATOR_QUOTE_SOURCE", "")
    if path.suffix.lower() not in _SUFFIXES or wanted == "0":
        return False
    if wanted == "1" or str(path) in PROGRAM:
        return True
    for folder in (Path.cwd(), beside.resolve()):
        if folder != Path(folder.anchor) and path.is_relative_to(folder):
            return not any(part.startswith(".") for part in path.relative_to(folder).parts)
    return False


def _rows_of(path: Path, stamp: tuple[int, int] | None, beside: Path) -> list[str] | None:
    """Lines of a file that may be quoted; None for another file."""
    try:
        path = path.resolve()  # the place of the file counts, not the links that lead to it
        if not _readable(path, beside):
            return None
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except (OSError, ValueError, RuntimeError):
        return None
    try:
        state = os.fstat(handle)
        if not stat.S_ISREG(state.st_mode) or state.st_size > _MAX_BYTES:
            return None
        if stamp is not None and stamp != (int(state.st_mtime), state.st_size):
            return None
        with os.fdopen(os.dup(handle), "rb") as file:
            return file.read(_MAX_BYTES).decode("utf-8", "replace").split("\n")
    except OSError:
        return None
    finally:
        os.close(handle)


class LineTable:
    """The marks of one text, in order. Names are looked up on demand."""

    def __init__(self) -> None:
        self.restart(str)

    def restart(self, spell: Callable[[str], str]) -> None:
        """Forget everything, because the text is read anew. spell: function that writes names of functions for people."""
        self._spell = spell
        self.marks: list[Mark] = []
        self._own: list[Mark] = []  # without those inside inline assembly
        self._seen = 0  # marks that `_own` was made of
        self._pieces: list[tuple[int, int]] | None = None  # begin and end of each piece of inline assembly
        self._known: dict[int, Location | None] = {}
        self._asm: dict[int, dict[int, int]] = {}  # lines of inline assembly by their offset, for each piece by its own offset
        self._files: dict[int, tuple[str, tuple[int, int] | None]] | None = None

    def at(self, offset: int, text: str, name: str) -> Location | None:
        """The line of the program that the text was compiled from at a character offset. name: what the text is called."""
        if self._seen != len(self.marks):
            self._own = [mark for mark in self.marks if self.assembly(mark.offset, text) < 0]
            self._seen, self._known = len(self.marks), {}
        found = self._at(bisect_right(self._own, offset, key=lambda mark: mark.offset) - 1, text, name)
        begin = self.assembly(offset, text)
        return found if begin < 0 else self._of_asm(begin, offset, found, text)

    def assembly(self, offset: int, text: str) -> int:
        """The offset at which the inline assembly around an offset begins; -1 for none."""
        if self._pieces is None:
            ends = [0, *(found.start() for found in re.finditer(ASM[1], text)), len(text)]
            begins = (found.start() for found in re.finditer(ASM[0], text))
            self._pieces = [(begin, ends[bisect_right(ends, begin)]) for begin in begins]
        index = bisect_right(self._pieces, (offset, len(text))) - 1
        begin, end = self._pieces[index] if index >= 0 else (-1, -1)
        return begin if begin <= offset < end else -1

    def _of_asm(self, begin: int, offset: int, statement: Location | None, text: str) -> Location | None:
        """The line of an instruction of inline assembly: that in the program's assembly text, if the file is there and shows it;
        else that of the asm statement or of the call around it.
        """
        if statement is None:
            return None
        if begin not in self._asm:
            self._asm[begin] = _lines_of_asm(text[begin : text.find(ASM[1], begin)], begin, statement)
        return replace(statement, line=self._asm[begin].get(text.rfind("\n", 0, offset) + 1, statement.line))

    def _at(self, index: int, text: str, name: str) -> Location | None:
        """The line of the program that a `.loc` mark names; None if it names no file."""
        if not 0 <= index < len(self._own) or not self._own[index].file:
            return None
        if index not in self._known:
            if self._files is None:
                self._files = {
                    int(n): (printable(path.replace("\t", " ")), (int(t), int(size)) if t and int(t) else None)
                    for n, path, t, size in re.findall(_FILE, text)
                }
            self._known[index] = self._location(index, text, name, self._files)
        return self._known[index]

    def _location(
        self, index: int, text: str, name: str, files: dict[int, tuple[str, tuple[int, int] | None]]
    ) -> Location | None:
        chain: list[tuple[int, int, int, str]] = []
        place: tuple[int, int, int] | None = self._own[index][1:4]
        while place is not None and len(chain) < _MAX_CALLS:
            mark = self._own[index] if index >= 0 else Mark(0)
            chain.append((*place, self._spell(_string(text, mark.function, mark.skip))))
            place = mark.call
            while place is not None and index >= 0:  # the last mark of the line that calls
                index -= 1
                if index >= 0 and self._own[index][1:4] == place:
                    break
        found: Location | None = None
        for number, line, column, function in reversed(chain):
            if line > 0 and number in files:
                path, stamp = files[number]
                found = Location(path, line, column, function, found, name, stamp)
        return found


def _lines_of_asm(asm: str, begin: int, statement: Location) -> dict[int, int]:
    """Lines of the program for the lines of inline assembly from offset `begin` on, by their offsets.

    A line is known if as many lines of the program around the statement have the instruction's name as the assembly has: both
    are in
    the same order.
    """
    names = [(m.start() + begin, m[1]) for m in re.finditer(_INSTRUCTION, asm)]
    rows = statement.rows
    if rows is None:
        return {}
    before, after = _STATEMENT
    first = max(1, statement.line - before)
    near = [(number, row) for number, row in enumerate(rows[first - 1 : statement.line + after], first)]
    found: dict[int, int] = {}
    for name in {name for _, name in names}:
        whole = re.compile(rf"(?<![\w.]){re.escape(name)}(?![\w.:])")
        places = [place for place, other in names if other == name]
        lines = [number for number, row in near for _ in whole.findall(row)]
        if len(lines) == len(places):
            found.update(zip(places, lines))
    return found


@lru_cache(maxsize=2)
def _strings(text: str) -> str:
    """The statements of .debug_str, which may be most of a text."""
    section = re.search(_STRINGS, text)
    return section[1] if section else ""


def _string(text: str, label: str, skip: int) -> str:
    """The characters at a label of .debug_str, up to the 0."""
    strings = _strings(text) if label else ""
    begin = re.search(rf"(?<![\w$%]){re.escape(label)}:", strings) if strings else None
    found = bytearray()
    for match in re.compile(_BYTES).finditer(strings, begin.end()) if begin else ():
        word = match[0]
        if word[-1] != ":" and word[0] != ".":
            byte = int(word, 16 if word[1:2] in ("x", "X") else 10) & 255
            if len(found) >= skip + 512 or (byte == 0 and len(found) >= skip):
                break
            found.append(byte)
    return printable(found[skip:].decode("utf-8", "replace"))
