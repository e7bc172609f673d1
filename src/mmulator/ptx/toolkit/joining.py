"""Linking: several PTX texts as one module, as CUDA's linker puts objects together.

A declaration in one text and the definition in another become one; of several weak definitions the first stays; local names get
a suffix where another text has them too; numbers of files are made distinct, so that each `.loc` finds its own.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mmulator.base.errors import LaunchError

_TOKENS = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\])*"|[{};]|\n', re.DOTALL)
_HEAD = re.compile(r"\s*\.(version|target|address_size)\s+([^\n]*)")
_VERSION = re.compile(r"(\d{1,4})\.(\d{1,4})")
_NUMBER = re.compile(r"\d{1,4}")
_NAME = re.compile(r"[A-Za-z_$%][\w$]*")
_FILE = re.compile(r"\s*\.file\s+(\d+)")
_LOC = re.compile(r"(\.loc\s+)(\d+)|(inlined_at\s+)(\d+)")
_LONE = re.compile(r"\s*\.(version|target|address_size|file|pragma)\b")  # directives that end with their line
_LINKAGE = ("visible", "extern", "weak", "common")


@dataclass
class ModuleItem:
    """A statement at the top of a module.

    name: of what it defines or declares, "" for none.
    linkage: `.visible` and the like, "" for a local name.
    defines: it is a definition and no declaration.
    function: a function and no variable.
    """

    text: str
    name: str = ""
    linkage: str = ""
    defines: bool = True
    function: bool = False


@dataclass
class ModuleText:
    version: tuple[int, int]
    target: str
    items: list[ModuleItem]


def statements(ptx: str) -> Iterator[str]:
    """The statements of a text: each ends in `;` or with a block, or, for directives that have neither, with its line."""
    depth, start = 0, 0
    for token in _TOKENS.finditer(ptx):
        what = token[0]
        if what == "{":
            depth += 1
        elif what == "}":
            depth -= 1
        if depth:
            continue
        piece = ptx[start : token.end()]
        lone = what == "\n" and _LONE.match(_bare(piece))
        body = what == "}" and not _is_initialiser(piece)
        if what == ";" or body or lone:
            yield piece
            start = token.end()
    if ptx[start:].strip("\0 \t\n") and _bare(ptx[start:]).strip():
        yield ptx[start:]


def _bare(text: str) -> str:
    """A text without comments."""
    return re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)


def _is_initialiser(piece: str) -> bool:
    return "=" in _bare(piece).partition("{")[0]


def read(ptx: str) -> ModuleText:
    version, target, items = (0, 0), "", []
    for piece in statements(ptx):
        bare = _bare(piece)
        head = _HEAD.match(bare)
        if head:
            if head[1] == "version":
                numbers = _VERSION.match(head[2])
                version = (int(numbers[1]), int(numbers[2])) if numbers else version  # parsing says what is wrong
            elif head[1] == "target":
                target = head[2].strip()
            continue
        items.append(_item(piece, bare.strip()))
    return ModuleText(version, target, items)


def _item(piece: str, bare: str) -> ModuleItem:
    linkage = next((w for w in _LINKAGE if re.match(rf"\.{w}\b", bare)), "")
    if not re.match(r"\.(visible|extern|weak|common|func|entry|global|const|shared|alias)\b", bare):
        return ModuleItem(piece)
    signature = bare.partition("{")[0] if "=" not in bare.partition("{")[0] else bare.partition("=")[0]
    if re.search(r"\.(func|entry)\b", signature):
        after = re.split(r"\.(?:func|entry)\b", signature, maxsplit=1)[1]
        after = re.sub(r"^\s*\([^)]*\)", "", after)  # the return parameter
        name = _NAME.search(after)
        return ModuleItem(piece, name[0] if name else "", linkage, bare.endswith("}"), True)
    words = re.sub(r"\.\w+(?:\s+\d+)?", " ", signature)
    name = _NAME.search(words)
    return ModuleItem(piece, name[0] if name else "", linkage, linkage != "extern")


def join(texts: Sequence[str]) -> str:
    """One module of several texts. Raises LaunchError where two texts define one global name."""
    if len(texts) == 1:
        return texts[0]
    parts = [read(t) for t in texts]
    defined = _definitions(parts)
    out: list[tuple[int, str]] = []
    taken, declared, files = set(defined), set[str](), 0
    for n, part in enumerate(parts):
        own = {i.name for i in part.items if i.name and not i.linkage}
        renames = {name: f"{name}${n}" for name in own & taken}
        taken |= own
        highest = 0
        for item in part.items:
            text = _renumbered(item.text, files)
            if found := _FILE.match(_bare(item.text)):
                highest = max(highest, int(found[1]))
            if item.name and item.linkage:
                where = defined.get(item.name)
                if item.defines:
                    if where != (n, item.linkage):
                        continue
                elif item.name in declared or (where is not None and not item.function):
                    continue  # a variable that another text defines stands before all functions
                else:
                    declared.add(item.name)
                    if where is not None:
                        text = re.sub(r"\.extern\b", f".{where[1]}", text, count=1)
            out.append((_place(item), _renamed(text, renames)))
        files += highest
    out.sort(key=lambda piece: piece[0])
    return _header(parts) + "".join(text for _, text in out)


def _place(item: ModuleItem) -> int:
    """Rank of an item in the module: files, declarations of functions, variables, functions, then the rest."""
    if not item.name:
        return 0 if _FILE.match(_bare(item.text)) else 4
    return 2 if not item.function else 3 if item.defines else 1


def _definitions(parts: Sequence[ModuleText]) -> dict[str, tuple[int, str]]:
    """(number of the text, linkage) of each global name's definition."""
    defined: dict[str, tuple[int, str]] = {}
    for n, part in enumerate(parts):
        for item in part.items:
            if not item.name or not item.defines or not item.linkage:
                continue
            before = defined.get(item.name)
            if before is None or (before[1] in ("weak", "common") and item.linkage == "visible"):
                defined[item.name] = (n, item.linkage)
            elif item.linkage == "visible" and before[1] == "visible" and before[0] != n:
                raise LaunchError(f"two of the linked modules define {item.name}", hint="define it once, or as .weak")
    return defined


def _header(parts: Sequence[ModuleText]) -> str:
    version = max(p.version for p in parts)
    target = max((p.target for p in parts), key=_rank)
    return f".version {version[0]}.{version[1]}\n.target {target}\n.address_size 64\n"


def _rank(target: str) -> tuple[bool, int]:
    number = _NUMBER.search(target)
    return target.split(",")[0].endswith(("a", "f")), int(number[0]) if number else 0


def _renumbered(text: str, by: int) -> str:
    if not by:
        return text
    text = re.sub(r"^(\s*(?:(?://[^\n]*)?\s*)*\.file\s+)(\d+)", lambda m: f"{m[1]}{int(m[2]) + by}", text, count=1)
    return _LOC.sub(lambda m: f"{m[1] or m[3]}{int(m[2]) + by}" if m[1] else m[0], text)


def _renamed(text: str, renames: dict[str, str]) -> str:
    if not renames:
        return text
    return re.sub(r"(?<![\w$%.])[A-Za-z_$][\w$]*", lambda m: renames.get(m[0], m[0]), text)
