"""Parameters of a kernel of C++ as its source calls them, and the types of the elements that its pointers lead to.

PTX has neither. Types stand in the mangled name. Names stand where the source declares the kernel: in the definition with the
lines that `.loc` names. A definition gives names only if it has as many parameters as the kernel, and each fits in size and type.
"""

import re
from collections.abc import Sequence
from functools import lru_cache

from mmulator.base.demangle import base_name, demangle
from mmulator.ptx.tree import Function

_SIZES = {"bool": 1, "char": 1, "short": 2, "int": 4, "long": 8, "float": 4, "double": 8}
_BUILTIN = {*_SIZES, "unsigned", "signed"}
_QUALIFIERS = r"\b(?:const|volatile|struct|class|typename|__restrict|__\w+__)\b"
_OPAQUE = r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"' + r"|'(?:\\.|[^'\\\n])'"
_FIRST = 8  # instructions, of which one has a line if any has
_ELEMENTS = {
    "float": "f32", "double": "f64", "int": "s32", "unsigned int": "u32", "short": "s16", "unsigned short": "u16", "char": "s8",
    "signed char": "s8", "unsigned char": "u8", "long": "s64", "unsigned long": "u64", "long long": "s64",
    "unsigned long long": "u64", "__half": "f16", "__nv_bfloat16": "bf16", "__nv_fp8_e4m3": "e4m3", "__nv_fp8_e5m2": "e5m2",
}  # fmt: skip


def called(function: Function) -> Sequence[str]:
    """The name of each parameter of a kernel: as in the source, else as in PTX."""
    return names(function) or [p.name for p in function.params]


def names(function: Function) -> tuple[str, ...]:
    """The names of a kernel's parameters in its source; () where they are not known for certain."""
    at = next(filter(None, (i.span.location for i in function.instructions[:_FIRST])), None) if function.params else None
    if at is None:
        return ()
    *_, own = at.chain
    rows = own.rows
    return _declared(function.name, tuple(p.size for p in function.params), own.line, "\n".join(rows)) if rows else ()


def kinds(name: str) -> list[tuple[str, bool]]:
    """The PTX type of each parameter of a kernel, by the kernel's name; of a pointer, with True, of what it leads to; else ""."""
    return [(_ELEMENTS.get(_plain(t.removesuffix("*")), ""), t.endswith("*")) for t in _types(name)]


def _types(name: str) -> list[str]:
    """The types of a function's parameters, by its mangled name."""
    readable = demangle(name)
    while (less := re.sub(r"<[^<>]*>", "", readable)) != readable:
        readable = less
    return _parts(readable.rpartition(f"{_base(name)}(")[2].removesuffix(")")) if readable != name else []


def _base(name: str) -> str:
    return base_name(name).partition("<")[0].rpartition(":")[2]


def _parts(text: str) -> list[str]:
    """The parts between commas, without what is in brackets."""
    while (less := re.sub(r"<[^<>]*>|\([^()]*\)|\{[^{}]*\}|\[\[[^][]*\]\]", "", text)) != text:
        text = less
    return [part.strip() for part in text.split(",") if part.strip()]


def _plain(type_name: str) -> str:
    """A type without qualifiers, with the words of C++ in the order of the demangler."""
    words = re.sub(_QUALIFIERS, " ", type_name).split()
    if not words or not {*words} <= _BUILTIN:
        return " ".join(words)
    kind = " ".join(w for w in words if w not in ("int", "unsigned", "signed")) or "int"
    return ("unsigned " if "unsigned" in words else "signed " if kind == "char" and "signed" in words else "") + kind


@lru_cache(maxsize=64)
def _declared(name: str, sizes: tuple[int, ...], line: int, text: str) -> tuple[str, ...]:
    """The names in the definition of a kernel that has a line of the source's text in it."""
    text = re.sub(_OPAQUE, lambda m: re.sub(r"[^\n]", " ", m[0]), text, flags=re.S)
    at = sum(len(row) + 1 for row in text.split("\n")[: line - 1])
    found: tuple[str, ...] = ()
    for match in re.finditer(rf"\b{re.escape(_base(name))}\s*\(", text):
        close = _closing(text, match.end() - 1)
        body = re.match(r"\s*\{", text[close + 1 :])
        begin = text.rfind("\n", 0, match.start()) + 1
        if body and begin <= at <= _closing(text, close + body.end()):
            found = _names_in(text[match.end() : close], sizes, _types(name))
    return found


def _closing(text: str, start: int) -> int:
    """Where the bracket closes that a character opens; before all text if it does not."""
    depth = 0
    for m in re.finditer(r"[()]" if text[start] == "(" else r"[{}]", text[start:]):
        depth += 1 if m[0] == text[start] else -1
        if not depth:
            return start + m.start()
    return -1


def _names_in(declared: str, sizes: tuple[int, ...], types: list[str]) -> tuple[str, ...]:
    """The names in the text between the brackets of a declaration, if each parameter fits."""
    given = _parts(declared)
    if "#" in declared or "..." in declared or len(given) != len(sizes) or (types and len(types) != len(sizes)):
        return ()
    found = []
    for text, size, kind in zip(given, sizes, types or [""] * len(sizes)):
        text = re.sub(_QUALIFIERS, " ", text.partition("=")[0]).strip()
        match = re.fullmatch(r"(.*[\s*&])([A-Za-z_]\w*)\s*((?:\[[^\]]*\])*)", text)
        if match is None or match[2] in _BUILTIN or not match[1].strip():
            return ()
        of, points = _plain(match[1]), match[1].rstrip().endswith("*") or bool(match[3])
        builtin = not points and {*of.split()} <= _BUILTIN
        if points and (size != 8 or (kind and not kind.endswith("*"))):
            return ()
        if builtin and (size != _SIZES.get(of.split()[-1], size) or (kind and _plain(kind) != of)):
            return ()
        found.append(match[2])
    return tuple(found) if len({*found}) == len(found) else ()
