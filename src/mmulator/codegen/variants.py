"""Which native functions an instrument changes, known from one start to the next: to find out, their text is written."""

from __future__ import annotations

from functools import cache
from typing import Any

from mmulator.codegen import named
from mmulator.codegen.sources import is_ours


def says_all(function: Any) -> bool:
    """Whether a native function's name says all of it: it is the package's own, and so is what its instrument calls."""
    return _is_ours(function) and (function.instrument is None or _all_ours(function.instrument))


def _is_ours(function: Any) -> bool:
    return is_ours(function.function.__code__.co_filename)


@cache
def _all_ours(instrument: Any) -> bool:
    return all(_is_ours(f) for f in instrument.hooks.values())


def differs(made: Any) -> bool:
    """Whether a function under an instrument calls something of it, or calls something that does."""
    name = f"differs {made.name}"
    known = named.find(name) if says_all(made) else None
    if known is not None:
        return bool(known.code)
    _, calls = made.build()
    taken = {id(f) for f in made.instrument.hooks.values()}
    found = any(id(f) in taken or (f.instrument is not None and f is not made) for f in calls)
    if says_all(made):
        named.keep(name, b"yes" if found else b"")
    return found
