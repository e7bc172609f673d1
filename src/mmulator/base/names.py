"""Names of kernels, functions and variables for people: with what C++ calls them, shortened, and found by a part of them."""

import re
from collections.abc import Iterable

from mmulator.base.demangle import base_name, demangle
from mmulator.base.errors import LaunchError


def readable(name: str) -> str:
    """A name for messages: the C++ name with the mangled one behind it; a name that is not mangled stands alone."""
    full = demangle(name)
    return f"{full} ({name})" if full != name else name


_BRACKET = re.compile(r"operator(?:\(\)|->\*?|[<>=]+)|->|\(anonymous namespace\)|(?P<open>[<(])|(?P<close>[>)])|.", re.DOTALL)


def shorter(name: str, room: int) -> str:
    """A C++ name of at most `room` characters if possible: `...` for template arguments and parameters, the deepest first."""
    for kept in (4, 3, 2, 1, 0):
        out, depth = "", 0
        for part in _BRACKET.finditer(name if len(name) > room else ""):
            depth -= part["close"] is not None
            out += part[0] if depth <= kept else ""
            depth += part["open"] is not None
            out += "..." if part["open"] and depth == kept + 1 else ""
        name = out or name
    return name


def choose(names: Iterable[str], wanted: str, missing: str) -> str:
    """The one of `names` that is meant: by itself, by its C++ name with or without what stands in `<>` and `()`, or by a part
    of either
    that no other name has.

    missing: how the error begins, `k.ptx has no kernel`. Raises LaunchError where none fits, or several do.
    """
    known = list(names)
    if wanted in known:
        return wanted
    squeezed = wanted.replace(" ", "")
    for said in (demangle, base_name, lambda n: base_name(n).rpartition("::")[2]):
        found = [n for n in known if said(n).replace(" ", "") == squeezed]
        if found:
            break
    else:
        found = [n for n in known if squeezed and (wanted in n or squeezed in demangle(n).replace(" ", ""))]
    if len(found) == 1:
        return found[0]
    if found:
        raise LaunchError(
            f"{wanted!r} is a part of {len(found)} names",
            hint="say more of one: " + "; ".join(readable(n) for n in found[:8]) + "; ..." * (len(found) > 8),
        )
    listed = ", ".join(readable(n) for n in known[:8]) + ", ..." * (len(known) > 8)
    raise LaunchError(f"{missing} {wanted!r}; it has {listed or 'none'}")
