"""Parameters of a kernel of C++ as its source calls them, and the types of the elements that its pointers lead to.

PTX has neither. Types stand in the mangled name. Names stand where the source declares the kernel: in the definition with the
lines that `.loc` names. A definition gives names only if it has as many parameters as the kernel, and each fits in size and type.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from mmulator.demangle import demangle
from mmulator.ptx.tree import Function

_SIZES = {"bool": 1, "char": 1, "short": 2, "int": 4, "long": 8, "float": 4, "double": 8}
_QUALIFIERS = r"\b(?:const|volatile|struct|class|typename|__restrict__|__restrict|__grid_constant__|__nv_\w+__)\b"
_OPAQUE = r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"' + r"|'(?:\\.|[^'\\\n])'"
# NumPy's names of the types that C++ names of element types are
_ELEMENTS = {
    "float": "float32", "double": "float64", "int": "int32", "unsigned int": "uint32", "short": "int16",
    "unsigned short": "uint16",
    "char": "int8", "signed char": "int8", "unsigned char": "uint8", "long": "int64", "unsigned long": "uint64",
    "long long": "int64", "unsigned long long": "uint64", "__half": "float16", "__nv_bfloat16": "bfloat16",
    "__nv_fp8_e4m3": "float8_e4m3fn", "__nv_fp8_e5m2": "float8_e5m2",
}  # fmt: skip


def called(function: Any) -> list[str]:
    """What each parameter of a kernel is called: as in the source, else as in PTX, without the kernel's name before it."""
    return [*names(function)] or [p.name.removeprefix(f"{function.name}_") for p in function.params]


def names(function: Function) -> tuple[str, ...]:
    """The names of a kernel's parameters in its source; () where they are not known for certain."""
    at = next((i.span.location for i in function.instructions if i.span.location is not None), None)
    if at is None or not function.params:
        return ()
    *_, own = at.chain
    rows = own.rows
    return _declared(function.name, tuple(p.size for p in function.params), own.line, "\n".join(rows)) if rows else ()


def elements(name: str) -> list[str]:
    """NumPy's name of the type that each parameter of a kernel points to, by the kernel's name; "" where it is no known one."""
    return [_ELEMENTS.get(_plain(t[:-1]), "") if t.endswith("*") else "" for t in _types(name)]


def _types(name: str) -> list[str]:
    """The types of a function's parameters, by its mangled name."""
    readable = demangle(name)
    return _parted(readable[_opening(readable) + 1 : -1]) if readable != name and readable.endswith(")") else []


def _opening(text: str) -> int:
    """Where the bracket opens that the last character closes."""
    depth = 0
    for at in range(len(text) - 1, 0, -1):
        depth += (text[at] == ")") - (text[at] == "(")
        if not depth:
            return at
    return len(text)


def _parted(text: str) -> list[str]:
    """The parts between commas outside of brackets."""
    found, depth = [""], 0
    for c in text:
        depth += (c in "(<[{") - (c in ")>]}")
        if c == "," and not depth:
            found.append("")
        else:
            found[-1] += c
    return [part.strip() for part in found if part.strip()]


def _plain(type_name: str) -> str:
    """A type without qualifiers, with the words of C++ in the order of the demangler."""
    words = re.sub(_QUALIFIERS, " ", type_name).split()
    if {*words} <= {*_SIZES, "unsigned", "signed"} and len(words) > 1:
        kind = [w for w in words if w not in ("int", "unsigned", "signed")] or ["int"]
        sign = ["unsigned"] if "unsigned" in words else ["signed"] if words.count("signed") and kind == ["char"] else []
        words = sign + kind
    return "unsigned int" if words == ["unsigned"] else "int" if words == ["signed"] else " ".join(words)


@lru_cache(maxsize=64)
def _declared(name: str, sizes: tuple[int, ...], line: int, text: str) -> tuple[str, ...]:
    """The names in the definition of a kernel that has a line of the source's text in it."""
    text = re.sub(_OPAQUE, lambda m: re.sub(r"[^\n]", " ", m[0]), text, flags=re.S)
    readable = demangle(name)
    head = readable[: _opening(readable)] if readable.endswith(")") else readable
    while (less := re.sub(r"<[^<>]*>", "", head)) != head:
        head = less
    at = sum(len(row) + 1 for row in text.split("\n")[: line - 1])
    found: tuple[str, ...] = ()
    for match in re.finditer(rf"\b{re.escape(re.split(r'[ :]', head)[-1])}\s*\(", text):
        close = _closing(text, match.end() - 1)
        body = re.match(r"\s*\{", text[close + 1 :])
        begin = text.rfind("\n", 0, match.start()) + 1
        if body and begin <= at <= _closing(text, close + body.end()):
            found = _names_in(text[match.end() : close], sizes, _types(name))
    return found


def _closing(text: str, start: int) -> int:
    """Where the bracket closes that a character opens; before all text if it does not."""
    opens = text[start]
    closes, depth = {"(": ")", "{": "}"}[opens], 0
    for m in re.finditer(rf"[\{opens}\{closes}]", text[start:]):
        depth += 1 if m[0] == opens else -1
        if not depth:
            return start + m.start()
    return -1


def _names_in(declared: str, sizes: tuple[int, ...], types: list[str]) -> tuple[str, ...]:
    """The names in the text between the brackets of a declaration, if each parameter fits."""
    given = _parted(declared)
    if "#" in declared or "..." in declared or len(given) != len(sizes) or (types and len(types) != len(sizes)):
        return ()
    found = []
    for text, size, kind in zip(given, sizes, types or [""] * len(sizes)):
        text = re.sub(r"\[\[.*?\]\]|\b__\w+__\s*\([^()]*\)", " ", text.partition("=")[0])
        while (less := re.sub(r"<[^<>]*>", "", text)) != text:
            text = less
        match = re.fullmatch(r"(.*[\s*&])([A-Za-z_]\w*)\s*((?:\[[^\]]*\])*)", re.sub(_QUALIFIERS, " ", text).strip())
        if match is None or "(" in text or match[2] in (*_SIZES, "unsigned", "signed") or not match[1].strip():
            return ()
        of, points = _plain(match[1]), match[1].rstrip().endswith("*") or bool(match[3])
        builtin = not points and {*of.split()} <= {*_SIZES, "unsigned", "signed"}
        if points and (size != 8 or (kind and not kind.endswith("*"))):
            return ()
        if builtin and (size != _SIZES.get(of.split()[-1], size) or (kind and _plain(kind) != of)):
            return ()
        found.append(match[2])
    return tuple(found) if len({*found}) == len(found) else ()
