"""Better code's texts: native functions that have a straight path are inlined by it (lang.py: `Native.straight`)."""

from __future__ import annotations

from collections.abc import Iterable

from mmulator.codegen.lang import Native, parts
from mmulator.codegen.values import Builder


def straightened(text: str, natives: Iterable[Native]) -> str:
    """A module's text in which native functions that have a straight path are replaced by it."""
    defined: dict[str, Builder] = {}
    for function in natives:
        if function.straight is not None and f"@{function.name}(" in text:
            defined |= {b.name: b for b in parts(function.straight)[0]}
            text = text.replace(f"@{function.name}(", f"@{function.straight.name}(")
    if not defined:
        return text
    lines = [line for line in text.split("\n") if not (line.startswith("declare ") and _named(line) in defined)]
    declared = {line for b in defined.values() for name, line in b.declared.items() if name not in defined}
    return "\n".join([*sorted(declared.difference(lines)), *lines, *(b.text() for b in defined.values())])


def _named(declaration: str) -> str:
    return declaration[declaration.index("@") + 1 : declaration.index("(")]
