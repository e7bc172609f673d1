"""A record, across processes, of the native functions that an instrument changes, because to find out their text must be
written.
"""

from functools import cache
from typing import Any

from mmulator.codegen import named
from mmulator.codegen.sources import is_ours


def says_all(function: Any) -> bool:
    """Whether a native function's name determines its code: the function and its instrument's functions are the
    package's own.
    """
    return _is_ours(function) and (function.instrument is None or _all_ours(function.instrument))


def _is_ours(function: Any) -> bool:
    return is_ours(function.function.__code__.co_filename)


@cache
def _all_ours(instrument: Any) -> bool:
    return all(_is_ours(f) for f in instrument.hooks.values())


def differs(made: Any) -> bool:
    """Whether a function under an instrument calls a function of the instrument, directly or indirectly."""
    name = f"differs {made.name}"
    known = named.find(name, [named.BEST]) if says_all(made) else None
    if known is not None:
        return bool(known.code)
    _, calls = made.build()
    taken = {id(f) for f in made.instrument.hooks.values()}
    found = any(id(f) in taken or (f.instrument is not None and f is not made) for f in calls)
    if says_all(made):
        named.keep(name, b"yes" if found else b"")
    return found
