"""Variables of a program in C++ that nvcc compiled with -G: where its debugging information in the PTX says that each is.

Debugging Directives: .section (PTX ISA 9.1); DWARF 2, with nvcc's registers: the letters of a name as one number.
"""

import re
from functools import lru_cache
from typing import Any, NamedTuple

from mmulator.ptx.program.parameters import kinds, names
from mmulator.ptx.tree import Function

_NAME, _LOCATION, _SIZE, _LOW, _HIGH, _ENCODING, _TYPE, _LINKAGE = 0x03, 0x02, 0x0B, 0x11, 0x12, 0x3E, 0x49, 0x2007
_ARRAY, _BLOCK, _POINTER, _BASE, _FUNCTION, _VARIABLES = 0x01, 0x0B, 0x0F, 0x24, 0x2E, (0x05, 0x34)
_SIZES = {0x01: 8, 0x05: 2, 0x06: 4, 0x07: 8, 0x0B: 1, 0x0C: 1, 0x13: 4}  # of forms
_STRING, _OPERATIONS, _LEB = 0x08, 0x0A, (0x0D, 0x0F)
_PLUS = 0x23  # an operation of places
_KINDS = {2: "u", 4: "f", 5: "s", 6: "s", 7: "u", 8: "u"}


class PlacedVariable(NamedTuple):
    """Where a variable is: in a register, or `offset` bytes after a symbol. type: PTX type, or "" for what is no number."""

    register: str
    symbol: str
    offset: int
    type: str


class _Section:
    """The bytes of a section, read from `at` on. links: symbols in place of numbers, by their offsets."""

    def __init__(self, text: str, name: str) -> None:
        self.data, self.links, self.at = bytearray(), dict[int, str](), 0
        found = re.search(rf'\.section\s+"?\.{name}"?\s*\{{([^}}]*)\}}', text)
        for size, words in re.findall(r"\.b(8|16|32|64)\s+([^\n]+)", found[1] if found else ""):
            for word in map(str.strip, words.split(",")):
                if not word.isdigit():
                    self.links[len(self.data)] = word
                self.data += (int(word) if word.isdigit() else 0).to_bytes(int(size) // 8, "little")

    def number(self, size: int) -> Any:
        """A number, or the symbol in its place."""
        at, self.at = self.at, self.at + size
        return self.links.get(at, int.from_bytes(self.data[at : at + size], "little"))

    def leb(self) -> int:
        byte = self.number(1)
        return byte if byte < 128 else byte & 127 | self.leb() << 7

    def value(self, form: int) -> Any:
        """The value of an attribute; of operations the offset of the first, in a tuple."""
        if form == _STRING:
            return bytes(iter(lambda: self.number(1), 0)).decode("utf-8", "replace")
        if form == _OPERATIONS:
            size = self.leb()
            self.at += size
            return (self.at - size,)
        return self.leb() if form in _LEB else self.number(_SIZES[form])


@lru_cache(maxsize=4)
def _entries(text: str) -> tuple[_Section, dict[int, tuple[int, dict[int, Any], int]]]:
    """The section, and its entries by their offsets: (tag, attributes, offset of the entry around it)."""
    a, info = _Section(text, "debug_abbrev"), _Section(text, "debug_info")
    forms: dict[int, tuple[int, int, list[tuple[int, int]]]] = {}
    while a.at < len(a.data) and (code := a.leb()):
        forms[code] = a.leb(), a.number(1), list(iter(lambda: (a.leb(), a.leb()), (0, 0)))
    found: dict[int, tuple[int, dict[int, Any], int]] = {}
    info.at, around = 11, [0]
    while info.at < len(info.data) and around:
        start, code = info.at, info.leb()
        if code:
            tag, inner, pairs = forms[code]
            found[start] = tag, {name: info.value(form) for name, form in pairs}, around[-1]
            around += [start] * inner
        else:
            around.pop()
    return info, found


def visible(function: Function, at: int) -> dict[str, PlacedVariable]:
    """The variables that -G tells of at a character of a function's PTX, and a kernel's parameters, by their names."""
    text, found = function.span.source.text, {}
    try:
        info, entries = _entries(text)
        for offset, (tag, said, _) in entries.items():
            if tag in _VARIABLES and {_NAME, _LOCATION} <= {*said} and _seen(text, entries, offset, function.name, at):
                where = _place(text, info, said[_LOCATION], at)
                if where is not None:
                    found[said[_NAME]] = PlacedVariable(*where, _type(entries, said))
    except (LookupError, ValueError, TypeError, RecursionError):  # another compiler's
        found = {}
    types = kinds(function.name) if function.is_entry else []
    for n, name in enumerate(names(function) if function.is_entry else ()):
        p, (kind, points) = function.params[n], types[n] if types else ("", True)
        found.setdefault(name, PlacedVariable("", p.name, 0, "" if p.shape else p.type if points or not kind else kind))
    return found


def _seen(text: str, entries: Any, offset: int, function: str, at: int) -> bool:
    """Whether an entry is of a function, in blocks that have a character."""
    while offset:
        tag, said, offset = entries[offset]
        if tag == _FUNCTION:
            return function in (said.get(_LINKAGE), said.get(_NAME))
        if tag == _BLOCK and not _within(text, said.get(_LOW), said.get(_HIGH), at):
            return False
    return False


def _within(text: str, low: str, high: str, at: int) -> bool:
    return text.find(f"\n{low}:") <= at < text.find(f"\n{high}:")


def _place(text: str, section: _Section, given: Any, at: int) -> tuple[str, str, int] | None:
    """(register, symbol, offset) of a place, which may be another in each part of the text."""
    if isinstance(given, tuple):
        section.at = given[0]
    else:
        section = _Section(text, "debug_loc")
        section.at = int(str(given).partition("+")[2] or 0)
        while (low := section.number(8)) and not _within(text, low, section.number(8), at):
            size = section.number(2)
            section.at += size
        if not low or not section.number(2):
            return None
    match section.number(1):
        case 0x90:  # a register
            return section.leb().to_bytes(8, "big").lstrip(b"\0").decode(), "", 0
        case 0x03:  # an address
            return "", section.number(8), section.leb() if section.number(1) == _PLUS else 0
    return None


def _type(entries: Any, said: dict[int, Any]) -> str:
    while _TYPE in said:
        tag, said, _ = entries[said[_TYPE]]
        if tag in (_POINTER, _ARRAY):
            return "b64" if tag == _POINTER else ""
        if tag == _BASE:
            return f"{_KINDS[said[_ENCODING]]}{8 * said[_SIZE]}"
    return ""
